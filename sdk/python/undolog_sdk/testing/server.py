"""A development server of one's own: `undolog dev` on free ports, with data that is thrown away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["DevServer", "ServerUnavailable", "dev_server", "find_program"]

START_SECONDS = 120.0
STOP_SECONDS = 30.0
LOG_LINES_MAX = 200


class ServerUnavailable(Exception):
    """There is no `undolog` that could serve, and why."""


class DevServer(NamedTuple):
    """A running `undolog dev`."""

    proxy_url: str
    grpc_url: str
    database_url: str
    program: str
    process: subprocess.Popen[str]


def find_program() -> str:
    """`UNDOLOG_BIN`, else `undolog` on the PATH; it has to have the HTTP face."""
    program = os.environ.get("UNDOLOG_BIN") or shutil.which("undolog")
    if not program:
        raise ServerUnavailable("set UNDOLOG_BIN to the undolog program, or put it on the PATH")
    try:
        asked = subprocess.run(
            [program, "dev", "--help"], capture_output=True, text=True, timeout=30, check=False
        )
    except OSError as error:
        raise ServerUnavailable(f"{program} cannot be run: {error}") from error
    if "--proxy-port" not in asked.stdout:
        raise ServerUnavailable(f"{program} is a build without the HTTP face")
    return program


@contextmanager
def dev_server(*extra: str, program: str | None = None) -> Iterator[DevServer]:
    """Starts `undolog dev` on free ports, and ends it with its data."""
    program = program or find_program()
    data = tempfile.mkdtemp(prefix="undolog-test-")
    # Its Postgres may run as another user, which has to be able to come here.
    os.chmod(data, 0o755)
    command = [program, "dev", "--json", "--port", "0", "--http-port", "0", "--proxy-port", "0"]
    command += ["--data-dir", str(Path(data) / "data"), *extra]
    environment = {k: v for k, v in os.environ.items() if k != "DATABASE_URL"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    log: list[str] = []
    reader = threading.Thread(target=_read_log, args=(process, log), daemon=True)
    reader.start()
    try:
        told = _greeting(process, log)
        yield DevServer(
            told["proxy_url"], told["grpc_url"], told.get("database_url", ""), program, process
        )
    finally:
        _stop(process)
        shutil.rmtree(data, ignore_errors=True)


def _greeting(process: subprocess.Popen[str], log: list[str]) -> dict[str, Any]:
    line: list[str] = []

    def read() -> None:
        if process.stdout is not None:
            line.append(process.stdout.readline())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(START_SECONDS)
    text = line[0] if line else ""
    if not text.strip():
        said = "".join(log[-20:])
        raise ServerUnavailable(f"undolog dev did not start:\n{said}")
    told: dict[str, Any] = json.loads(text)
    return told


def _read_log(process: subprocess.Popen[str], log: list[str]) -> None:
    if process.stderr is None:
        return
    for line in process.stderr:
        log.append(line)
        del log[:-LOG_LINES_MAX]


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
