"""Decorated functions against the fake wire."""

import asyncio
import dataclasses
import datetime as dt
import functools
import inspect
import logging
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import httpx
import pydantic
import pytest
from fake import Server, until

from undolog_sdk import (
    AwaitingApprovalError,
    CompensationDescriptor,
    ConflictError,
    DeniedError,
    InProgressError,
    NotApplied,
    NotRegisteredError,
    OutcomeUnknownError,
    ResultEncodingError,
    SessionAwaitingApprovalError,
    SessionOverError,
    StoppedError,
    ToolTier,
    UnauthorizedError,
    UnavailableError,
    UndoLogClient,
    UndoLogSession,
    UndoneError,
    call_signature,
    stop_requested,
    undolog_tool,
)

SAFE, COMP, IRR = ToolTier.SAFE, ToolTier.COMPENSABLE, ToolTier.IRREVERSIBLE
UNDO = CompensationDescriptor.new("undo")


@pytest.fixture
def session(client):
    return UndoLogSession("acme", client=client)


def tool(**options):
    return undolog_tool(tier=COMP, compensation=UNDO, **options)


# ------------------------------------------------------------------------ decoration


def test_a_compensable_tool_needs_a_compensation():
    with pytest.raises(ValueError, match="compensation"):
        undolog_tool(tier=COMP)


@pytest.mark.parametrize("tier", [SAFE, IRR])
def test_a_compensation_that_would_never_be_called(tier):
    with pytest.raises(ValueError, match="never"):

        @undolog_tool(tier=tier, compensation=UNDO)
        def f(): ...


@pytest.mark.parametrize("tier", [SAFE, IRR])
def test_generators_are_refused(tier):
    def one():
        yield 1

    async def two():
        yield 1

    for fn in (one, two, functools.partial(one)):
        with pytest.raises(TypeError, match="generator"):
            undolog_tool(tier=tier)(fn)


@pytest.mark.parametrize(
    "template",
    [{"a": "{nope}"}, {"a": ["x {args.nope} y"]}, {"a": {"b": "{comp.x}"}}, {"a": "{secret:K}"}],
)
def test_placeholders_are_checked(template):
    with pytest.raises(ValueError, match=r"nope|comp|secret"):

        @undolog_tool(tier=COMP, compensation=CompensationDescriptor.new("u", template))
        def f(to, subject="x"): ...


def test_placeholders_that_fit():
    template = {"a": "{to} {args.subject}", "b": "{result.id.0}", "c": "{{nope}}", "d": "{args}"}

    @undolog_tool(tier=COMP, compensation=CompensationDescriptor.new("u", template))
    def f(to, subject="x"): ...

    @undolog_tool(tier=COMP, compensation=CompensationDescriptor.new("u", {"a": "{any}"}))
    def g(**rest): ...


def test_the_function_looks_as_before():
    @tool()
    async def send(to: str, n: int = 3) -> dict:
        """Sends."""
        return {}

    assert send.__name__ == "send"
    assert send.__doc__ == "Sends."
    assert str(inspect.signature(send)) == "(to: str, n: int = 3) -> dict"
    assert inspect.iscoroutinefunction(send)
    assert send.__wrapped__ is not send


# ------------------------------------------------------------------------ the three tiers


async def test_safe_tools_send_nothing_and_take_a_step(fake, session):
    @undolog_tool(tier=SAFE)
    async def look(q: str) -> str:
        return q

    assert await look("a") == "a"
    assert await look("a", _session=session) == "a"
    assert session._step_index == 1
    assert fake.requests == []


async def test_a_session_is_needed(fake):
    @tool()
    async def send(): ...

    @tool()
    def send_now(): ...

    with pytest.raises(RuntimeError, match="_session"):
        await send()
    with pytest.raises(RuntimeError, match="_session"):
        send_now()
    assert fake.requests == []


