"""What an exception says about the world: did the tool change something?"""

from __future__ import annotations

import asyncio
import concurrent.futures

import httpx

from .errors import NotApplied

NOT_APPLIED = "not_applied"
MAYBE_APPLIED = "maybe_applied"
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
_CAUSES_MAX = 20


def effect_of(error: BaseException) -> str:
    """`not_applied`, `unknown` or `maybe_applied`.

    An exception that was raised from a time-out or a lost connection says the same: libraries
    wrap theirs. Only `NotApplied` itself says that nothing happened.
    """
    if isinstance(error, NotApplied):
        return NOT_APPLIED
    at: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if at is None:
            break
        if _is_unknown(at):
            return UNKNOWN
        at = at.__cause__
    return MAYBE_APPLIED


def _is_unknown(error: BaseException) -> bool:
    if isinstance(error, _UNKNOWN):
        return True
    return any(
        (kind.__module__.partition(".")[0], kind.__name__) in _UNKNOWN_NAMES
        for kind in type(error).__mro__
    )
