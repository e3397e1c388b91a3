"""A session: who acts, in which run, and which step comes next."""

from __future__ import annotations

import contextvars
import functools
import inspect
import itertools
import logging
import os
import threading
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeVar

from ._flow import Blocking, Flow, Pause, drive_async, drive_sync
from ._fork import watch
from ._replay import Stored, StoredResults, read_stored
from ._text import error_text
from .client import UndoLogClient, default_client
from .errors import (
    NotFoundError,
    RollbackIncompleteError,
    SessionOverError,
    UnavailableError,
    UndoLogError,
)

__all__ = ["RollbackResult", "Savepoint", "UndoLogSession", "current_session"]

logger = logging.getLogger("undolog_sdk")

LEASE_SECONDS = 300
FLUSH_SECONDS = 30.0
SETTLE_SECONDS = 120.0
LIVE = ("active", "awaiting_approval")

F = TypeVar("F", bound=Callable[..., Any])

_current: ContextVar[UndoLogSession | None] = ContextVar("undolog_session", default=None)
_savepoint: ContextVar[Savepoint | None] = ContextVar("undolog_savepoint", default=None)


def current_session() -> UndoLogSession | None:
    """The session of the block or bound function that this code runs in."""
    return _current.get()


@dataclass(frozen=True)
class RollbackResult:
    """A rollback that was begun, or what one would do."""

    rollback_id: str | None
    """`None` for a dry run."""
    state: str
    """The session's state."""
    next_step_index: int
    plan: list[dict[str, Any]]
    """What is called, in order, and with which arguments."""
    residue: list[dict[str, Any]]
    """Irreversible calls that stay."""
    voided_approvals: list[str]
    truncated: bool


@dataclass
class OpenCall:
    """A logical call: it keeps its step and its token until it has an outcome."""

    step_index: int
    grant_token: str
    awaits: bool = False
    is_placed: bool = False