async def test_execute_commit_and_replay(fake, client, session):
    ran = []

    @tool()
    async def send(to: str, subject: str = "Hi") -> dict:
        ran.append(to)
        return {"status": "sent"}

    assert await send("ann", _session=session) == {"status": "sent"}
    [asked] = fake.bodies("/mcp")
    assert asked["args"] == {"to": "ann", "subject": "Hi"}
    assert asked["signature"] == call_signature(session.session_id, 1, "send", asked["args"])
    assert asked["compensation"]["fn_name"] == "undo"
    [report] = fake.bodies("/commit")
    assert report["result"]["output"] == {"status": "sent"}
    assert report["result"]["success"] is True
    assert report["attempt"] == 1

    again = UndoLogSession("acme", session.session_id, client=client)
    assert await send("ann", _session=again) == {"status": "sent"}
    assert ran == ["ann"]
    assert len(fake.bodies("/commit")) == 1


def test_sync_tools_methods_and_partials(server, fake):
    client = UndoLogClient(server.url)

    @tool(exclude={"db"})
    def write(table: str, row: int, db: object = None) -> int:
        assert db is not None
        return row

    class Box:
        @tool()
        def put(self, item: str) -> str:
            return item + "!"

        @tool()
        @classmethod
        def make(cls, item: str) -> str:
            return cls.__name__ + item

        @classmethod
        @tool()
        def make_too(cls, item: str) -> str:
            return cls.__name__ + item

        @tool()
        @staticmethod
        def still(item: str) -> str:
            return item

    with UndoLogSession("acme", client=client):
        assert write("t", 7, db=object()) == 7
        assert Box().put("a") == "a!"
        assert Box.make("b") == Box().make_too("b") == "Boxb"
        assert Box.still("c") == "c"
        part = tool()(functools.partial(write.__wrapped__, "t", row=9))
        assert part(db=dt.date(2030, 1, 1)) == 9
    args = [b["args"] for b in fake.bodies("/mcp")]
    assert args[0] == {"table": "t", "row": 7}
    assert args[1:5] == [{"item": i} for i in ("a", "b", "b", "c")]
    assert args[5] == {"table": "t", "row": 9, "db": "2030-01-01"}
    client.close()


async def test_var_arguments(fake, session):
    @tool()
    async def f(a, *rest, **more):
        return [a, *rest, more]

    assert await f(1, 2, 3, x=4, _session=session) == [1, 2, 3, {"x": 4}]
    assert fake.bodies("/mcp")[0]["args"] == {"a": 1, "rest": [2, 3], "x": 4}


async def test_the_session_can_be_a_parameter(session):
    @tool(session_param="ctx")
    async def f(a, ctx=None):
        return ctx is session

    assert await f(1, ctx=session) is True


# ------------------------------------------------------------------------ failures


@pytest.mark.parametrize(
    ("error", "effect"),
    [
        (ValueError("x"), "maybe_applied"),
        (NotApplied("x"), "not_applied"),
        (TimeoutError(), "unknown"),
        (asyncio.TimeoutError(), "unknown"),
        (ConnectionResetError(), "unknown"),
        (httpx.ReadTimeout("x"), "unknown"),
        (httpx.RemoteProtocolError("x"), "unknown"),
        (KeyboardInterrupt(), "unknown"),
    ],
)
def test_what_a_failure_reports(server, fake, error, effect):
    client = UndoLogClient(server.url)

    @tool()
    def send():
        raise error

    with pytest.raises(type(error)):
        send(_session=UndoLogSession("acme", client=client))
    fake.wait_for(lambda: any("/fail" in r["path"] for r in fake.requests))
    [body] = fake.bodies("/fail")
    assert body["effect"] == effect
    assert type(error).__name__ in body["error"]
    client.close()


def test_a_wrapped_time_out_is_unknown_too():
    from undolog_sdk._outcome import effect_of

    try:
        try:
            raise TimeoutError
        except TimeoutError as error:
            raise ValueError("wrapped") from error
    except ValueError as error:
        assert effect_of(error) == "unknown"


async def test_a_cancelled_call_is_unknown(fake, session):
    started = asyncio.Event()

    @tool()
    async def send():
        started.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(send(_session=session))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(fake.wait_for, lambda: fake.states() == ["failed"])
    assert fake.bodies("/fail")[0]["effect"] == "unknown"


