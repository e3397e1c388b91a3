"""The example, run as it is written."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "agent.py"


def test_the_example(undolog_dev, undolog_org):
    env = {**os.environ, "UNDOLOG_PROXY_URL": undolog_dev.proxy_url, "UNDOLOG_ORG": undolog_org}
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE)], env=env, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "users: ['ann@example.com', 'bob@example.com']",
        "failed: the agent gave up",
        "session: compensated",
        "users: []",
        "waits for an approval",
        "prod is deleted",
    ]
