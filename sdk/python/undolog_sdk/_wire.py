"""HTTP: which client sends, and when a request is sent again."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import threading
import weakref
from typing import Any

import httpx

from ._flow import Flow, Pause, Send
from ._fork import watch
from .errors import RateLimitedError, UnavailableError, from_request_error, from_response

TIMEOUT_SECONDS = 30.0
RETRY_DELAYS = (0.1, 0.3, 0.8)
RETRY_AFTER_MAX = 5.0
# A late report of another call is being undone: the session takes calls again afterwards.
UNDO_WAIT_SECONDS = 600.0

# Our own: an agent may have seeded the shared one, and reports are retried on other threads.
_jitter = random.Random()

# A parent's connections in a forked process. They are never closed there, nor collected: an event
# loop's share their registrations with the parent's, and a pool's lock may be held for ever.
_inherited: list[Any] = []


class HttpWire:
    """Sends with the caller's own HTTP clients, or with clients made on first use.

    An `httpx.AsyncClient` belongs to one event loop, so each loop gets its own. A forked process
    makes its own as well: on a shared connection each would read the other's answers. Clients
    that were given are the caller's, also after a fork.
    """

    def __init__(
        self,
        base_url: str,
        http_client: httpx.AsyncClient | None,
        sync_http_client: httpx.Client | None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._given = http_client
        self._given_sync = sync_http_client
        self._made: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient]
        self._made = weakref.WeakKeyDictionary()
        self._made_sync: httpx.Client | None = None
        self._tls: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._prefix = ""
        if http_client is not None and not http_client.base_url.host:
            self._prefix = self.base_url
        self._prefix_sync = ""
        if sync_http_client is not None and not sync_http_client.base_url.host:
            self._prefix_sync = self.base_url
        watch(self)

    def after_fork(self) -> None:
        """A child begins without connections, and leaves its parent's alone."""
        _inherited.extend((self._made, list(self._made.values()), self._made_sync))
        self._made = weakref.WeakKeyDictionary()
        self._made_sync = None
        self._lock = threading.Lock()
        _jitter.seed()

    async def send_async(self, ask: Send) -> httpx.Response:
        client = self._given or self._for_loop(asyncio.get_running_loop())
        return await client.request(
            ask.method,
            self._prefix + ask.path,
            headers=ask.headers,
            content=ask.content,
            timeout=httpx.USE_CLIENT_DEFAULT if ask.timeout is None else ask.timeout,
        )

    def send_sync(self, ask: Send) -> httpx.Response:
        client = self._given_sync or self._made_sync or self._make_sync()
        return client.request(
            ask.method,
            self._prefix_sync + ask.path,
            headers=ask.headers,
            content=ask.content,
            timeout=httpx.USE_CLIENT_DEFAULT if ask.timeout is None else ask.timeout,
        )

    async def aclose(self) -> None:
        """Closes what belongs to the running loop, and what belongs to none."""
        if self._given is not None:
            await self._given.aclose()
        mine = self._made.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine.aclose()
        self.close()

    def close(self) -> None:
        """Closes what belongs to no event loop."""
        with self._lock:
            made, self._made_sync = self._made_sync, None
        for client in (made, self._given_sync):
            if client is not None:
                client.close()

    def _for_loop(self, loop: asyncio.AbstractEventLoop) -> httpx.AsyncClient:
        client = self._made.get(loop)
        if client is None:
            with self._lock:
                client = httpx.AsyncClient(
                    base_url=self.base_url, timeout=TIMEOUT_SECONDS, verify=self._context()
                )
                self._made[loop] = client
        return client

    def _make_sync(self) -> httpx.Client:
        with self._lock:
            if self._made_sync is None:
                # The caller's own settings hold for blocking calls too, as far as they can be read.
                like = self._given
                own_url = like is not None and bool(like.base_url.host)
                self._made_sync = httpx.Client(
                    base_url=like.base_url if like is not None and own_url else self.base_url,
                    timeout=like.timeout if like is not None else TIMEOUT_SECONDS,
                    headers=like.headers if like is not None else None,
                    verify=self._context(),
                )
            return self._made_sync

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
        return self._tls


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
        cause: BaseException | None = None
        try:
            response = yield Send(method, path, headers, content, timeout)
        except httpx.RequestError as error:
            fault, cause = from_request_error(error), error
            may = again or isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
        else:
            if 200 <= response.status_code < 300:
                return _object(response)
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


def _object(response: httpx.Response) -> dict[str, Any]:
    if not response.content:
        return {}
    body = response.json()
    return body if isinstance(body, dict) else {}
