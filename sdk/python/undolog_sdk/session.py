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

from ._flow import Flow, Pause, drive_async, drive_sync
from ._fork import watch
from ._lifecycle import Lifecycle, OpenCall
from ._outcome import NOT_APPLIED, effect_of, is_steering
from ._replay import History, Stored, StoredResults, Wanted
from ._savepoint import SETTLE_SECONDS, Savepoint, current_savepoint
from ._text import error_text
from ._waiting import AwaitingApprovalError
from .client import UndoLogClient, default_client, own_flows
from .errors import (
    ResumeMismatchError,
    RollbackIncompleteError,
    SessionOverError,
)

__all__ = ["RollbackResult", "Savepoint", "UndoLogSession", "current_session"]

logger = logging.getLogger("undolog_sdk")

LEASE_SECONDS = 300
MISMATCH_PAUSES = (0.0, 0.01, 0.05)

_CHOICES: dict[str, tuple[str | None, ...]] = {
    "history": ("rerun", "kept"),
    "on_exception": ("rollback", "leave"),
    "on_tool_failure": (None, "rollback", "continue"),
    "on_rejection": (None, "halt", "rollback", "continue"),
    "on_unknown": (None, "rollback", "hold"),
}

F = TypeVar("F", bound=Callable[..., Any])

_current: ContextVar[UndoLogSession | None] = ContextVar("undolog_session", default=None)


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


