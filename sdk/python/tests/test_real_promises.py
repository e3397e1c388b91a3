"""Promises that need the real service: upstream tools, a step per approval, an absent proxy."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from test_proxy_restart import Proxy

from undolog_sdk import (
    AwaitingApprovalError,
    ToolTier,
    UnavailableError,
    UndoLogClient,
    UndoLogSession,
    undolog_tool,
)


class Sent(httpx.AsyncBaseTransport):
    """Every request that a client sends."""

    def __init__(self):
        self.inner = httpx.AsyncHTTPTransport()
        self.paths = []

    async def handle_async_request(self, request):
        self.paths.append((request.method, request.url.path))
        return await self.inner.handle_async_request(request)

    async def aclose(self):
        await self.inner.aclose()


class Pay(ThreadingHTTPServer):
    """The endpoint of a tool that the proxy runs."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), PayHandler)
        self.charged = []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class PayHandler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.charged.append((self.headers["idempotency-key"], body))
        status = 422 if body["euros"] < 0 else 200
        data = json.dumps({"charge": len(self.server.charged)}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Tests look at what was charged."""


@pytest.fixture
def pay():
    pay = Pay()
    yield pay
    pay.shutdown()
    pay.server_close()


@pytest.fixture
def sent():
    return Sent()


@pytest.fixture
async def watched(undolog_dev, undolog_org, sent, pay):
    """A client whose requests are seen; the proxy itself runs the tool `charge`."""
    http = httpx.AsyncClient(base_url=undolog_dev.proxy_url, transport=sent)
    client = UndoLogClient(undolog_dev.proxy_url, http)
    await client.register_compensation(
        "refund",
        org_id=undolog_org,
        fn_body={"endpoint": "http://127.0.0.1:9/refund"},
        open=True,
    )
    await client.register_tool(
        "charge",
        org_id=undolog_org,
        tier="compensable",
        compensation_ref="refund",
        upstream={
            "endpoint": f"http://127.0.0.1:{pay.server_port}/charges",
            "not_applied_statuses": [422],
        },
    )
    yield client
    await client.aclose()


async def test_what_the_proxy_ran_is_not_reported_again(watched, undolog_org, sent, pay):
    session = UndoLogSession(undolog_org, client=watched)
    call = (undolog_org, session.session_id, "charge", 1, {"euros": 5})
    answer = await watched.intercept(*call)
    assert (answer.outcome, answer.executed_by) == ("Replay", "proxy")
    assert answer.output == {"charge": 1}
    assert [key for key, _ in pay.charged] == [answer.effect_id]
    before = len(sent.paths)
    await watched.commit(undolog_org, session.session_id, answer.effect_id, {"output": "other"})
    await watched.fail(undolog_org, session.session_id, answer.effect_id, "it failed")
    assert len(sent.paths) == before
    [effect] = await watched.list_effects(session.session_id, org_id=undolog_org)
    assert (effect["state"], effect["result"]) == ("committed", {"charge": 1})


async def test_a_tool_that_the_proxy_runs_never_enters_its_body(watched, undolog_org, sent, pay):
    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation="refund", register=False)
    async def charge(euros: int) -> dict:
        raise AssertionError("the proxy runs it")

    async with UndoLogSession(undolog_org, client=watched) as session:
        assert await charge(5) == {"charge": 1}
    reports = [path for method, path in sent.paths if method == "PUT" and "/effects/" in path]
    assert reports == []
    # Replayed, too, in another process.
    async with UndoLogClient(watched.proxy_url) as other:
        again = UndoLogSession(undolog_org, session.session_id, client=other)
        assert await charge(5, _session=again) == {"charge": 1}
    assert len(pay.charged) == 1


async def test_one_step_for_as_long_as_its_approval_is_open(undolog_client, undolog_org):
    ran = []

    @undolog_tool(tier=ToolTier.IRREVERSIBLE)
    async def drop(db: str) -> str:
        """Drops a database."""
        ran.append(db)
        return "dropped " + db

    leaving = UndoLogSession(undolog_org, client=undolog_client, leave_waiting=True)
    async with leaving as session:
        asked = []
        for _ in range(3):
            with pytest.raises(AwaitingApprovalError) as caught:
                await drop("prod")
            asked.append((caught.value.approval_id, caught.value.step_index))
        assert len(set(asked)) == 1
        # Other arguments are another call.
        with pytest.raises(AwaitingApprovalError) as caught:
            await drop("test")
        assert caught.value.approval_id != asked[0][0]
        await undolog_client.approve(asked[0][0], org_id=undolog_org)
        assert await drop("prod") == "dropped prod"
        await undolog_client.approve(caught.value.approval_id, org_id=undolog_org)
        assert await drop("test") == "dropped test"
        # It has run: the same call again is a new one, which somebody has to approve.
        with pytest.raises(AwaitingApprovalError) as caught:
            await drop("prod")
        assert caught.value.approval_id != asked[0][0]
    assert ran == ["prod", "test"]
    effects = await undolog_client.list_effects(session.session_id, org_id=undolog_org)
    assert [(e["step_index"], e["args"]["db"]) for e in effects] == [
        (1, "prod"),
        (2, "test"),
        (3, "prod"),
    ]


@pytest.fixture
def proxy(undolog_dev):
    proxy = Proxy(undolog_dev)
    proxy.start()
    yield proxy
    proxy.kill()


async def test_nothing_runs_while_the_proxy_is_away(proxy, undolog_client, undolog_org, quick):
    ran = []

    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation="undo")
    async def closed(n: int) -> int:
        ran.append(n)
        return n

    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation="undo", fail_open=True)
    async def opened(n: int) -> int:
        ran.append(n)
        return n

    @undolog_tool(tier=ToolTier.IRREVERSIBLE)
    async def never() -> None:
        """Cannot be undone."""
        ran.append("never")

    await undolog_client.register_compensation(
        "undo", org_id=undolog_org, fn_body={"endpoint": "http://127.0.0.1:9/undo"}, open=True
    )
    client = UndoLogClient(proxy.url)
    session = UndoLogSession(undolog_org, client=client)
    assert await closed(1, _session=session) == 1
    proxy.kill()
    for tool, args in ((closed, (2,)), (never, ())):
        with pytest.raises(UnavailableError) as caught:
            await tool(*args, _session=session)
        assert caught.value.retryable
        assert isinstance(caught.value, httpx.RequestError)
    assert await opened(3, _session=session) == 3
    assert ran == [1, 3]
    await asyncio.to_thread(proxy.start)
    # The same call again, as its error says.
    assert await closed(2, _session=session) == 2
    assert ran == [1, 3, 2]
    # What ran meanwhile is recorded when the proxy is back, with its result.
    assert await asyncio.to_thread(client._reporter.flush, session.session_id, 60)
    effects = await client.list_effects(session.session_id, org_id=undolog_org)
    made = {e["step_index"]: (e["args"]["n"], e["state"]) for e in effects}
    assert made == {1: (1, "committed"), 2: (2, "committed"), 4: (3, "committed")}
    await client.aclose()
