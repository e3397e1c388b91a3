"""Sessions against the fake wire."""

import asyncio
import logging
import threading

import pytest

from undolog_sdk import (
    AwaitingApprovalError,
    CompensationDescriptor,
    SessionOverError,
    ToolTier,
    UnavailableError,
    UndoLogClient,
    UndoLogSession,
    current_session,
    undolog_tool,
)

UNDO = CompensationDescriptor.new("undo")


@undolog_tool(tier=ToolTier.COMPENSABLE, compensation=UNDO)
async def act(): ...


@undolog_tool(tier=ToolTier.COMPENSABLE, compensation=UNDO)
def act_now(): ...


@undolog_tool(tier=ToolTier.SAFE)
async def look(): ...


def verbs(fake):
    return [r["path"].rpartition("/")[2] for r in fake.requests if "/sessions" in r["path"]]


async def test_begin_and_complete(fake, client):
    async with UndoLogSession("acme", client=client, agent_name="bot", metadata={"a": 1}) as s:
        assert current_session() is s
        await look()
        assert fake.requests == []
        await act()
    assert current_session() is None
    assert verbs(fake) == ["sessions", "complete"]
    begun = fake.bodies("/sessions")[0]
    assert begun["session_id"] == s.session_id
    assert (begun["agent_name"], begun["metadata"], begun["lease_seconds"]) == (
        "bot",
        {"a": 1},
        300,
    )


def test_without_an_event_loop(fake, server):
    client = UndoLogClient(server.url)
    with UndoLogSession("acme", client=client) as s:
        assert current_session() is s
        act_now()
    with pytest.raises(ValueError), UndoLogSession("acme", client=client):
        act_now()
        raise ValueError("boom")
    assert verbs(fake) == ["sessions", "complete", "sessions", "fail"]
    assert fake.bodies("/fail")[-1] == {"reason": "ValueError: boom", "rollback": True}
    client.close()


@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError(), KeyboardInterrupt()])
def test_an_exception_rolls_back(fake, server, error):
    client = UndoLogClient(server.url)
    with pytest.raises(type(error)), UndoLogSession("acme", client=client):
        act_now()
        raise error
    fake.wait_for(lambda: verbs(fake) == ["sessions", "fail"])
    client.close()


async def test_leave(fake, client):
    with pytest.raises(ValueError):
        async with UndoLogSession("acme", client=client, on_exception="leave"):
            await act()
            raise ValueError
    assert verbs(fake) == ["sessions"]


def _unavailable():
    error = UnavailableError("away")
    error._tell(code="UNREACHABLE", message="away")
    return error


@pytest.mark.parametrize("error", [AwaitingApprovalError("a"), _unavailable()])
async def test_what_never_fails_a_session(fake, client, error):
    with pytest.raises(type(error)):
        async with UndoLogSession("acme", client=client):
            await act()
            raise error
    assert verbs(fake) == ["sessions"]


async def test_a_session_with_an_open_approval_stays_open(fake, client):
    fake.needs_approval.add("drop")

    @undolog_tool(tier=ToolTier.IRREVERSIBLE)
    async def drop(): ...

    with pytest.raises(AwaitingApprovalError) as caught:
        async with UndoLogSession("acme", client=client):
            with pytest.raises(AwaitingApprovalError):
                await drop()
    assert caught.value.tool_name == "drop"
    async with UndoLogSession("acme", client=client, leave_waiting=True):
        with pytest.raises(AwaitingApprovalError):
            await drop()
    assert verbs(fake) == ["sessions", "sessions"]


async def test_the_blocks_exception_matters_most(fake, client, caplog, quick):
    fake.fail_next("/fail", (409, "SESSION_COMPENSATING"))
    with pytest.raises(ValueError):
        async with UndoLogSession("acme", client=client):
            await act()
            raise ValueError
    fake.fail_next("/fail", *[(500, "INTERNAL")] * 4)
    with caplog.at_level(logging.ERROR, "undolog_sdk"), pytest.raises(KeyError):
        async with UndoLogSession("acme", client=client):
            await act()
            raise KeyError
    assert "could not be rolled back" in caplog.text