def test_a_call_that_is_closed_is_unknown():
    """A coroutine that is given up must not wait for anything any more."""
    asked = []

    class Wire:
        async def send_async(self, ask):
            return self.send_sync(ask)

        def send_sync(self, ask):
            asked.append(ask)
            granted = {"status": "executed", "effect_id": "e", "attempt": 1}
            return httpx.Response(200, json=granted)

    class Suspends:
        def __await__(self):
            yield

    client = UndoLogClient()
    client._wire = client._reporter._wire = Wire()

    @tool()
    async def send():
        await Suspends()

    async def run():
        call = send(_session=UndoLogSession("acme", client=client))
        call.send(None)
        call.close()

    asyncio.run(run())
    assert client._reporter.flush(None, 10)
    assert asked[-1].path == "/effects/e/fail"
    assert b'"effect":"unknown"' in asked[-1].content


async def test_a_result_that_cannot_be_stored(fake, session):
    @tool()
    async def send():
        return object()

    with pytest.raises(ResultEncodingError):
        await send(_session=session)
    assert fake.states() == ["committed"]


async def test_a_value_that_is_no_argument(fake, session):
    @tool()
    async def send(x): ...

    with pytest.raises(TypeError, match="x"):
        await send(object(), _session=session)
    with pytest.raises(ValueError, match="nan"):
        await send(float("nan"), _session=session)
    assert fake.requests == []
    assert session._step_index == 0


# ------------------------------------------------------------------------ delivery


@pytest.mark.parametrize("fault", ["drop", "lose", (503, "UNAVAILABLE")])
async def test_a_lost_answer_runs_the_tool_once(fake, session, quick, fault):
    ran = []

    @tool()
    async def send():
        ran.append(1)
        return 5

    fake.fail_next("/mcp", fault, fault)
    assert await send(_session=session) == 5
    assert ran == [1]
    tokens = {b["grant_token"] for b in fake.bodies("/mcp")}
    assert len(fake.bodies("/mcp")) == 3
    assert len(tokens) == 1


@pytest.mark.parametrize("fault", ["drop", "lose", (503, "UNAVAILABLE")])
async def test_a_report_is_sent_until_it_is_taken(fake, session, quick, fault):
    ran = []

    @tool()
    async def send():
        ran.append(1)
        return 5

    fake.fail_next("/commit", *[fault] * 9)
    assert await send(_session=session) == 5
    await asyncio.to_thread(fake.wait_for, lambda: len(fake.bodies("/commit")) == 10)
    assert ran == [1]
    assert len({str(b) for b in fake.bodies("/commit")}) == 1
    assert fake.states() == ["committed"]


async def test_the_same_call_again_keeps_its_step_and_token(fake, session, quick):
    @tool()
    async def send(to):
        return to

    fake.fail_next("/mcp", *["lose"] * 4)
    with pytest.raises(UnavailableError) as caught:
        await send("ann", _session=session)
    assert caught.value.retryable
    assert await send("bob", _session=session) == "bob"
    assert await send("ann", _session=session) == "ann"
    asked = [(b["args"]["to"], b["step_index"]) for b in fake.bodies("/mcp")]
    assert asked == [("ann", 1)] * 4 + [("bob", 2), ("ann", 1)]
    assert len({b["grant_token"] for b in fake.bodies("/mcp")}) == 2


async def test_closed_when_the_proxy_is_away(quick):
    ran = []

    @tool()
    async def send():
        ran.append(1)

    async with UndoLogClient("http://127.0.0.1:1") as away:
        with pytest.raises(UnavailableError):
            await send(_session=UndoLogSession("acme", client=away))
    assert ran == []


async def test_open_only_when_asked_for_and_logged(quick, caplog):
    @tool(fail_open=True)
    async def send():
        return 1

    async with UndoLogClient("http://127.0.0.1:1") as away:
        with caplog.at_level(logging.WARNING, "undolog_sdk"):
            assert await send(_session=UndoLogSession("acme", client=away)) == 1
    assert "unrecorded" in caplog.text


