"""Forked processes: each has connections, threads and reports of its own."""

import asyncio
import collections
import contextlib
import json
import os
import sys
import threading
import time
import traceback

import pytest
from fake import Handler, Server, until
from tools import tool

import undolog_sdk.client
from undolog_sdk import UndoLogClient, UndoLogSession

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]
SECONDS = 120
CALLS = 30
CHILDREN = 4


@pytest.fixture(autouse=True)
def connections(monkeypatch):
    """The client's ports, by whose sessions they were used for."""
    ports = collections.defaultdict(set)
    answer = Handler.do

    def do(handler):
        session_id = handler.headers.get("X-UndoLog-Session-Id", "")
        ports[session_id.partition("-")[0]].add(handler.client_address[1])
        answer(handler)

    # Connections that end with their answer could not be shared.
    monkeypatch.setattr(Handler, "protocol_version", "HTTP/1.1")
    monkeypatch.setattr(Handler, "disable_nagle_algorithm", True)
    for method in ("GET", "POST", "PUT"):
        monkeypatch.setattr(Handler, f"do_{method}", do)
    return ports


@contextlib.contextmanager
def forked(what):
    """Runs it in a child, and expects that it went well."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read)
            os.write(write, json.dumps(what()).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(write)
    said = []
    try:
        yield said
    finally:
        # It must not outlast its test, even when it hangs.
        deadline = time.monotonic() + SECONDS
        while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.01)
        if ended == (0, 0):
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        with os.fdopen(read, "rb") as pipe:
            text = pipe.read()
    assert ended[1] == 0, "the child failed, or did not end"
    said.append(json.loads(text))


def asked(client, whose):
    """Session ids that were asked for, each beside the one that was answered."""
    pairs = []
    for n in range(CALLS):
        name = f"{whose}-{n}"
        answer = client._sync(client._begin("acme", name, {"session_id": name}))
        pairs.append((name, answer["session_id"]))
    return pairs


def wrong(pairs):
    return [(mine, got) for mine, got in pairs if mine != got]


def test_parent_and_children_hear_their_own_answers(server, connections):
    client = UndoLogClient(server.url)
    assert wrong(asked(client, "before")) == []
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(forked(lambda n=n: wrong(asked(client, f"child{n}"))))
            for n in range(CHILDREN)
        ]
        assert wrong(asked(client, "parent")) == []
    assert children == [[[]]] * CHILDREN
    assert wrong(asked(client, "after")) == []
    # One connection each, and the parent's has outlived its children.
    assert connections["before"] == connections["parent"] == connections["after"]
    used = [connections["parent"], *(connections[f"child{n}"] for n in range(CHILDREN))]
    assert [len(ports) for ports in used] == [1] * len(used)
    assert len(set().union(*used)) == len(used)
    client.close()


async def test_so_do_event_loops(server, connections):
    client = UndoLogClient(server.url)

    async def begin(whose, n):
        name = f"{whose}-{n}"
        answer = await client._async(client._begin("acme", name, {"session_id": name}))
        return name, answer["session_id"]

    async def many(whose):
        return wrong([await begin(whose, n) for n in range(10)])

    assert await many("before") == []
    loop = asyncio.get_running_loop()
    inherited = client._http._made[loop].client

    def child():
        assert loop not in client._http._made
        assert not inherited.is_closed
        # A loop of its own, on a thread of its own: this one runs the parent's.
        answers = []
        thread = threading.Thread(target=lambda: answers.append(asyncio.run(many("child"))))
        thread.start()
        thread.join()
        return answers

    with forked(child) as said:
        assert await many("parent") == []
    assert said == [[[]]]
    assert client._http._made[loop].client is inherited
    assert await many("after") == []
    assert connections["before"] >= connections["parent"] >= connections["after"]
    assert not connections["child"] & connections["before"]
    await client.aclose()
    # The connection's transport ends in the loop's next turns.
    await asyncio.sleep(0.05)


def test_no_lock_stays_held(server):
    client = UndoLogClient(server.url)
    client.close()
    locks = [
        client._http._lock,
        client._pulse._lock,
        client._reporter._changed,
        undolog_sdk.client._default_lock,
    ]
    with contextlib.ExitStack() as stack:
        for lock in locks:
            stack.enter_context(lock)

        def child():
            assert undolog_sdk.client._default_lock is not locks[-1]
            with UndoLogSession("acme", client=client):
                pass
            return client._reporter.flush(None, 60)

        with forked(child) as said:
            pass
    assert said == [True]


def test_heartbeats_begin_anew(server, fake, tmp_path):
    client = UndoLogClient(server.url, heartbeat_seconds=0.02)

    def beats(session):
        path = f"/sessions/{session.session_id}/heartbeat"
        return [b["grants"] for b in fake.bodies(path) if b["grants"]]

    mine, other = UndoLogSession("acme", client=client), UndoLogSession("acme", client=client)

    @tool()
    def fork():
        fake.wait_for(lambda: beats(mine))

        @tool()
        def inner():
            while not mark.exists():
                time.sleep(0.01)
            # The call that ran at the fork is renewed by the process that runs it.
            return list(client._pulse._beats)

        with forked(lambda: inner(_session=other)) as said:
            fake.wait_for(lambda: len(beats(other)) >= 3)
            mark.touch()
        return said[0]

    mark = tmp_path / "has beaten"
    assert fork(_session=mine) == [other.session_id]
    client.close()


def test_a_child_keeps_the_session_that_it_works_in(server):
    client = UndoLogClient(server.url, heartbeat_seconds=0.02)

    @tool()
    def send():
        beat = client._pulse._beats[session.session_id]
        return [beat.is_open, len(beat.grants)]

    with UndoLogSession("acme", client=client) as session:

        def child():
            assert client._pulse._beats == {}
            return send()

        with forked(child) as said:
            pass
    assert said == [[True, 1]]
    client.close()


def test_reports_are_delivered_by_the_process_that_has_them(fake, quick):
    away = Server(fake)
    port = away.server_port
    client = UndoLogClient(away.url)

    @tool()
    def send(whose):
        return whose

    fake.fail_next("/commit", *["drop"] * 4)
    session = UndoLogSession("acme", client=client)
    send("parent", _session=session)
    away.end()
    assert not client._reporter.is_idle(session.session_id)
    server = Server(fake, port)

    def child():
        assert client._reporter.is_idle(session.session_id)
        send("child", _session=UndoLogSession("acme", client=client))
        return client._reporter.flush(None, 60)

    with forked(child) as said:
        assert client._reporter.flush(None, 60)
    assert said == [True]
    until(lambda: fake.states() == ["committed", "committed"])
    client.close()
    server.end()
