"""Fixtures: the fake wire, and a client of it."""

import os
from pathlib import Path

import pytest
from fake import Fake, Server

from undolog_sdk import UndoLogClient, UndoLogSession

pytest_plugins = ["undolog_sdk.testing.plugin"]


@pytest.fixture
def fake():
    return Fake()


@pytest.fixture
def server(fake):
    server = Server(fake)
    yield server
    server.end()


@pytest.fixture
async def client(server):
    client = UndoLogClient(server.url, heartbeat_seconds=0.05)
    yield client
    await client.aclose()


@pytest.fixture
def session(client):
    return UndoLogSession("acme", client=client)


@pytest.fixture
def quick(monkeypatch):
    """Retries without their pauses."""
    monkeypatch.setattr("undolog_sdk._wire.RETRY_DELAYS", (0.01, 0.01, 0.01))
    monkeypatch.setattr("undolog_sdk._reporter.FIRST_DELAY", 0.01)


def pytest_configure():
    """Of a checkout, the program that was built in it is meant."""
    built = Path(__file__).resolve().parents[3] / "target" / "debug" / "undolog"
    if "UNDOLOG_BIN" not in os.environ and built.exists():
        os.environ["UNDOLOG_BIN"] = str(built)
