"""What the runs of all frameworks share: tools, the world that they change, a script of a model.

A run is a process of its own. Its environment says what the model does (`SCRIPT`, JSON: a list of
messages, each a list of `[id, tool, arguments]` or a final text) and the session's `OPTIONS`.
"""

import asyncio
import json
import os
import signal
from pathlib import Path

from undolog_sdk import (
    CompensationDescriptor,
    DeniedError,
    ToolTier,
    UndoLogClient,
    UndoLogSession,
    undolog_tool,
)

WORLD = Path(os.environ.get("WORLD", "world.txt"))
SCRIPT = json.loads(os.environ.get("SCRIPT", "[]"))
ANSWER = os.environ.get("ANSWER")


def happened(what: str) -> None:
    with WORLD.open("a") as file:
        file.write(what + "\n")


@undolog_tool(
    tier=ToolTier.COMPENSABLE,
    compensation=CompensationDescriptor.new("cancel_order", {"item": "{item}"}),
)
async def order(item: str) -> str:
    """Orders something."""
    happened(f"order {item}")
    if item == "bricks":
        raise ValueError("the card was declined")
    if item == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"ordered {item}"


@undolog_tool(tier=ToolTier.IRREVERSIBLE)
async def pay(amount: int) -> str:
    """Pays an amount, which cannot be called back."""
    happened(f"pay {amount}")
    return f"paid {amount}"


def session(**defaults) -> UndoLogSession:
    options = {**defaults, **json.loads(os.environ.get("OPTIONS", "{}"))}
    client = UndoLogClient(os.environ["UNDOLOG_PROXY_URL"])
    return UndoLogSession(os.environ["ORG"], os.environ["SESSION"], client=client, **options)


def told(answer: str | DeniedError) -> str:
    """A model hears a rejection as a text, and goes on."""
    return answer if isinstance(answer, str) else f"denied: {answer.note}"


def run(agent) -> None:
    """Runs an agent's coroutine, and prints what came of it as the last line."""
    try:
        said = asyncio.run(agent())
    except BaseException as error:
        chain, at = [], error
        while at is not None:
            chain.append(type(at).__name__)
            at = at.__cause__ or at.__context__
        print(json.dumps({"error": chain, "text": str(error)}))
    else:
        print(json.dumps({"said": said}))