@pytest.mark.parametrize(
    ("status", "code", "kind", "retryable"),
    [
        (409, "IN_PROGRESS", InProgressError, True),
        (409, "STEP_CONFLICT", ConflictError, False),
        (409, "APPROVAL_REJECTED", DeniedError, False),
        (409, "OUTCOME_UNKNOWN", OutcomeUnknownError, False),
        (409, "ALREADY_UNDONE", UndoneError, False),
        (409, "SESSION_COMPENSATED", SessionOverError, False),
        (409, "SESSION_AWAITING_APPROVAL", SessionAwaitingApprovalError, True),
        (404, "TOOL_NOT_REGISTERED", NotRegisteredError, False),
        (401, "UNAUTHENTICATED", UnauthorizedError, False),
    ],
)
async def test_typed_errors(fake, session, status, code, kind, retryable):
    @tool()
    async def send():
        raise AssertionError("it must not run")

    fake.fail_next("/mcp", (status, code))
    with pytest.raises(kind) as caught:
        await send(_session=session)
    error = caught.value
    assert (error.code, error.retryable, error.request_id) == (code, retryable, "r-1")
    assert isinstance(error, httpx.HTTPStatusError)
    assert error.response.status_code == status


# ------------------------------------------------------------------------ approvals


async def test_an_approval_keeps_its_step(fake, session, client):
    fake.needs_approval.add("drop")
    ran = []

    @undolog_tool(tier=IRR)
    async def drop(db: str, when: dt.date) -> str:
        ran.append((db, when))
        return db

    day = dt.date(2030, 1, 2)
    for _ in range(2):
        with pytest.raises(AwaitingApprovalError) as caught:
            await drop("prod", day, _session=session)
        assert (caught.value.step_index, caught.value.tool_name) == (1, "drop")
    assert ran == []
    fake.approve(caught.value.approval_id, {"db": "staging", "when": "2031-05-06"})
    assert await drop("prod", day, _session=session) == "staging"
    assert ran == [("staging", dt.date(2031, 5, 6))]
    assert {b["step_index"] for b in fake.bodies("/mcp")} == {1}
    assert all(b["accepts_approved_args"] for b in fake.bodies("/mcp"))


async def test_a_rejected_call(fake, session, client):
    fake.needs_approval.add("drop")

    @undolog_tool(tier=IRR)
    async def drop():
        raise AssertionError("it must not run")

    with pytest.raises(AwaitingApprovalError) as caught:
        await drop(_session=session)
    await client.reject(caught.value.approval_id, note="no")
    with pytest.raises(DeniedError):
        await drop(_session=session)


async def test_waiting_for_an_approval(fake, session):
    fake.needs_approval.add("drop")

    @undolog_tool(tier=IRR, approval="wait", approval_timeout=10)
    async def drop():
        return 1

    task = asyncio.create_task(drop(_session=session))
    await asyncio.to_thread(until, lambda: len(fake.bodies("/mcp")) > 1)
    fake.approve(next(iter(fake.approvals)))
    assert await task == 1
    assert fake.bodies("/mcp")[-1]["wait_ms"] > 0


async def test_waiting_ends(fake, session):
    fake.needs_approval.add("drop")

    @undolog_tool(tier=IRR, approval="wait", approval_timeout=0.05)
    async def drop(): ...

    with pytest.raises(AwaitingApprovalError):
        await drop(_session=session)


async def test_approved_args_that_do_not_fit(fake, session):
    fake.needs_approval.add("drop")

    @undolog_tool(tier=IRR)
    async def drop(when: dt.date):
        raise AssertionError("it must not run")

    with pytest.raises(AwaitingApprovalError) as caught:
        await drop(dt.date(2030, 1, 1), _session=session)
    fake.approve(caught.value.approval_id, {"when": "someday"})
    with pytest.raises(ValueError):
        await drop(dt.date(2030, 1, 1), _session=session)
    assert fake.bodies("/fail")[0]["effect"] == "not_applied"


# ------------------------------------------------------------------------ step keys


