"""Requests and reports that are lost, calls that wait, calls at once: against the fake wire."""

import asyncio
import datetime as dt
import itertools
import logging
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import pytest
from fake import Server, until
from tools import IRR, tool

from undolog_sdk import (
    AwaitingApprovalError,
    ConflictError,
    DeniedError,
    InProgressError,
    NotRegisteredError,
    OutcomeUnknownError,
    SessionAwaitingApprovalError,
    SessionOverError,
    StoppedError,
    UnauthorizedError,
    UnavailableError,
    UndoLogClient,
    UndoLogSession,
    UndoneError,
    stop_requested,
    undolog_tool,
)

# ------------------------------------------------------------------------ delivery


@pytest.mark.parametrize("fault", ["drop", "lose", (503, "UNAVAILABLE")])
async def test_a_lost_answer_runs_the_tool_once(fake, session, quick, fault):
    ran = []

    @tool()
    async def send():
        ran.append(1)
        return 5

    fake.fail_next("/mcp", fault, fault)
    assert await send(_session=session) == 5
    assert ran == [1]
    tokens = {b["grant_token"] for b in fake.bodies("/mcp")}
    assert len(fake.bodies("/mcp")) == 3
    assert len(tokens) == 1


async def test_a_call_waits_while_late_work_of_its_session_is_undone(fake, session, quick):
    ran = []

    @tool()
    async def send():
        ran.append(1)
        return 5

    fake.fail_next("/mcp", *[(409, "UNDO_RUNNING")] * 6)
    fake.fail_next("/complete", (409, "UNDO_RUNNING"))
    async with session:
        assert await send(_session=session) == 5
    assert ran == [1]
    assert len(fake.bodies("/mcp")) == 7
    assert len(fake.of("/complete")) == 2


@pytest.mark.parametrize("fault", ["drop", "lose", (503, "UNAVAILABLE")])
async def test_a_report_is_sent_until_it_is_taken(fake, session, quick, fault):
    ran = []

    @tool()
    async def send():
        ran.append(1)
        return 5

    fake.fail_next("/commit", *[fault] * 9)
    assert await send(_session=session) == 5
    await asyncio.to_thread(fake.wait_for, lambda: len(fake.bodies("/commit")) == 10)
    assert ran == [1]
    assert len({str(b) for b in fake.bodies("/commit")}) == 1
    assert fake.states() == ["committed"]


async def test_the_same_call_again_keeps_its_step_and_token(fake, session, quick):
    @tool()
    async def send(to):
        return to

    fake.fail_next("/mcp", *["lose"] * 4)
    with pytest.raises(UnavailableError) as caught:
        await send("ann", _session=session)
    assert caught.value.retryable
    assert await send("bob", _session=session) == "bob"
    assert await send("ann", _session=session) == "ann"
    asked = [(b["args"]["to"], b["step_index"]) for b in fake.bodies("/mcp")]
    assert asked == [("ann", 1)] * 4 + [("bob", 2), ("ann", 1)]
    assert len({b["grant_token"] for b in fake.bodies("/mcp")}) == 2


async def test_closed_when_the_proxy_is_away(quick):
    ran = []

    @tool()
    async def send():
        ran.append(1)

    async with UndoLogClient("http://127.0.0.1:1") as away:
        with pytest.raises(UnavailableError):
            await send(_session=UndoLogSession("acme", client=away))
    assert ran == []


async def test_open_only_when_asked_for_and_logged(quick, caplog):
    @tool(fail_open=True)
    async def send():
        return 1

    async with UndoLogClient("http://127.0.0.1:1") as away:
        with caplog.at_level(logging.WARNING, "undolog_sdk"):
            assert await send(_session=UndoLogSession("acme", client=away)) == 1
    assert "while the proxy is away" in caplog.text


