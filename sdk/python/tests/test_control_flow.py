"""What is no failure: waiting, retryable and a framework's own exceptions, however they arrive."""

import asyncio
import builtins
import concurrent.futures
import sys

import anyio
import pytest
from tools import IRR, tool

import undolog_sdk
from undolog_sdk import (
    AwaitingApprovalError,
    SessionOverError,
    UndoLogSession,
    _outcome,
    undolog_tool,
)

needs_groups = pytest.mark.skipif(sys.version_info < (3, 11), reason="ExceptionGroup is newer")


def ends(fake):
    """How sessions ended: `complete`, `fail`, or not at all."""
    verbs = (r["path"].rpartition("/")[2] for r in fake.requests if "/sessions/" in r["path"])
    return [v for v in verbs if v in ("complete", "fail")]


@undolog_tool(tier=IRR)
async def drop(): ...


@tool()
async def act():
    return 1


async def _cause():
    try:
        await drop()
    except AwaitingApprovalError as waiting:
        raise RuntimeError("the framework's own") from waiting


async def _context():
    try:
        await drop()
    except AwaitingApprovalError:
        raise RuntimeError("while it was handled")  # noqa: B904


async def _group():
    async with asyncio.TaskGroup() as group:
        group.create_task(drop())


@pytest.mark.parametrize("run", [_cause, _context, pytest.param(_group, marks=needs_groups)])
async def test_a_wrapped_wait_leaves_the_session_open(fake, client, run):
    fake.needs_approval.add("drop")
    with pytest.raises(BaseException, match=r"framework|handled|TaskGroup"):
        async with UndoLogSession("acme", client=client):
            await act()
            await run()
    assert ends(fake) == []


@needs_groups
async def test_a_failure_beside_a_waiting_call_is_a_failure(fake, client):
    async def breaks():
        raise ValueError("broken")

    fake.needs_approval.add("drop")
    with pytest.raises(builtins.BaseExceptionGroup):
        async with UndoLogSession("acme", client=client):
            await act()
            done = await asyncio.gather(drop(), breaks(), return_exceptions=True)
            raise builtins.ExceptionGroup("both", done)
    assert ends(fake) == ["fail"]


async def test_a_cause_that_goes_in_circles_ends():
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one
    assert not _outcome.leaves_open(one)


# ------------------------------------------------------------------------ frameworks


class Interrupt(Exception):
    pass


def framework(module, name, base=Exception):
    """An exception class as a framework has it, without the framework."""
    return type(name, (base,), {"__module__": module})


@pytest.mark.parametrize(
    ("kind", "effect"),
    [
        (framework("langgraph.errors", "GraphBubbleUp"), "not_applied"),
        (
            framework(
                "langgraph.errors", "GraphInterrupt", framework("langgraph.errors", "GraphBubbleUp")
            ),
            "not_applied",
        ),
        (framework("pydantic_ai.exceptions", "ModelRetry"), "maybe_applied"),
        (framework("pydantic_ai.exceptions", "CallDeferred"), "not_applied"),
    ],
)
async def test_what_steers_a_framework_is_no_failure(fake, client, kind, effect):
    @tool()
    async def send():
        raise kind("go on elsewhere")

    with pytest.raises(kind):
        async with UndoLogSession("acme", client=client):
            await send()
    [report] = fake.bodies("/effects")
    assert (report["effect"], report["on_tool_failure"]) == (effect, "continue")
    assert ends(fake) == []


async def test_others_are_registered(fake, client, monkeypatch):
    monkeypatch.setattr(_outcome, "_registered", {})

    @tool()
    async def send():
        raise Interrupt

    async def run():
        with pytest.raises(Interrupt):
            async with UndoLogSession("acme", client=client):
                await send()

    await run()
    assert ends(fake) == ["fail"]
    undolog_sdk.not_a_failure(Interrupt, effect="not_applied")
    await run()
    assert ends(fake) == ["fail"]
    assert fake.bodies("/effects")[-1]["effect"] == "not_applied"
    with pytest.raises(TypeError, match="exception class"):
        undolog_sdk.not_a_failure("Interrupt")


async def test_a_paused_tool_keeps_its_session_open_and_its_step(fake, client):
    kind = framework("langgraph.errors", "GraphBubbleUp")
    pauses = [kind("ask somebody")]

    @tool()
    async def send():
        if pauses:
            raise pauses.pop()
        return "sent"

    async with UndoLogSession("acme", client=client):
        with pytest.raises(kind):
            await send()
    assert ends(fake) == []
    async with UndoLogSession("acme", client=client) as s:
        pauses.append(kind("again"))
        with pytest.raises(kind):
            await send()
        for effect in fake.effects.values():
            effect.update(state="executing", token=None)
        assert await send() == "sent"
        assert s._step_index == 1
    assert ends(fake) == ["complete"]


# ------------------------------------------------------------------------ cancellation


async def test_a_scope_that_is_cancelled_rolls_the_session_back(fake, client):
    with anyio.CancelScope() as scope:
        async with UndoLogSession("acme", client=client):
            await act()
            scope.cancel()
            await asyncio.sleep(60)
    await asyncio.to_thread(fake.wait_for, lambda: ends(fake) == ["fail"])


async def test_a_task_that_is_cancelled_twice_rolls_the_session_back(fake, client):
    started = asyncio.Event()

    async def run():
        async with UndoLogSession("acme", client=client):
            await act()
            started.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(run())
    await started.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(fake.wait_for, lambda: ends(fake) == ["fail"])


# ------------------------------------------------------------------------ failures


async def test_a_report_of_a_failure_carries_its_policy(fake, client, caplog):
    @tool()
    async def send():
        raise ValueError("declined")

    async def run(**options):
        with pytest.raises(ValueError):
            async with UndoLogSession("acme", client=client, **options):
                await send()
        return fake.bodies("/effects")[-1].get("on_tool_failure")

    assert await run() is None
    assert await run(on_tool_failure="continue") is None
    begun = [b for b in fake.bodies("/sessions") if b and "lease_seconds" in b]
    assert [b.get("on_tool_failure") for b in begun] == [None, "continue"]
    assert caplog.text.count("on_tool_failure='continue'") == 1
    with pytest.raises(ValueError):
        await send(_session=UndoLogSession("acme", client=client, on_tool_failure="continue"))
    assert fake.bodies("/effects")[-1]["on_tool_failure"] == "continue"


async def test_what_comes_after_a_failed_tool_says_why(fake, client):
    @tool()
    async def send():
        raise ValueError("declined")

    fake.fail_next("/complete", (409, "SESSION_COMPENSATED"))
    with pytest.raises(SessionOverError, match=r"its tool send failed.*on_tool_failure"):
        async with UndoLogSession("acme", client=client):
            with pytest.raises(ValueError):
                await send()


@pytest.mark.parametrize("kind", [asyncio.Future, concurrent.futures.Future])
async def test_a_tool_that_returns_unfinished_work_is_no_success(fake, client, kind):
    @tool()
    def send():
        return kind()

    with pytest.raises(TypeError, match="instead of a result"):
        send(_session=UndoLogSession("acme", client=client))
    assert fake.bodies("/effects")[-1]["effect"] == "maybe_applied"
    assert fake.states() == ["failed"]
