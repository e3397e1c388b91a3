"""A framework that gives each call of a tool an id: the id names the step.

    undolog dev                       # in one terminal
    python examples/framework.py      # in another

Models ask for tools with an id for each call (`tool_call_id`), and frameworks run a message again
after a fault. With `step_key` a call is the same call whenever it comes with the same id, and
`history="kept"` says that the framework remembers its ids: so the second run of this message does
nothing twice.
"""

import os
import uuid
from typing import Any

from undolog_sdk import ResumeMismatchError, ToolTier, UndoLogClient, UndoLogSession, undolog_tool

ORG = os.environ.get("UNDOLOG_ORG", "dev")
booked: list[str] = []


@undolog_tool(tier=ToolTier.COMPENSABLE, compensation="cancel_booking")
def book(seat: str) -> str:
    booked.append(seat)
    return f"booking {len(booked)} of {seat}"


TOOLS = {"book": book}

MESSAGE = [
    {"id": "call_7fKx", "name": "book", "arguments": {"seat": "12A"}},
    {"id": "call_Qm31", "name": "book", "arguments": {"seat": "12B"}},
    # The same arguments under another id are another call.
    {"id": "call_zz90", "name": "book", "arguments": {"seat": "12A"}},
]


def run(message: list[dict[str, Any]]) -> dict[str, str]:
    """What a framework does with a model's message."""
    return {
        call["id"]: TOOLS[call["name"]](**call["arguments"], step_key=call["id"])
        for call in message
    }


def main() -> None:
    client = UndoLogClient()
    client.blocking.register_compensation(
        "cancel_booking",
        org_id=ORG,
        fn_body={"kind": "http", "endpoint": "https://seats.example/cancel"},
        open=True,
    )
    session_id = str(uuid.uuid4())
    try:
        with UndoLogSession(ORG, session_id, client=client, on_exception="leave"):
            first = run(MESSAGE[:2])
            raise RuntimeError("the framework fell over")
    except RuntimeError as error:
        print(f"{error}, booked: {booked}")
    # It starts the message again.
    with UndoLogSession(ORG, session_id, client=client, resume=True, history="kept"):
        second = run(MESSAGE)
        print(f"booked: {booked}, the same results: {first.items() <= second.items()}")
    try:
        with UndoLogSession(ORG, session_id, client=client, resume=True, history="kept"):
            book("14C", step_key="call_7fKx")
    except ResumeMismatchError as error:
        print("another call under an id that is taken:", error.code)
    client.close()


if __name__ == "__main__":
    main()
