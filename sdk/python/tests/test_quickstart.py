"""`docs/quickstart.md` as it is written: its commands, one after the other, in two terminals."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import httpx
import pytest
from fake import until

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "quickstart.md"
SECONDS = 900


def blocks():
    return re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Terminal:
    """A shell that is typed into."""

    def __init__(self, env):
        self.lines = []
        self.process = subprocess.Popen(
            ["bash", "-eo", "pipefail"],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def type(self, commands):
        self.process.stdin.write(commands)
        self.process.stdin.flush()

    def run(self, commands):
        """Types, waits for the end, and gives what was printed."""
        first = len(self.lines)
        self.type(f"{commands}\necho the end of a block\n")
        until(lambda: "the end of a block" in self.lines[first:] or self.has_ended(), SECONDS)
        printed = self.lines[first:]
        assert "the end of a block" in printed, "\n".join([commands, *printed])
        return printed[: printed.index("the end of a block")]

    def has_ended(self):
        return self.process.poll() is not None

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.stdin.close()
        self.process.wait(60)
        self.reader.join(60)
        self.process.stdout.close()


@pytest.fixture
def terminals(undolog_dev):
    """Two of them. Other ports than the documented ones, so that nothing is in the way."""
    # The private Postgres runs as another user when we are root, and another run of pytest shuts
    # the folders that pytest makes.
    folder = Path(tempfile.mkdtemp(prefix="undolog-quickstart-"))
    folder.chmod(0o755)
    grpc, http, proxy = free_port(), free_port(), free_port()
    env = {
        **os.environ,
        "UNDOLOG_DATA_DIR": str(folder / "data"),
        "UNDOLOG_DEV_PORT": str(grpc),
        "UNDOLOG_DEV_HTTP_PORT": str(http),
        "UNDOLOG_DEV_PROXY_PORT": str(proxy),
        "UNDOLOG_ENGINE_URL": f"http://127.0.0.1:{grpc}",
        "UNDOLOG_PROXY_URL": f"http://127.0.0.1:{proxy}",
    }
    env.pop("DATABASE_URL", None)
    first, second = Terminal(env), Terminal(env)
    yield first, second, env["UNDOLOG_PROXY_URL"]
    second.end()
    first.end()
    shutil.rmtree(folder, ignore_errors=True)


def is_ready(url):
    try:
        return httpx.get(url + "/ready", timeout=5).status_code == 200
    except httpx.RequestError:
        return False


def test_the_page_as_it_is_written(terminals):
    first, second, proxy_url = terminals
    is_first = True
    shown = 0
    printed = []
    for language, text in blocks():
        if language == "sh" and is_first:
            # It ends when the page's command does, which is not meant to end.
            first.type(f"{text}\nexit\n")
            until(lambda: is_ready(proxy_url) or first.has_ended(), SECONDS)
            assert not first.has_ended(), "\n".join(first.lines)
            is_first = False
        elif language == "sh":
            printed = second.run(text)
        elif language == "text":
            expected = text.splitlines()
            assert [line for line in printed if line in expected] == expected, printed
            shown += 1
    assert shown == 2
    states = second.run("undolog sessions list --org dev --json")
    assert sorted(re.findall('"state": "([a-z]+)"', "\n".join(states))) == [
        "compensated",
        "completed",
    ]


def test_the_page_shows_the_agent_as_it_is():
    [shown] = [text for language, text in blocks() if language == "python"]
    assert shown in (ROOT / "sdk/python/examples/quickstart.py").read_text()


def test_the_page_fits_on_a_screen():
    assert len(PAGE.read_text().splitlines()) <= 80
