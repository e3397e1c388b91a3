"""Decorated functions against the fake wire."""

import asyncio
import dataclasses
import datetime as dt
import functools
import inspect
import uuid
from decimal import Decimal

import httpx
import pydantic
import pytest
from tools import COMP, IRR, SAFE, UNDO, tool

from undolog_sdk import (
    CompensationDescriptor,
    NotApplied,
    ResultEncodingError,
    UndoLogClient,
    UndoLogSession,
    call_signature,
    undolog_tool,
)

# ------------------------------------------------------------------------ decoration


def test_a_compensable_tool_needs_a_compensation():
    with pytest.raises(ValueError, match="compensation"):
        undolog_tool(tier=COMP)


@pytest.mark.parametrize("tier", [SAFE, IRR])
def test_a_compensation_that_would_never_be_called(tier):
    with pytest.warns(UserWarning, match="never"):

        @undolog_tool(tier=tier, compensation=UNDO)
        def f(): ...

    assert f.undolog.compensation is None


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
    assert not hasattr(send, "__wrapped__")
    assert inspect.unwrap(send) is send


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
        part = tool()(functools.partial(write.undolog.fn, "t", row=9))
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


def test_no_irreversible_tool_fails_open():
    with pytest.raises(ValueError, match="cannot fail open"):

        @undolog_tool(tier=IRR, fail_open=True)
        def drop(): ...


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
    assert client._reporter.flush(None, 60)
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
    assert fake.tools["send"]["compensation_args"] == UNDO.args
    assert "compensation_args" not in fake.tools["named"]
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


async def test_an_emptied_registry_is_told_again(fake, session):
    @tool()
    async def send(n):
        return n

    await send(1, _session=session)
    fake.fail_next("/mcp", (404, "TOOL_NOT_REGISTERED"))
    assert await send(2, _session=session) == 2
    assert len(fake.of("/tools/send")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "{result.id",
        "{}",
        "{ result.id }",
        "{result[id]}",
        "{result.id!r}",
        "{result.id}}",
        "{email",
        "x}",
    ],
)
def test_a_misspelt_placeholder_is_refused_when_the_tool_is_made(text):
    with pytest.raises(ValueError, match="brace"):

        @undolog_tool(tier=COMP, compensation=CompensationDescriptor.new("x", {"id": text}))
        def send(email: str) -> dict: ...


async def test_a_coroutine_that_was_not_run_is_no_result(fake, session):
    async def inner() -> int:
        return 1

    @undolog_tool(tier=COMP, compensation=UNDO)
    def send(n: int) -> int:
        return inner()

    with pytest.raises(TypeError, match="async function"):
        await asyncio.to_thread(session.bind(send), 1)
    [effect] = fake.effects.values()
    assert effect["state"] == "failed"
