"""The pytest plugin: a development server for the whole run, a client and an organisation.

A `conftest.py` asks for it with `pytest_plugins = ["undolog_sdk.testing.plugin"]`, so that no other
test run of the environment loads it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import httpx
import pytest

from ..client import UndoLogClient
from .server import DevServer, ServerUnavailable, dev_server


@pytest.fixture(scope="session")
def undolog_dev() -> Iterator[DevServer]:
    """`undolog dev` on free ports. Without the program the test is skipped, or fails when
    `UNDOLOG_REQUIRED` is set."""
    try:
        server = dev_server()
        running = server.__enter__()
    except ServerUnavailable as error:
        if os.environ.get("UNDOLOG_REQUIRED"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    try:
        yield running
    finally:
        server.__exit__(None, None, None)


@pytest.fixture
def undolog_org() -> str:
    """An organisation of this test's own; the development server makes it on first use."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def undolog_client(undolog_dev: DevServer) -> Iterator[UndoLogClient]:
    """A client of the development server."""
    # Tests have an event loop each, so no connection is kept for the next one.
    http = httpx.AsyncClient(
        base_url=undolog_dev.proxy_url,
        timeout=30.0,
        limits=httpx.Limits(max_keepalive_connections=0),
    )
    client = UndoLogClient(undolog_dev.proxy_url, http)
    yield client
    client.close()
