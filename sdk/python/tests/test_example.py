"""The examples, run as they are written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from fake import until

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def run(undolog_dev, undolog_org, tmp_path):
    env = {
        **os.environ,
        "UNDOLOG_PROXY_URL": undolog_dev.proxy_url,
        "UNDOLOG_ORG": undolog_org,
        "WORLD": str(tmp_path / "world.txt"),
    }

    def run(name, *arguments, **settings):
        ran = subprocess.run(
            [sys.executable, str(EXAMPLES / name), *arguments],
            env={**env, **settings},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()

    return run


def test_agent(run):
    assert run("agent.py") == [
        "users: ['ann@example.com', 'bob@example.com']",
        "failed: the agent gave up",
        "session: compensated",
        "users: []",
        "waits for an approval",
        "prod is deleted",
    ]


def test_approval(run, undolog_client, undolog_org, tmp_path):
    [approval_id] = run("approval.py", "march")
    # Still undecided: the same request, not a second one.
    assert run("approval.py", "march") == [approval_id]
    undolog_client.blocking.approve(approval_id, org_id=undolog_org)
    assert run("approval.py", "march") == ["paid"]
    world = (tmp_path / "world.txt").read_text().splitlines()
    assert world == ["invoice to acme over 90", "payment of 90 for acme-1"]


def test_concurrent_calls(run):
    assert run("concurrent_calls.py") == [
        "made: 20 users: 20",
        "failed: the agent gave up",
        "session: compensated users: 0",
    ]


def test_framework(run):
    assert run("framework.py") == [
        "the framework fell over, booked: ['12A', '12B']",
        "booked: ['12A', '12B', '12A'], the same results: True",
        "another call under an id that is taken: RESUME_MISMATCH",
    ]


def test_no_example_is_in_the_way_of_another(run, undolog_client):
    """All in the organisation that the quickstart is written for, the quickstart last."""
    for name, *arguments in (["agent.py"], ["concurrent_calls.py"], ["framework.py"]):
        run(name, *arguments, UNDOLOG_ORG="dev")
    run("approval.py", "april", UNDOLOG_ORG="dev")
    undolog_client.blocking.register_compensation(
        "delete_user",
        org_id="dev",
        fn_body={
            "kind": "http",
            "method": "DELETE",
            "endpoint": "http://127.0.0.1:8100/users/{comp.id}",
            "done_statuses": [404],
        },
        open=True,
    )
    # The other order: what the quickstart has registered is still there after the others.
    for name in ("agent.py", "concurrent_calls.py"):
        run(name, UNDOLOG_ORG="dev")
    crm = subprocess.Popen([sys.executable, str(EXAMPLES / "crm.py"), "8100"])
    try:
        until(answers)
        assert run("quickstart.py", "wednesday", "--fail") == [
            "users: 1",
            "the agent gave up: compensated, users: 0",
        ]
        [over] = run("quickstart.py", "wednesday")
        assert over.startswith("this run has ended: SESSION_COMPENSATED")
    finally:
        crm.terminate()
        crm.wait(30)


def answers():
    try:
        return httpx.get("http://127.0.0.1:8100/users", timeout=5).is_success
    except httpx.RequestError:
        return False


def test_compensations_have_names_of_their_own():
    names = []
    for path in sorted(EXAMPLES.glob("*.py")):
        named = re.findall(
            r'(?:register_compensation\(|Descriptor\.new\(|compensation=)\s*"(\w+)"',
            path.read_text(),
        )
        names += set(named)
    assert "delete_user" in names
    assert len(names) == len(set(names)), names


def test_each_example_is_run():
    """`crm.py` is imported by others, `quickstart.py` is run by the quickstart's own test."""
    tested = Path(__file__).read_text()
    names = {path.name for path in EXAMPLES.glob("*.py")} - {"crm.py", "quickstart.py"}
    assert {name for name in names if f'run("{name}"' in tested} == names
