"""An agent with a safe, a compensable and an irreversible tool, whose run fails and is undone.

    undolog dev                      # in one terminal
    python examples/agent.py         # in another

The "CRM" is a small HTTP service in this process, so that the undo reaches something real.
"""

import asyncio
import json
import os
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from undolog_sdk import (
    AwaitingApprovalError,
    CompensationDescriptor,
    ToolTier,
    UndoLogClient,
    UndoLogSession,
    undolog_tool,
)

USERS: dict[str, str] = {}
ORG = os.environ.get("UNDOLOG_ORG", "dev")


class Crm(BaseHTTPRequestHandler):
    """`POST /users/delete` with `{"id": …}`; deleting twice is no error."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        USERS.pop(body["id"], None)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@undolog_tool(tier=ToolTier.SAFE)
async def search(name: str) -> list[str]:
    return [email for email in USERS.values() if name in email]


@undolog_tool(
    tier=ToolTier.COMPENSABLE,
    compensation=CompensationDescriptor.new("agent_delete_user", {"id": "{result.id}"}),
)
async def create_user(email: str) -> dict[str, str]:
    user_id = str(uuid.uuid4())
    USERS[user_id] = email
    return {"id": user_id}


@undolog_tool(tier=ToolTier.IRREVERSIBLE, risk_tags=["data"])
async def delete_database(name: str) -> str:
    """Deletes a database with everything in it."""
    return f"{name} is deleted"


async def main() -> None:
    service = ThreadingHTTPServer(("127.0.0.1", 0), Crm)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    async with UndoLogClient() as client:
        await client.register_compensation(
            "agent_delete_user",
            org_id=ORG,
            fn_body={
                "kind": "http",
                "method": "POST",
                "endpoint": f"http://127.0.0.1:{service.server_port}/users/delete",
            },
            open=True,
        )
        await a_run_that_fails(client)
        await a_run_that_waits(client)
    service.shutdown()


async def a_run_that_fails(client: UndoLogClient) -> None:
    session = UndoLogSession(ORG, client=client, agent_name="example")
    try:
        async with session:
            await create_user("ann@example.com")
            await create_user("bob@example.com")
            print("users:", await search("example"))
            raise RuntimeError("the agent gave up")
    except RuntimeError as error:
        print("failed:", error)
    print("session:", await session.wait_settled())
    print("users:", list(USERS.values()))


async def a_run_that_waits(client: UndoLogClient) -> None:
    session = UndoLogSession(ORG, client=client, agent_name="example")
    try:
        async with session:
            await delete_database("prod")
    except AwaitingApprovalError as waiting:
        print("waits for an approval")
        await client.approve(waiting.approval_id, org_id=ORG, note="by the example itself")
    # The day after, in another process: the same steps again, under the same id.
    async with UndoLogSession(ORG, session.session_id, client=client, resume=True):
        print(await delete_database("prod"))


if __name__ == "__main__":
    asyncio.run(main())
