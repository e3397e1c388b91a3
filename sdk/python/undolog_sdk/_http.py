"""The HTTP clients: the caller's own, or one for each event loop, and how one is like another."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
import threading
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from ._flow import Send, run_blocking
from ._fork import watch
from ._secret import HEADER, Secret

logger = logging.getLogger("undolog_sdk")

T = TypeVar("T")

TIMEOUT_SECONDS = 30.0
# Beats of many sessions go at the same time, and one must not wait for another's connection.
BEAT_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20)

# A parent's connections in a forked process. They are never closed there, nor collected: an event
# loop's share their registrations with the parent's, and a pool's lock may be held for ever.
_inherited: list[Any] = []


def is_loopback(url: str) -> bool:
    """Whether a URL stays on this machine."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HttpWire:
    """Sends with the caller's own HTTP clients, or with clients made on first use.

    An `httpx.AsyncClient` belongs to one event loop, so each loop gets its own, which is closed
    with it. A forked process makes its own as well: on a shared connection each would read the
    other's answers. Clients that were given are the caller's, also after a fork.
    """

    def __init__(
        self,
        base_url: str,
        http_client: httpx.AsyncClient | None,
        sync_http_client: httpx.Client | None,
        key: Secret | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._given = http_client
        self._given_sync = sync_http_client
        self._key = key
        self._like = None if http_client is None else Likeness.of(http_client)
        self._home: asyncio.AbstractEventLoop | None = None
        self._made: dict[asyncio.AbstractEventLoop, _Made] = {}
        self._made_sync: httpx.Client | None = None
        self._tls: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._prefix = ""
        if http_client is not None and not http_client.base_url.host:
            self._prefix = self.base_url
        self._prefix_sync = ""
        if sync_http_client is not None and not sync_http_client.base_url.host:
            self._prefix_sync = self.base_url
        self.beats = BeatWire(self)
        watch(self)

    def after_fork(self) -> None:
        """A child begins without connections, and leaves its parent's alone."""
        _inherited.extend((self._made, self._made_sync))
        self._made = {}
        self._made_sync = None
        self._home = None
        self._lock = threading.Lock()

    # ------------------------------------------------------------------ sending

    async def send_async(self, ask: Send) -> httpx.Response:
        """Sends on the running event loop."""
        loop = asyncio.get_running_loop()
        if self._given is not None:
            self._home = loop
            return await self._ask(self._given, self._prefix, ask)
        return await self._ask(await self._for_loop(loop), "", ask)

    def send_sync(self, ask: Send) -> httpx.Response:
        """Sends on this thread."""
        if self._given_sync is not None:
            return self._ask_sync(self._given_sync, self._prefix_sync, ask)
        if self._given is not None and self._like is None:
            # Nothing else can speak as this client does.
            return self._through_given(self._given, ask)
        return self._ask_sync(self._made_sync or self._make_sync(), "", ask)

    async def send_beat(self, ask: Send) -> httpx.Response:
        """Sends a heartbeat, on the event loop of the thread that beats."""
        loop = asyncio.get_running_loop()
        if self._given_sync is not None:
            given = self._given_sync
            return await asyncio.to_thread(self._ask_sync, given, self._prefix_sync, ask)
        if self._given is not None and self._like is None:
            home = self._home
            if home is None or home is loop or not home.is_running():
                return await self._ask(self._given, self._prefix, ask)
            sent = asyncio.run_coroutine_threadsafe(self._ask(self._given, self._prefix, ask), home)
            # A loop that is blocked must not hold up the other sessions' beats.
            return await asyncio.wait_for(asyncio.wrap_future(sent), ask.timeout)
        return await self._ask(await self._for_loop(loop, BEAT_LIMITS), "", ask)

    def _through_given(self, given: httpx.AsyncClient, ask: Send) -> httpx.Response:
        home = self._home
        call: Coroutine[Any, Any, httpx.Response] = self._ask(given, self._prefix, ask)
        if home is not None and home.is_running() and not _is_mine(home):
            return asyncio.run_coroutine_threadsafe(call, home).result()
        return run_blocking(call)

    async def _ask(self, client: httpx.AsyncClient, prefix: str, ask: Send) -> httpx.Response:
        return await client.request(ask.method, prefix + ask.path, **self._how(ask))

    def _ask_sync(self, client: httpx.Client, prefix: str, ask: Send) -> httpx.Response:
        return client.request(ask.method, prefix + ask.path, **self._how(ask))

    def _how(self, ask: Send) -> dict[str, Any]:
        headers = dict(ask.headers)
        if self._key is not None:
            headers[HEADER] = self._key.reveal()
        timeout = httpx.USE_CLIENT_DEFAULT if ask.timeout is None else ask.timeout
        return {"headers": headers, "content": ask.content, "timeout": timeout}

    # ------------------------------------------------------------------ closing

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

    # ------------------------------------------------------------------ making

    async def _for_loop(
        self, loop: asyncio.AbstractEventLoop, limits: httpx.Limits | None = None
    ) -> httpx.AsyncClient:
        made = self._made.get(loop)
        if made is None:
            options = self._options()
            if limits is not None:
                options["limits"] = limits
            made = _Made(httpx.AsyncClient(**options), self._made, loop)
            with self._lock:
                # Whoever closed a loop without ending its generators has left a client behind.
                for other in [other for other in self._made if other.is_closed()]:
                    del self._made[other]
                self._made[loop] = made
            await made.keep()
        return made.client

    def _make_sync(self) -> httpx.Client:
        with self._lock:
            if self._made_sync is None:
                self._made_sync = httpx.Client(**self._options())
            return self._made_sync

    def _options(self) -> dict[str, Any]:
        if self._like is not None:
            return self._like.options(self.base_url)
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
        # The environment's HTTP proxy is not on the way to this machine itself.
        return {
            "base_url": self.base_url,
            "timeout": TIMEOUT_SECONDS,
            "verify": self._tls,
            "trust_env": not is_loopback(self.base_url),
        }


class BeatWire:
    """How heartbeats are sent."""

    def __init__(self, http: HttpWire) -> None:
        self._http = http

    async def send_async(self, ask: Send) -> httpx.Response:
        """Sends on the event loop of the thread that beats."""
        return await self._http.send_beat(ask)

    def send_sync(self, ask: Send) -> httpx.Response:
        """Sends on this thread."""
        return self._http.send_sync(ask)


class _Made:
    """A client of one event loop. It is closed when the loop ends its asynchronous generators."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        among: dict[asyncio.AbstractEventLoop, _Made],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.client = client
        self._kept = self._keep(among, loop)

    async def keep(self) -> None:
        """From now on the loop's end closes the client."""
        await self._kept.__anext__()

    async def aclose(self) -> None:
        """Closes the client now."""
        await self._kept.aclose()
        await self.client.aclose()

    async def _keep(
        self, among: dict[asyncio.AbstractEventLoop, _Made], loop: asyncio.AbstractEventLoop
    ) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if among.get(loop) is self:
                del among[loop]
            await self.client.aclose()


class Likeness:
    """What another client needs to speak as a given `httpx.AsyncClient` does."""

    def __init__(self, given: httpx.AsyncClient, tls: ssl.SSLContext) -> None:
        self._given = given
        self._tls = tls

    @classmethod
    def of(cls, given: httpx.AsyncClient) -> Likeness | None:
        """`None` for a client with a transport or a proxy of its own, which cannot be copied."""
        transport = getattr(given, "_transport", None)
        pool = getattr(transport, "_pool", None)
        tls = getattr(pool, "_ssl_context", None)
        if type(transport) is not httpx.AsyncHTTPTransport or tls is None:
            return None
        if getattr(pool, "_uds", None) is not None:
            return None
        mounts = getattr(given, "_mounts", {})
        if mounts:
            with httpx.Client(verify=tls, trust_env=given.trust_env) as of_environment:
                if set(mounts) != set(getattr(of_environment, "_mounts", {})):
                    return None
        return cls(given, tls)

    def options(self, base_url: str) -> dict[str, Any]:
        """The arguments of a client like the given one, as it is now."""
        given = self._given
        return {
            "base_url": given.base_url if given.base_url.host else base_url,
            "timeout": given.timeout,
            "headers": given.headers,
            "cookies": given.cookies,
            "auth": given.auth,
            "follow_redirects": given.follow_redirects,
            "trust_env": given.trust_env,
            "verify": self._tls,
        }


def _is_mine(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
