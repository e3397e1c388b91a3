"""When a request is sent again, and what its answer means."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx

from ._flow import Flow, Pause, Send
from ._fork import watch
from .errors import (
    RateLimitedError,
    StatusError,
    UnavailableError,
    bad_response,
    from_request_error,
    from_response,
)

RETRY_DELAYS = (0.1, 0.3, 0.8)
RETRY_AFTER_MAX = 5.0
# A late report of another call is being undone: the session takes calls again afterwards.
UNDO_WAIT_SECONDS = 600.0

# Our own: an agent may have seeded the shared one, and reports are retried on other threads.
_jitter = random.Random()


class _Seeds:
    def after_fork(self) -> None:
        """A child must not wait for the same times as its parent."""
        _jitter.seed()


_seeds = _Seeds()
watch(_seeds)


def dumps(body: Any) -> bytes:
    """Compact JSON; NaN and infinities are refused."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")


def exchange(
    method: str,
    path: str,
    body: Any,
    headers: dict[str, str],
    *,
    again: bool,
    timeout: float | None = None,
) -> Flow[dict[str, Any]]:
    """One request and its answer. `again`: asking twice does no harm.

    A request that never reached the proxy is always sent again, and so is one that was refused
    because other work of the session is being undone at the moment.
    """
    content = None if body is None else dumps(body)
    delays = iter(RETRY_DELAYS)
    waited = 0.0
    while True:
        fault: UnavailableError | RateLimitedError
        refused: StatusError
        cause: BaseException | None = None
        try:
            response = yield Send(method, path, headers, content, timeout)
        except httpx.RequestError as error:
            fault, cause = from_request_error(error), error
            may = again or isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
        else:
            if 200 <= response.status_code < 300:
                answer, why = _object(response)
                if answer is not None:
                    return answer
                refused = bad_response(response, why)
            else:
                refused = from_response(response)
            if refused.code == "UNDO_RUNNING" and waited < UNDO_WAIT_SECONDS:
                # Nothing was recorded, so any request can be sent again.
                pause = min(max(refused.retry_after or 0.0, RETRY_DELAYS[-1]), RETRY_AFTER_MAX)
                waited += pause
                yield Pause(pause)
                continue
            if not isinstance(refused, (UnavailableError, RateLimitedError)):
                raise refused
            fault, may = refused, again or isinstance(refused, RateLimitedError)
        delay = next(delays, None) if may else None
        if delay is None:
            raise fault from cause
        asked = min(fault.retry_after or 0.0, RETRY_AFTER_MAX)
        yield Pause(max(asked, delay * _jitter.uniform(0.5, 1.0)))


def _object(response: httpx.Response) -> tuple[dict[str, Any] | None, str]:
    """The object that a body holds; `None` with the reason when it holds none."""
    try:
        body = response.json()
    except RecursionError:
        return None, "its JSON is too deep"
    except ValueError as error:
        # No JSON, no UTF-8, or an integer that Python does not read.
        return None, str(error)
    return (body, "") if isinstance(body, dict) else (None, "its JSON is no object")
