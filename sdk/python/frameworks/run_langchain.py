"""LangChain's `create_agent`, with the tools, the model and the checkpointer of `run_langgraph`."""

import kit
from langchain.agents import create_agent
from run_langgraph import TOOLS, Scripted, agent


def build(saver):
    return create_agent(Scripted(), TOOLS, checkpointer=saver)


if __name__ == "__main__":
    kit.run(lambda: agent(build))
