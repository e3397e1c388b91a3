"""Users' subclasses and mocks of the client are called, with the documented arguments."""

from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from tools import IRR, SAFE, tool

from undolog_sdk import (
    AwaitingApprovalError,
    InterceptResponse,
    UndoLogClient,
    UndoLogSession,
    undolog_tool,
)


def answers(answer):
    client = AsyncMock(spec=UndoLogClient)
    client.intercept.return_value = answer
    return client


async def test_a_mock_is_called_as_documented():
    client = answers(InterceptResponse(outcome="Execute", effect_id="e-1"))

    @tool(client=client)
    async def send(to: str) -> dict:
        return {"status": "sent"}

    async with UndoLogSession(org_id="acme") as session:
        assert await send("ann", _session=session) == {"status": "sent"}
    client.intercept.assert_awaited_once_with(
        org_id="acme",
        session_id=session.session_id,
        tool_name="send",
        step_index=1,
        args={"to": "ann"},
    )
    [reported] = client.commit.await_args_list
    assert list(reported.kwargs) == ["org_id", "session_id", "effect_id", "result"]
    assert reported.kwargs["result"]["output"] == {"status": "sent"}
    client.fail.assert_not_called()


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_failure_reaches_a_mock(is_async):
    client = answers(SimpleNamespace(outcome="Execute", effect_id="e-1"))

    def breaks():
        raise ValueError("declined")

    async def breaks_too():
        raise ValueError("declined")

    send = tool(client=client, name="send")(breaks_too if is_async else breaks)
    with pytest.raises(ValueError, match="declined"):
        made = send(_session=UndoLogSession("acme"))
        if is_async:
            await made
    [reported] = client.fail.await_args_list
    assert list(reported.kwargs) == ["org_id", "session_id", "effect_id", "error"]
    assert "declined" in reported.kwargs["error"]


@pytest.mark.parametrize(
    "stored",
    [
        {"status": "sent"},
        {"success": True, "output": {"status": "sent"}, "error": None, "duration_ms": 1},
    ],
)
async def test_documented_fields_are_enough(stored):
    replay = SimpleNamespace(outcome="Replay", effect_id="e-1", cached_result=stored)

    @tool()
    async def send() -> dict:
        raise AssertionError("it must not run")

    send.undolog.options.client = answers(replay)
    assert await send(_session=UndoLogSession("acme")) == {"status": "sent"}


async def test_a_mock_that_asks_for_an_approval():
    waiting = InterceptResponse(outcome="AwaitingApproval", effect_id="e-1", approval_id="a-1")

    @undolog_tool(tier=IRR, client=answers(waiting))
    async def drop(): ...

    with pytest.raises(AwaitingApprovalError) as caught:
        await drop(_session=UndoLogSession("acme"))
    assert (caught.value.approval_id, caught.value.step_index) == ("a-1", 1)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_subclass_is_called(fake, server, is_async):
    seen = []

    class Seeing(UndoLogClient):
        async def intercept(self, org_id, session_id, tool_name, step_index, args):
            seen.append(("intercept", org_id, tool_name, step_index, args))
            return await super().intercept(org_id, session_id, tool_name, step_index, args)

        async def commit(self, org_id, session_id, effect_id, result):
            seen.append(("commit", result["output"]))
            await super().commit(org_id, session_id, effect_id, result)

    client = Seeing(server.url)

    def plain(n):
        return n

    async def coroutine(n):
        return n

    send = tool(name="send")(coroutine if is_async else plain)
    async with UndoLogSession("acme", client=client):
        made = send(3)
        assert (await made if is_async else made) == 3
    assert seen == [("intercept", "acme", "send", 1, {"n": 3}), ("commit", 3)]
    # What travels beside the documented arguments has arrived all the same.
    [asked] = fake.bodies("/mcp")
    assert asked["signature"]
    assert asked["heartbeats"] is True
    assert fake.bodies("/commit")[0]["attempt"] == 1
    await client.aclose()


async def test_safe_tools_need_no_proxy():
    client = UndoLogClient("http://127.0.0.1:1")

    @undolog_tool(tier=SAFE)
    async def look(q):
        return q

    async with UndoLogSession("acme", client=client) as s:
        assert [await look("a"), await look("b", step_key="k")] == ["a", "b"]
        assert s._step_index == 2
    with pytest.raises(ValueError, match="boom"):
        async with UndoLogSession("acme", client=client):
            raise ValueError("boom")


def test_a_frameworks_tool_is_no_function():
    kind = type(
        "StructuredTool", (type("BaseTool", (), {"__module__": "langchain_core.tools"}),), {}
    )
    with pytest.raises(TypeError, match="below the framework's own decorator"):
        tool()(kind())
    with pytest.raises(TypeError, match="below"):
        tool()(object())
