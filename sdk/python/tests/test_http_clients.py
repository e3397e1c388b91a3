"""HTTP clients: the caller's own serve everything, loops leave nothing behind, keys stay out."""

import asyncio
import gc
import logging
import os
import threading
import time

import httpx
import pytest
from fake import SOON, until
from tools import tool

import undolog_sdk
from undolog_sdk import (
    BadResponseError,
    UnavailableError,
    UndoLogClient,
    UndoLogError,
    UndoLogSession,
)
from undolog_sdk._pulse import Pulse


@tool()
async def act():
    return 1


def granted(request):
    if request.url.path == "/mcp/tool_call":
        return {"status": "executed", "effect_id": "e", "attempt": 1}
    return {"grants": [], "state": "active"}


async def test_a_clients_own_transport_carries_heartbeats_and_late_reports(quick):
    """H6: TLS roots, certificates, proxies and credentials are in the caller's client."""
    paths, losses = [], ["/effects/e/commit"] * 4
    beaten = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answer(request):
        paths.append(request.url.path)
        if request.url.path.endswith("/heartbeat"):
            loop.call_soon_threadsafe(beaten.set)
        if request.url.path in losses:
            losses.remove(request.url.path)
            return httpx.Response(503, json={"code": "UNAVAILABLE"})
        return httpx.Response(200, json=granted(request))

    http = httpx.AsyncClient(base_url="http://u.test", transport=httpx.MockTransport(answer))
    client = UndoLogClient("http://u.test", http, heartbeat_seconds=0.05)

    @tool(register=False)
    async def slow():
        await asyncio.wait_for(beaten.wait(), SOON)

    async with UndoLogSession("acme", client=client):
        await slow()
    assert paths.count("/effects/e/commit") == 5
    assert [path for path in paths if path.endswith("/complete")]


def test_a_clients_own_credentials_go_with_blocking_calls(fake, server):
    http = httpx.AsyncClient(base_url=server.url, auth=("ann", "secret"), cookies={"c": "1"})
    client = UndoLogClient(server.url, http)
    client.blocking.register_tool("t", tier="safe")
    [asked] = fake.of("/tools/t")
    assert asked["headers"]["authorization"].startswith("Basic ")
    assert asked["headers"]["cookie"] == "c=1"
    client.close()


def test_tls_settings_are_shared():
    import ssl

    context = ssl.create_default_context()
    http = httpx.AsyncClient(verify=context)
    client = UndoLogClient("https://u.test", http)
    assert client._http._like.options("https://u.test")["verify"] is context


def test_event_loops_leave_nothing_behind(server, fake):
    """H7: one client, and a loop for each request of a web server."""
    client = UndoLogClient(server.url)

    async def run():
        async with UndoLogSession("acme", client=client):
            await act()

    asyncio.run(run())
    gc.collect()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        asyncio.run(run())
    assert len([loop for loop in client._http._made if loop.is_closed()]) == 0
    assert len(client._http._made) <= 1
    if before:
        until(lambda: len(os.listdir("/proc/self/fd")) <= before + 8)
    client.close()


def test_loops_that_end_without_a_word_are_dropped(server, fake):
    client = UndoLogClient(server.url)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.get_session("s"))
    for made in list(client._http._made.values()):
        loop.run_until_complete(made.client.aclose())
    loop.close()
    asyncio.run(client.get_session("s"))
    assert loop not in client._http._made
    client.close()


# ------------------------------------------------------------------------ heartbeats


def test_beats_do_not_wait_for_each_other():
    """H5: of eight sessions, seven get no answer at all."""
    taken, release = [], threading.Event()

    async def send(org_id, session_id, grants):
        if session_id != "s7":
            await asyncio.to_thread(release.wait, SOON) if session_id == "s0" else (
                await asyncio.sleep(SOON)
            )
        taken.append(session_id)
        return {}

    pulse = Pulse(send, 0.02)
    for n in range(8):
        pulse.open("acme", f"s{n}", 300, lambda state: None)
        pulse._beats[f"s{n}"].idle_interval = 0.02
    until(lambda: taken.count("s7") > 3)
    assert set(taken) == {"s7"}
    release.set()
    for n in range(8):
        pulse.close(f"s{n}")


def test_missed_beats_are_told(caplog, monkeypatch):
    async def send(org_id, session_id, grants):
        raise UnavailableError("away")

    monkeypatch.setattr("undolog_sdk._pulse.GRANT_LEASE_SECONDS", 1.0)
    pulse = Pulse(send, 0.05)
    with caplog.at_level(logging.INFO, "undolog_sdk"):
        pulse.open("acme", "s", 1, lambda state: None)
        until(lambda: any(r.levelno == logging.ERROR for r in caplog.records))
    levels = [r.levelno for r in caplog.records if "heartbeats" in r.message]
    assert levels[:2] == [logging.INFO, logging.WARNING]
    assert levels == sorted(levels)
    pulse.close("s")