@pytest.mark.parametrize(
    ("status", "code", "kind", "retryable"),
    [
        (409, "IN_PROGRESS", InProgressError, True),
        (409, "STEP_CONFLICT", ConflictError, False),
        (409, "APPROVAL_REJECTED", DeniedError, False),
        (409, "OUTCOME_UNKNOWN", OutcomeUnknownError, False),
        (409, "ALREADY_UNDONE", UndoneError, False),
        (409, "SESSION_COMPENSATED", SessionOverError, False),
        (409, "SESSION_AWAITING_APPROVAL", SessionAwaitingApprovalError, True),
        (404, "TOOL_NOT_REGISTERED", NotRegisteredError, False),
        (401, "UNAUTHENTICATED", UnauthorizedError, False),
    ],
)
async def test_typed_errors(fake, session, status, code, kind, retryable):
    @tool()
    async def send():
        raise AssertionError("it must not run")

    fake.fail_next("/mcp", (status, code))
    with pytest.raises(kind) as caught:
        await send(_session=session)
    error = caught.value
    assert (error.code, error.retryable, error.request_id) == (code, retryable, "r-1")
    assert isinstance(error, httpx.HTTPStatusError)
    assert error.response.status_code == status


# ------------------------------------------------------------------------ approvals


async def test_an_approval_keeps_its_step(fake, session, client):
    fake.needs_approval.add("drop")
    ran = []

    @undolog_tool(tier=IRR)
    async def drop(db: str, when: dt.date) -> str:
        ran.append((db, when))
        return db

    day = dt.date(2030, 1, 2)
    for _ in range(2):
        with pytest.raises(AwaitingApprovalError) as caught:
            await drop("prod", day, _session=session)
        assert (caught.value.step_index, caught.value.tool_name) == (1, "drop")
    assert ran == []
    fake.approve(caught.value.approval_id, {"db": "staging", "when": "2031-05-06"})
    assert await drop("prod", day, _session=session) == "staging"
    assert ran == [("staging", dt.date(2031, 5, 6))]
    assert {b["step_index"] for b in fake.bodies("/mcp")} == {1}
    assert all(b["accepts_approved_args"] for b in fake.bodies("/mcp"))


async def test_a_rejected_call(fake, session, client):
    fake.needs_approval.add("drop")

    @undolog_tool(tier=IRR)
    async def drop():
        raise AssertionError("it must not run")

    with pytest.raises(AwaitingApprovalError) as caught:
        await drop(_session=session)
    await client.reject(caught.value.approval_id, note="no")
    with pytest.raises(DeniedError):
        await drop(_session=session)


async def test_waiting_for_an_approval(fake, session):
    fake.needs_approval.add("drop")

    @undolog_tool(tier=IRR, approval="wait", approval_timeout=60)
    async def drop():
        return 1

    task = asyncio.create_task(drop(_session=session))
    await asyncio.to_thread(until, lambda: len(fake.bodies("/mcp")) > 1)
    fake.approve(next(iter(fake.approvals)))
    assert await task == 1
    assert fake.bodies("/mcp")[-1]["wait_ms"] > 0


async def test_waiting_ends(fake, session):
    fake.needs_approval.add("drop")

    @undolog_tool(tier=IRR, approval="wait", approval_timeout=0.05)
    async def drop(): ...

    with pytest.raises(AwaitingApprovalError):
        await drop(_session=session)


async def test_approved_args_that_do_not_fit(fake, session):
    fake.needs_approval.add("drop")

    @undolog_tool(tier=IRR)
    async def drop(when: dt.date):
        raise AssertionError("it must not run")

    with pytest.raises(AwaitingApprovalError) as caught:
        await drop(dt.date(2030, 1, 1), _session=session)
    fake.approve(caught.value.approval_id, {"when": "someday"})
    with pytest.raises(ValueError):
        await drop(dt.date(2030, 1, 1), _session=session)
    assert fake.bodies("/fail")[0]["effect"] == "not_applied"


# ------------------------------------------------------------------------ heartbeats


def test_a_blocking_tool_is_kept_alive(server, fake):
    client = UndoLogClient(server.url, heartbeat_seconds=0.02)

    @tool()
    def slow():
        fake.wait_for(lambda: len([b for b in fake.bodies("/heartbeat") if b["grants"]]) >= 3)
        return 1

    assert slow(_session=UndoLogSession("acme", client=client)) == 1
    [effect_id] = fake.effects
    beats = [b for b in fake.bodies("/heartbeat") if b["grants"]]
    assert beats[0]["grants"] == [{"effect_id": effect_id, "attempt": 1}]
    client.close()


async def test_a_stop_cancels_the_body(fake, session):
    @tool()
    async def slow():
        fake.stop = True
        await asyncio.sleep(60)

    with pytest.raises(StoppedError):
        await slow(_session=session)
    await asyncio.to_thread(fake.wait_for, lambda: fake.states() == ["failed"])
    assert fake.bodies("/fail")[0]["effect"] == "unknown"
    # The task itself goes on as if it had not been cancelled.
    await asyncio.sleep(0)


