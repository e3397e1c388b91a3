"""`@undolog_tool`: a function whose calls are recorded before they run."""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import Callable, Collection
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from ._flow import Flow, Invoke, Pause, drive_async, drive_sync
from ._outcome import NOT_APPLIED, effect_of
from ._pulse import Grant
from ._text import error_text
from ._tool import Approval, Bound, Options, ToolSpec
from ._wire import dumps
from .client import InterceptOptions, InterceptResponse, UndoLogClient
from .codec import encode
from .errors import (
    InvalidCallError,
    LimitError,
    NotRegisteredError,
    RateLimitedError,
    ResultEncodingError,
    StatusError,
    UnavailableError,
    UndoLogError,
)
from .session import OpenCall, UndoLogSession, current_session
from .signature import canonical_json, signature_of_canonical
from .tier import CompensationDescriptor, ToolTier

__all__ = ["AwaitingApprovalError", "undolog_tool"]

logger = logging.getLogger("undolog_sdk")

WAIT_MS = 20_000
# What the service stores of a result. Much more it would not even read to its end.
RESULT_BYTES_MAX = 4 * 1024 * 1024

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class AwaitingApprovalError(RuntimeError):
    """A human decides before this call runs. The same call again hears the decision."""

    leaves_session_open = True
    retryable = True

    def __init__(self, approval_id: str, tool_name: str = "", step_index: int = 0) -> None:
        super().__init__(
            f"the call of {tool_name or 'a tool'} at step {step_index} waits for the approval "
            f"{approval_id}"
        )
        self.approval_id = approval_id
        self.tool_name = tool_name
        self.step_index = step_index
        self.effect_id: str | None = None
        self.session_id: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.approval_id, self.tool_name, self.step_index), self.__dict__


class Tool(Protocol[P, R]):
    """A decorated function: called as before, or with the session (and a step's key) beside."""

    undolog: ToolSpec
    __wrapped__: Callable[..., Any]
    __name__: str

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> R: ...

    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., R]:
        """The method of an instance."""


class _Decorate(Protocol):
    def __call__(self, fn: Callable[P, R], /) -> Tool[P, R]:
        """Wraps a function."""


def undolog_tool(
    tier: ToolTier,
    compensation: CompensationDescriptor | str | None = None,
    client: UndoLogClient | None = None,
    session_param: str = "_session",
    *,
    name: str | None = None,
    version: str | None = None,
    reason: str | None = None,
    risk_tags: Collection[str] = (),
    estimated_impact: str = "",
    idempotent: bool = False,
    exclude: Collection[str] = (),
    approval: Approval = "raise",
    approval_timeout: float | None = None,
    step_key: str | Callable[..., str | None] | None = None,
    fail_open: bool = False,
    register: bool = True,
) -> _Decorate:
    """Makes a function a tool of the given tier.

    A safe tool runs at once and sends nothing. Any other is recorded first: it then runs, or its
    stored result is returned, or `AwaitingApprovalError` is raised.

    - `compensation`: a descriptor, or the name of a registered compensation.
    - `session_param`: the keyword that carries the session; without it, the session of the
      surrounding block counts.
    - `reason`, `risk_tags`, `estimated_impact`: what an approver reads. Without a reason the
      docstring's first paragraph is taken.
    - `approval="wait"` waits up to `approval_timeout` seconds for the decision.
    - `step_key`: the name of an argument, or a function of the arguments, that gives the
      framework's own id of the call. A call may also bring one: `tool(..., step_key="call_1")`.
    - `exclude`: arguments that are no part of the record, such as connections.
    - `fail_open=True` runs the tool unrecorded while the proxy is away; that is logged. An
      irreversible tool cannot have it.
    - `register=False` leaves the registry alone.
    """
    if approval not in ("raise", "wait"):
        raise ValueError("approval is 'raise' or 'wait'")
    options = Options(
        tier=ToolTier(tier),
        compensation=compensation,
        client=client,
        session_param=session_param,
        name=name,
        version=version,
        reason=reason,
        risk_tags=tuple(risk_tags),
        estimated_impact=estimated_impact,
        idempotent=idempotent,
        exclude=frozenset(exclude),
        approval=approval,
        approval_timeout=approval_timeout,
        step_key=step_key,
        fail_open=fail_open,
        register=register,
    )
    if options.tier.is_compensable and not compensation:
        raise ValueError("a compensable tool needs a compensation")
    if options.tier.requires_approval and fail_open:
        raise ValueError("an irreversible tool cannot fail open: a human approves each call")

    def decorate(fn: Any) -> Any:
        if isinstance(fn, (classmethod, staticmethod)):
            return type(fn)(_wrap(fn.__func__, options))
        return _wrap(fn, options)

    return decorate


