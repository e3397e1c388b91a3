"""A client that knows nothing of UndoLog but its .proto file: one whole session.

usage: whole_session.py STUBS ENGINE API_KEY WITNESS

STUBS is a folder with the generated modules. Makes three effects at the witness, replays one,
fails the fourth, and prints what it heard as one JSON object.
"""

import json
import sys
import urllib.request

STUBS, ENGINE, API_KEY, WITNESS = sys.argv[1:]
sys.path.insert(0, STUBS)

import grpc  # noqa: E402
import undolog_pb2 as pb  # noqa: E402
import undolog_pb2_grpc as rpc  # noqa: E402

METADATA = (("x-api-key", API_KEY),)


def execute(tool, effect_id, args):
    """The tool itself: a real HTTP call."""
    request = urllib.request.Request(
        f"{WITNESS}/do/{tool}",
        data=json.dumps(args).encode(),
        headers={"Idempotency-Key": effect_id},
        method="POST",
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=20) as answer:
        return json.load(answer)


def main():
    channel = grpc.insecure_channel(ENGINE)
    engine = rpc.UndoLogEngineStub(channel)
    sessions = rpc.UndoLogSessionsStub(channel)
    session = sessions.Begin(
        pb.BeginRequest(agent_name="python"), metadata=METADATA, timeout=20
    ).session_id

    def intercept(step, tool, args):
        call = pb.ToolCall(
            session_id=session, tool_name=tool, step_index=step, args=json.dumps(args).encode()
        )
        return engine.Intercept(
            pb.InterceptRequest(tool_call=call), metadata=METADATA, timeout=20
        )

    made = []
    for step, tool in enumerate(["customer", "charge", "email"], start=1):
        args = {"step": step, "name": "Ä☃"}
        effect_id = intercept(step, tool, args).execute.effect_id
        result = execute(tool, effect_id, args)
        engine.Commit(
            pb.CommitRequest(
                effect_id=effect_id,
                session_id=session,
                result=pb.ToolResult(
                    success=True, output=json.dumps(result).encode(), duration_ms=3
                ),
            ),
            metadata=METADATA,
            timeout=20,
        )
        made.append({"effect_id": effect_id, "result": result})

    again = intercept(2, "charge", {"name": "Ä☃", "step": 2})
    replay = {
        "outcome": again.WhichOneof("outcome"),
        "effect_id": again.replay.effect_id,
        "output": json.loads(again.replay.cached_result.output),
    }

    failed = intercept(4, "charge", {"step": 4}).execute.effect_id
    engine.Fail(
        pb.FailRequest(
            effect_id=failed,
            session_id=session,
            error="card declined",
            effect=pb.FAILED_EFFECT_NOT_APPLIED,
        ),
        metadata=METADATA,
        timeout=20,
    )
    print(json.dumps({"session": session, "made": made, "replay": replay}))


main()
