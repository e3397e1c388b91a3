"""One logical call of a tool, from its record to its result."""

from __future__ import annotations

import concurrent.futures
import inspect
import logging
import time
from dataclasses import replace
from typing import Any

from ._flow import Flow, Invoke, Pause
from ._lifecycle import OpenCall
from ._ours import InterceptOptions
from ._outcome import effect_of
from ._pulse import Grant
from ._report import Report, StoppedError, ask
from ._tool import Bound, ToolSpec
from ._waiting import AwaitingApprovalError
from .client import InterceptResponse, UndoLogClient, output_of, own_flows
from .errors import (
    ArgumentsChangedError,
    DeniedError,
    NotRegisteredError,
    SessionAwaitingApprovalError,
    SessionOverError,
    UnavailableError,
    UndoLogError,
)
from .session import UndoLogSession
from .signature import canonical_json, signature_of_canonical

logger = logging.getLogger("undolog_sdk")

WAIT_MS = 20_000
NEIGHBOUR_PAUSE_MAX = 2.0


class Call:
    """A call that is on its way."""

    def __init__(
        self, spec: ToolSpec, client: UndoLogClient, session: UndoLogSession, bound: Bound
    ) -> None:
        self.spec = spec
        self.client = client
        self.own = own_flows(client)
        self.session = session
        self.bound = bound
        self.args = spec.recorded(bound)
        self.canonical = canonical_json(self.args)
        self.open: OpenCall
        self.began_inside = session._is_inside

    def options(self) -> InterceptOptions:
        """What the call says beside the documented arguments."""
        spec, session = self.spec, self.session
        options = InterceptOptions(
            tool_version=spec.options.version,
            step_key=self.bound.step_key,
            grant_token=self.open.grant_token,
            heartbeats=True,
            accepts_approved_args=True,
            compensation=spec.descriptor(),
            agent_context=session.agent_context,
        )
        if self.bound.step_key is None:
            options.signature = signature_of_canonical(
                session.session_id, self.open.step_index, spec.name, self.canonical
            )
        return options

    def intercept(self, options: InterceptOptions) -> Flow[InterceptResponse]:
        """Asks once."""
        answer = yield ask(
            self.client,
            "intercept",
            options,
            org_id=self.session.org_id,
            session_id=self.session.session_id,
            tool_name=self.spec.name,
            step_index=self.open.step_index,
            args=self.args,
        )
        return _complete(answer)

    def keep(self) -> None:
        """Whoever makes this call again goes on with it."""
        self.session._keep(self.spec.name, self.canonical, self.bound.step_key, self.open)

    def left_the_block(self) -> bool:
        """Whether the session's block was left while this call waited."""
        return self.began_inside and not self.session._is_inside


def _complete(answer: Any) -> InterceptResponse:
    """An answer with the documented fields only, as a whole one."""
    if isinstance(answer, InterceptResponse):
        return answer
    return InterceptResponse(
        answer.outcome,
        getattr(answer, "effect_id", None),
        getattr(answer, "approval_id", None),
        getattr(answer, "cached_result", None),
    )


def call_tool(
    spec: ToolSpec, client: UndoLogClient, session: UndoLogSession, bound: Bound
) -> Flow[Any]:
    """Records, decides, runs and reports one call."""
    call = Call(spec, client, session, bound)
    call.open = session._take(spec.name, call.canonical, bound.step_key)
    try:
        stored = yield from session._result_of(spec.name, call.canonical, bound.step_key, call.open)
        if stored is not None:
            return spec.result(stored.output)
        if call.own is not None:
            yield from session._begin()
        answer = yield from _decide(call)
    except BaseException as error:
        if isinstance(error, UnavailableError) and spec.options.fail_open:
            logger.warning(
                "%s runs while the proxy is away, and is recorded later: %s", spec.name, error
            )
            return (yield from _run_unrecorded(call))
        # The grant may be there already.
        if not isinstance(error, UndoLogError) or error.retryable:
            call.keep()
        raise
    if answer.outcome == "AwaitingApproval":
        call.open.waiting = waiting = _waiting(call, answer)
        call.keep()
        raise waiting
    if answer.outcome == "Replay":
        return spec.result(output_of(answer.cached_result))
    value = yield from _run(call, answer)
    session._passed(call.open)
    return value


def _waiting(call: Call, answer: InterceptResponse) -> AwaitingApprovalError:
    waiting = AwaitingApprovalError(answer.approval_id or "", call.spec.name, call.open.step_index)
    waiting.effect_id, waiting.session_id = answer.effect_id, call.session.session_id
    return waiting


