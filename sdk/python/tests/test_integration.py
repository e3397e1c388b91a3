"""Against a real `undolog dev`: proxy, engine, worker and Postgres. Skipped without the program."""

import asyncio
import contextlib
import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from fake import SOON
from hypothesis import HealthCheck, given, settings
from test_signature import values

from undolog_sdk import (
    AwaitingApprovalError,
    CompensationDescriptor,
    ConflictError,
    DeniedError,
    InProgressError,
    InvalidCallError,
    NotApplied,
    NotRegisteredError,
    OpenEffectsError,
    OutcomeUnknownError,
    ResultEncodingError,
    SessionOverError,
    ToolTier,
    UndoLogClient,
    UndoLogSession,
    UndoneError,
    call_signature,
    undolog_tool,
)
from undolog_sdk.testing import UndoCheckError, check_tool_undo, check_tool_undo_sync

DELETE = CompensationDescriptor.new("delete_user", {"id": "{result.id}", "email": "{email}"})


class Users(ThreadingHTTPServer):
    """The real HTTP service whose users are made and deleted."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), UsersHandler)
        self.rows = {}
        self.keys = []
        self.deleted = []
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def add(self, email):
        with self.lock:
            user_id = str(uuid.uuid4())
            self.rows[user_id] = email
            return user_id


class UsersHandler(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length))
        with self.server.lock:
            self.server.keys.append(self.headers.get("Idempotency-Key"))
            self.server.deleted.append(body["email"])
            found = self.server.rows.pop(body["id"], None)
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        """Tests look at the rows."""


@pytest.fixture
def users():
    users = Users()
    yield users
    users.shutdown()
    users.server_close()


@pytest.fixture
def real(undolog_client, undolog_org, users):
    """A client whose organisation knows how to delete a user."""
    undolog_client.blocking.register_compensation(
        "delete_user",
        org_id=undolog_org,
        fn_body={
            "kind": "http",
            "method": "POST",
            "endpoint": users.url + "/delete",
            "idempotency_key_header": "Idempotency-Key",
            "done_statuses": [404],
        },
        open=True,
    )
    return undolog_client


@pytest.fixture
def create(users):
    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation=DELETE)
    async def create_user(email: str, error: str = "") -> dict:
        made = {"id": users.add(email)}
        if error == "not_applied":
            users.rows.pop(made["id"])
            raise NotApplied("nothing was made")
        if error:
            raise ValueError(error)
        return made

    return create_user


async def states(client, org, session):
    effects = await client.list_effects(session.session_id, org_id=org)
    return [(e["tool_name"], e["state"]) for e in effects]


async def test_execute_commit_complete_replay(real, undolog_org, users, create):
    async with UndoLogSession(undolog_org, client=real) as s:
        made = await create("ann")
    shown = await real.get_session(s.session_id, org_id=undolog_org)
    assert shown["session"]["state"] == "completed"
    again = UndoLogSession(undolog_org, s.session_id, client=real)
    assert await create("ann", _session=again) == made
    assert len(users.rows) == 1
    [effect] = await real.list_effects(s.session_id, org_id=undolog_org)
    assert effect["call_signature"] == call_signature(
        s.session_id, 1, "create_user", {"email": "ann", "error": ""}
    )


async def test_a_failure_undoes_what_was_done(real, undolog_org, users, create):
    with pytest.raises(RuntimeError, match="the agent gave up"):
        async with UndoLogSession(undolog_org, client=real) as s:
            await create("ann")
            await create("bob")
            raise RuntimeError("the agent gave up")
    assert await s.wait_settled() == "compensated"
    assert users.rows == {}
    assert users.deleted == ["bob", "ann"]
    assert len(set(users.keys)) == 2
    with pytest.raises(SessionOverError):
        await create("cid", _session=s)
    with pytest.raises((UndoneError, SessionOverError)):
        await create("ann", _session=UndoLogSession(undolog_org, s.session_id, client=real))


async def test_a_failed_tool_fails_the_session(real, undolog_org, users, create):
    with pytest.raises(ValueError, match="boom"):
        async with UndoLogSession(undolog_org, client=real) as s:
            await create("ann")
            await create("bob", "boom")
    assert await s.wait_settled() == "compensated"
    assert users.deleted == ["ann"]


async def test_an_implicit_session_follows_the_documented_policy(real, undolog_org, users, create):
    s = UndoLogSession(undolog_org, client=real)
    await create("ann", _session=s)
    with pytest.raises(ValueError):
        await create("bob", "boom", _session=s)
    assert await s.wait_settled() == "compensated"
    assert users.deleted == ["ann"]


async def test_savepoint(real, undolog_org, users, create):
    async with UndoLogSession(undolog_org, client=real) as s:
        await create("ann")
        with pytest.raises(ValueError):
            async with s.savepoint("try"):
                await create("bob")
                await create("cid", "boom")
        await create("dan")
        shown = await s.rollback(dry_run=True)
        assert [p["body"]["email"] for p in shown.plan if p["action"] == "call"] == ["dan", "ann"]
    assert sorted(users.rows.values()) == ["ann", "cid", "dan"]
    assert users.deleted == ["bob"]


async def test_rollback_to_a_step(real, undolog_org, users, create):
    async with UndoLogSession(undolog_org, client=real) as s:
        await create("ann")
        await create("bob")
        await s.rollback("changed its mind", to_step=1, wait=True)
        await create("bob")
    assert sorted(users.rows.values()) == ["ann", "bob"]
    assert users.deleted == ["bob"]


async def test_not_applied_leaves_nothing_to_undo(real, undolog_org, users, create):
    async with UndoLogSession(undolog_org, client=real, on_tool_failure="continue") as s:
        with pytest.raises(NotApplied):
            await create("ann", "not_applied")
        await create("bob")
    [failed, _] = await real.list_effects(s.session_id, org_id=undolog_org)
    assert (failed["state"], failed["outcome"]) == ("failed", "not_applied")


async def test_a_time_out_is_unknown(real, undolog_org, users):
    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation=DELETE)
    async def create_user(email: str):
        raise TimeoutError

    s = UndoLogSession(undolog_org, client=real)
    with pytest.raises(TimeoutError):
        await create_user("ann", _session=s)
    assert await states(real, undolog_org, s) == [("create_user", "unknown")]
    again = UndoLogSession(undolog_org, s.session_id, client=real)
    with pytest.raises((OutcomeUnknownError, SessionOverError)):
        await create_user("ann", _session=again)


async def test_an_approval_edited_and_resumed(real, undolog_org, users, create):
    ran = []

    @undolog_tool(tier=ToolTier.IRREVERSIBLE, risk_tags=["data"])
    async def drop(db: str) -> str:
        """Drops a database."""
        ran.append(db)
        return "dropped " + db

    with pytest.raises(AwaitingApprovalError) as caught:
        async with UndoLogSession(undolog_org, client=real) as s:
            made = await create("ann")
            await drop("prod")
    approval = await real.get_approval(caught.value.approval_id, org_id=undolog_org)
    assert approval["approval"]["irreversibility_reason"] == "Drops a database."
    await real.approve(
        caught.value.approval_id, org_id=undolog_org, approved_args={"db": "staging"}
    )
    # Another process, the day after.
    async with UndoLogClient(real.proxy_url) as other:
        async with UndoLogSession(undolog_org, s.session_id, client=other, resume=True) as resumed:
            assert len(resumed._stored) == 1
            assert await create("ann") == made
            assert await drop("prod") == "dropped staging"
        assert ran == ["staging"]
        again = UndoLogSession(undolog_org, s.session_id, client=other)
        await create("ann", _session=again)
        assert await drop("prod", _session=again) == "dropped staging"
    assert ran == ["staging"]
    assert list(users.rows.values()) == ["ann"]


async def test_an_approval_is_waited_for(real, undolog_org):
    @undolog_tool(tier=ToolTier.IRREVERSIBLE, approval="wait", approval_timeout=60)
    async def drop(db: str) -> str:
        return "dropped " + db

    async def approve():
        while True:
            page = await real._async(real._get("/approvals", undolog_org))
            if page["approvals"]:
                return await real.approve(page["approvals"][0]["approval_id"], org_id=undolog_org)
            await asyncio.sleep(0.05)

    async with UndoLogSession(undolog_org, client=real):
        made, _ = await asyncio.gather(drop("prod"), approve())
    assert made == "dropped prod"


async def test_a_rejection(real, undolog_org):
    @undolog_tool(tier=ToolTier.IRREVERSIBLE)
    async def drop(db: str):
        raise AssertionError("it must not run")

    s = UndoLogSession(undolog_org, client=real)
    with pytest.raises(AwaitingApprovalError) as caught:
        await drop("prod", _session=s)
    await real.reject(caught.value.approval_id, org_id=undolog_org, note="no")
    with pytest.raises(DeniedError):
        await drop("prod", _session=s)
    with pytest.raises(ConflictError):
        await real.approve(caught.value.approval_id, org_id=undolog_org)


async def test_refusals_are_typed(real, undolog_org, create):
    s = UndoLogSession(undolog_org, client=real)
    await create("ann", _session=s)
    with pytest.raises(ConflictError) as caught:
        await create("bob", _session=UndoLogSession(undolog_org, s.session_id, client=real))
    assert caught.value.code == "STEP_CONFLICT"
    with pytest.raises(NotRegisteredError):
        await real.intercept(undolog_org, s.session_id, "nobody_knows", 9, {})
    with pytest.raises(InvalidCallError):
        await create(5, _session=s)
    given_args = {"email": "eve", "error": ""}
    await real.intercept(undolog_org, s.session_id, "create_user", 40, given_args)
    with pytest.raises(InProgressError):
        await real.intercept(undolog_org, s.session_id, "create_user", 40, given_args)


async def test_step_keys(real, undolog_org, users, create):
    async with UndoLogSession(undolog_org, client=real) as s:
        first = await create("ann", step_key="call_1")
        assert await create("ann", step_key="call_1") == first
        await create("ann", step_key="call_2")
    async with UndoLogSession(undolog_org, s.session_id, client=real) as again:
        assert await create("ann", step_key="call_1", _session=again) == first
    assert len(users.rows) == 2


async def test_a_result_without_json_is_undone_with_the_session(real, undolog_org, users):
    @undolog_tool(
        tier=ToolTier.COMPENSABLE,
        compensation=CompensationDescriptor.new("delete_user", {"id": "{key}", "email": "{key}"}),
    )
    async def create_user(key: str) -> object:
        users.rows[key] = key
        return object()

    with pytest.raises(ResultEncodingError):
        async with UndoLogSession(undolog_org, client=real) as s:
            await create_user("ann")
    assert await s.wait_settled() == "compensated"
    assert users.rows == {}


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("made", [nested(200), "x" * (4 << 20)])
async def test_a_result_that_is_refused_is_recorded_without(real, undolog_org, users, made):
    ran = []

    @undolog_tool(
        tier=ToolTier.COMPENSABLE,
        compensation=CompensationDescriptor.new("delete_user", {"id": "{key}", "email": "{key}"}),
    )
    async def create_user(key: str) -> object:
        ran.append(key)
        users.rows[key] = key
        return made

    s = UndoLogSession(undolog_org, client=real)
    with pytest.raises(ResultEncodingError):
        await create_user("ann", _session=s)
    assert await states(real, undolog_org, s) == [("create_user", "committed")]
    again = UndoLogSession(undolog_org, s.session_id, client=real)
    assert await create_user("ann", _session=again) is None
    assert ran == ["ann"]
    await s.rollback(wait=True)
    assert users.rows == {}


@pytest.mark.parametrize("said", ["half \ud800 a pair", "a\0b", "\udc80" * 100_000])
async def test_a_failure_is_recorded_whatever_it_says(real, undolog_org, users, create, said):
    with pytest.raises(RuntimeError):
        async with UndoLogSession(undolog_org, client=real) as s:
            await create("ann")
            raise RuntimeError(said)
    assert await s.wait_settled() == "compensated"

    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation=DELETE)
    async def create_user(email: str):
        raise ValueError(said)

    with pytest.raises(ValueError):
        async with UndoLogSession(undolog_org, client=real) as s:
            await create_user("bob")
    assert await s.wait_settled() == "compensated"
    assert await states(real, undolog_org, s) == [("create_user", "failed")]


async def cut_short(create_slowly):
    """Gives the call up, but only once it runs: a busy machine may take its time until then."""
    call = asyncio.create_task(create_slowly("bob"))
    await asyncio.wait_for(create_slowly.runs.wait(), SOON)
    await asyncio.wait_for(call, 0.05)


@pytest.fixture
def slow(users):
    runs = asyncio.Event()

    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation=DELETE, name="create_slowly")
    async def create_slowly(email: str) -> dict:
        runs.set()
        await asyncio.sleep(SOON)
        return {"id": users.add(email)}

    create_slowly.runs = runs
    return create_slowly


async def test_a_call_that_is_cut_short_keeps_its_session_open(real, undolog_org, create, slow):
    with pytest.raises(OpenEffectsError):
        async with UndoLogSession(undolog_org, client=real) as s:
            await create("ann")
            with pytest.raises(asyncio.TimeoutError):
                await cut_short(slow)
    assert (await states(real, undolog_org, s))[1] == ("create_slowly", "unknown")
    assert await s.wait_settled() == "active"


async def test_a_time_out_that_leaves_the_block_rolls_back(real, undolog_org, create, slow):
    with pytest.raises(asyncio.TimeoutError):
        async with UndoLogSession(undolog_org, client=real) as s:
            await create("ann")
            await cut_short(slow)
    # It takes until the lease of the call is over, because that may take effect until then.
    shown = await real.get_session(s.session_id, org_id=undolog_org)
    assert shown["session"]["state"] == "compensating"


async def test_two_hundred_calls_at_once_and_their_replay(real, undolog_org, users, create):
    @undolog_tool(tier=ToolTier.COMPENSABLE, compensation=DELETE)
    def create_too(email: str) -> dict:
        return {"id": users.add(email)}

    async def run(s):
        with ThreadPoolExecutor(10) as pool:
            loop = asyncio.get_running_loop()
            tasks = [asyncio.create_task(create(f"task{n}")) for n in range(100)]
            made = await asyncio.gather(*tasks)
            threads = [
                loop.run_in_executor(pool, s.bind(create_too), f"thread{n}") for n in range(100)
            ]
            return made + list(await asyncio.gather(*threads))

    async with UndoLogSession(undolog_org, client=real) as s:
        first = await run(s)
    assert len({m["id"] for m in first}) == len(users.rows) == 200
    async with UndoLogSession(undolog_org, s.session_id, client=real, resume=True) as again:
        assert len(again._stored) == 200
        assert await run(again) == first
    assert len(users.rows) == 200


async def test_a_long_run_is_resumed_in_one_answer(real, undolog_org, users, create):
    """Far more steps than one snapshot holds, some of them after the last snapshot."""

    async def run(steps):
        return [await create(f"user{n}") for n in range(steps)]

    async with UndoLogSession(undolog_org, client=real) as s:
        first = await run(130)
    asked = []

    async def note(request):
        asked.append((request.method, request.url.path))

    async with httpx.AsyncClient(event_hooks={"request": [note]}) as http:
        client = UndoLogClient(real.proxy_url, http_client=http)
        async with UndoLogSession(undolog_org, s.session_id, client=client, resume=True):
            assert await run(130) == first
        await client.aclose()
    path = f"/sessions/{s.session_id}"
    assert asked == [("POST", "/sessions"), ("GET", f"{path}/replay"), ("POST", f"{path}/complete")]
    assert len(users.rows) == 130


async def test_a_resumed_run_runs_nothing_twice_in_whatever_order(real, undolog_org, users, create):
    """Half of the concurrent calls are done, and come in another order in the next run."""
    names = [f"user{n}" for n in range(12)]
    with pytest.raises(KeyboardInterrupt):
        async with UndoLogSession(undolog_org, client=real, on_exception="leave") as s:
            done = await asyncio.gather(*[create(name) for name in names[3:9]])
            raise KeyboardInterrupt
    async with UndoLogSession(undolog_org, s.session_id, client=real, resume=True):
        made = await asyncio.gather(*[create(name) for name in names])
    assert made[3:9] == done
    assert sorted(users.rows.values()) == sorted(names)


async def test_a_block_that_was_begun_in_an_earlier_run_is_undone_whole(
    real, undolog_org, users, create
):
    with pytest.raises(KeyboardInterrupt):
        async with UndoLogSession(undolog_org, client=real, on_exception="leave") as s:
            await create("before")
            await s.savepoint().__aenter__()
            await create("inside")
            raise KeyboardInterrupt
    async with UndoLogSession(undolog_org, s.session_id, client=real, resume=True) as again:
        await create("before")
        with pytest.raises(ValueError, match="gives up"):
            async with again.savepoint():
                async with again.savepoint():
                    await create("inside")
                await create("more")
                raise ValueError("gives up")
        assert sorted(users.rows.values()) == ["before"]
        await create("after")
    assert sorted(users.rows.values()) == ["after", "before"]


async def test_a_run_is_resumed_after_a_block_of_it_was_undone(real, undolog_org, users, create):
    async def agent(session, *, dies):
        await create("first")
        with contextlib.suppress(ValueError):
            async with session.savepoint():
                await create("second")
                raise ValueError("gives up")
        await create("third")
        if dies:
            raise KeyboardInterrupt
        await create("fourth")

    with pytest.raises(KeyboardInterrupt):
        async with UndoLogSession(undolog_org, client=real, on_exception="leave") as s:
            await agent(s, dies=True)
    before = dict(users.rows)
    async with UndoLogSession(undolog_org, s.session_id, client=real, resume=True) as again:
        await agent(again, dies=False)
    assert sorted(users.rows.values()) == ["first", "fourth", "third"]
    assert before.items() <= users.rows.items(), "a call that was done ran again"


async def test_an_undo_restores(real, undolog_org, users, create):
    seen = await check_tool_undo(
        create,
        "ann",
        observe=lambda: dict(users.rows),
        client=real,
        org_id=undolog_org,
    )
    assert (seen.before, seen.after) == ({}, {})
    # The second call had the same key as the first.
    assert len(users.keys) == 2
    assert len(set(users.keys)) == 1


def test_an_undo_that_does_not_restore_is_seen(real, undolog_org, users):
    @undolog_tool(
        tier=ToolTier.COMPENSABLE,
        compensation=CompensationDescriptor.new("delete_user", {"id": "no", "email": "{email}"}),
    )
    def create_wrongly(email: str) -> dict:
        return {"id": users.add(email)}

    with pytest.raises(UndoCheckError, match="did not restore"):
        check_tool_undo_sync(
            create_wrongly,
            "ann",
            observe=lambda: dict(users.rows),
            client=real,
            org_id=undolog_org,
        )


def test_the_engine_signs_alike(real, undolog_org):
    """The engine checks each signature that it is given, so a mismatch is an error here."""
    calls = real.blocking
    calls.register_tool(
        "sign", org_id=undolog_org, tier="compensable", compensation_ref="delete_user"
    )
    session = str(uuid.uuid4())
    steps = iter(range(1, 10_000))

    @settings(
        max_examples=150,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    @given(values)
    def signs(value):
        step, args = next(steps), {"value": value}
        made = call_signature(session, step, "sign", args)
        answer = calls.intercept(undolog_org, session, "sign", step, args, signature=made)
        assert answer.outcome == "Execute"

    signs()
