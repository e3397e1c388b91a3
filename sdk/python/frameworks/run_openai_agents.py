"""OpenAI Agents: a run starts over in a new process, so the session is resumed as a rerun."""

import json
import os

import kit
from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from undolog_sdk import DeniedError

set_tracing_disabled(True)
# With the framework's own handler the model hears "an error occurred", also of a call that waits.
AS_TEXT = {} if os.environ.get("ERRORS_AS_TEXT") else {"failure_error_function": None}


class Scripted(Model):
    """Says what the script has at this place of the conversation."""

    def __init__(self):
        self.place = 0

    async def get_response(self, *args, **kwargs):
        said = kit.SCRIPT[self.place]
        self.place += 1
        if isinstance(said, str):
            text = ResponseOutputText(text=said, type="output_text", annotations=[])
            output = [
                ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            ]
        else:
            output = [
                ResponseFunctionToolCall(
                    call_id=i, name=n, arguments=json.dumps(a), type="function_call"
                )
                for i, n, a in said
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError("these runs do not stream")


@function_tool(**AS_TEXT)
async def order(item: str) -> str:
    """Orders something."""
    return await kit.order(item)


@function_tool(**AS_TEXT)
async def pay(amount: int) -> str:
    """Pays an amount."""
    try:
        return await kit.pay(amount)
    except DeniedError as denied:
        return kit.told(denied)


async def agent():
    async with kit.session(resume=bool(os.environ.get("AGAIN"))):
        made = Agent(name="buyer", model=Scripted(), tools=[order, pay])
        result = await Runner.run(made, "go")
    return result.final_output


if __name__ == "__main__":
    kit.run(agent)
