"""A part of a session that is undone alone."""

from __future__ import annotations

import contextvars
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ._flow import Flow, drive_async, drive_sync
from ._outcome import leaves_open
from ._text import error_text
from .errors import RollbackIncompleteError

if TYPE_CHECKING:
    from .session import UndoLogSession

LIVE = ("active", "awaiting_approval")
REASON_CHARS_MAX = 2000
SETTLE_SECONDS = 120.0

current_savepoint: ContextVar[Savepoint | None] = ContextVar("undolog_savepoint", default=None)


class Savepoint:
    """A block that rolls back to its beginning when an exception leaves it."""

    def __init__(self, session: UndoLogSession, name: str, allow_residue: bool) -> None:
        self.session = session
        self.name = name
        self.allow_residue = allow_residue
        self.position: int | None = None
        self.has_failed = False
        self._token: contextvars.Token[Savepoint | None] | None = None
        self._outer: Savepoint | None = None

    async def __aenter__(self) -> Savepoint:
        await drive_async(self._enter(), self.session._wire())
        return self._entered()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: object
    ) -> None:
        self._left()
        await drive_async(self._exit(exc_val), self.session._wire())

    def __enter__(self) -> Savepoint:
        drive_sync(self._enter(), self.session._wire())
        return self._entered()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: object
    ) -> None:
        self._left()
        drive_sync(self._exit(exc_val), self.session._wire())

    def _entered(self) -> Savepoint:
        self._outer = current_savepoint.get()
        self._token = current_savepoint.set(self)
        return self

    def _covers(self, position: int) -> None:
        """A call of the block was replayed, which stands below where this run's block began."""
        if self.position is not None and position:
            self.position = min(self.position, position)

    def _left(self) -> None:
        if self._token is not None:
            current_savepoint.reset(self._token)
            self._token = None

    def _enter(self) -> Flow[None]:
        session = self.session
        yield from session._begin()
        yield from session._flush(required=True)
        answer = yield from session._client()._session(
            session.org_id, session.session_id, "savepoint", {"name": self.name}
        )
        self.position = int(answer["position"])

    def _exit(self, error: BaseException | None) -> Flow[None]:
        session = self.session
        if error is None:
            if self.has_failed:
                # The block went on after a failed tool: what held outside of it holds now.
                yield from session._failed_inside(self._outer)
            return
        if leaves_open(error):
            return
        yield from session._rollback(
            error_text(error)[:REASON_CHARS_MAX],
            False,
            None,
            self.position,
            self.allow_residue,
            False,
            SETTLE_SECONDS,
        )
        state = yield from session._settled(SETTLE_SECONDS)
        if state not in LIVE:
            raise RollbackIncompleteError(session.session_id, state) from error