async def test_a_session_that_is_over_cannot_complete(fake, client):
    fake.fail_next("/complete", (409, "SESSION_COMPENSATED"))
    with pytest.raises(SessionOverError):
        async with UndoLogSession("acme", client=client):
            await act()


async def test_reports_come_before_the_end(fake, client, quick):
    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation=UNDO)
    async def send():
        return 1

    fake.fail_next("/commit", *["drop"] * 8)
    async with UndoLogSession("acme", client=client):
        assert await send() == 1
    paths = [r["path"] for r in fake.requests]
    assert paths[-1].endswith("/complete")
    assert sum(p.endswith("/commit") for p in paths) == 9


async def test_a_failed_tool_fails_the_session_even_when_caught(fake, client):
    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation=UNDO)
    async def send():
        raise ValueError("boom")

    with pytest.raises(ValueError):
        async with UndoLogSession("acme", client=client) as s:
            with pytest.raises(ValueError):
                await send()
            assert fake.sessions[s.session_id]["state"] == "compensated"
            raise ValueError
    async with UndoLogSession("acme", client=client, on_tool_failure="continue") as s:
        with pytest.raises(ValueError):
            await send()
        assert fake.sessions[s.session_id]["state"] == "active"


async def test_savepoints(fake, client):
    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation=UNDO)
    async def send(n):
        if n == 2:
            raise ValueError("boom")

    async with UndoLogSession("acme", client=client) as s:
        await send(1)
        async with s.savepoint("good") as point:
            await send(3)
        assert point.position == 7
        with pytest.raises(ValueError):
            async with s.savepoint("bad"):
                await send(2)
        assert s._step_index == 8
    assert "fail" not in verbs(fake)
    [undone] = fake.bodies("/rollback")
    assert undone["to_savepoint"] == 7
    assert fake.bodies("/savepoint")[0] == {"name": "good"}


async def test_a_failure_that_a_savepoint_swallows_still_counts(fake, client):
    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation=UNDO)
    async def send():
        raise ValueError("boom")

    async with UndoLogSession("acme", client=client, on_exception="leave") as s:
        async with s.savepoint():
            with pytest.raises(ValueError):
                await send()
            assert fake.sessions[s.session_id]["state"] == "active"
        assert fake.sessions[s.session_id]["state"] == "compensated"


async def test_dry_run(fake, client):
    session = UndoLogSession("acme", client=client)
    shown = await session.rollback(dry_run=True, to_step=3)
    assert shown.rollback_id == "r"
    assert fake.bodies("/rollback")[0]["dry_run"] is True
    assert fake.bodies("/rollback")[0]["to_step"] == 3
    assert session._step_index == 0


async def test_resume_replays_without_calls(fake, client):
    ran = []

    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation=UNDO)
    async def send(n: int) -> int:
        ran.append(n)
        return n

    @undolog_tool(tier=ToolTier.SAFE)
    async def look(): ...

    async with UndoLogSession("acme", client=client) as s:
        await send(1)
        await look()
        await send(2)
    asked = len(fake.bodies("/mcp"))
    async with UndoLogSession("", s.session_id, resume=True, client=client) as again:
        assert again._step_index == 0
        assert [await send(1), await look(), await send(2)] == [1, None, 2]
        assert len(fake.bodies("/mcp")) == asked
        assert await send(3) == 3
    assert ran == [1, 2, 3]
    assert fake.bodies("/mcp")[-1]["step_index"] == 4


async def test_bind(client):
    session = UndoLogSession("acme", client=client)
    seen = []

    def look():
        seen.append(current_session())

    async def look_too():
        seen.append(current_session())

    thread = threading.Thread(target=session.bind(look))
    thread.start()
    thread.join()
    await session.bind(look_too)()
    assert seen == [session, session]
    assert current_session() is None


async def test_heartbeats_of_an_open_session(fake, server):
    async with UndoLogClient(server.url, heartbeat_seconds=0.02) as client:
        async with UndoLogSession("acme", client=client):
            await act()
            await asyncio.to_thread(fake.wait_for, lambda: fake.of("/heartbeat"))
        await asyncio.sleep(0)


async def test_blocks_within_blocks(client):
    async with UndoLogSession("a", client=client) as outer:
        async with UndoLogSession("b", client=client) as inner:
            assert current_session() is inner
        assert current_session() is outer
