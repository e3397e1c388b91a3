"""A proxy of its own before the development server's engine, killed and started again."""

import os
import random
import signal
import socket
import subprocess
import threading
import time
import uuid

import httpx
import pytest
from fake import until

from undolog_sdk import ToolTier, UndoLogClient, UndoLogError, UndoLogSession, undolog_tool


class Proxy:
    """`undolog proxy` at a fixed address."""

    def __init__(self, dev):
        self.dev = dev
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        command = [self.dev.program, "proxy", "--listen", f"127.0.0.1:{self.port}"]
        command += ["--engine-url", self.dev.grpc_url, "--log", "error"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)
        )
        until(self.is_ready, 60)

    def is_ready(self):
        assert self.process.poll() is None, "the proxy ended"
        try:
            return httpx.get(self.url + "/ready", timeout=5).status_code == 200
        except httpx.RequestError:
            return False

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def proxy(undolog_dev):
    proxy = Proxy(undolog_dev)
    proxy.start()
    yield proxy
    proxy.kill()


def test_no_tool_runs_twice_and_no_commit_is_lost(proxy, undolog_org):
    client = UndoLogClient(proxy.url)
    client.blocking.register_compensation(
        "undo",
        org_id=undolog_org,
        fn_body={"kind": "http", "method": "POST", "endpoint": "http://127.0.0.1:9/undo"},
        open=True,
    )
    ran, done, faults = [], [], []
    lock = threading.Lock()

    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation="undo")
    def work(n: int) -> int:
        with lock:
            ran.append(n)
        time.sleep(random.uniform(0, 0.01))
        return n

    session = UndoLogSession(undolog_org, str(uuid.uuid4()), client=client)

    def run(first):
        for n in range(first, first + 40):
            while True:
                try:
                    assert work(n, _session=session) == n
                except UndoLogError as error:
                    faults.append(error)
                    time.sleep(0.05)
                else:
                    done.append(n)
                    break

    threads = [threading.Thread(target=run, args=(i * 1000,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for share in (40, 120):
        until(lambda share=share: len(done) > share, 60)
        proxy.kill()
        proxy.start()
    for thread in threads:
        thread.join(120)
    assert client._reporter.flush(None, 60)
    assert sorted(done) == sorted(ran)
    assert len(done) == 240
    assert all(error.retryable for error in faults), faults
    effects = client.blocking.list_effects(session.session_id, org_id=undolog_org)
    assert len(effects) == 240
    assert {e["state"] for e in effects} == {"committed"}
    assert {e["args"]["n"]: e["result"] for e in effects} == {n: n for n in done}
    client.close()