@pytest.mark.parametrize("seconds", [0, -1, 20.5, 90])
def test_beats_that_are_too_rare_are_refused(seconds):
    with pytest.raises(ValueError, match="heartbeat_seconds"):
        UndoLogClient(heartbeat_seconds=seconds)


# ------------------------------------------------------------------------ answers


@pytest.mark.parametrize("status", [500, 501, 507, 520, 526])
async def test_faults_on_the_way_are_tried_again(fake, client, quick, status):
    """M2: a balancer's fault is no answer to a report."""
    for path in ("/mcp", "/commit", "/complete"):
        fake.fail_next(path, (status, ""))
    async with UndoLogSession("acme", client=client):
        assert await act() == 1
    assert fake.states() == ["committed"]
    assert fake.of("/complete")


BODIES = [b"", b"[]", b"<html>", b'{"a":' + b"9" * 5000 + b"}", b"\xff\xfe", b"[" * 100_000]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_a_success_that_is_none_of_a_proxys_is_no_answer(quick, body):
    """L9, L10: something in between answers 200."""
    http = httpx.AsyncClient(
        transport=httpx.MockTransport(lambda request: httpx.Response(200, content=body))
    )
    client = UndoLogClient("http://u.test", http)
    with pytest.raises(BadResponseError, match="no answer of UndoLog") as caught:
        await client.commit("acme", "s", "e", {}, attempt=1)
    assert isinstance(caught.value, UndoLogError)
    assert isinstance(caught.value, httpx.HTTPStatusError)


@pytest.mark.parametrize("name", ["..", ".", ""])
async def test_an_id_cannot_climb(client, fake, name):
    with pytest.raises(ValueError, match="no id"):
        await client.approve(name)
    assert fake.requests == []


# ------------------------------------------------------------------------ secrets


def strings(error, seen=None):
    """Every text in what an error report would show: attributes, headers, causes."""
    seen = set() if seen is None else seen
    if error is None or id(error) in seen:
        return ""
    seen.add(id(error))
    made = [repr(error), str(error), str(getattr(error, "__dict__", ""))]
    for name in ("request", "_request", "response"):
        held = getattr(error, "__dict__", {}).get(name)
        for one in (held, getattr(held, "_request", None)):
            made.append(str(list(getattr(one, "headers", {}).items())))
    inner = (error.__cause__, error.__context__)
    return "\n".join([*made, *(strings(one, seen) for one in inner)])


async def test_the_key_shows_nowhere(server, fake, quick, caplog):
    """L3."""
    key = "ulk_topsecret"
    fake.key = "another"
    with caplog.at_level(logging.DEBUG):
        client = UndoLogClient(server.url, api_key=key)
        with pytest.raises(UndoLogError) as refused:
            await client.get_session("s")
        await client.aclose()
        away = UndoLogClient("http://127.0.0.1:1", api_key=key)
        with pytest.raises(UndoLogError) as unreachable:
            await away.get_session("s")
        await away.aclose()
    assert fake.requests[-1]["headers"]["x-api-key"] == key
    for caught in (refused, unreachable):
        assert key not in strings(caught.value)
    assert key not in caplog.text
    assert key not in repr(vars(client)) + repr(vars(client._http))
    assert "http://127.0.0.1:1" in str(unreachable.value)


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://proxy.internal:8080", True),
        ("http://10.0.0.1", True),
        ("http://127.0.0.1.evil.test", True),
        ("https://proxy.internal", False),
        ("http://localhost:8080", False),
        ("http://127.9.9.9", False),
        ("http://[::1]:8080", False),
    ],
)
def test_a_key_in_clear_text_is_told(caplog, url, warned):
    UndoLogClient(url, api_key="ulk_x")
    assert ("clear text" in caplog.text) is warned
    caplog.clear()
    UndoLogClient(url)
    assert not caplog.text


def test_the_environments_proxy_is_not_on_the_way_to_this_machine(monkeypatch, server, fake):
    """R7."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    client = UndoLogClient(server.url)
    assert client.blocking.get_session("s")["state"] == "active"
    client.close()


def test_another_distribution_of_this_import_name_is_told(monkeypatch):
    """L11."""
    from undolog_sdk import _installed

    monkeypatch.setattr(_installed.importlib.metadata, "version", lambda name: "0.1.0")
    with pytest.warns(RuntimeWarning, match="both are mixed"):
        _installed.warn_of_another()


def test_a_blocked_loop_is_told(caplog, fake, server):
    """L14."""
    client = UndoLogClient(server.url)

    @tool(name="blocks_the_loop")
    def blocks():
        time.sleep(0)

    async def run():
        blocks(_session=UndoLogSession("acme", client=client))
        blocks(_session=UndoLogSession("acme", client=client))

    blocks(_session=UndoLogSession("acme", client=client))
    assert not caplog.text
    asyncio.run(run())
    assert caplog.text.count("blocks_the_loop is a plain function") == 1
    client.close()


def test_the_version_is_told():
    assert undolog_sdk.__version__
