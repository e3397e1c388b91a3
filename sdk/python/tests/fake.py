"""A fake of the documented wire, for tests of the client alone.

It is no engine: it keeps calls in a dictionary and knows just enough to answer. What the service
really does is tested against `undolog dev` in `test_integration.py`.
"""

import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from undolog_sdk import call_signature

# A condition that does not come at all; a busy machine needs no shorter one.
SOON = 60.0


class Fake:
    """Calls, sessions and faults, and every request that came.

    Heartbeats are kept apart: they come from a thread of their own, as often as the machine lets it
    run, and no test may count them or expect them between other requests.
    """

    def __init__(self):
        self.requests = []
        self.heartbeats = []
        self.calls = {}
        self.effects = {}
        self.sessions = {}
        self.tools = {}
        self.faults = []
        self.approvals = {}
        self.needs_approval = set()
        self.refused = {}
        self.stop = False
        self.key = None
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)

    # ---------------------------------------------------------------- for tests

    def fail_next(self, path, *faults):
        """The next requests of a path: (status, code), "drop" before or "lose" after handling."""
        for fault in faults:
            self.faults.append((path, fault))

    def refuse_tool(self, name, times, fault):
        """The next calls of one tool are refused."""
        self.refused[name] = [fault] * times

    def of(self, path):
        return [r for r in (*self.requests, *self.heartbeats) if path in r["path"]]

    def bodies(self, path):
        return [r["body"] for r in self.of(path)]

    def wait_for(self, what, timeout=SOON):
        with self.changed:
            assert self.changed.wait_for(what, timeout), self.requests

    def approve(self, approval_id, args=None):
        with self.lock:
            self.approvals[approval_id].update(state="approved", args=args)

    def states(self):
        return [e["state"] for e in self.effects.values()]

    # ---------------------------------------------------------------- the wire

    def answer(self, method, path, headers, body):
        with self.changed:
            is_heartbeat = path.endswith("/heartbeat")
            kept = self.heartbeats if is_heartbeat else self.requests
            kept.append({"method": method, "path": path, "headers": headers, "body": body})
            self.changed.notify_all()
            for index, (part, fault) in enumerate(self.faults):
                if part in path and (not is_heartbeat or part == "/heartbeat"):
                    del self.faults[index]
                    if fault == "drop":
                        return None
                    if fault == "lose":
                        self.handle(method, path, headers, body)
                        return None
                    status, code = fault
                    return refusal(status, code)
            if self.key is not None and headers.get("x-api-key") != self.key:
                return refusal(401, "UNAUTHENTICATED")
            return self.handle(method, path, headers, body)

    def handle(self, method, path, headers, body):
        parts = path.partition("?")[0].strip("/").split("/")
        if path == "/mcp/tool_call":
            return self.tool_call(headers, body)
        if parts[0] == "effects":
            return self.report(parts[1], parts[2], body)
        if parts[0] == "sessions":
            return self.session(method, parts[1:], body)
        if parts[0] == "tools":
            self.tools[parts[1]] = body
            return 200, {"tool": body, "created": True}
        if parts[0] == "approvals" and method == "GET":
            kept = self.approvals[parts[1]]
            event = {"action": "reject", "actor": kept.get("by"), "note": kept.get("note")}
            return 200, {"approval": {}, "events": [event] if kept["state"] == "reject" else []}
        if parts[0] == "approvals":
            self.approvals[parts[1]]["state"] = parts[2]
            return 200, {"approval_id": parts[1], "state": parts[2]}
        return refusal(404, "NOT_FOUND")

    def tool_call(self, headers, body):
        session = body["session_id"]
        if self.refused.get(body["tool_name"]):
            return refusal(*self.refused[body["tool_name"]].pop())
        call = (session, body.get("step_index"), body.get("step_key"))
        effect = self.calls.get(call)
        if effect is None:
            effect = {
                "effect_id": str(uuid.uuid4()),
                "state": "pending" if body["tool_name"] in self.needs_approval else "executing",
                "token": None,
                "body": body,
                "signature": body.get("signature", ""),
            }
            self.calls[call] = self.effects[effect["effect_id"]] = effect
        elif effect["body"]["args"] != body["args"]:
            return refusal(409, "STEP_CONFLICT")
        effect_id = effect["effect_id"]
        if effect["state"] == "committed":
            return 200, {"status": "replayed", "effect_id": effect_id, "result": effect["result"]}
        approval = None
        if effect["state"] == "pending":
            approval_id = effect.setdefault("approval_id", str(uuid.uuid4()))
            approval = self.approvals.setdefault(approval_id, {"state": "pending", "args": None})
            if approval["state"] == "reject":
                return refusal(409, "APPROVAL_REJECTED", approval_id=approval_id)
            if approval["state"] == "pending":
                waiting = {"status": "pending_approval", "effect_id": effect_id}
                return 202, {**waiting, "approval_id": approval_id, "retry_after": 5}
            effect["state"] = "executing"
        if effect["token"] not in (None, body["grant_token"]):
            return refusal(409, "IN_PROGRESS")
        effect["token"] = body["grant_token"]
        granted = {"status": "executed", "executed_by": "client", "effect_id": effect_id}
        if approval:
            granted["approval_id"] = approval_id
        if approval and approval["args"]:
            granted["approved_args"] = approval["args"]
        return 200, {**granted, "attempt": 1}

    def report(self, effect_id, verb, body):
        effect = self.effects[effect_id]
        effect["state"] = "committed" if verb == "commit" else "failed"
        effect["result"] = body.get("result")
        effect["report"] = body
        session = self.sessions.get(body["session_id"])
        if verb == "fail" and session and session["state"] == "active":
            policy = body.get("on_tool_failure") or session.get("on_tool_failure") or "rollback"
            if policy == "rollback":
                session["state"] = "compensated"
        return 200, {"effect_id": effect_id, "status": effect["state"]}

    def session(self, method, parts, body):
        if not parts:
            session = self.sessions.setdefault(body["session_id"], {**body, "state": "active"})
            return 200, {"session_id": body["session_id"], "state": session["state"]}
        session = self.sessions.setdefault(parts[0], {"state": "active"})
        verb = parts[1] if len(parts) > 1 else ""
        if verb == "replay":
            return 200, {
                "session_id": parts[0],
                "next_step_index": 1
                + max([s or 0 for i, s, _ in self.calls if i == parts[0]] or [0]),
                "open": self.open(parts[0]),
                "effects": self.stored(parts[0]),
                "complete": True,
            }
        if verb == "effects":
            return 200, {"effects": self.listed(parts[0])}
        if verb == "heartbeat":
            grants = [{**g, "stop": self.stop} for g in body["grants"]]
            return 200, {"state": session["state"], "stop": self.stop, "grants": grants}
        if verb == "savepoint":
            return 200, {"position": 7, "next_step_index": 1}
        if verb == "rollback":
            return 200, {"rollback_id": "r", "state": "compensating", "next_step_index": 9}
        if verb == "complete":
            session["state"] = "completed"
        if verb == "fail":
            session["state"] = "compensated"
        return 200, {"session": {"state": session["state"]}, "state": session["state"]}

    def calls_of(self, session_id):
        """Each call of a session, and what every list of them shows of it."""
        for (session, step, key), effect in self.calls.items():
            if session == session_id:
                shown = {
                    "effect_id": effect["effect_id"],
                    "step_index": step or 0,
                    "step_key": key,
                    "call_signature": self.signature(session, step, effect),
                    "tool_name": effect["body"]["tool_name"],
                }
                yield effect, shown

    def listed(self, session_id):
        made = []
        for effect, shown in self.calls_of(session_id):
            approval = self.approvals.get(effect.get("approval_id"), {})
            rejected = approval.get("state") == "reject"
            more = {
                "state": "rejected" if rejected else effect["state"],
                "outcome": effect.get("outcome"),
                "approval_request_id": effect.get("approval_id"),
            }
            made.append(shown | more)
        return made

    def open(self, session_id):
        return [
            shown | {"state": effect["state"]}
            for effect, shown in self.calls_of(session_id)
            if effect["state"] in ("pending", "executing")
        ]

    def stored(self, session_id):
        return [
            shown | {"result": effect["result"]}
            for effect, shown in self.calls_of(session_id)
            if effect["state"] == "committed"
        ]

    def signature(self, session_id, step, effect):
        """With a key the service numbers the step itself; here all of them are 0."""
        body = effect["body"]
        return effect["signature"] or call_signature(
            session_id, step or 0, body["tool_name"], body["args"]
        )


def refusal(status, code, **details):
    return status, {
        "request_id": "r-1",
        "code": code,
        "message": f"refused: {code}",
        "timestamp": "2030-01-01T00:00:00Z",
        "details": details,
    }


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, fake, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.fake = fake
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, request, client_address):
        """A dropped connection is what a test asked for."""

    def end(self):
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    def do(self):
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        headers = {k.lower(): v for k, v in self.headers.items()}
        answer = self.server.fake.answer(self.command, self.path, headers, body)
        if answer is None:
            self.close_connection = True
            self.connection.close()
            return
        status, content = answer
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do

    def log_message(self, *_):
        """Tests print what they need."""


def until(what, timeout=SOON):
    deadline = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.01)