@dataclass(eq=False)
class UndoLogSession:
    """One run of an agent.

    As a context manager, `async with` or `with`, it is begun on entry, completed after a clean
    exit, and failed and rolled back when an exception leaves the block. A call that waits for an
    approval, and any error that is `retryable`, leaves the session as it is.

    Without a block it only numbers steps: the service then knows the session by its first call.
    """

    org_id: str = ""
    session_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    _step_index: int = field(default=0, repr=False)
    _: KW_ONLY
    client: UndoLogClient | None = field(default=None, repr=False)
    resume: bool = field(default=False, repr=False)
    """Go on with a session that another process began: earlier calls give their stored results."""
    on_exception: Literal["rollback", "leave"] = field(default="rollback", repr=False)
    on_tool_failure: Literal["rollback", "continue"] | None = field(default=None, repr=False)
    """What a failed tool does to the session. `None`: it fails and is rolled back, except inside
    a savepoint's block, which then rolls back to itself."""
    on_rejection: Literal["halt", "rollback"] | None = field(default=None, repr=False)
    on_unknown: Literal["rollback", "hold"] | None = field(default=None, repr=False)
    agent_name: str = field(default="", repr=False)
    external_run_id: str = field(default="", repr=False)
    project: str = field(default="", repr=False)
    metadata: dict[str, Any] | None = field(default=None, repr=False)
    lease_seconds: int = field(default=LEASE_SECONDS, repr=False)
    agent_context: Any = field(default=None, repr=False)
    """Shown to approvers beside a call, at most 64 KiB of JSON."""

    def __post_init__(self) -> None:
        if not self.org_id and not self.resume:
            raise TypeError("UndoLogSession needs an org_id")
        if self.on_exception not in ("rollback", "leave"):
            raise ValueError("on_exception is 'rollback' or 'leave'")
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str, str | None], list[OpenCall]] = {}
        self._stored: StoredResults | None = None
        self._token_prefix = uuid.uuid4().hex
        self._tokens = itertools.count(1)
        self._begun = False
        self._over: str | None = None
        self._token: contextvars.Token[UndoLogSession | None] | None = None
        watch(self)

    def after_fork(self) -> None:
        """In a forked process nobody holds the parent's lock any more."""
        self._lock = threading.Lock()
        if self._stored is not None:
            self._stored.after_fork()

    # ------------------------------------------------------------------ the documented part

    async def __aenter__(self) -> UndoLogSession:
        await drive_async(self._enter(), self._client()._wire)
        self._token = _current.set(self)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: object | None,
    ) -> None:
        self._leave_context()
        await drive_async(self._exit(exc_val), self._client()._wire)

    def next_step(self) -> int:
        """Takes the next step: 1, then 2, 3, …"""
        with self._lock:
            self._step_index += 1
            return self._step_index

    # ------------------------------------------------------------------ without an event loop

    def __enter__(self) -> UndoLogSession:
        drive_sync(self._enter(), self._client()._wire)
        self._token = _current.set(self)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: object | None,
    ) -> None:
        self._leave_context()
        drive_sync(self._exit(exc_val), self._client()._wire)

    # ------------------------------------------------------------------ undoing

    def savepoint(self, name: str = "", *, allow_residue: bool = False) -> Savepoint:
        """A block, `async with` or `with`, that rolls back to its beginning on an exception."""
        return Savepoint(self, name, allow_residue)

    async def rollback(
        self,
        reason: str = "",
        *,
        dry_run: bool = False,
        to_step: int | None = None,
        to_savepoint: int | None = None,
        allow_residue: bool = False,
        wait: bool = False,
        timeout: float = SETTLE_SECONDS,
    ) -> RollbackResult:
        """Undoes what the session did, all of it or from a step or savepoint on.

        `dry_run=True` only shows what would be called. `wait=True` returns when it is done.
        """
        flow = self._rollback(reason, dry_run, to_step, to_savepoint, allow_residue, wait, timeout)
        return await drive_async(flow, self._client()._wire)

    def rollback_sync(
        self,
        reason: str = "",
        *,
        dry_run: bool = False,
        to_step: int | None = None,
        to_savepoint: int | None = None,
        allow_residue: bool = False,
        wait: bool = False,
        timeout: float = SETTLE_SECONDS,
    ) -> RollbackResult:
        """`rollback` for code without an event loop."""
        flow = self._rollback(reason, dry_run, to_step, to_savepoint, allow_residue, wait, timeout)
        return drive_sync(flow, self._client()._wire)

    async def wait_settled(self, timeout: float = SETTLE_SECONDS) -> str:
        """Waits until no rollback runs, and gives the session's state."""
        return await drive_async(self._settled(timeout), self._client()._wire)

    def wait_settled_sync(self, timeout: float = SETTLE_SECONDS) -> str:
        """`wait_settled` for code without an event loop."""
        return drive_sync(self._settled(timeout), self._client()._wire)

    # ------------------------------------------------------------------ threads

    def bind(self, fn: F) -> F:
        """The function with this session as its own, in whichever thread or task it runs.

        A `ContextVar` does not reach the threads of a pool by itself.
        """
        within = _savepoint.get()

        @functools.wraps(fn)
        def bound(*args: Any, **kwargs: Any) -> Any:
            session, savepoint = _current.set(self), _savepoint.set(within)
            try:
                return fn(*args, **kwargs)
            finally:
                _savepoint.reset(savepoint)
                _current.reset(session)

        @functools.wraps(fn)
        async def bound_async(*args: Any, **kwargs: Any) -> Any:
            session, savepoint = _current.set(self), _savepoint.set(within)
            try:
                return await fn(*args, **kwargs)
            finally:
                _savepoint.reset(savepoint)
                _current.reset(session)

        return bound_async if inspect.iscoroutinefunction(fn) else bound  # type: ignore[return-value]

    # ------------------------------------------------------------------ what tools use

    def _client(self) -> UndoLogClient:
        return self.client or default_client()

    def _take(self, tool: str, canonical: str, step_key: str | None) -> OpenCall:
        """The step and token of a call: an open call's own, if this is the same call again."""
        key = (tool, canonical, step_key)
        with self._lock:
            waiting = self._open.get(key)
            if waiting:
                call = waiting.pop(0)
                if not waiting:
                    del self._open[key]
                return call
        step = 0 if step_key is not None else self.next_step()
        # Random once, then counted: asking the system for each call costs more than all the rest.
        # A forked process has the same session and the same count, and must not look like this one.
        return OpenCall(step, f"{self._token_prefix}-{os.getpid()}-{next(self._tokens)}")

    def _keep(self, tool: str, canonical: str, step_key: str | None, call: OpenCall) -> None:
        """The call has no outcome yet, so the same call again goes on with it."""
        with self._lock:
            self._open.setdefault((tool, canonical, step_key), []).append(call)

    def _result_of(
        self, tool: str, canonical: str, step_key: str | None, call: OpenCall
    ) -> Stored | None:
        if self._stored is None or call.is_placed:
            return None
        found = self._stored.find(self.session_id, tool, canonical, step_key, call.step_index)
        call.is_placed = True
        if isinstance(found, int):
            call.step_index = found
            return None
        savepoint = _savepoint.get()
        while savepoint is not None:
            savepoint._covers(found.position)
            savepoint = savepoint._outer
        return found

    def _tool_failed(self, error: str) -> Flow[None]:
        """The documented policy: a failed tool fails the session. A savepoint rolls back first."""
        if not self._begun or self.on_tool_failure is not None:
            return
        savepoint = _savepoint.get()
        if savepoint is not None and savepoint.session is self:
            savepoint.has_failed = True
            return
        yield from self._fail(error)

    def _stop(self, state: str) -> None:
        self._over = state or "over"

    # ------------------------------------------------------------------ flows

    def _enter(self) -> Flow[None]:
        body: dict[str, Any] = {
            "session_id": self.session_id,
            "lease_seconds": self.lease_seconds,
            # The engine would undo the whole session where a savepoint wants to undo its own
            # block, so the policy of failed tools is carried out from here.
            "on_tool_failure": self.on_tool_failure or "continue",
        }
        for name in ("agent_name", "external_run_id", "project", "metadata", "on_rejection",
                     "on_unknown"):  # fmt: skip
            value = getattr(self, name)
            if value:
                body[name] = value
        client = self._client()
        yield from client._begin(self.org_id, self.session_id, body)
        if self.resume:
            self._step_index = 0
            self._stored = yield from self._load()
        self._begun = True
        client._pulse.open(self.org_id, self.session_id, self.lease_seconds, self._stop)

    def _load(self) -> Flow[StoredResults | None]:
        client = self._client()
        try:
            answer = yield from client._get(f"/sessions/{self.session_id}/replay", self.org_id)
        except NotFoundError:
            # Each call then asks for its own result.
            return None
        return read_stored(answer)

    def _exit(self, error: BaseException | None) -> Flow[None]:
        client = self._client()
        client._pulse.close(self.session_id)
        if error is None:
            yield from self._flush(required=True)
            yield from self._complete()
            return
        if _leaves_open(error):
            logger.info("session %s stays open: %s", self.session_id, error)
            return
        if self.on_exception == "leave":
            return
        try:
            yield from self._flush(required=False)
            yield from self._fail(_reason(error))
        except UndoLogError as fault:
            # The exception of the block is the one that matters.
            logger.error("session %s could not be rolled back yet: %s", self.session_id, fault)

    def _complete(self) -> Flow[None]:
        with self._lock:
            waits = any(call.awaits for calls in self._open.values() for call in calls)
        if waits:
            logger.info("session %s stays open: a call awaits its approval", self.session_id)
            return
        yield from self._client()._session(self.org_id, self.session_id, "complete", {})

    def _fail(self, reason: str) -> Flow[None]:
        client = self._client()
        body = {"reason": reason, "rollback": True}

        def ask() -> Flow[dict[str, Any]]:
            return client._session(self.org_id, self.session_id, "fail", body)

        try:
            yield from ask()
        except SessionOverError as over:
            logger.debug("session %s is over already: %s", self.session_id, over)
        except UnavailableError:
            client._reporter.put(self.session_id, f"session {self.session_id} failed", ask)
            raise

    def _flush(self, *, required: bool) -> Flow[None]:
        reporter = self._client()._reporter
        if reporter.is_idle(self.session_id):
            return
        done = yield Blocking(lambda: reporter.flush(self.session_id, FLUSH_SECONDS))
        if not done and required:
            fault = UnavailableError("reports of this session could not be delivered yet")
            fault._tell(code="UNREACHABLE", message=str(fault))
            raise fault

    def _rollback(
        self,
        reason: str,
        dry_run: bool,
        to_step: int | None,
        to_savepoint: int | None,
        allow_residue: bool,
        wait: bool,
        timeout: float,
    ) -> Flow[RollbackResult]:
        yield from self._flush(required=True)
        body: dict[str, Any] = {
            "reason": reason,
            "dry_run": dry_run,
            "allow_residue": allow_residue,
        }
        if to_step is not None:
            body["to_step"] = to_step
        if to_savepoint is not None:
            body["to_savepoint"] = to_savepoint
        client = self._client()
        answer = yield from client._session(self.org_id, self.session_id, "rollback", body)
        result = RollbackResult(
            answer.get("rollback_id"),
            answer.get("state", ""),
            answer.get("next_step_index") or 0,
            answer.get("plan") or [],
            answer.get("residue") or [],
            answer.get("voided_approvals") or [],
            bool(answer.get("truncated")),
        )
        if dry_run:
            return result
        with self._lock:
            # Undone steps are spent.
            self._step_index = max(self._step_index, result.next_step_index - 1)
            self._open.clear()
        if self._stored is not None:
            self._stored.undone(result.next_step_index, to_savepoint, to_step)
        if wait:
            yield from self._settled(timeout)
        return result

    def _settled(self, timeout: float) -> Flow[str]:
        client = self._client()
        path = f"/sessions/{self.session_id}"
        waited, pause = 0.0, 0.05
        while True:
            answer = yield from client._get(path, self.org_id)
            session = answer.get("session") or {}
            state = str(session.get("state", ""))
            live = [r for r in answer.get("rollbacks") or [] if not r.get("finished_at")]
            is_walking = state in ("compensating", "failed") and live
            if state != "compensating" and not is_walking:
                return state
            if waited >= timeout:
                raise RollbackIncompleteError(self.session_id, state)
            yield Pause(pause)
            waited += pause
            pause = min(pause * 1.5, 1.0)

    def _leave_context(self) -> None:
        token, self._token = self._token, None
        if token is None:
            return
        try:
            _current.reset(token)
        except ValueError:
            # Entered and left in different contexts, as some test fixtures do.
            _current.set(None)


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
        await drive_async(self._enter(), self.session._client()._wire)
        return self._entered()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: object
    ) -> None:
        self._left()
        await drive_async(self._exit(exc_val), self.session._client()._wire)

    def __enter__(self) -> Savepoint:
        drive_sync(self._enter(), self.session._client()._wire)
        return self._entered()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: object
    ) -> None:
        self._left()
        drive_sync(self._exit(exc_val), self.session._client()._wire)

    def _entered(self) -> Savepoint:
        self._outer = _savepoint.get()
        self._token = _savepoint.set(self)
        return self

    def _covers(self, position: int) -> None:
        """A call of the block was replayed, which stands below where this run's block began."""
        if self.position is not None and position:
            self.position = min(self.position, position)

    def _left(self) -> None:
        if self._token is not None:
            _savepoint.reset(self._token)
            self._token = None

    def _enter(self) -> Flow[None]:
        session = self.session
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
                yield from session._tool_failed("a tool failed inside a savepoint's block")
            return
        if _leaves_open(error):
            return
        yield from session._rollback(
            _reason(error), False, None, self.position, self.allow_residue, False, SETTLE_SECONDS
        )
        state = yield from session._settled(SETTLE_SECONDS)
        if state not in LIVE:
            raise RollbackIncompleteError(session.session_id, state) from error


def _leaves_open(error: BaseException) -> bool:
    """Whether the session goes on after this: nothing of it has failed."""
    return bool(getattr(error, "leaves_session_open", False)) or (
        isinstance(error, UndoLogError) and error.retryable
    )


def _reason(error: BaseException) -> str:
    return error_text(error)[:2000]
