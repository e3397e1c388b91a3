"""The documented names, parameters, defaults and modules, one by one."""

import dataclasses
import inspect
import uuid

import httpx
import pytest

import undolog_sdk
from undolog_sdk.client import InterceptResponse, UndoLogClient
from undolog_sdk.decorators import AwaitingApprovalError, undolog_tool
from undolog_sdk.session import UndoLogSession
from undolog_sdk.signature import call_signature, canonical_json
from undolog_sdk.tier import CompensationDescriptor, ToolTier

REQUIRED = inspect.Parameter.empty


def positional(fn):
    """(name, default) of what may be given by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    params = inspect.signature(fn).parameters.values()
    return [(p.name, p.default) for p in params if p.kind in kinds and p.name != "self"]


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (UndoLogClient.__init__, [("proxy_url", None), ("http_client", None)]),
        (
            UndoLogClient.intercept,
            [(n, REQUIRED) for n in ("org_id", "session_id", "tool_name", "step_index", "args")],
        ),
        (
            UndoLogClient.commit,
            [(n, REQUIRED) for n in ("org_id", "session_id", "effect_id", "result")],
        ),
        (
            UndoLogClient.fail,
            [(n, REQUIRED) for n in ("org_id", "session_id", "effect_id", "error")],
        ),
        (UndoLogClient.aclose, []),
        (UndoLogSession.__aenter__, []),
        (UndoLogSession.__aexit__, [(n, REQUIRED) for n in ("exc_type", "exc_val", "exc_tb")]),
        (UndoLogSession.next_step, []),
        (
            undolog_tool,
            [
                ("tier", REQUIRED),
                ("compensation", None),
                ("client", None),
                ("session_param", "_session"),
            ],
        ),
        (CompensationDescriptor.new, [("fn_name", REQUIRED), ("args", None)]),
        (
            AwaitingApprovalError.__init__,
            [("approval_id", REQUIRED), ("tool_name", ""), ("step_index", 0)],
        ),
        (
            call_signature,
            [(n, REQUIRED) for n in ("session_id", "step_index", "tool_name", "args")],
        ),
        (canonical_json, [("value", REQUIRED)]),
    ],
)
def test_parameters(fn, expected):
    assert positional(fn) == expected


def test_async_methods():
    for name in ("intercept", "commit", "fail", "aclose"):
        assert inspect.iscoroutinefunction(getattr(UndoLogClient, name)), name
    for name in ("__aenter__", "__aexit__"):
        assert inspect.iscoroutinefunction(getattr(UndoLogSession, name)), name


def test_tiers():
    assert [(t.name, t.value) for t in ToolTier] == [
        ("SAFE", "safe"),
        ("COMPENSABLE", "compensable"),
        ("IRREVERSIBLE", "irreversible"),
    ]
    seen = [(t.is_safe, t.is_compensable, t.requires_approval) for t in ToolTier]
    assert seen == [(True, False, False), (False, True, False), (False, False, True)]


def test_descriptor():
    made = CompensationDescriptor("undo")
    assert dataclasses.astuple(made) == ("undo", "1.0.0", {}, 3, 1000)
    assert CompensationDescriptor.new("undo") == made
    assert CompensationDescriptor.new("undo", {"to": "{to}"}).args == {"to": "{to}"}


def test_session_fields():
    session = UndoLogSession(org_id="org-abc")
    assert session.org_id == "org-abc"
    assert uuid.UUID(session.session_id).version == 4
    assert session._step_index == 0
    assert "_step_index" not in repr(session)
    assert "org-abc" in repr(session)
    assert [session.next_step() for _ in range(3)] == [1, 2, 3]
    assert UndoLogSession("o", "s").session_id == "s"
    with pytest.raises(TypeError):
        UndoLogSession()


def test_responses():
    made = InterceptResponse("Replay", "e", None, {"output": 1})
    assert (made.outcome, made.effect_id, made.approval_id) == ("Replay", "e", None)
    assert made.cached_result == {"output": 1}


def test_awaiting_approval_error():
    error = AwaitingApprovalError("a-1", "drop", 3)
    assert AwaitingApprovalError.__bases__ == (RuntimeError,)
    assert (error.approval_id, error.tool_name, error.step_index) == ("a-1", "drop", 3)
    plain = AwaitingApprovalError("a-2")
    assert (plain.tool_name, plain.step_index) == ("", 0)


async def test_client_settings(monkeypatch):
    monkeypatch.delenv("UNDOLOG_PROXY_URL", raising=False)
    assert UndoLogClient().proxy_url == "http://localhost:8080"
    monkeypatch.setenv("UNDOLOG_PROXY_URL", "http://proxy:1/")
    assert UndoLogClient().proxy_url == "http://proxy:1"
    assert UndoLogClient("http://other:2").proxy_url == "http://other:2"


async def test_the_default_http_client(server):
    client = UndoLogClient(server.url)
    async with client:
        await client.intercept("o", str(uuid.uuid4()), "t", 1, {})
        [kept] = client._http._made.values()
        made = kept.client
        assert made.timeout == httpx.Timeout(30.0)
        assert str(made.base_url).rstrip("/") == server.url


async def test_a_tool_without_a_client_takes_the_default_one(server, fake, monkeypatch):
    """It is made from the environment, when it is needed first."""
    monkeypatch.setattr("undolog_sdk.client._default", None)

    @undolog_tool(ToolTier.COMPENSABLE, CompensationDescriptor.new("undo"))
    async def send():
        return 1

    monkeypatch.setenv("UNDOLOG_PROXY_URL", server.url)
    monkeypatch.setenv("UNDOLOG_API_KEY", "from-env")
    assert await send(_session=UndoLogSession("acme")) == 1
    assert fake.of("/mcp")[0]["headers"]["x-api-key"] == "from-env"
    await undolog_sdk.client._default.aclose()


async def test_which_outcome_has_which_field(client, fake):
    """Only what waits has an approval id, only what is replayed a result."""
    fake.needs_approval.add("drop")
    session = str(uuid.uuid4())

    async def ask():
        answer = await client.intercept("acme", session, "drop", 1, {}, grant_token="t")
        has = (answer.effect_id, answer.approval_id, answer.cached_result)
        return answer, [value is not None for value in has]

    waiting, fields = await ask()
    assert (waiting.outcome, fields) == ("AwaitingApproval", [True, True, False])
    fake.approve(waiting.approval_id)
    granted, fields = await ask()
    assert (granted.outcome, fields) == ("Execute", [True, False, False])
    assert granted.granted_by_approval == waiting.approval_id
    await client.commit("acme", session, granted.effect_id, {"done": True})
    replayed, fields = await ask()
    assert (replayed.outcome, fields) == ("Replay", [True, False, True])


async def test_headers_and_documented_calls(client, fake, monkeypatch, server):
    monkeypatch.setenv("UNDOLOG_API_KEY", "from-env")
    for key, expected in ((None, "from-env"), ("given", "given")):
        async with UndoLogClient(server.url, api_key=key) as own:
            session = str(uuid.uuid4())
            answer = await own.intercept("acme", session, "send", 1, {"a": 1})
            assert answer.outcome == "Execute"
            assert answer.effect_id
            assert (answer.approval_id, answer.cached_result) == (None, None)
            assert await own.commit("acme", session, answer.effect_id, {"sent": True}) is None
            headers = fake.requests[-2]["headers"]
            assert headers["x-api-key"] == expected
            assert headers["x-undolog-org-id"] == "acme"
            assert headers["x-undolog-session-id"] == session
            assert fake.requests[-2]["path"] == "/mcp/tool_call"
            assert "given" not in repr(own)


async def test_an_http_client_of_the_callers_own():
    seen = []

    def handle(request):
        seen.append(request)
        return httpx.Response(200, json={"status": "executed", "effect_id": "e", "attempt": 1})

    own = httpx.AsyncClient(transport=httpx.MockTransport(handle))
    async with UndoLogClient("http://proxy:1", own) as client:
        await client.intercept("o", str(uuid.uuid4()), "t", 1, {})
    assert str(seen[0].url) == "http://proxy:1/mcp/tool_call"
    assert own.is_closed


async def test_documented_exceptions(client, fake, quick, server):
    fake.fail_next("/mcp", (403, "ORG_MISMATCH"))
    with pytest.raises(httpx.HTTPStatusError):
        await client.intercept("o", str(uuid.uuid4()), "t", 1, {})
    async with UndoLogClient("http://127.0.0.1:1") as away:
        with pytest.raises(httpx.RequestError):
            await away.intercept("o", str(uuid.uuid4()), "t", 1, {})


def test_everything_is_exported():
    for name in undolog_sdk.__all__:
        assert hasattr(undolog_sdk, name), name
