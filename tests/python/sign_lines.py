"""Signs calls with the Python SDK, one JSON object per line, as `core/examples/sign.rs` does."""

import json
import sys

from undolog_sdk.signature import CanonicalError, call_signature, canonical_json


def read(text):
    # JSON knows the integer -0, Python does not; the canonical form of both is -0.0.
    return json.loads(text, parse_int=lambda digits: -0.0 if digits == "-0" else int(digits))


def answer(call):
    try:
        args = read(call["args"])
        canonical = canonical_json(args)
        made = call_signature(call["session_id"], call["step_index"], call["tool_name"], args)
    except CanonicalError as error:
        return {"refused": error.reason, "path": error.path}
    return {"canonical": canonical, "signature": made}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
