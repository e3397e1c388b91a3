"""A life of the independent client `undolog-sdk` against a proxy, told as JSON.

Arguments: the proxy's URL, an agent's key, an approver's key, the witness' URL.
"""

import asyncio
import json
import sys

import httpx
from undolog_sdk import (
    AwaitingApprovalError,
    CompensationDescriptor,
    ToolTier,
    UndoLogClient,
    UndoLogSession,
    undolog_tool,
)

PROXY, AGENT_KEY, APPROVER_KEY, WITNESS = sys.argv[1:]


async def refused(call):
    """The status and code of what a call is refused with."""
    try:
        await call
    except httpx.HTTPStatusError as error:
        return {"status": error.response.status_code, "code": error.response.json()["code"]}
    return None


async def main():
    client = UndoLogClient(proxy_url=PROXY, api_key=AGENT_KEY)
    approver = UndoLogClient(proxy_url=PROXY, api_key=APPROVER_KEY)
    runs = []

    @undolog_tool(
        tier=ToolTier.COMPENSABLE,
        compensation=CompensationDescriptor.new("undo_charge"),
        client=client,
    )
    async def charge(amount: int, fails: bool = False, _session=None) -> dict:
        runs.append(amount)
        if fails:
            raise ValueError("the card was refused")
        async with httpx.AsyncClient(trust_env=False) as http:
            answer = await http.post(f"{WITNESS}/do/charge", json={"amount": amount})
        return answer.json()

    @undolog_tool(tier=ToolTier.IRREVERSIBLE, client=client)
    async def wire(to: str, _session=None) -> dict:
        runs.append(to)
        return {"sent": to}

    told = {}
    session = UndoLogSession(org_id="acme")
    told["committed_session"] = session.session_id
    async with session:
        told["first"] = await charge(amount=1, _session=session)
    again = UndoLogSession(org_id="acme", session_id=session.session_id)
    async with again:
        told["replayed"] = await charge(amount=1, _session=again)
    told["runs_after_replay"] = list(runs)

    failing = UndoLogSession(org_id="acme")
    told["failed_session"] = failing.session_id
    try:
        async with failing:
            await charge(amount=2, _session=failing)
            await charge(amount=3, fails=True, _session=failing)
    except ValueError as error:
        told["raised"] = str(error)

    asking = UndoLogSession(org_id="acme")
    try:
        async with asking:
            await wire(to="x", _session=asking)
    except AwaitingApprovalError as error:
        told["pending_step"] = error.step_index
        approval_id = error.approval_id
    waiting = await client.intercept("acme", asking.session_id, "wire", 1, {"to": "x"})
    told["while_pending"] = waiting.outcome
    told["approval"] = waiting.approval_id == approval_id
    await approver.approve("acme", approval_id)
    after = await client.intercept("acme", asking.session_id, "wire", 1, {"to": "x"})
    told["after_approval"] = after.outcome
    await client.commit("acme", asking.session_id, after.effect_id, {"sent": "x"})
    replay = await client.intercept("acme", asking.session_id, "wire", 1, {"to": "x"})
    told["approved_replay"] = [replay.outcome, replay.cached_result]

    rejecting = UndoLogSession(org_id="acme")
    try:
        async with rejecting:
            await wire(to="y", _session=rejecting)
    except AwaitingApprovalError as error:
        await approver.reject("acme", error.approval_id)
    told["rejected"] = await refused(
        client.intercept("acme", rejecting.session_id, "wire", 1, {"to": "y"})
    )
    told["runs"] = runs
    await client.aclose()
    await approver.aclose()
    print(json.dumps(told))


asyncio.run(main())
