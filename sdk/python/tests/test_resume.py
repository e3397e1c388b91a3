"""A resumed run goes the way of the earlier one, or hears that it does not."""

import asyncio

import pytest
from tools import IRR, SAFE, tool

from undolog_sdk import (
    AwaitingApprovalError,
    DeniedError,
    ResumeMismatchError,
    UndoLogSession,
    undolog_tool,
)

ran = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


@tool()
async def order(item: str) -> str:
    ran.append(item)
    return f"ordered {item}, {len(ran)}"


@tool()
async def mail(to: str) -> str:
    ran.append(to)
    return to


@undolog_tool(tier=IRR)
async def pay(amount: int) -> str:
    ran.append(amount)
    return "paid"


def completed(fake):
    return bool(fake.of("/complete"))


async def stop_at_the_payment(fake, client, *calls):
    """A first run: these calls, then one that waits for an approval."""
    fake.needs_approval.add("pay")
    with pytest.raises(AwaitingApprovalError) as caught:
        async with UndoLogSession("acme", client=client) as s:
            for fn, args, keys in calls:
                await fn(*args, **keys)
            keyed = {"step_key": "call_pay"} if calls and calls[0][2] else {}
            await pay(5, **keyed)
    fake.approve(caught.value.approval_id)
    return s.session_id


def again(client, session_id, **options):
    return UndoLogSession("acme", session_id, client=client, resume=True, **options)


async def test_a_changed_call_is_refused_before_it_runs(fake, client):
    """P1, and a run from scratch whose model words its arguments otherwise (F3 b)."""
    session_id = await stop_at_the_payment(fake, client, (order, ("tea",), {}))
    with pytest.raises(ResumeMismatchError, match=r'order.*"item":"coffee".*step 1'):
        async with again(client, session_id):
            await order("coffee")
    assert ran == ["tea"]
    assert not completed(fake)
    assert not fake.of("/fail")


async def test_a_mismatch_that_the_agent_swallows_is_heard_at_the_end(fake, client):
    session_id = await stop_at_the_payment(fake, client, (order, ("tea",), {}))
    with pytest.raises(ResumeMismatchError, match="coffee"):
        async with again(client, session_id):
            with pytest.raises(ResumeMismatchError):
                await order("coffee")
            await order("tea")
            await pay(5)
    assert not completed(fake)


async def test_a_new_call_at_the_step_of_an_old_one_is_refused(fake, client):
    session_id = await stop_at_the_payment(fake, client, (order, ("tea",), {}))
    with pytest.raises(ResumeMismatchError, match="mail"):
        async with again(client, session_id):
            await mail("ann")
    assert ran == ["tea"]


async def test_an_equal_call_after_a_kept_history_is_refused(fake, client):
    """F3 a: the caller remembers and does not say so. Its second order is not the first one."""
    session_id = await stop_at_the_payment(fake, client, (order, ("tea",), {}))
    with pytest.raises(ResumeMismatchError, match="history='kept'"):
        async with again(client, session_id):
            await pay(5)
            await order("tea")
    assert ran == ["tea", 5]


async def test_results_that_nobody_asked_for_are_heard(fake, client):
    session_id = await stop_at_the_payment(fake, client, (order, ("tea",), {}))
    with pytest.raises(ResumeMismatchError, match=r"1 of its earlier calls.*order at step 1"):
        async with again(client, session_id):
            await pay(5)
    assert not completed(fake)
    async with again(client, session_id):
        await order("tea")
        await pay(5)
    assert completed(fake)


async def test_equal_calls_count_up(fake, client):
    calls = [(order, ("tea",), {}), (order, ("tea",), {}), (mail, ("ann",), {})]
    session_id = await stop_at_the_payment(fake, client, *calls)
    first = ["ordered tea, 1", "ordered tea, 2"]
    async with again(client, session_id):
        assert [await order("tea"), await order("tea")] == first
        await mail("ann")
        await pay(5)
        assert await order("tea") == "ordered tea, 5"
    assert completed(fake)


async def test_calls_at_the_same_time_come_in_any_order(fake, client):
    calls = [(order, (item,), {}) for item in ("a", "b", "c")]
    session_id = await stop_at_the_payment(fake, client, *calls)
    async with again(client, session_id):
        await asyncio.gather(*(order(item) for item in "cab"))
        await pay(5)
    assert ran == ["a", "b", "c", 5]


@undolog_tool(tier=SAFE)
async def look(): ...


async def test_new_calls_after_the_old_ones(fake, client):
    session_id = await stop_at_the_payment(fake, client, (order, ("tea",), {}))
    async with again(client, session_id):
        await order("tea")
        await look()
        await pay(5)
        await order("coffee")
        await mail("ann")
    assert ran == ["tea", 5, "coffee", "ann"]


