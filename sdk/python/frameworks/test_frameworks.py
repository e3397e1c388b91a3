"""Agents of real frameworks, each run in a process of its own, against a real `undolog dev`.

`FRAMEWORK` names the one whose environment this is; `scripts/frameworks.sh` runs all of them. The
models are scripted, so no network is used. Only public API of the frameworks is.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FRAMEWORK = os.environ["FRAMEWORK"]
KEEPS_HISTORY = FRAMEWORK != "openai_agents"
needs_history = pytest.mark.skipif(not KEEPS_HISTORY, reason="its runs start over")
of_langgraph = pytest.mark.skipif(FRAMEWORK not in ("langgraph", "langchain"), reason="LangGraph's")
of_pydantic_ai = pytest.mark.skipif(FRAMEWORK != "pydantic_ai", reason="Pydantic AI's")
of_openai = pytest.mark.skipif(FRAMEWORK != "openai_agents", reason="OpenAI Agents'")

TEA = ["call_1", "order", {"item": "tea"}]
PAY = ["call_2", "pay", {"amount": 5}]


class Cancelled(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.items.append(body["item"])
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        """Tests look at the items."""


@pytest.fixture
def cancelled():
    """The items whose orders were undone, last first."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Cancelled)
    server.items = []
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


class Run:
    """One session of an agent, and its processes."""

    def __init__(self, client, org, server, folder):
        self.client, self.org, self.folder = client, org, folder
        self.session_id = str(uuid.uuid4())
        self.processes = 0
        client.blocking.register_compensation(
            "cancel_order",
            org_id=org,
            fn_body={
                "kind": "http",
                "method": "POST",
                "endpoint": f"http://127.0.0.1:{server.server_port}/cancel",
                "arg_mapping": {"item": "{comp.item}"},
            },
            open=True,
        )

    def process(self, script, **environment):
        self.processes += 1
        options = environment.pop("options", {})
        given = {
            "UNDOLOG_PROXY_URL": self.client.proxy_url,
            "ORG": self.org,
            "SESSION": self.session_id,
            "WORLD": str(self.folder / "world.txt"),
            "STATE": str(self.folder / "state"),
            "SCRIPT": json.dumps(script),
            "OPTIONS": json.dumps(options),
            **({"AGAIN": "1"} if self.processes > 1 else {}),
            **environment,
        }
        command = [sys.executable, f"run_{FRAMEWORK}.py"]
        done = subprocess.run(
            command, cwd=HERE, env={**os.environ, **given}, capture_output=True, text=True,
            timeout=180, check=False,
        )  # fmt: skip
        self.returned, self.log = done.returncode, done.stderr
        if done.returncode < 0:
            return {}
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    @property
    def world(self):
        file = self.folder / "world.txt"
        return file.read_text().splitlines() if file.exists() else []

    def state(self):
        shown = self.client.blocking.get_session(self.session_id, org_id=self.org)
        return shown["session"]["state"]

    def settled(self):
        from undolog_sdk import UndoLogSession

        session = UndoLogSession(self.org, self.session_id, client=self.client)
        return session.wait_settled_sync()

    def approval(self):
        effects = self.client.blocking.list_effects(self.session_id, org_id=self.org)
        [waiting] = [e for e in effects if e["state"] == "pending"]
        return waiting["approval_request_id"]


@pytest.fixture
def agent(undolog_client, undolog_org, cancelled, tmp_path):
    return Run(undolog_client, undolog_org, cancelled, tmp_path)


def test_success(agent):
    assert agent.process([[TEA], "done"]) == {"said": "done"}
    assert agent.world == ["order tea"]
    assert agent.state() == "completed"


def test_a_failing_tool_undoes_the_run(agent, cancelled):
    said = agent.process([[TEA], [["call_2", "order", {"item": "bricks"}]], "done"])
    assert "ValueError" in said["error"]
    assert agent.settled() == "compensated"
    assert agent.world == ["order tea", "order bricks"]
    assert cancelled.items == ["bricks", "tea"]
    assert "on_tool_failure='continue'" in agent.log