async def test_step_keys(fake, session):
    @tool()
    async def send(to):
        return to

    @tool(step_key="call_id")
    async def send_by(to, call_id):
        return to

    await send("a", step_key="call_1", _session=session)
    await send("a", step_key="call_1", _session=session)
    await send_by("a", "call_2", _session=session)
    asked = fake.bodies("/mcp")
    assert [b["step_key"] for b in asked] == ["call_1", "call_1", "call_2"]
    assert all("step_index" not in b and "signature" not in b for b in asked)
    assert len(fake.bodies("/commit")) == 2
    assert session._step_index == 0


# ------------------------------------------------------------------------ registration


async def test_registration(fake, session, client):
    class Color(pydantic.BaseModel):
        name: str

    @undolog_tool(tier=IRR, risk_tags=["money"], estimated_impact="a lot")
    async def pay(amount: Decimal, color: Color | None = None):
        """Pays
        somebody.

        More.
        """

    @tool(version="2.0.0")
    async def send(to: str): ...

    @undolog_tool(tier=COMP, compensation="by_name")
    async def named(): ...

    @undolog_tool(tier=SAFE)
    async def look(): ...

    @undolog_tool(tier=IRR)
    async def silent(): ...

    await pay(Decimal("1.5"), _session=session)
    await pay(Decimal("2.5"), _session=session)
    await send("x", _session=session)
    await named(_session=session)
    await silent(_session=session)
    await look(_session=session)
    assert len(fake.of("/tools/pay")) == 1
    assert "look" not in fake.tools
    body = fake.tools["pay"]
    assert body["tier"] == "irreversible"
    assert body["irreversibility_reason"] == "Pays somebody."
    assert body["risk_tags"] == ["money"]
    schema = body["tool_schema"]["inputSchema"]
    assert schema["required"] == ["amount"]
    assert schema["additionalProperties"] is False
    assert fake.tools["send"]["compensation_ref"] == "undo"
    assert fake.tools["send"]["tool_version"] == "2.0.0"
    assert fake.tools["named"]["compensation_ref"] == "by_name"
    assert "compensation" not in fake.of("/mcp")[-2]["body"]
    assert fake.tools["silent"]["irreversibility_reason"] == "silent is declared irreversible"


async def test_a_refused_registration_is_no_obstacle(fake, session, caplog):
    @tool()
    async def send():
        return 1

    fake.fail_next("/tools", (409, "REGISTRATION_CONFLICT"))
    assert await send(_session=session) == 1
    assert "was not registered" in caplog.text


# ------------------------------------------------------------------------ values


@dataclasses.dataclass
class Line:
    item: str
    price: Decimal


class Order(pydantic.BaseModel):
    id: uuid.UUID
    lines: list[str]


async def test_values_travel_and_come_back(fake, session, client):
    seen = []

    @tool()
    async def order(
        line: Line, model: Order, at: dt.datetime, key: uuid.UUID, raw: bytes
    ) -> tuple[Line, Order, dt.datetime, uuid.UUID, bytes]:
        seen.append(line)
        return line, model, at, key, raw

    key = uuid.uuid4()
    at = dt.datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone.utc)
    args = (Line("a", Decimal("1.10")), Order(id=key, lines=["x"]), at, key, b"\x00\xff")
    first = await order(*args, _session=session)
    again = UndoLogSession("acme", session.session_id, client=client)
    assert await order(*args, _session=again) == first == args
    assert len(seen) == 1
    assert fake.bodies("/mcp")[0]["args"]["line"] == {"item": "a", "price": "1.10"}
    assert fake.bodies("/mcp")[0]["args"]["raw"] == "AP8="


# ------------------------------------------------------------------------ heartbeats


def test_a_blocking_tool_is_kept_alive(server, fake):
    client = UndoLogClient(server.url, heartbeat_seconds=0.02)

    @tool()
    def slow():
        fake.wait_for(lambda: len([b for b in fake.bodies("/heartbeat") if b["grants"]]) >= 3)
        return 1

    assert slow(_session=UndoLogSession("acme", client=client)) == 1
    [effect_id] = fake.effects
    beats = [b for b in fake.bodies("/heartbeat") if b["grants"]]
    assert beats[0]["grants"] == [{"effect_id": effect_id, "attempt": 1}]
    client.close()