def _decide(call: Call) -> Flow[InterceptResponse]:
    """Asks until there is an answer that this call can act on."""
    spec, session, own = call.spec, call.session, call.own
    was_registered, refused = False, None
    if own is not None:
        was_registered = spec.is_registered(own, session.org_id)
        refused = yield from spec.register(own, session.org_id)
    options = call.options()
    waits = spec.tier.requires_approval and spec.options.approval == "wait"
    limit = spec.options.approval_timeout
    deadline = None if limit is None else time.monotonic() + limit
    waiting = False
    try:
        while True:
            try:
                answer = yield from call.intercept(options)
            except NotRegisteredError as error:
                # A registry that was emptied since is told once more.
                if own is None or error.code != "TOOL_NOT_REGISTERED" or not was_registered:
                    raise _with_cause(error, refused) from refused
                was_registered = False
                spec.forget(own, session.org_id)
                refused = yield from spec.register(own, session.org_id)
                continue
            except SessionAwaitingApprovalError as error:
                # A neighbour of this run waits for a decision, so this call waits as well.
                if not session._has_waiting() or call.left_the_block():
                    raise
                yield Pause(min(error.retry_after or 0.2, NEIGHBOUR_PAUSE_MAX))
                continue
            except DeniedError as denied:
                yield from _tell_note(call, denied)
                raise
            except SessionOverError as over:
                session._explain(over)
                raise
            if answer.outcome != "AwaitingApproval" or not waits or call.left_the_block():
                return answer
            left = WAIT_MS / 1000 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return answer
            if not waiting:
                waiting = True
                session._waits(call.open, _waiting(call, answer))
            # From the second time on the service holds the answer back until something changes.
            asked_before = options.wait_ms is not None
            options.wait_ms = min(WAIT_MS, max(1, int(left * 1000)))
            if asked_before:
                yield Pause(min(0.2, left))
    finally:
        if waiting:
            session._waits(call.open, None)


def _with_cause(error: NotRegisteredError, refused: Exception | None) -> NotRegisteredError:
    """Says in the exception itself why the tool is not registered."""
    if refused is not None:
        error.message += f" (its registration was refused: {refused})"
        error.args = (f"{error.code}: {error.message}", *error.args[1:])
    return error


def _tell_note(call: Call, denied: DeniedError) -> Flow[None]:
    """What the approver wrote is part of the answer."""
    if call.own is not None:
        yield from call.session._read_note(call.own, denied)


def _body(call: Call, grant: Grant | None) -> Flow[Any]:
    arguments = call.bound.arguments
    value = yield Invoke(call.spec.fn, arguments.args, arguments.kwargs, grant)
    if inspect.iscoroutine(value):
        value.close()
    if inspect.isawaitable(value) or isinstance(value, concurrent.futures.Future):
        # Its work is not done, or nobody would ever do it, and the call would be recorded as done.
        raise TypeError(
            f"{call.spec.name} returned a {type(value).__name__} instead of a result: make it an "
            "async function that awaits it, or wait for its result"
        )
    return value


def _run(call: Call, answer: InterceptResponse) -> Flow[Any]:
    """Runs a granted call and reports its outcome."""
    spec, session = call.spec, call.session
    if not answer.effect_id:
        # The registry says that this tool is safe: there is nothing to report.
        return (yield from _body(call, None))
    grant = Grant(answer.effect_id, answer.attempt)
    report = Report(spec, call.client, session, grant)
    yield from _check(call, answer, report)
    if call.own is not None:
        call.own._pulse.add(session.org_id, session.session_id, grant)
    began = time.perf_counter()
    try:
        value = yield from _body(call, grant)
    except BaseException as error:
        if call.own is not None:
            call.own._pulse.remove(session.session_id, grant)
        if session._paused(call.open, error):
            call.keep()
        yield from report.failed(error, effect_of(error))
        if grant.was_cancelled_by_stop(error):
            raise StoppedError(session.session_id, grant.effect_id, session._over) from error
        raise
    if call.own is not None:
        call.own._pulse.remove(session.session_id, grant)
    yield from report.committed(value, int((time.perf_counter() - began) * 1000))
    return value


def _check(call: Call, answer: InterceptResponse, report: Report) -> Flow[None]:
    """Whether what runs now is what was granted, and where it was asked for."""
    spec = call.spec
    fault: Exception | None = None
    if answer.approved_args is not None:
        try:
            spec.replace(call.bound, answer.approved_args)
        except (TypeError, ValueError, ArithmeticError) as error:
            fault = error
    elif not spec.still_says(call.bound, call.canonical):
        fault = ArgumentsChangedError(spec.name, answer.effect_id or "")
    if fault is None and call.left_the_block():
        fault = StoppedError(call.session.session_id, answer.effect_id or "", "its block was left")
    if fault is not None:
        yield from report.not_run(fault)
        raise fault


def _run_unrecorded(call: Call) -> Flow[Any]:
    """Runs while the proxy is away. The record is made, or completed, when it is back."""
    options = replace(call.options(), wait_ms=None)

    def granted() -> Flow[Grant | None]:
        yield from call.session._begin_late()
        if call.own is not None:
            yield from call.spec.register(call.own, call.session.org_id)
        answer = yield from call.intercept(options)
        if answer.outcome != "Execute" or not answer.effect_id:
            return None
        return Grant(answer.effect_id, answer.attempt)

    report = Report(call.spec, call.client, call.session, Grant("", 0), before=granted)
    began = time.perf_counter()
    try:
        value = yield from _body(call, None)
    except BaseException as error:
        yield from report.failed(error, effect_of(error))
        raise
    yield from report.committed(value, int((time.perf_counter() - began) * 1000))
    return value