async def test_a_stop_cancels_the_body_of_a_task_that_swallowed_a_cancellation(fake, session):
    @tool()
    async def slow():
        fake.stop = True
        await asyncio.sleep(60)

    async def agent():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            with pytest.raises(StoppedError):
                await slow(_session=session)
            return "goes on"

    task = asyncio.create_task(agent())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "goes on"


def test_retries_leave_the_shared_random_numbers_alone(fake, client, quick):
    @tool()
    def send():
        return 5

    fake.fail_next("/mcp", "drop", "drop")
    random.seed(7)
    before = random.getstate()
    assert send(_session=UndoLogSession("acme", client=client)) == 5
    assert random.getstate() == before


# ------------------------------------------------------------------------ many at once


async def test_two_hundred_calls_from_tasks_and_threads(fake, session, client):
    @tool()
    async def one(n: int) -> int:
        await asyncio.sleep(0)
        return n * 2

    @tool()
    def two(n: int) -> int:
        return n * 3

    async with session:
        with ThreadPoolExecutor(20) as pool:
            loop = asyncio.get_running_loop()
            threads = [loop.run_in_executor(pool, session.bind(two), n) for n in range(100)]
            tasks = [asyncio.create_task(one(n)) for n in range(100)]
            assert await asyncio.gather(*tasks) == [n * 2 for n in range(100)]
            assert await asyncio.gather(*threads) == [n * 3 for n in range(100)]
    steps = sorted(b["step_index"] for b in fake.bodies("/mcp"))
    assert steps == list(range(1, 201))
    before = len(fake.bodies("/mcp"))
    # Another order: each call still finds its own result.
    async with UndoLogSession("acme", session.session_id, client=client, resume=True) as again:
        with ThreadPoolExecutor(20) as pool:
            loop = asyncio.get_running_loop()
            tasks = [asyncio.create_task(one(n)) for n in reversed(range(100))]
            threads = [loop.run_in_executor(pool, again.bind(two), n) for n in range(100)]
            assert sorted(await asyncio.gather(*tasks)) == [n * 2 for n in range(100)]
            assert await asyncio.gather(*threads) == [n * 3 for n in range(100)]
    assert len(fake.bodies("/mcp")) == before


def test_the_proxy_restarts_under_load(fake, monkeypatch):
    monkeypatch.setattr("undolog_sdk._reporter.FIRST_DELAY", 0.02)
    server = Server(fake)
    port = server.server_port
    client = UndoLogClient(server.url)
    ran = []

    @tool()
    def send(n: int) -> int:
        ran.append(n)
        return n

    session = UndoLogSession("acme", client=client)
    done, stop = [], threading.Event()

    def work(first):
        for n in range(first, first + 25):
            while True:
                try:
                    assert send(n, _session=session) == n
                    done.append(n)
                    break
                except UnavailableError as error:
                    assert error.retryable

    threads = [threading.Thread(target=work, args=(i * 100,)) for i in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(done) > 20)
    server.end()
    server = Server(fake, port)
    for thread in threads:
        thread.join(120)
    stop.set()
    assert client._reporter.flush(None, 60)
    assert len(done) == 200
    assert sorted(ran) == sorted(done)
    assert fake.states().count("committed") == 200
    client.close()
    server.end()


def test_a_blocking_tool_can_ask_whether_to_stop(server, fake):
    client = UndoLogClient(server.url, heartbeat_seconds=0.02)
    fake.stop = True

    @tool()
    def slow():
        assert not stop_requested()
        until(stop_requested)
        return "stopped in good order"

    assert slow(_session=UndoLogSession("acme", client=client)) == "stopped in good order"
    assert not stop_requested()
    client.close()


def test_a_forked_process_has_tokens_of_its_own():
    session = UndoLogSession("acme")
    pids = iter((1, 2))
    tokens = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("undolog_sdk.session.os", SimpleNamespace(getpid=lambda: next(pids)))
        for _ in range(2):
            session._tokens = itertools.count(1)
            tokens.add(session._take("t", "{}", None).grant_token)
    assert len(tokens) == 2
    assert session._take("t", "{}", None).grant_token not in tokens