def test_an_approval_and_a_new_process(agent):
    script = [[TEA], [PAY], "done"]
    assert "AwaitingApprovalError" in agent.process(script)["error"]
    assert agent.state() == "awaiting_approval"
    agent.client.blocking.approve(agent.approval(), org_id=agent.org)
    assert agent.process(script) == {"said": "done"}
    assert agent.world == ["order tea", "pay 5"]
    assert agent.state() == "completed"


def test_a_rejection_and_the_agent_goes_on(agent):
    script = [[TEA], [PAY], [["call_3", "order", {"item": "cake"}]], "done"]
    options = {"on_rejection": "continue"}
    assert "AwaitingApprovalError" in agent.process(script, options=options)["error"]
    agent.client.blocking.reject(agent.approval(), org_id=agent.org, note="too much")
    assert agent.process(script, options=options) == {"said": "done"}
    assert agent.world == ["order tea", "order cake"]
    assert agent.state() == "completed"


def test_a_kill_inside_a_tool(agent):
    script = [[TEA], [["call_2", "order", {"item": "kill"}]], "done"]
    agent.process(script)
    assert agent.returned == -signal.SIGKILL
    said = agent.process(script)
    # The dead process has it still, as far as anybody knows.
    assert "InProgressError" in said["error"]
    assert agent.world == ["order tea", "order kill"]
    assert agent.state() == "active"


def test_equal_calls(agent):
    tea = [["call_3", "order", {"item": "tea"}]]
    script = [[TEA], tea, [PAY], [["call_4", "order", {"item": "tea"}]], "done"]
    assert "AwaitingApprovalError" in agent.process(script)["error"]
    agent.client.blocking.approve(agent.approval(), org_id=agent.org)
    assert agent.process(script) == {"said": "done"}
    assert agent.world == ["order tea", "order tea", "pay 5", "order tea"]
    assert agent.state() == "completed"


@needs_history
def test_a_history_that_is_kept_and_not_declared(agent):
    script = [[TEA], [PAY], "done"]
    agent.process(script)
    agent.client.blocking.approve(agent.approval(), org_id=agent.org)
    said = agent.process(script, options={"history": "rerun"})
    assert "ResumeMismatchError" in said["error"]
    assert "history='kept'" in said["text"]
    assert agent.state() == "active"


@of_openai
def test_a_run_whose_model_words_it_otherwise(agent):
    agent.process([[TEA], [PAY], "done"])
    agent.client.blocking.approve(agent.approval(), org_id=agent.org)
    said = agent.process([[["call_1", "order", {"item": "black tea"}]], [PAY], "done"])
    assert "ResumeMismatchError" in said["error"]
    assert agent.world == ["order tea"]


@of_openai
def test_a_framework_that_makes_texts_of_errors(agent):
    said = agent.process([[TEA], [PAY], "I could not pay"], ERRORS_AS_TEXT="1")
    assert said["error"] == ["AwaitingApprovalError"]
    assert agent.state() == "awaiting_approval"


@of_langgraph
def test_an_interrupt_inside_a_tool(agent):
    script = [[TEA], [["call_2", "rent", {"item": "van"}]], "done"]
    assert agent.process(script) == {"said": "interrupted: rent van?"}
    assert agent.state() == "active"
    assert agent.process(script, ANSWER="yes") == {"said": "done"}
    assert agent.world == ["order tea", "rent van"]
    assert agent.state() == "completed"


@of_pydantic_ai
def test_a_model_that_has_to_try_again(agent):
    script = [
        [["call_1", "choose", {"size": 99}]],
        [["call_2", "choose", {"size": 9}]],
        "done",
    ]
    assert agent.process(script) == {"said": "done"}
    assert agent.world == ["choose 9"]
    assert agent.state() == "completed"
