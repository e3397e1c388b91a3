"""Pydantic AI: the messages are kept in a file, and a run goes on from them."""

import os
from pathlib import Path

import kit
from pydantic_ai import Agent, ModelRetry, RunContext, capture_run_messages
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from undolog_sdk import CompensationDescriptor, DeniedError, ToolTier, undolog_tool


def scripted(messages, info):
    """Says what the script has at this place of the conversation."""
    said = kit.SCRIPT[sum(isinstance(m, ModelResponse) for m in messages)]
    if isinstance(said, str):
        return ModelResponse(parts=[TextPart(said)])
    return ModelResponse(parts=[ToolCallPart(n, a, tool_call_id=i) for i, n, a in said])


KEPT = Path(os.environ["STATE"])
buyer = Agent(FunctionModel(scripted))


@buyer.tool
async def order(ctx: RunContext, item: str) -> str:
    """Orders something."""
    return await kit.order(item, step_key=ctx.tool_call_id)


@buyer.tool
async def pay(ctx: RunContext, amount: int) -> str:
    """Pays an amount."""
    try:
        return await kit.pay(amount, step_key=ctx.tool_call_id)
    except DeniedError as denied:
        return kit.told(denied)


@undolog_tool(
    tier=ToolTier.COMPENSABLE,
    compensation=CompensationDescriptor.new("cancel_order", {"item": "{size}"}),
)
async def recorded_choose(size: int) -> str:
    if size > 10:
        raise ModelRetry("at most 10")
    kit.happened(f"choose {size}")
    return f"chose {size}"


@buyer.tool
async def choose(ctx: RunContext, size: int) -> str:
    """Chooses a size."""
    return await recorded_choose(size, step_key=ctx.tool_call_id)


def load():
    return ModelMessagesTypeAdapter.validate_json(KEPT.read_bytes()) if KEPT.exists() else None


def keep(messages):
    """Up to what the model said last: what was interrupted then is made again."""
    while messages and not isinstance(messages[-1], ModelResponse):
        messages.pop()
    KEPT.write_bytes(ModelMessagesTypeAdapter.dump_json(messages))


async def agent():
    history = load()
    with capture_run_messages() as messages:
        try:
            async with kit.session(resume=history is not None, history="kept"):
                prompt = None if history else "go"
                result = await buyer.run(prompt, message_history=history)
        finally:
            keep(list(messages))
    return result.output


if __name__ == "__main__":
    kit.run(agent)
