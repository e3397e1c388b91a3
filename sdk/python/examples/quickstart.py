import sys
import uuid

import httpx

from undolog_sdk import (
    AwaitingApprovalError,
    CompensationDescriptor,
    SessionOverError,
    ToolTier,
    UndoLogSession,
    undolog_tool,
)

USERS = "http://127.0.0.1:8100/users"


@undolog_tool(tier=ToolTier.SAFE)
def count_users() -> int:
    return len(httpx.get(USERS).json())


@undolog_tool(
    tier=ToolTier.COMPENSABLE,
    compensation=CompensationDescriptor.new("delete_user", {"id": "{result.id}"}),
)
def create_user(email: str) -> dict:
    return httpx.post(USERS, json={"email": email}).json()


@undolog_tool(tier=ToolTier.IRREVERSIBLE)
def welcome(email: str) -> str:
    """Mails somebody, which nobody can take back."""
    return f"mailed {email}"


# The same name of a run gives the same session, also in another process.
session_id = str(uuid.uuid5(uuid.NAMESPACE_URL, sys.argv[1]))
try:
    with UndoLogSession("dev", session_id, resume=True) as session:
        create_user("ann@example.com")
        print("users:", count_users())
        if "--fail" in sys.argv:
            raise ValueError("the agent gave up")
        print(welcome("ann@example.com"))
except AwaitingApprovalError as waiting:
    print(waiting.approval_id)
except SessionOverError as over:
    print(f"this run has ended: {over}")
except ValueError as error:
    print(f"{error}: {session.wait_settled_sync()}, users: {count_users()}")
