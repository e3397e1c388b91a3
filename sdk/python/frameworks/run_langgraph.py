"""LangGraph: a graph of its own with a ToolNode, a checkpointer in SQLite, and `interrupt()`."""

import os
from typing import Annotated

import kit
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

from undolog_sdk import CompensationDescriptor, DeniedError, ToolTier, undolog_tool


class Scripted(BaseChatModel):
    """Says what the script has at this place of the conversation."""

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        said = kit.SCRIPT[sum(isinstance(m, AIMessage) for m in messages)]
        if isinstance(said, str):
            message = AIMessage(said)
        else:
            calls = [{"id": i, "name": n, "args": a} for i, n, a in said]
            message = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
async def order(item: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
    """Orders something."""
    return await kit.order(item, step_key=call_id)


@tool
async def pay(amount: int, call_id: Annotated[str, InjectedToolCallId]) -> str:
    """Pays an amount."""
    try:
        return await kit.pay(amount, step_key=call_id)
    except DeniedError as denied:
        return kit.told(denied)


@undolog_tool(
    tier=ToolTier.COMPENSABLE,
    compensation=CompensationDescriptor.new("cancel_order", {"item": "{item}"}),
)
async def recorded_rent(item: str) -> str:
    if interrupt(f"rent {item}?") != "yes":
        return "not rented"
    kit.happened(f"rent {item}")
    return f"rented {item}"


@tool
async def rent(item: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
    """Rents something, once somebody has said yes."""
    return await recorded_rent(item, step_key=call_id)


TOOLS = [order, pay, rent]


def graph(saver):
    async def model(state: MessagesState):
        return {"messages": [await Scripted().bind_tools(TOOLS).ainvoke(state["messages"])]}

    built = StateGraph(MessagesState)
    built.add_node("model", model)
    built.add_node("tools", ToolNode(TOOLS, handle_tool_errors=False))
    built.add_edge(START, "model")
    built.add_conditional_edges("model", tools_condition)
    built.add_edge("tools", "model")
    return built.compile(checkpointer=saver)


async def agent(build=graph):
    config = {"configurable": {"thread_id": "1"}}
    async with AsyncSqliteSaver.from_conn_string(os.environ["STATE"]) as saver:
        app = build(saver)
        begun = (await app.aget_state(config)).values
        given = {"messages": [HumanMessage("go")]}
        if begun:
            # The checkpointer remembers: only what has no result is made again.
            given = Command(resume=kit.ANSWER) if kit.ANSWER else None
        async with kit.session(resume=bool(begun), history="kept"):
            state = await app.ainvoke(given, config)
        if "__interrupt__" in state:
            return f"interrupted: {state['__interrupt__'][0].value}"
        return state["messages"][-1].content


if __name__ == "__main__":
    kit.run(agent)