async def test_a_stop_cancels_the_body(fake, session):
    @tool()
    async def slow():
        fake.stop = True
        await asyncio.sleep(5)

    with pytest.raises(StoppedError):
        await slow(_session=session)
    await asyncio.to_thread(fake.wait_for, lambda: fake.states() == ["failed"])
    assert fake.bodies("/fail")[0]["effect"] == "unknown"
    # The task itself goes on as if it had not been cancelled.
    await asyncio.sleep(0)


# ------------------------------------------------------------------------ many at once


async def test_two_hundred_calls_from_tasks_and_threads(fake, session, client):
    @tool()
    async def one(n: int) -> int:
        await asyncio.sleep(0)
        return n * 2

    @tool()
    def two(n: int) -> int:
        return n * 3

    async with session:
        with ThreadPoolExecutor(20) as pool:
            loop = asyncio.get_running_loop()
            threads = [loop.run_in_executor(pool, session.bind(two), n) for n in range(100)]
            tasks = [asyncio.create_task(one(n)) for n in range(100)]
            assert await asyncio.gather(*tasks) == [n * 2 for n in range(100)]
            assert await asyncio.gather(*threads) == [n * 3 for n in range(100)]
    steps = sorted(b["step_index"] for b in fake.bodies("/mcp"))
    assert steps == list(range(1, 201))
    before = len(fake.bodies("/mcp"))
    # Another order: each call still finds its own result.
    async with UndoLogSession("acme", session.session_id, client=client, resume=True) as again:
        with ThreadPoolExecutor(20) as pool:
            loop = asyncio.get_running_loop()
            tasks = [asyncio.create_task(one(n)) for n in reversed(range(100))]
            threads = [loop.run_in_executor(pool, again.bind(two), n) for n in range(100)]
            assert sorted(await asyncio.gather(*tasks)) == [n * 2 for n in range(100)]
            assert await asyncio.gather(*threads) == [n * 3 for n in range(100)]
    assert len(fake.bodies("/mcp")) == before


def test_the_proxy_restarts_under_load(fake, monkeypatch):
    monkeypatch.setattr("undolog_sdk._reporter.FIRST_DELAY", 0.02)
    server = Server(fake)
    port = server.server_port
    client = UndoLogClient(server.url)
    ran = []

    @tool()
    def send(n: int) -> int:
        ran.append(n)
        return n

    session = UndoLogSession("acme", client=client)
    done, stop = [], threading.Event()

    def work(first):
        for n in range(first, first + 25):
            while True:
                try:
                    assert send(n, _session=session) == n
                    done.append(n)
                    break
                except UnavailableError as error:
                    assert error.retryable

    threads = [threading.Thread(target=work, args=(i * 100,)) for i in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(done) > 20)
    server.end()
    server = Server(fake, port)
    for thread in threads:
        thread.join(60)
    stop.set()
    assert client._reporter.flush(None, 20)
    assert len(done) == 200
    assert sorted(ran) == sorted(done)
    assert fake.states().count("committed") == 200
    client.close()
    server.end()


async def test_an_emptied_registry_is_told_again(fake, session):
    @tool()
    async def send(n):
        return n

    await send(1, _session=session)
    fake.fail_next("/mcp", (404, "TOOL_NOT_REGISTERED"))
    assert await send(2, _session=session) == 2
    assert len(fake.of("/tools/send")) == 2


def test_a_blocking_tool_can_ask_whether_to_stop(server, fake):
    client = UndoLogClient(server.url, heartbeat_seconds=0.02)
    fake.stop = True

    @tool()
    def slow():
        assert not stop_requested()
        until(stop_requested)
        return "stopped in good order"

    assert slow(_session=UndoLogSession("acme", client=client)) == "stopped in good order"
    assert not stop_requested()
    client.close()