@dataclass(eq=False)
class UndoLogSession(Lifecycle):
    """One run of an agent.

    As a context manager, `async with` or `with`, it is begun before its first call that is not
    safe, completed after a clean exit, and failed and rolled back when an exception leaves the
    block. So entering sends nothing, except to resume; leaving sends requests that can fail, and
    waits for reports that are on their way. A session of safe tools only needs no proxy.

    An exception that is no failure leaves the session as it is: a call that waits for an approval,
    a retryable error, what steers a framework's run (`not_a_failure`), or one raised from such.

    A tool that raises fails the session, which is rolled back, also when the exception is caught.
    An agent that hears of it and goes on needs `on_tool_failure="continue"`.

    Without a block it only numbers steps: the service then knows the session by its first call.
    """

    org_id: str
    """The organisation; empty: the API key's."""
    session_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    _step_index: int = field(default=0, repr=False)
    _: KW_ONLY
    client: UndoLogClient | None = field(default=None, repr=False)
    resume: bool = field(default=False, repr=False)
    """Go on with a session that another process began."""
    history: History = field(default="rerun", repr=False)
    """How the caller resumes. `rerun`: it starts over, and its earlier calls get their stored
    results.
    `kept`: it remembers them (a checkpointer, a saved conversation) and makes only new calls; give
    `step_key`. A call that fits neither raises `ResumeMismatchError` before it runs."""
    leave_waiting: bool = field(default=False, repr=False)
    """Let a clean exit leave calls that wait for an approval, instead of raising
    `AwaitingApprovalError`."""
    on_exception: Literal["rollback", "leave"] = field(default="rollback", repr=False)
    """What an exception that leaves the block does."""
    on_tool_failure: Literal["rollback", "continue"] | None = field(default=None, repr=False)
    """What a failed tool does to the session. `rollback`: it fails and is undone. `continue`: the
    failure is recorded and the agent goes on. `None`: the organisation's policy (`rollback` unless
    it was changed), except inside a savepoint's block, which then rolls back to itself."""
    on_rejection: Literal["halt", "rollback", "continue"] | None = field(default=None, repr=False)
    """What a rejected call does to the session: it stops (`halt`), is undone (`rollback`), or the
    agent hears `DeniedError` and goes on (`continue`). `None`: the organisation's policy
    (`halt`)."""
    on_unknown: Literal["rollback", "hold"] | None = field(default=None, repr=False)
    """What happens when nobody learns whether a call took effect: `rollback` once the session's
    lease has run out too, or `hold` for an operator."""
    agent_name: str = field(default="", repr=False)
    external_run_id: str = field(default="", repr=False)
    """The framework's own id of the run; lists can be filtered by it."""
    project: str = field(default="", repr=False)
    """A project's name or id: its approval policy holds."""
    metadata: dict[str, Any] | None = field(default=None, repr=False)
    """A JSON object of the caller's own, kept with the session."""
    lease_seconds: int = field(default=LEASE_SECONDS, repr=False)
    """How long the session may be silent before it counts as lost and is rolled back: 300 to
    604800. The block's heartbeats renew it, and an approval suspends it."""
    agent_context: Any = field(default=None, repr=False)
    """Shown to approvers beside a call, at most 64 KiB of JSON."""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                shown = " or ".join(repr(one) for one in allowed if one is not None)
                raise ValueError(f"{name} must be {shown}")
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str, str | None], list[OpenCall]] = {}
        self._waiters: dict[int, AwaitingApprovalError] = {}
        self._stored: StoredResults | None = None
        self._mismatch: ResumeMismatchError | None = None
        self._token_prefix = uuid.uuid4().hex
        self._tokens = itertools.count(1)
        self._chosen: UndoLogClient | None = None
        self._is_block = False
        self._is_inside = False
        self._begun = False
        self._is_beginning = False
        self._failed_by: str | None = None
        self._over: str | None = None
        self._token: contextvars.Token[UndoLogSession | None] | None = None
        watch(self)

    def after_fork(self) -> None:
        """In a forked process nobody holds the parent's lock any more."""
        self._lock = threading.Lock()
        self._is_beginning = False
        if self._stored is not None:
            self._stored.after_fork()

    # ------------------------------------------------------------------ the documented part

    async def __aenter__(self) -> UndoLogSession:
        await drive_async(self._enter(), self._wire())
        self._token = _current.set(self)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: object | None,
    ) -> None:
        self._leave_context()
        await drive_async(self._exit(exc_val), self._wire())

    def next_step(self) -> int:
        """Takes the next step: 1, then 2, 3, …"""
        with self._lock:
            self._step_index += 1
            return self._step_index

    # ------------------------------------------------------------------ without an event loop

    def __enter__(self) -> UndoLogSession:
        drive_sync(self._enter(), self._wire())
        self._token = _current.set(self)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: object | None,
    ) -> None:
        self._leave_context()
        drive_sync(self._exit(exc_val), self._wire())

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
        return await drive_async(flow, self._wire())

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
        return drive_sync(flow, self._wire())

    async def wait_settled(self, timeout: float = SETTLE_SECONDS) -> str:
        """Waits until no rollback runs, and gives the session's state."""
        return await drive_async(self._settled(timeout), self._wire())

    def wait_settled_sync(self, timeout: float = SETTLE_SECONDS) -> str:
        """`wait_settled` for code without an event loop."""
        return drive_sync(self._settled(timeout), self._wire())

    # ------------------------------------------------------------------ threads

    def bind(self, fn: F) -> F:
        """The function with this session as its own, in whichever thread or task it runs.

        A `ContextVar` does not reach the threads of a pool by itself.
        """
        within = current_savepoint.get()

        @functools.wraps(fn)
        def bound(*args: Any, **kwargs: Any) -> Any:
            session, savepoint = _current.set(self), current_savepoint.set(within)
            try:
                return fn(*args, **kwargs)
            finally:
                current_savepoint.reset(savepoint)
                _current.reset(session)

        @functools.wraps(fn)
        async def bound_async(*args: Any, **kwargs: Any) -> Any:
            session, savepoint = _current.set(self), current_savepoint.set(within)
            try:
                return await fn(*args, **kwargs)
            finally:
                current_savepoint.reset(savepoint)
                _current.reset(session)

        return bound_async if inspect.iscoroutinefunction(fn) else bound  # type: ignore[return-value]

    # ------------------------------------------------------------------ what tools use

    def _client(self) -> UndoLogClient:
        return self.client or self._chosen or default_client()

    def _client_for(self, given: UndoLogClient | None) -> UndoLogClient:
        """A tool's own client, which is then the session's as well if that has none."""
        if given is None:
            return self._client()
        if self.client is None and self._chosen is None and own_flows(given) is not None:
            self._chosen = given
        return given

    def _wire(self) -> Any:
        return getattr(self._client(), "_wire", None)

    def _take(self, tool: str, canonical: str, step_key: str | None) -> OpenCall:
        """The step and token of a call: an open call's own, if this is the same call again."""
        key = (tool, canonical, step_key)
        with self._lock:
            waiting = self._open.get(key)
            if waiting:
                call = waiting.pop(0)
                if not waiting:
                    del self._open[key]
                call.is_paused = False
                return call
        step = 0 if step_key is not None else self.next_step()
        return OpenCall(step, self._new_token())

    def _new_token(self) -> str:
        # Random once, then counted: asking the system for each call costs more than all the rest.
        # A forked process has the same session and the same count, and must not look like this one.
        return f"{self._token_prefix}-{os.getpid()}-{next(self._tokens)}"

    def _keep(self, tool: str, canonical: str, step_key: str | None, call: OpenCall) -> None:
        """The call has no outcome yet, so the same call again goes on with it."""
        with self._lock:
            self._open.setdefault((tool, canonical, step_key), []).append(call)

    def _result_of(
        self, tool: str, canonical: str, step_key: str | None, call: OpenCall
    ) -> Flow[Stored | None]:
        if self._stored is None or call.is_placed:
            return None
        wanted = Wanted(self.session_id, tool, canonical, step_key, call.step_index)
        try:
            found = yield from self._find(self._stored, wanted)
        except ResumeMismatchError as mismatch:
            # An agent's loop may turn it into a text for its model; the block's end says it again.
            self._mismatch = mismatch
            raise
        call.is_placed = True
        if isinstance(found, int):
            call.step_index = found
            return None
        savepoint = current_savepoint.get()
        while savepoint is not None:
            savepoint._covers(found.position)
            savepoint = savepoint._outer
        return found

    def _find(self, stored: StoredResults, wanted: Wanted) -> Flow[Stored | int]:
        for pause in MISMATCH_PAUSES:
            try:
                return stored.find(wanted)
            except ResumeMismatchError:
                # Calls that are made at the same time may be what this one stands in the way of.
                yield Pause(pause)
        try:
            return stored.find(wanted)
        except ResumeMismatchError:
            # What was undone is no part of the replay. The run makes it again, as it did then.
            effects = yield from self._client()._effects(self.org_id, self.session_id)
            step = stored.find_undone(wanted, effects)
            if step is None:
                raise
            return step

    def _passed(self, call: OpenCall) -> None:
        if self._stored is not None:
            self._stored.passed(call.step_index)

    def _waits(self, call: OpenCall, waiting: AwaitingApprovalError | None) -> None:
        """A call stays in its tool until it is decided, or does so no more."""
        with self._lock:
            if waiting is None:
                self._waiters.pop(id(call), None)
            else:
                self._waiters[id(call)] = waiting

    def _has_waiting(self) -> bool:
        return bool(self._waiters)

    def _paused(self, call: OpenCall, error: BaseException) -> bool:
        """Whether a framework pauses a tool and runs it again later: that is the same call."""
        if is_steering(error) and effect_of(error) == NOT_APPLIED:
            call.is_paused = True
            call.grant_token = self._new_token()
        return call.is_paused

    def _policy_of(self, error: BaseException, tool: str) -> str | None:
        """What a tool's exception does to the session: it goes with the report of the call.

        `None` leaves it to the policy that the session was begun with.
        """
        if is_steering(error) or not isinstance(error, Exception):
            # A cancelled call is unknown; what becomes of the run, its block's end decides.
            return "continue"
        savepoint = current_savepoint.get()
        if self.on_tool_failure is None and savepoint is not None and savepoint.session is self:
            # The block that the savepoint guards is undone alone.
            savepoint.has_failed = True
            return "continue"
        if self.on_tool_failure != "continue":
            self._failed_by = tool
            logger.warning(
                "%s failed, so session %s fails and what it did is undone (%s); an agent that goes "
                "on after a failed tool needs UndoLogSession(on_tool_failure='continue')",
                tool, self.session_id, error_text(error)[:200],
            )  # fmt: skip
        return None if self._begun else self.on_tool_failure

    def _explain(self, over: SessionOverError) -> None:
        """Says why the session is over, where this process knows it."""
        if self._failed_by is None:
            return
        over.message += (
            f" (its tool {self._failed_by} failed, and on_tool_failure is not 'continue')"
        )
        over.args = (f"{over.code}: {over.message}", *over.args[1:])

    def _stop(self, state: str) -> None:
        self._over = state or "over"

    # ------------------------------------------------------------------ flows

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
        yield from self._begin()
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
