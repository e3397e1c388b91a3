"""An agent that ends while it waits for a human, and a new process that goes on.

    python examples/approval.py RUN      # makes an invoice, then waits for an approval and ends
    undolog approvals approve --org dev <the id that it printed>
    python examples/approval.py RUN      # goes on: one invoice, one payment

The same name of a run gives the same session. The second process makes the same calls again: what
was done is not done again, and the approved call runs once.
"""

import asyncio
import os
import sys
import uuid
from pathlib import Path

from undolog_sdk import (
    AwaitingApprovalError,
    ToolTier,
    UndoLogClient,
    UndoLogSession,
    undolog_tool,
)

ORG = os.environ.get("UNDOLOG_ORG", "dev")
# What the world saw: both processes write into it.
WORLD = Path(os.environ.get("WORLD", "world.txt"))


def happened(what: str) -> None:
    with WORLD.open("a") as file:
        file.write(what + "\n")


@undolog_tool(tier=ToolTier.COMPENSABLE, compensation="withdraw_invoice")
async def make_invoice(customer: str, euros: int) -> str:
    happened(f"invoice to {customer} over {euros}")
    return f"{customer}-1"


@undolog_tool(
    tier=ToolTier.IRREVERSIBLE,
    risk_tags=["money"],
    estimated_impact="the amount leaves the account",
)
async def pay(invoice: str, euros: int) -> str:
    """Pays an invoice by bank transfer, which cannot be called back."""
    happened(f"payment of {euros} for {invoice}")
    return "paid"


async def main(run: str) -> None:
    session_id = str(uuid.uuid5(uuid.NAMESPACE_URL, run))
    async with UndoLogClient() as client:
        await client.register_compensation(
            "withdraw_invoice",
            org_id=ORG,
            fn_body={"kind": "http", "endpoint": "https://invoices.example/withdraw"},
            open=True,
        )
        try:
            async with UndoLogSession(ORG, session_id, client=client, resume=True):
                invoice = await make_invoice("acme", 90)
                print(await pay(invoice, 90))
        except AwaitingApprovalError as waiting:
            print(waiting.approval_id)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
