"""How a session begins, what it has done before, and how it ends."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any

from ._flow import Blocking, Flow, Pause
from ._outcome import leaves_open
from ._replay import History, StoredResults, read_stored
from ._savepoint import REASON_CHARS_MAX, Savepoint
from ._text import error_text
from ._waiting import AwaitingApprovalError
from .client import UndoLogClient, _part, own_flows
from .errors import (
    DeniedError,
    NotFoundError,
    ResumeMismatchError,
    SessionOverError,
    UnavailableError,
    UndoLogError,
)

logger = logging.getLogger("undolog_sdk")

FLUSH_SECONDS = 30.0
BEGIN_POLL_SECONDS = 0.005
BEGIN_POLLS_MAX = 200


@dataclass
class OpenCall:
    """A logical call: it keeps its step and its token until it has an outcome."""

    step_index: int
    grant_token: str
    waiting: AwaitingApprovalError | None = None
    is_paused: bool = False
    is_placed: bool = False


class Lifecycle:
    """The flows of a session's block."""

    org_id: str
    session_id: str
    resume: bool
    history: History
    leave_waiting: bool
    on_exception: str
    lease_seconds: int
    _step_index: int
    _lock: threading.Lock
    _open: dict[tuple[str, str, str | None], list[OpenCall]]
    _waiters: dict[int, AwaitingApprovalError]
    _stored: StoredResults | None
    _mismatch: ResumeMismatchError | None
    _is_block: bool
    _is_inside: bool
    _begun: bool
    _is_beginning: bool

    def _client(self) -> UndoLogClient:
        raise NotImplementedError

    def _explain(self, over: SessionOverError) -> None:
        raise NotImplementedError

    def _stop(self, state: str) -> None:
        raise NotImplementedError

    def _enter(self) -> Flow[None]:
        self._is_block = self._is_inside = True
        if not self.resume:
            return
        yield from self._begin()
        self._step_index = 0
        self._stored = yield from self._load()

    def _begin(self) -> Flow[None]:
        """Begins the session of a block before its first request."""
        if self._is_inside:
            yield from self._begin_late()

    def _begin_late(self) -> Flow[None]:
        """Begins it also after the block, for a call that ran while the proxy was away."""
        client = own_flows(self._client())
        if client is None or not self._is_block:
            return
        polls = 0
        while not self._begun:
            with self._lock:
                is_mine = not self._is_beginning
                self._is_beginning = True
            if not is_mine and polls < BEGIN_POLLS_MAX:
                # A call at the same time begins it. If that one cannot go on, because this one
                # blocks its event loop, asking twice does no harm.
                polls += 1
                yield Pause(BEGIN_POLL_SECONDS)
                continue
            try:
                yield from client._begin(self.org_id, self.session_id, self._told())
                self._begun = True
                if self._is_inside:
                    client._pulse.open(self.org_id, self.session_id, self.lease_seconds, self._stop)
            finally:
                self._is_beginning = False

    def _told(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "session_id": self.session_id,
            "lease_seconds": self.lease_seconds,
        }
        for name in ("agent_name", "external_run_id", "project", "metadata", "on_tool_failure",
                     "on_rejection", "on_unknown"):  # fmt: skip
            value = getattr(self, name)
            if value:
                body[name] = value
        return body

    def _load(self) -> Flow[StoredResults | None]:
        client = self._client()
        path = f"/sessions/{_part(self.session_id)}/replay"
        try:
            answer = yield from client._get(path, self.org_id)
        except NotFoundError:
            # Each call then asks for its own result.
            return None
        except SessionOverError as over:
            client._pulse.close(self.session_id)
            denied = yield from self._rejection(over)
            raise (denied or over) from over
        stored = read_stored(answer, self.history)
        if stored is None:
            fault = UnavailableError("the stored results of this session broke off")
            fault._tell(code="UNREACHABLE", message=str(fault))
            raise fault
        return stored

    def _rejection(self, over: SessionOverError) -> Flow[DeniedError | None]:
        """The rejection that stopped the session, for a process that did not hear it."""
        client = self._client()
        try:
            effects = yield from client._effects(self.org_id, self.session_id)
        except UndoLogError as fault:
            logger.debug("the calls of session %s cannot be read: %s", self.session_id, fault)
            return None
        for effect in reversed(effects):
            approval_id = effect.get("approval_request_id") or effect.get("approval_id")
            if effect.get("state") != "rejected" or not approval_id:
                continue
            message = f"{effect.get('tool_name')} was rejected, and {over.message}"
            denied = DeniedError(message, request=over.request, response=over.response)
            details = {"approval_id": approval_id, "effect_id": effect.get("effect_id", "")}
            details["session_id"] = self.session_id
            denied._tell(code="APPROVAL_REJECTED", message=message, details=details)
            # An approval that the rollback took away was rejected by nobody.
            if (yield from self._read_note(client, denied)):
                return denied
        return None

    def _read_note(self, client: UndoLogClient, denied: DeniedError) -> Flow[bool]:
        """What the approver wrote is part of the answer; False: nobody rejected the call."""
        if not denied.approval_id:
            return False
        try:
            path = f"/approvals/{_part(denied.approval_id)}"
            answer = yield from client._get(path, self.org_id)
        except (UndoLogError, ValueError) as fault:
            logger.debug("the approval %s cannot be read: %s", denied.approval_id, fault)
            return False
        # The start of a rollback takes an approval away in the name of the system.
        said = [
            event
            for event in answer.get("events") or []
            if event.get("action") == "timeout"
            or (
                event.get("action") == "reject"
                and not str(event.get("actor") or "").startswith("system:")
            )
        ]
        for event in said[-1:]:
            denied.note = event.get("note") or ""
            denied.decided_by = event.get("claimed_actor") or event.get("actor") or ""
        if denied.note:
            denied.message += f" ({denied.decided_by}: {denied.note})"
            denied.args = (f"{denied.code}: {denied.message}", *denied.args[1:])
        return bool(said)

    def _exit(self, error: BaseException | None) -> Flow[None]:
        self._is_inside = False
        client = own_flows(self._client())
        if client is None:
            return
        client._pulse.close(self.session_id)
        if error is None:
            yield from self._end(client)
        elif leaves_open(error):
            logger.info("session %s stays open: %s", self.session_id, error)
        elif self.on_exception == "rollback" and self._begun:
            yield from self._undo(client, error)

    def _undo(self, client: UndoLogClient, error: BaseException) -> Flow[None]:
        reason = error_text(error)[:REASON_CHARS_MAX]
        if not isinstance(error, Exception):
            # A cancelled task must not wait for an answer, and may be cancelled again if it does.
            self._fail_later(client, reason)
            return
        try:
            yield from self._flush(required=False)
            yield from self._fail(reason)
        except UndoLogError as fault:
            # The exception of the block is the one that matters.
            logger.error("session %s could not be rolled back yet: %s", self.session_id, fault)
        except BaseException:
            self._fail_later(client, reason)
            raise

    def _end(self, client: UndoLogClient) -> Flow[None]:
        """A clean exit: completes the session, unless something says that it has not ended."""
        if self._mismatch is not None:
            raise self._mismatch
        with self._lock:
            kept = [call for calls in self._open.values() for call in calls]
            waiting = [c.waiting for c in kept if c.waiting] + list(self._waiters.values())
        if waiting:
            if self.leave_waiting:
                logger.info("session %s stays open: %s", self.session_id, waiting[0])
                return
            raise waiting[0]
        if any(call.is_paused for call in kept):
            logger.info("session %s stays open: its framework paused a tool", self.session_id)
            return
        self._refuse_unasked()
        if self._begun:
            yield from self._flush(required=True)
            try:
                yield from client._session(self.org_id, self.session_id, "complete", {})
            except SessionOverError as over:
                self._explain(over)
                raise
        elif not client._reporter.is_idle(self.session_id):
            # Calls that ran while the proxy was away are recorded later, and then the session ends.
            self._complete_later(client)

    def _refuse_unasked(self) -> None:
        left = self._stored.unasked() if self._stored and self.history == "rerun" else []
        if not left:
            return
        named = ", ".join(f"{c.tool_name} at step {c.step_index}" for c in left[:5])
        raise ResumeMismatchError(
            f"session {self.session_id} was resumed, but {len(left)} of its earlier calls were not "
            f"made again ({named}): it is not completed. If the caller remembers its earlier "
            "calls, resume with history='kept' and step keys; else roll the session back",
            self.session_id,
        )

    def _complete_later(self, client: UndoLogClient) -> None:
        def complete() -> Flow[dict[str, Any]]:
            if client._reporter.count(self.session_id) > 1:
                early = UnavailableError("calls of this session are not recorded yet")
                early._tell(code="UNREACHABLE", message=str(early))
                raise early
            return (yield from client._session(self.org_id, self.session_id, "complete", {}))

        client._reporter.put(self.session_id, f"session {self.session_id} completed", complete)

    def _fail_later(self, client: UndoLogClient, reason: str) -> None:
        body = {"reason": reason, "rollback": True}

        def ask() -> Flow[None]:
            try:
                yield from client._session(self.org_id, self.session_id, "fail", body)
            except SessionOverError as over:
                logger.debug("session %s is over already: %s", self.session_id, over)

        client._reporter.put(self.session_id, f"session {self.session_id} failed", ask)

    def _fail(self, reason: str) -> Flow[None]:
        client = self._client()
        body = {"reason": reason, "rollback": True}
        try:
            yield from client._session(self.org_id, self.session_id, "fail", body)
        except SessionOverError as over:
            logger.debug("session %s is over already: %s", self.session_id, over)
        except UnavailableError:
            self._fail_later(client, reason)
            raise

    def _failed_inside(self, outer: Savepoint | None) -> Flow[None]:
        """A savepoint's block went on after a failed tool: what holds outside of it decides."""
        if outer is not None and outer.session is self:
            outer.has_failed = True
            return
        yield from self._fail("a tool failed inside a savepoint's block")

    def _flush(self, *, required: bool) -> Flow[None]:
        reporter = self._client()._reporter
        if reporter.is_idle(self.session_id):
            return
        done = yield Blocking(lambda: reporter.flush(self.session_id, FLUSH_SECONDS))
        if not done and required:
            fault = UnavailableError("reports of this session could not be delivered yet")
            fault._tell(code="UNREACHABLE", message=str(fault))
            raise fault