def _wrap(fn: Callable[..., Any], options: Options) -> Any:
    spec = ToolSpec(fn, options)
    make = _async_wrapper if spec.is_async else _sync_wrapper
    wrapper = make(spec)
    functools.update_wrapper(wrapper, fn if hasattr(fn, "__name__") else spec.fn)
    wrapper.__wrapped__ = fn
    if not hasattr(wrapper, "__name__"):
        wrapper.__name__ = spec.name
    wrapper.undolog = spec
    return wrapper


def _async_wrapper(spec: ToolSpec) -> Any:
    if spec.tier.is_safe:

        async def safe(*args: Any, **kwargs: Any) -> Any:
            bound = _start_safe(spec, args, kwargs)
            return await spec.fn(*bound.args, **bound.kwargs)

        return safe

    async def recorded(*args: Any, **kwargs: Any) -> Any:
        client, session, bound = _start(spec, args, kwargs)
        return await drive_async(_call(spec, client, session, bound), client._wire)

    return recorded


def _sync_wrapper(spec: ToolSpec) -> Any:
    if spec.tier.is_safe:

        def safe(*args: Any, **kwargs: Any) -> Any:
            bound = _start_safe(spec, args, kwargs)
            return spec.fn(*bound.args, **bound.kwargs)

        return safe

    def recorded(*args: Any, **kwargs: Any) -> Any:
        client, session, bound = _start(spec, args, kwargs)
        return drive_sync(_call(spec, client, session, bound), client._wire)

    return recorded


def _session_of(spec: ToolSpec, kwargs: dict[str, Any]) -> UndoLogSession | None:
    param = spec.options.session_param
    session = kwargs.get(param) if spec.takes_session else kwargs.pop(param, None)
    if session is not None and not isinstance(session, UndoLogSession):
        raise TypeError(f"{param} is no UndoLogSession")
    return session or current_session()


