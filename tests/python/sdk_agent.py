"""An agent made with the SDK, in a process of its own: `sdk_agent.py VERB SESSION [APPROVAL]`.

It prints one JSON object per line. `UNDOLOG_PROXY_URL` and `UNDOLOG_API_KEY` are the SDK's own;
`WITNESS` is the service that its tools call, `ORG` the organisation.
"""

import json
import os
import sys

import httpx

from undolog_sdk import (
    AwaitingApprovalError,
    ToolTier,
    UndoLogClient,
    UndoLogError,
    UndoLogSession,
    undolog_tool,
)

WITNESS, ORG = os.environ["WITNESS"], os.environ["ORG"]
# A tool may block for as long as it likes.
http = httpx.Client(timeout=None, trust_env=False)
client = UndoLogClient(heartbeat_seconds=float(os.environ.get("HEARTBEAT_SECONDS", "15")))


def tell(**what):
    print(json.dumps(what), flush=True)


def refused(error):
    tell(error=type(error).__name__, code=getattr(error, "code", ""), retryable=error.retryable)


@undolog_tool(
    tier=ToolTier.COMPENSABLE, compensation="undo_customer", client=client, register=False
)
def customer(name: str) -> dict:
    return http.post(f"{WITNESS}/do/customer", json={"name": name}).json()


@undolog_tool(tier=ToolTier.COMPENSABLE, compensation="undo_charge", client=client, register=False)
async def charge(id: str) -> dict:
    # On purpose not awaited: the loop stands still while the service takes its time.
    return http.post(f"{WITNESS}/do/charge", json={"id": id}).json()


@undolog_tool(tier=ToolTier.IRREVERSIBLE, client=client, register=False)
def wire(euros: int) -> dict:
    """Money leaves."""
    return http.post(f"{WITNESS}/do/wire", json={"euros": euros}).json()


async def two_calls(session):
    async with session:
        made = customer("ann")
        tell(customer=made, charge=await charge("charge-1"))


def pay(session):
    """Waits for an approval by ending; started again it goes on."""
    try:
        with session:
            made = customer("ann")
            tell(customer=made, wire=wire(90))
    except AwaitingApprovalError as waiting:
        tell(waiting=waiting.approval_id)
    except UndoLogError as error:
        refused(error)


def decide(session, approval_id):
    try:
        client.blocking.approve(approval_id)
        tell(approved=approval_id)
    except UndoLogError as error:
        refused(error)


def main(verb, session_id, *rest):
    session = UndoLogSession(ORG, session_id, client=client, resume=True)
    if verb == "two_calls":
        import asyncio

        asyncio.run(two_calls(session))
    elif verb == "pay":
        pay(session)
    elif verb == "decide":
        decide(session, *rest)


main(*sys.argv[1:])