# ------------------------------------------------------------------------ a kept history


async def test_a_kept_history_with_keys_makes_only_new_calls(fake, client):
    first = (order, ("tea",), {"step_key": "call_1"})
    session_id = await stop_at_the_payment(fake, client, first)
    async with again(client, session_id, history="kept"):
        await pay(5, step_key="call_pay")
        # The known key has come again: so the caller remembers, and this is a second order.
        await order("tea", step_key="call_2")
    assert ran == ["tea", 5, "tea"]
    assert completed(fake)


async def test_new_keys_without_a_history_are_refused(fake, client):
    """F3 c: call ids that are new in the second run."""
    first = (order, ("tea",), {"step_key": "call_1"})
    session_id = await stop_at_the_payment(fake, client, first)
    for history in ("kept", "rerun"):
        with pytest.raises(ResumeMismatchError, match=r"'call_9'.*'call_1'"):
            async with again(client, session_id, history=history):
                await order("tea", step_key="call_9")
    assert ran == ["tea"]


async def test_an_equal_call_without_a_key_is_refused_where_the_history_is_kept(fake, client):
    session_id = await stop_at_the_payment(fake, client, (order, ("tea",), {}))
    with pytest.raises(ResumeMismatchError, match="step_key"):
        async with again(client, session_id, history="kept"):
            await order("tea")
    async with again(client, session_id, history="kept"):
        await pay(5)
        await order("coffee")
    assert ran == ["tea", 5, "coffee"]


async def test_a_key_has_one_call(fake, client):
    first = (order, ("tea",), {"step_key": "call_1"})
    session_id = await stop_at_the_payment(fake, client, first)
    with pytest.raises(ResumeMismatchError, match="other arguments"):
        async with again(client, session_id, history="kept"):
            await order("coffee", step_key="call_1")


def test_what_a_session_takes():
    with pytest.raises(ValueError, match="'rerun' or 'kept'"):
        UndoLogSession("acme", history="forgotten")
    with pytest.raises(ValueError, match="on_rejection must be"):
        UndoLogSession("acme", on_rejection="shrug")
    with pytest.raises(TypeError, match="org_id"):
        UndoLogSession()


# ------------------------------------------------------------------------ rejections


async def test_a_rejection_comes_with_the_note(fake, client):
    fake.needs_approval.add("pay")
    with pytest.raises(AwaitingApprovalError) as caught:
        async with UndoLogSession("acme", client=client) as s:
            await pay(5)
    approval_id = caught.value.approval_id
    fake.approvals[approval_id].update(state="reject", note="too much", by="boss")
    for _ in range(2):
        with pytest.raises(DeniedError, match=r"boss: too much") as denied:
            await pay(5, _session=UndoLogSession("acme", s.session_id, client=client))
        assert (denied.value.note, denied.value.decided_by) == ("too much", "boss")


async def test_a_resumed_process_hears_the_rejection(fake, client):
    fake.needs_approval.add("pay")
    with pytest.raises(AwaitingApprovalError) as caught:
        async with UndoLogSession("acme", client=client) as s:
            await pay(5)
    fake.approvals[caught.value.approval_id].update(state="reject", note="no", by="boss")
    fake.fail_next("/replay", (409, "SESSION_HALTED"))
    with pytest.raises(DeniedError, match="boss: no") as denied:
        async with again(client, s.session_id):
            raise AssertionError("the block must not run")
    assert denied.value.approval_id == caught.value.approval_id


async def test_calls_that_the_earlier_run_did_not_reach_come_among_the_others(fake, client):
    calls = [(order, (item,), {}) for item in ("b", "c")]
    session_id = await stop_at_the_payment(fake, client, *calls)
    async with again(client, session_id):
        await asyncio.gather(*(order(item) for item in "abcd"))
        await pay(5)
    assert sorted(map(str, ran)) == ["5", "a", "b", "c", "d"]


@pytest.mark.parametrize(
    "state", [{"state": "compensated"}, {"state": "failed", "outcome": "not_applied"}]
)
async def test_what_was_undone_is_made_again(fake, client, state):
    calls = [(order, (item,), {}) for item in ("a", "b", "c")]
    session_id = await stop_at_the_payment(fake, client, *calls)
    next(e for e in fake.effects.values() if e["body"]["args"] == {"item": "b"}).update(state)
    async with again(client, session_id):
        for item in "abc":
            await order(item)
        await pay(5)
    assert ran == ["a", "b", "c", "b", 5]
    assert fake.bodies("/mcp")[-2]["step_index"] == 5