def _start_safe(
    spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    session = _session_of(spec, kwargs)
    bound = spec.bind(args, kwargs)
    # Steps count safe calls too, so that a run and its replay number alike. With keys there are
    # no numbers to keep in step.
    if session is not None and bound.step_key is None:
        session.next_step()
    return bound.arguments


def _start(
    spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[UndoLogClient, UndoLogSession, Bound]:
    session = _session_of(spec, kwargs)
    if session is None:
        raise RuntimeError(
            f"{spec.name} needs a session: pass {spec.options.session_param}=, or call it within "
            "a session's block"
        )
    return spec.options.client or session._client(), session, spec.bind(args, kwargs)


def _call(
    spec: ToolSpec, client: UndoLogClient, session: UndoLogSession, bound: Bound
) -> Flow[Any]:
    """One logical call, from the record to the result."""
    args = spec.recorded(bound)
    canonical = canonical_json(args)
    call = session._take(spec.name, canonical, bound.step_key)
    stored = session._result_of(spec.name, canonical, bound.step_key, call)
    if stored is not None:
        return spec.result(stored.output)
    try:
        answer = yield from _decide(spec, client, session, bound, call, args, canonical)
    except BaseException as error:
        if isinstance(error, UnavailableError) and spec.options.fail_open:
            logger.warning("%s runs unrecorded, the proxy is away: %s", spec.name, error)
            return (yield _body(spec, bound, None))
        # Whoever makes this call again goes on with it: the grant may be there already.
        if not isinstance(error, UndoLogError) or error.retryable:
            session._keep(spec.name, canonical, bound.step_key, call)
        raise
    if answer.outcome == "AwaitingApproval":
        call.awaits = True
        session._keep(spec.name, canonical, bound.step_key, call)
        waiting = AwaitingApprovalError(answer.approval_id or "", spec.name, call.step_index)
        waiting.effect_id, waiting.session_id = answer.effect_id, session.session_id
        raise waiting
    if answer.outcome == "Replay":
        return spec.result(answer.output)
    return (yield from _run(spec, client, session, bound, answer))


def _decide(
    spec: ToolSpec,
    client: UndoLogClient,
    session: UndoLogSession,
    bound: Bound,
    call: OpenCall,
    args: dict[str, Any],
    canonical: str,
) -> Flow[InterceptResponse]:
    """Asks until there is an answer that this call can act on."""
    was_registered = spec.is_registered(client, session.org_id)
    refused = yield from spec.register(client, session.org_id)
    options = InterceptOptions(
        tool_version=spec.options.version,
        step_key=bound.step_key,
        grant_token=call.grant_token,
        heartbeats=True,
        accepts_approved_args=True,
        compensation=spec.descriptor(),
        agent_context=session.agent_context,
    )
    if bound.step_key is None:
        options.signature = signature_of_canonical(
            session.session_id, call.step_index, spec.name, canonical
        )
    waits = spec.tier.requires_approval and spec.options.approval == "wait"
    limit = spec.options.approval_timeout
    deadline = None if limit is None else time.monotonic() + limit
    while True:
        try:
            answer = yield from client._intercept(
                session.org_id, session.session_id, spec.name, call.step_index, args, options
            )
        except NotRegisteredError as error:
            # A registry that was emptied since is told once more.
            if error.code != "TOOL_NOT_REGISTERED" or not was_registered:
                raise error from refused
            was_registered = False
            spec.forget(client, session.org_id)
            refused = yield from spec.register(client, session.org_id)
            continue
        if answer.outcome != "AwaitingApproval" or not waits:
            return answer
        left = WAIT_MS / 1000 if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return answer
        # From the second time on the service holds the answer back until something changes.
        asked_before = options.wait_ms is not None
        options.wait_ms = min(WAIT_MS, max(1, int(left * 1000)))
        if asked_before:
            yield Pause(min(0.2, left))


def _body(spec: ToolSpec, bound: Bound, grant: Grant | None) -> Invoke:
    arguments = bound.arguments
    return Invoke(spec.fn, arguments.args, arguments.kwargs, grant)


def _run(
    spec: ToolSpec,
    client: UndoLogClient,
    session: UndoLogSession,
    bound: Bound,
    answer: InterceptResponse,
) -> Flow[Any]:
    """Runs a granted call and reports its outcome."""
    if not answer.effect_id:
        # The registry says that this tool is safe: there is nothing to report.
        return (yield _body(spec, bound, None))
    grant = Grant(answer.effect_id, answer.attempt)
    report = _Report(spec, client, session, grant)
    if answer.approved_args is not None:
        try:
            spec.replace(bound, answer.approved_args)
        except (TypeError, ValueError, ArithmeticError) as error:
            yield from report.failed(error, NOT_APPLIED)
            raise
    client._pulse.add(session.org_id, session.session_id, grant)
    began = time.perf_counter()
    try:
        value = yield _body(spec, bound, grant)
        if inspect.iscoroutine(value):
            # Nobody would ever run it, and the call would be recorded as done.
            value.close()
            raise TypeError(
                f"{spec.name} returned a coroutine that was not run: make it an async function"
            )
    except BaseException as error:
        client._pulse.remove(session.session_id, grant)
        yield from report.failed(error, effect_of(error))
        if grant.was_cancelled_by_stop(error):
            raise StoppedError(session.session_id, answer.effect_id, session._over) from error
        raise
    client._pulse.remove(session.session_id, grant)
    yield from report.committed(value, int((time.perf_counter() - began) * 1000))
    return value


class StoppedError(UndoLogError):
    """The service stopped this call while it ran: its session is over, or its grant is."""

    def __init__(self, session_id: str, effect_id: str, state: str | None) -> None:
        message = f"the call was stopped while it ran (session: {state or 'its grant is over'})"
        super().__init__(message)
        details = {"session_id": session_id, "effect_id": effect_id}
        self._tell(code="STOPPED", message=message, details=details)


class _Report:
    """The outcome of one granted call. It is sent once more by itself if it cannot be sent now."""

    def __init__(
        self, spec: ToolSpec, client: UndoLogClient, session: UndoLogSession, grant: Grant
    ) -> None:
        self._spec = spec
        self._client = client
        self._session = session
        self._grant = grant

    def committed(self, value: Any, duration_ms: int) -> Flow[None]:
        """The call is done, whatever becomes of its result: it must never run again."""
        fault: ResultEncodingError | None = None
        output: Any = None

        def drop(error: Exception) -> None:
            nonlocal fault, output
            kind = type(value).__qualname__
            fault = ResultEncodingError(
                f"{self._spec.name} returned a {kind}, which cannot be stored ({error}); the call "
                "is recorded as done, without its result"
            )
            fault.__cause__ = error
            output = None

        try:
            made = encode(value, "result")
            if len(dumps(made)) > RESULT_BYTES_MAX:
                raise ValueError(f"its JSON is larger than {RESULT_BYTES_MAX} bytes")
            output = made
        except (TypeError, ValueError, RecursionError) as error:
            drop(error)
        grant, session = self._grant, self._session

        def commit() -> Flow[None]:
            result = {"success": True, "output": output, "error": None, "duration_ms": duration_ms}
            return self._client._commit(
                session.org_id, session.session_id, grant.effect_id, result, grant.attempt
            )

        def flow() -> Flow[None]:
            try:
                yield from commit()
            except (InvalidCallError, LimitError) as refused:
                if fault is not None:
                    raise
                # The service's word on what it can store: too deep, half of a surrogate pair, …
                drop(refused)
                logger.warning("effect %s: %s", grant.effect_id, fault)
                yield from commit()

        yield from self._send(flow, "committed")
        if fault is not None:
            raise fault

    def failed(self, error: BaseException, effect: str) -> Flow[None]:
        text = error_text(error)
        grant, session = self._grant, self._session

        def flow() -> Flow[None]:
            yield from self._client._fail(
                session.org_id, session.session_id, grant.effect_id, text, effect, grant.attempt
            )

        if not isinstance(error, Exception):
            # A cancelled task or an ending process must not wait for an answer.
            self._later(flow, "failed")
            return
        try:
            yield from self._send(flow, "failed")
            yield from session._tool_failed(text)
        except UndoLogError as refused:
            # The tool's own exception is the one that matters.
            logger.warning("the failure of %s was not taken: %s", self._spec.name, refused)

    def _send(self, flow: Callable[[], Flow[None]], what: str) -> Flow[None]:
        try:
            yield from flow()
        except (UnavailableError, RateLimitedError) as error:
            logger.warning("%s: its outcome will be reported later: %s", self._spec.name, error)
            self._later(flow, what)
        except StatusError:
            raise
        except BaseException:
            self._later(flow, what)
            raise

    def _later(self, flow: Callable[[], Flow[None]], what: str) -> None:
        text = f"{self._spec.name} {what}, effect {self._grant.effect_id}"
        self._client._reporter.put(self._session.session_id, text, flow)
