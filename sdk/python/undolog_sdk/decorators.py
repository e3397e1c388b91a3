"""`@undolog_tool`: a function whose calls are recorded before they run."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import types
from collections.abc import Callable, Collection
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from ._call import call_tool
from ._flow import drive_async, drive_sync
from ._report import StoppedError
from ._tool import Approval, Bound, Options, ToolSpec
from ._waiting import AwaitingApprovalError
from .client import UndoLogClient
from .session import UndoLogSession, current_session
from .tier import CompensationDescriptor, ToolTier

__all__ = ["AwaitingApprovalError", "StoppedError", "undolog_tool"]

logger = logging.getLogger("undolog_sdk")

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Tool(Protocol[P, R]):
    """A decorated function: called as before, or with the session (and a step's key) beside."""

    undolog: ToolSpec
    """What is known of the tool; `undolog.fn` is the bare function, for tests of it alone."""
    __name__: str

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __call__(self, *args: Any, _session: UndoLogSession, **kwargs: Any) -> R: ...

    @overload
    def __call__(self, *args: Any, step_key: str, **kwargs: Any) -> R: ...

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
    - `fail_open=True` runs the tool while the proxy is away; that is logged, and recorded when the
      proxy is back. An irreversible tool cannot have it.
    - `register=False` leaves the registry alone.

    A tool that raises fails the session, which is then rolled back, also when the exception is
    caught. For an agent that hears of a failed tool and goes on, begin the session with
    `UndoLogSession(..., on_tool_failure="continue")`. Exceptions that steer a framework's run are
    no failures: `not_a_failure`.

    Beside what is documented: the tool is registered at its first recorded call; sync functions
    work as well, generators are refused; an argument of `compensation` that no call could fill in
    is a `ValueError`; a result without a JSON form raises `ResultEncodingError` after the call was
    recorded as done; a cancelled call is reported by a thread.
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
    run = _async_runner(spec) if spec.is_async else _sync_runner(spec)
    wrapper = _in_place_of(spec, fn, run)
    wrapper.undolog = spec
    return wrapper


def _in_place_of(spec: ToolSpec, fn: Any, run: Callable[..., Any]) -> Any:
    """A function that looks like the bare one, and does not lead to it.

    Frameworks unwrap what has a `__wrapped__` and may call what they find, past every record. So
    there is none: the signature is copied, and the module's names come with the function itself,
    where
    `typing.get_type_hints` looks for them.
    """
    call = _calling_async(run) if spec.is_async else _calling(run)
    inner = spec.fn if inspect.isroutine(spec.fn) else type(spec.fn).__call__
    names = getattr(inspect.unwrap(inner), "__globals__", None) or call.__globals__
    made: Any = types.FunctionType(call.__code__, names, spec.name, None, call.__closure__)
    functools.update_wrapper(made, fn if hasattr(fn, "__name__") else spec.fn)
    vars(made).pop("__wrapped__", None)
    if not hasattr(fn, "__name__") and not hasattr(spec.fn, "__name__"):
        made.__name__ = spec.name
    made.__signature__ = inspect.signature(fn)
    return made


def _calling_async(run: Callable[..., Any]) -> types.FunctionType:
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await run(*args, **kwargs)

    return cast(types.FunctionType, call)


def _calling(run: Callable[..., Any]) -> types.FunctionType:
    def call(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)

    return cast(types.FunctionType, call)


def _async_runner(spec: ToolSpec) -> Callable[..., Any]:
    if spec.tier.is_safe:

        async def safe(*args: Any, **kwargs: Any) -> Any:
            bound = _start_safe(spec, args, kwargs)
            return await spec.fn(*bound.args, **bound.kwargs)

        return safe

    async def recorded(*args: Any, **kwargs: Any) -> Any:
        client, session, bound = _start(spec, args, kwargs)
        return await drive_async(call_tool(spec, client, session, bound), _wire_of(client))

    return recorded


def _sync_runner(spec: ToolSpec) -> Callable[..., Any]:
    if spec.tier.is_safe:

        def safe(*args: Any, **kwargs: Any) -> Any:
            bound = _start_safe(spec, args, kwargs)
            return spec.fn(*bound.args, **bound.kwargs)

        return safe

    def recorded(*args: Any, **kwargs: Any) -> Any:
        _warn_of_blocked_loop(spec)
        client, session, bound = _start(spec, args, kwargs)
        return drive_sync(call_tool(spec, client, session, bound), _wire_of(client))

    return recorded


def _wire_of(client: Any) -> Any:
    """How a client's own requests are sent; a user's stand-in for a client has none."""
    return getattr(client, "_wire", None)


_blocked: set[str] = set()


def _warn_of_blocked_loop(spec: ToolSpec) -> None:
    if spec.name in _blocked:
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    _blocked.add(spec.name)
    logger.warning(
        "%s is a plain function that is called on an event loop's thread: the loop stands still "
        "until it returns%s. Make it an async function, or call it in a thread",
        spec.name,
        ", also while it waits for an approval" if spec.options.approval == "wait" else "",
    )


def _session_of(spec: ToolSpec, kwargs: dict[str, Any]) -> UndoLogSession | None:
    param = spec.options.session_param
    session = kwargs.get(param) if spec.takes_session else kwargs.pop(param, None)
    if session is not None and not isinstance(session, UndoLogSession):
        raise TypeError(f"{param} must be an UndoLogSession")
    return session or current_session()


def _start_safe(
    spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    session = _session_of(spec, kwargs)
    bound = spec.bind(args, kwargs)
    # Steps count safe calls too, so that a run and its replay number alike.
    if session is not None:
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
    return session._client_for(spec.options.client), session, spec.bind(args, kwargs)
