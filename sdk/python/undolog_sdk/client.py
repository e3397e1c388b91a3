"""The HTTP client of an UndoLog proxy."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from ._flow import Flow, drive_async, drive_sync
from ._fork import watch
from ._http import HttpWire, is_loopback
from ._ours import (
    InterceptOptions,
    ReportOptions,
    intercept_options,
    is_blocking,
    report_options,
)
from ._pulse import GRANT_LEASE_SECONDS, Pulse
from ._reporter import Reporter
from ._secret import Secret
from ._text import plain
from ._wire import exchange
from .errors import UnknownAnswerError
from .tier import CompensationDescriptor

__all__ = ["BlockingCalls", "InterceptResponse", "UndoLogClient", "default_client"]

logger = logging.getLogger("undolog_sdk")

T = TypeVar("T")

DEFAULT_URL = "http://localhost:8080"
HEARTBEAT_SECONDS = 15.0
# Three beats fit into a grant's lease, so a lost one does no harm.
HEARTBEAT_SECONDS_MAX = GRANT_LEASE_SECONDS / 3
BEAT_TIMEOUT_SECONDS = 10.0
REMEMBERED_MAX = 10_000


@dataclass(frozen=True)
class InterceptResponse:
    """What becomes of a tool call."""

    outcome: str
    """`"Execute"`, `"Replay"` or `"AwaitingApproval"`."""
    effect_id: str | None = None
    """The recorded call; empty when the registry says that the tool is safe."""
    approval_id: str | None = None
    """The request that a human decides (`AwaitingApproval`)."""
    cached_result: dict[str, Any] | None = None
    """The stored result (`Replay`): `{success, output, error, duration_ms}`."""
    attempt: int = 0
    """Which run of the call is granted; reports name it (`Execute`)."""
    granted_by_approval: str | None = None
    """The request that a human approved, so that the call runs now (`Execute`)."""
    approved_args: dict[str, Any] | None = None
    """The arguments to run with, when an approver edited them (`Execute`)."""
    lease_expires_at: str | None = None
    """When the grant is lost unless it is reported or renewed (`Execute`)."""
    executed_by: str | None = None
    """`"client"`, or `"proxy"` when the proxy has just run the tool's endpoint."""
    retry_after: float | None = None
    """Seconds until it is worth asking again (`AwaitingApproval`)."""

    @property
    def output(self) -> Any:
        """What the tool returned, out of `cached_result`.

        A stored value that is no `{success, output, error, duration_ms}` is the result itself.
        """
        return output_of(self.cached_result)


def output_of(result: Any) -> Any:
    """What a tool returned, out of a stored result."""
    if isinstance(result, dict) and "success" in result and "output" in result:
        return result["output"]
    return result


