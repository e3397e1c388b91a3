"""What an exception says about the world, and about the run: is it a failure at all?"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Iterator
from typing import Literal

import httpx

from .errors import NotApplied, UndoLogError

Effect = Literal["not_applied", "maybe_applied"]
NOT_APPLIED: Effect = "not_applied"
MAYBE_APPLIED: Effect = "maybe_applied"
UNKNOWN = "unknown"

_UNKNOWN: tuple[type[BaseException], ...] = (
    TimeoutError,
    asyncio.TimeoutError,
    concurrent.futures.TimeoutError,
    asyncio.CancelledError,
    concurrent.futures.CancelledError,
    ConnectionError,
    EOFError,
    httpx.TransportError,
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
)
# Of libraries that may not be installed: (top module, class name).
_UNKNOWN_NAMES = frozenset(
    {
        ("requests", "ConnectionError"),
        ("requests", "Timeout"),
        ("aiohttp", "ClientConnectionError"),
        ("aiohttp", "ClientPayloadError"),
        ("urllib3", "TimeoutError"),
        ("urllib3", "ProtocolError"),
        ("urllib3", "NewConnectionError"),
        ("urllib3", "MaxRetryError"),
        ("grpc", "FutureTimeoutError"),
        ("botocore", "ConnectionError"),
        ("botocore", "HTTPClientError"),
    }
)
# A framework's exceptions that steer its run: (top module, class name). One that pauses a tool,
# which then runs again from its beginning, says that nothing stands yet.
_STEERING_NAMES: dict[tuple[str, str], Effect] = {
    ("langgraph", "GraphBubbleUp"): NOT_APPLIED,
    ("pydantic_ai", "ApprovalRequired"): NOT_APPLIED,
    ("pydantic_ai", "CallDeferred"): NOT_APPLIED,
    ("pydantic_ai", "ModelRetry"): MAYBE_APPLIED,
    ("pydantic_ai", "ToolRetryError"): MAYBE_APPLIED,
    ("crewai", "HumanFeedbackPending"): NOT_APPLIED,
}
_registered: dict[type[BaseException], Effect | None] = {}
_CAUSES_MAX = 100


def not_a_failure(*kinds: type[BaseException], effect: Effect | None = None) -> None:
    """Registers exceptions that steer a framework's run instead of reporting a failure.

    Such an exception fails neither the session nor a savepoint, whether it leaves a tool or the
    session's block. Those of LangGraph and Pydantic AI are known already.

    `effect` says what a tool has done that raises one: `maybe_applied` (the default: its call is
    undone if the session is rolled back) or `not_applied` (nothing yet; the same call may run
    again).
    """
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{kind!r} is not an exception class")
        _registered[kind] = effect


def effect_of(error: BaseException) -> str:
    """`not_applied`, `unknown` or `maybe_applied`.

    An exception that was raised from a time-out or a lost connection says the same: libraries
    wrap theirs. Only `NotApplied` itself says that nothing happened, and what pauses a tool.
    """
    if isinstance(error, NotApplied):
        return NOT_APPLIED
    steering = _steering(error)
    if steering is not None:
        return steering
    at: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if at is None:
            break
        if _is_unknown(at):
            return UNKNOWN
        at = at.__cause__
    return MAYBE_APPLIED


def is_steering(error: BaseException) -> bool:
    """Whether a tool's exception steers the run instead of reporting a failure."""
    return _steering(error) is not None


def leaves_open(error: BaseException) -> bool:
    """Whether the session goes on after this exception: nothing of it has failed.

    What is looked for may be the exception itself, or what it was raised from or while handling. Of
    a group, all of its exceptions have to be such: a failure beside a waiting call is a failure.
    """
    return _says_open(error, set())


def _says_open(error: BaseException, seen: set[int]) -> bool:
    if id(error) in seen or len(seen) >= _CAUSES_MAX:
        return False
    seen.add(id(error))
    inner = getattr(error, "exceptions", None)
    if isinstance(inner, (tuple, list)) and inner and _is_group(error):
        return all(_says_open(one, set(seen)) for one in inner)
    if _is_open(error):
        return True
    return any(_says_open(one, seen) for one in _behind(error))


def _behind(error: BaseException) -> Iterator[BaseException]:
    if error.__cause__ is not None:
        yield error.__cause__
    if error.__context__ is not None and not error.__suppress_context__:
        yield error.__context__


def _is_group(error: BaseException) -> bool:
    return any(kind.__name__ == "BaseExceptionGroup" for kind in type(error).__mro__)


def _is_open(error: BaseException) -> bool:
    return (
        bool(getattr(error, "leaves_session_open", False))
        or (isinstance(error, UndoLogError) and error.retryable)
        or _steering(error) is not None
    )


def _steering(error: BaseException) -> Effect | None:
    known: Effect | None = None
    for kind in type(error).__mro__:
        known = _STEERING_NAMES.get((kind.__module__.partition(".")[0], kind.__name__))
        if known is not None:
            break
    for kind in type(error).__mro__:
        if kind in _registered:
            return _registered[kind] or known or MAYBE_APPLIED
    return known


def _is_unknown(error: BaseException) -> bool:
    if isinstance(error, _UNKNOWN):
        return True
    return any(
        (kind.__module__.partition(".")[0], kind.__name__) in _UNKNOWN_NAMES
        for kind in type(error).__mro__
    )