class UndoLogClient:
    """Talks to an UndoLog proxy: asks before a tool runs, and reports what came of it.

    Refusals raise typed errors of `undolog_sdk.errors`; each of them is an
    `httpx.HTTPStatusError`, or an `httpx.RequestError` when no answer came.

    Decorated tools call `intercept`, `commit` and `fail` of a subclass, with the documented
    arguments.
    """

    def __init__(
        self,
        proxy_url: str | None = None,
        http_client: httpx.AsyncClient | None = None,
        *,
        api_key: str | None = None,
        sync_http_client: httpx.Client | None = None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        url = proxy_url or os.environ.get("UNDOLOG_PROXY_URL") or DEFAULT_URL
        if not 0 < heartbeat_seconds <= HEARTBEAT_SECONDS_MAX:
            raise ValueError(
                f"heartbeat_seconds must be above 0 and at most {HEARTBEAT_SECONDS_MAX:g}: a call "
                f"that is not renewed for {GRANT_LEASE_SECONDS:g} seconds is lost"
            )
        self.proxy_url = url.rstrip("/")
        key = api_key or os.environ.get("UNDOLOG_API_KEY") or None
        if key and self.proxy_url.startswith("http://") and not is_loopback(self.proxy_url):
            logger.warning(
                "the API key is sent in clear text to %s: anybody on the way can read it; use "
                "https://",
                self.proxy_url,
            )
        secret = Secret(key) if key else None
        self._http = HttpWire(self.proxy_url, http_client, sync_http_client, secret)
        self._wire: Any = self._http
        self._reporter = Reporter(self._wire)
        self._pulse = Pulse(self._beat, heartbeat_seconds)
        self._by_proxy: OrderedDict[str, None] = OrderedDict()

    def __repr__(self) -> str:
        return f"UndoLogClient(proxy_url={self.proxy_url!r})"

    async def intercept(
        self,
        org_id: str,
        session_id: str,
        tool_name: str,
        step_index: int,
        args: dict[str, Any],
        *,
        tool_version: str | None = None,
        step_key: str | None = None,
        signature: str | None = None,
        grant_token: str | None = None,
        wait_ms: int | None = None,
        heartbeats: bool | None = None,
        accepts_approved_args: bool | None = None,
        agent_context: Any = None,
        compensation: CompensationDescriptor | None = None,
    ) -> InterceptResponse:
        """Asks whether a tool may run now.

        With a `step_key` the step is numbered by the service, and `step_index` is not sent.

        Raises `httpx.HTTPStatusError` or `httpx.RequestError`, as types of `undolog_sdk.errors`.
        An answer that is none of a proxy's is one too (`BadResponseError`). `effect_id` is empty
        for a tool that the registry calls safe: nothing is recorded.
        """
        options = _with(
            intercept_options(),
            InterceptOptions(
                tool_version, step_key, signature, grant_token, wait_ms, heartbeats,
                accepts_approved_args, agent_context, compensation,
            ),
        )  # fmt: skip
        return await self._async(
            self._intercept(org_id, session_id, tool_name, step_index, args, options)
        )

    async def commit(
        self,
        org_id: str,
        session_id: str,
        effect_id: str,
        result: dict[str, Any],
        *,
        attempt: int | None = None,
    ) -> None:
        """Reports that a tool ran, and with which result.

        Does nothing when the proxy itself ran the call, or when `effect_id` is empty. Otherwise it
        is a request: a tool that its caller runs is done only once its result is on record.
        """
        told = report_options()
        given = told.attempt if attempt is None else attempt
        await self._async(self._commit(org_id, session_id, effect_id, result, given))

    async def fail(
        self,
        org_id: str,
        session_id: str,
        effect_id: str,
        error: str,
        *,
        effect: str | None = None,
        attempt: int | None = None,
        on_tool_failure: str | None = None,
    ) -> None:
        """Reports that a tool failed.

        `effect` is what is known of the world: `maybe_applied` (the default), `not_applied` or
        `unknown`. `on_tool_failure` (`rollback` or `continue`) says what the failure does to the
        session, else its own policy does.

        Does nothing when the proxy itself ran the call, or when `effect_id` is empty. Otherwise it
        is a request.
        """
        told = report_options()
        given = ReportOptions(
            told.attempt if attempt is None else attempt,
            told.effect if effect is None else effect,
            told.on_tool_failure if on_tool_failure is None else on_tool_failure,
        )
        await self._async(self._fail(org_id, session_id, effect_id, error, given))

    async def approve(
        self,
        approval_id: str,
        *,
        approved_args: dict[str, Any] | None = None,
        actor: str | None = None,
        note: str | None = None,
        org_id: str = "",
    ) -> dict[str, Any]:
        """Approves a call, with other arguments if given. Needs an approver's key."""
        return await self._async(
            self._decide("approve", approval_id, org_id, actor, note, approved_args)
        )

    async def reject(
        self,
        approval_id: str,
        *,
        actor: str | None = None,
        note: str | None = None,
        org_id: str = "",
    ) -> dict[str, Any]:
        """Rejects a call. Needs an approver's key."""
        return await self._async(self._decide("reject", approval_id, org_id, actor, note, None))

    async def get_approval(self, approval_id: str, *, org_id: str = "") -> dict[str, Any]:
        """An approval request with its history."""
        return await self._async(self._get(f"/approvals/{_part(approval_id)}", org_id))

    async def get_session(self, session_id: str, *, org_id: str = "") -> dict[str, Any]:
        """A session with its undo stack, rollbacks and dead letters."""
        return await self._async(self._get(f"/sessions/{_part(session_id)}", org_id))

    async def list_effects(self, session_id: str, *, org_id: str = "") -> list[dict[str, Any]]:
        """All recorded calls of a session."""
        return await self._async(self._effects(org_id, session_id))

    async def register_tool(
        self, name: str, *, org_id: str = "", **contents: Any
    ) -> dict[str, Any]:
        """Registers a version of a tool; the same contents again change nothing."""
        return await self._async(self._put(f"/tools/{_part(name)}", org_id, contents))

    async def register_compensation(
        self, name: str, *, org_id: str = "", **contents: Any
    ) -> dict[str, Any]:
        """Registers a version of a compensation; the same contents again change nothing."""
        return await self._async(self._put(f"/compensations/{_part(name)}", org_id, contents))

    @property
    def blocking(self) -> BlockingCalls:
        """The same calls for code without an event loop."""
        return BlockingCalls(self)

    async def aclose(self) -> None:
        """Closes the HTTP connections."""
        await self._http.aclose()

    def close(self) -> None:
        """Closes the connections of blocking calls."""
        self._http.close()

    async def __aenter__(self) -> UndoLogClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # ------------------------------------------------------------------ flows

    async def _async(self, flow: Flow[T]) -> T:
        if is_blocking():
            return drive_sync(flow, self._wire)
        return await drive_async(flow, self._wire)

    def _sync(self, flow: Flow[T]) -> T:
        return drive_sync(flow, self._wire)

    def _headers(self, org_id: str, session_id: str = "") -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if org_id:
            headers["X-UndoLog-Org-Id"] = org_id
        if session_id:
            headers["X-UndoLog-Session-Id"] = session_id
        return headers

    def _intercept(
        self,
        org_id: str,
        session_id: str,
        tool_name: str,
        step_index: int,
        args: dict[str, Any],
        options: InterceptOptions,
    ) -> Flow[InterceptResponse]:
        body: dict[str, Any] = {"session_id": session_id, "tool_name": tool_name, "args": args}
        if options.step_key is None:
            body["step_index"] = step_index
        # With a token of its own a call whose answer was lost can be asked for again.
        body["grant_token"] = options.grant_token or uuid.uuid4().hex
        for name in ("tool_version", "step_key", "signature", "wait_ms", "heartbeats",
                     "accepts_approved_args", "agent_context"):  # fmt: skip
            value = getattr(options, name)
            if value is not None:
                body[name] = value
        if options.compensation is not None:
            body["compensation"] = descriptor_body(options.compensation)
        headers = self._headers(org_id, session_id)
        answer = yield from exchange("POST", "/mcp/tool_call", body, headers, again=True)
        return self._read(answer)

    def _read(self, answer: dict[str, Any]) -> InterceptResponse:
        status = answer.get("status")
        effect_id = answer.get("effect_id")
        if status == "executed":
            return InterceptResponse(
                "Execute",
                effect_id,
                attempt=answer.get("attempt") or 0,
                granted_by_approval=answer.get("approval_id"),
                approved_args=answer.get("approved_args"),
                lease_expires_at=answer.get("lease_expires_at"),
                executed_by=answer.get("executed_by"),
            )
        if status == "replayed":
            executed_by = answer.get("executed_by")
            if executed_by == "proxy" and effect_id:
                self._by_proxy[effect_id] = None
                while len(self._by_proxy) > REMEMBERED_MAX:
                    self._by_proxy.popitem(last=False)
            return InterceptResponse(
                "Replay",
                effect_id,
                cached_result=answer.get("result"),
                executed_by=executed_by,
            )
        if status == "pending_approval":
            return InterceptResponse(
                "AwaitingApproval",
                effect_id,
                answer.get("approval_id"),
                retry_after=answer.get("retry_after"),
            )
        text = f"the proxy answered with the unknown status {status!r}: this SDK may be too old"
        raise UnknownAnswerError(text)

    def _is_reported(self, effect_id: str) -> bool:
        return not effect_id or effect_id in self._by_proxy

    def _commit(
        self, org_id: str, session_id: str, effect_id: str, result: Any, attempt: int
    ) -> Flow[None]:
        if self._is_reported(effect_id):
            return
        if isinstance(result, dict) and isinstance(result.get("error"), str):
            result = {**result, "error": plain(result["error"])}
        body = {"session_id": session_id, "result": result, "attempt": attempt}
        path = f"/effects/{_part(effect_id)}/commit"
        headers = self._headers(org_id, session_id)
        # Without an attempt a second try could hit a newer one.
        yield from exchange("PUT", path, body, headers, again=attempt > 0)

    def _fail(
        self, org_id: str, session_id: str, effect_id: str, error: str, told: ReportOptions
    ) -> Flow[None]:
        if self._is_reported(effect_id):
            return
        body = {
            "session_id": session_id,
            "error": plain(error),
            "effect": told.effect,
            "attempt": told.attempt,
        }
        if told.on_tool_failure is not None:
            body["on_tool_failure"] = told.on_tool_failure
        path = f"/effects/{_part(effect_id)}/fail"
        headers = self._headers(org_id, session_id)
        yield from exchange("PUT", path, body, headers, again=told.attempt > 0)

    def _decide(
        self,
        verb: str,
        approval_id: str,
        org_id: str,
        actor: str | None,
        note: str | None,
        approved_args: dict[str, Any] | None,
    ) -> Flow[dict[str, Any]]:
        body: dict[str, Any] = {}
        for name, value in (("actor", actor), ("note", note), ("approved_args", approved_args)):
            if value is not None:
                body[name] = plain(value) if isinstance(value, str) else value
        path = f"/approvals/{_part(approval_id)}/{verb}"
        return (yield from exchange("POST", path, body, self._headers(org_id), again=False))

    def _get(self, path: str, org_id: str) -> Flow[dict[str, Any]]:
        return (yield from exchange("GET", path, None, self._headers(org_id), again=True))

    def _put(self, path: str, org_id: str, body: dict[str, Any]) -> Flow[dict[str, Any]]:
        return (yield from exchange("PUT", path, body, self._headers(org_id), again=True))

    def _effects(self, org_id: str, session_id: str) -> Flow[list[dict[str, Any]]]:
        effects: list[dict[str, Any]] = []
        token = ""
        while True:
            query = f"page_size=500&page_token={quote(token, safe='')}"
            page = yield from self._get(f"/sessions/{_part(session_id)}/effects?{query}", org_id)
            effects += page.get("effects", [])
            token = page.get("next_page_token") or ""
            if not token:
                return effects

    def _session(
        self, org_id: str, session_id: str, verb: str, body: dict[str, Any], *, again: bool = True
    ) -> Flow[dict[str, Any]]:
        path = f"/sessions/{_part(session_id)}/{verb}"
        headers = self._headers(org_id, session_id)
        # All texts here are free ones: reasons, and a savepoint's name.
        body = {k: plain(v) if isinstance(v, str) else v for k, v in body.items()}
        return (yield from exchange("POST", path, body, headers, again=again))

    def _begin(self, org_id: str, session_id: str, body: dict[str, Any]) -> Flow[dict[str, Any]]:
        headers = self._headers(org_id, session_id)
        return (yield from exchange("POST", "/sessions", body, headers, again=True))

    async def _beat(
        self, org_id: str, session_id: str, grants: list[dict[str, Any]]
    ) -> dict[str, Any]:
        # Short and only once: the next beat is near.
        flow = exchange(
            "POST",
            f"/sessions/{_part(session_id)}/heartbeat",
            {"grants": grants},
            self._headers(org_id, session_id),
            again=False,
            timeout=min(BEAT_TIMEOUT_SECONDS, max(1.0, self._pulse.interval)),
        )
        wire = self._http.beats if self._wire is self._http else self._wire
        return await drive_async(flow, wire)


@dataclass(frozen=True)
class BlockingCalls:
    """An `UndoLogClient`'s calls, each of which blocks its thread."""

    client: UndoLogClient = field(repr=False)

    def intercept(
        self,
        org_id: str,
        session_id: str,
        tool_name: str,
        step_index: int,
        args: dict[str, Any],
        **options: Any,
    ) -> InterceptResponse:
        """See `UndoLogClient.intercept`."""
        given = InterceptOptions(**options)
        flow = self.client._intercept(org_id, session_id, tool_name, step_index, args, given)
        return self.client._sync(flow)

    def commit(
        self,
        org_id: str,
        session_id: str,
        effect_id: str,
        result: dict[str, Any],
        *,
        attempt: int = 0,
    ) -> None:
        """See `UndoLogClient.commit`."""
        self.client._sync(self.client._commit(org_id, session_id, effect_id, result, attempt))

    def fail(
        self,
        org_id: str,
        session_id: str,
        effect_id: str,
        error: str,
        *,
        effect: str = "maybe_applied",
        attempt: int = 0,
        on_tool_failure: str | None = None,
    ) -> None:
        """See `UndoLogClient.fail`."""
        told = ReportOptions(attempt, effect, on_tool_failure)
        self.client._sync(self.client._fail(org_id, session_id, effect_id, error, told))

    def approve(
        self,
        approval_id: str,
        *,
        approved_args: dict[str, Any] | None = None,
        actor: str | None = None,
        note: str | None = None,
        org_id: str = "",
    ) -> dict[str, Any]:
        """See `UndoLogClient.approve`."""
        return self._of(
            self.client._decide("approve", approval_id, org_id, actor, note, approved_args)
        )

    def reject(
        self,
        approval_id: str,
        *,
        actor: str | None = None,
        note: str | None = None,
        org_id: str = "",
    ) -> dict[str, Any]:
        """See `UndoLogClient.reject`."""
        return self._of(self.client._decide("reject", approval_id, org_id, actor, note, None))

    def get_approval(self, approval_id: str, *, org_id: str = "") -> dict[str, Any]:
        """See `UndoLogClient.get_approval`."""
        return self._of(self.client._get(f"/approvals/{_part(approval_id)}", org_id))

    def get_session(self, session_id: str, *, org_id: str = "") -> dict[str, Any]:
        """See `UndoLogClient.get_session`."""
        return self._of(self.client._get(f"/sessions/{_part(session_id)}", org_id))

    def list_effects(self, session_id: str, *, org_id: str = "") -> list[dict[str, Any]]:
        """See `UndoLogClient.list_effects`."""
        return self.client._sync(self.client._effects(org_id, session_id))

    def register_tool(self, name: str, *, org_id: str = "", **contents: Any) -> dict[str, Any]:
        """See `UndoLogClient.register_tool`."""
        return self._of(self.client._put(f"/tools/{_part(name)}", org_id, contents))

    def register_compensation(
        self, name: str, *, org_id: str = "", **contents: Any
    ) -> dict[str, Any]:
        """See `UndoLogClient.register_compensation`."""
        return self._of(self.client._put(f"/compensations/{_part(name)}", org_id, contents))

    def _of(self, flow: Flow[dict[str, Any]]) -> dict[str, Any]:
        return self.client._sync(flow)


def descriptor_body(descriptor: CompensationDescriptor) -> dict[str, Any]:
    """A descriptor as the wire has it."""
    body: dict[str, Any] = {
        "fn_name": descriptor.fn_name,
        "fn_version": descriptor.fn_version,
        "max_retries": descriptor.max_retries,
        "retry_backoff_ms": descriptor.retry_backoff_ms,
    }
    if descriptor.args:
        body["args"] = descriptor.args
    return body


_default: UndoLogClient | None = None
_default_lock = threading.Lock()


class _DefaultLock:
    def after_fork(self) -> None:
        """Another thread of the parent may have held it."""
        global _default_lock
        _default_lock = threading.Lock()


_default_fork = _DefaultLock()
watch(_default_fork)


def default_client() -> UndoLogClient:
    """The client of everything that names none, made from the environment on first use."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = UndoLogClient()
    return _default


def own_flows(client: UndoLogClient) -> UndoLogClient | None:
    """The client if it can send more than its documented methods; `None` for a user's stand-in."""
    is_ours = issubclass(type(client), UndoLogClient) and "_wire" in vars(client)
    return client if is_ours else None


def _with(told: InterceptOptions, given: InterceptOptions) -> InterceptOptions:
    """What a call says beside itself; its own arguments win."""
    values = {n: v for n, v in vars(given).items() if v is not None}
    return InterceptOptions(**{**vars(told), **values})


def _part(text: str) -> str:
    """One part of a path, whatever it holds."""
    part = quote(str(text), safe="")
    if part in ("", ".", ".."):
        # HTTP clients take dots out of a path, so that another thing would be asked for.
        raise ValueError(f"{text!r} is no id or name")
    return part
