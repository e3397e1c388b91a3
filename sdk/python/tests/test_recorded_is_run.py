"""What runs is what was recorded, and what is recorded is what runs."""

import asyncio
import dataclasses
import inspect
import typing
from decimal import Decimal

import pydantic
import pytest
from tools import IRR, tool

from undolog_sdk import (
    ArgumentsChangedError,
    AwaitingApprovalError,
    ResultDecodingError,
    ResultEncodingError,
    StoppedError,
    UndoLogClient,
    UndoLogSession,
    undolog_tool,
)
from undolog_sdk.codec import EncodeError, decode, encode
from undolog_sdk.schema import Definitions, checkable, schema_of


async def test_arguments_that_change_while_a_human_decides_do_not_run(fake, client):
    """H4."""
    fake.needs_approval.add("wire")
    ran = []

    @undolog_tool(tier=IRR, approval="wait")
    async def wire(order: dict):
        ran.append(dict(order))

    order = {"amount": 1}
    async with UndoLogSession("acme", client=client, on_exception="leave"):
        task = asyncio.create_task(wire(order))
        await asyncio.to_thread(fake.wait_for, lambda: len(fake.bodies("/mcp")) > 1)
        order["amount"] = 1_000_000
        for approval_id in fake.approvals:
            fake.approve(approval_id)
        with pytest.raises(ArgumentsChangedError, match="wire"):
            await task
    assert ran == []
    assert fake.bodies("/effects")[-1]["effect"] == "not_applied"


async def test_neighbours_of_a_waiting_call_wait_too(fake, client):
    """Q5: and what still waits when the block is left never runs outside of it."""
    fake.needs_approval.add("wire")
    ran = []

    @undolog_tool(tier=IRR, approval="wait")
    async def wire():
        ran.append("wire")

    @tool()
    async def send():
        ran.append("send")

    async with UndoLogSession("acme", client=client):
        waiting = asyncio.create_task(wire())
        await asyncio.to_thread(fake.wait_for, lambda: len(fake.bodies("/mcp")) > 1)
        fake.refuse_tool("send", 3, (409, "SESSION_AWAITING_APPROVAL"))
        await send()
        for approval_id in fake.approvals:
            fake.approve(approval_id)
        await waiting
    assert ran == ["send", "wire"]


async def test_a_call_that_waits_does_not_outlive_its_block(fake, client):
    fake.needs_approval.add("wire")
    ran = []

    @undolog_tool(tier=IRR, approval="wait")
    async def wire():
        ran.append("wire")

    with pytest.raises(AwaitingApprovalError):
        async with UndoLogSession("acme", client=client):
            waiting = asyncio.create_task(wire())
            await asyncio.to_thread(fake.wait_for, lambda: len(fake.bodies("/mcp")) > 1)
    for approval_id in fake.approvals:
        fake.approve(approval_id)
    with pytest.raises((AwaitingApprovalError, StoppedError)):
        await waiting
    assert ran == []


# ------------------------------------------------------------------------ results


class Breaks:
    """What an ORM's row does when its session is closed."""

    def keys(self):
        raise RuntimeError("the row is detached")

    def model_dump(self, **_):
        raise AttributeError("the row is detached")


async def test_a_result_whose_encoding_breaks_is_reported(fake, client):
    """M3."""

    @tool()
    async def send():
        return Breaks()

    async with UndoLogSession("acme", client=client):
        with pytest.raises(ResultEncodingError, match="detached"):
            await send()
    assert fake.states() == ["committed"]


async def test_a_stored_result_of_another_type_is_an_error(fake, client):
    """M7: never another type than the tool returns."""

    @tool(name="send")
    async def before() -> str:
        return "x"

    @tool(name="send")
    async def after() -> Decimal:
        raise AssertionError("it must not run")

    session_id = UndoLogSession("acme").session_id
    await before(_session=UndoLogSession("acme", session_id, client=client))
    with pytest.raises(ResultDecodingError, match="send"):
        await after(_session=UndoLogSession("acme", session_id, client=client))


async def test_another_type_on_replay_is_told(fake, client, caplog):
    """R6."""

    @tool()
    async def send():
        return (1, 2)

    await send(_session=UndoLogSession("acme", client=client))
    await send(_session=UndoLogSession("acme", client=client))
    assert caplog.text.count("send returns a tuple, but its replay returns a list") == 1


async def test_fail_open_is_recorded_afterwards(fake, server, quick):
    """M8: the answer is lost, the grant is there, and the session can still be completed."""
    client = UndoLogClient(server.url)
    ran = []

    @tool(fail_open=True)
    async def send():
        ran.append(1)
        return "sent"

    async with UndoLogSession("acme", client=client):
        fake.fail_next("/mcp", *["lose"] * 4)
        assert await send() == "sent"
    assert ran == [1]
    assert fake.states() == ["committed"]
    assert fake.of("/complete")
    assert len({b["grant_token"] for b in fake.bodies("/mcp")}) == 1
    await client.aclose()


async def test_fail_open_from_the_first_request_on(fake, server, quick):
    client = UndoLogClient(server.url)

    @tool(fail_open=True)
    async def send():
        return "sent"

    fake.fail_next("/sessions", *["drop"] * 4)
    async with UndoLogSession("acme", client=client):
        assert await send() == "sent"
    await asyncio.to_thread(fake.wait_for, lambda: bool(fake.of("/complete")))
    assert fake.states() == ["committed"]
    await client.aclose()


# ------------------------------------------------------------------------ values


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, {"x": [{Decimal(1): 0, "1": 0}]}])
def test_keys_of_one_spelling_are_refused(value):
    """M6: one of the two would run and not be recorded."""
    with pytest.raises(EncodeError, match="two keys"):
        encode(value)


@dataclasses.dataclass
class Checked:
    name: str

    def validate(self):
        return True


def test_unknown_members_are_no_attributes():
    """L8."""
    with pytest.raises(ValueError, match="validate"):
        decode({"name": "x", "validate": None}, Checked)
    assert decode({"name": "x"}, Checked).validate()


class Line(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    price: Decimal = pydantic.Field(alias="unitPrice")
    count: int = pydantic.Field(validation_alias="n", serialization_alias="quantity")

    @pydantic.computed_field
    @property
    def total(self) -> Decimal:
        return self.price * self.count


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    lines: list[Line]
    by_name: dict[str, Line] = {}
    first: Line | None = None


class Names(pydantic.RootModel[list[str]]):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Line(unitPrice=Decimal("1.5"), n=2),
        Order(
            lines=[Line(unitPrice=Decimal(1), n=1)],
            by_name={"a": Line(unitPrice=Decimal(2), n=2)},
            first=Line(unitPrice=Decimal(3), n=3),
        ),
        Names(["a", "b"]),
    ],
)
def test_models_come_back_as_they_were(value):
    """M7: computed fields, and aliases of either direction."""
    jsonschema = pytest.importorskip("jsonschema")
    made = encode(value)
    assert decode(made, type(value)) == value
    defs = Definitions()
    schema = schema_of(type(value), defs)
    jsonschema.validate(made, {**schema, "$defs": dict(defs)})


def named(fields):
    return pydantic.create_model("Inner", **fields)


def test_two_models_of_one_name_have_a_definition_each():
    defs = Definitions()
    one, two = named({"a": (int, ...)}), named({"b": (str, ...)})
    outer = [pydantic.create_model(n, x=(m, ...)) for n, m in (("One", one), ("Two", two))]
    schemas = [schema_of(model, defs) for model in outer]
    refs = [schema["properties"]["x"]["$ref"].rpartition("/")[2] for schema in schemas]
    assert [list(defs[ref]["properties"]) for ref in refs] == [["a"], ["b"]]
    assert schema_of(outer[0], defs) == schemas[0]


@pytest.mark.parametrize(
    ("pattern", "stays"),
    [
        (r"^\d+$", True),
        (r"a\\1", True),
        (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", False),
        (r"(?<=a)b", False),
        (r"(a)\1", False),
        (r"(?P<x>a)(?P=x)", False),
    ],
)
def test_patterns_that_the_registry_does_not_take_are_left_out(pattern, stays):
    schema = {"properties": {"pattern": {"type": "string", "pattern": pattern}}}
    kept = checkable(schema)["properties"]["pattern"]
    assert ("pattern" in kept) is stays
    assert checkable({"default": {"pattern": pattern}}) == {"default": {"pattern": pattern}}


def test_a_decimal_of_pydantic_is_registered_without_its_pattern():
    class Price(pydantic.BaseModel):
        amount: Decimal

    @tool()
    def send(price: Price): ...

    assert "(?" not in str(send.undolog.schema())


# ------------------------------------------------------------------------ the bare function


def test_nothing_leads_past_the_record():
    """L12."""
    ran = []

    @undolog_tool(tier=IRR)
    def drop(name: "Later") -> "Later":
        ran.append(name)

    assert inspect.unwrap(drop) is drop
    with pytest.raises(RuntimeError, match="session"):
        inspect.unwrap(drop)("prod")
    assert ran == []
    assert typing.get_type_hints(drop) == {"name": Later, "return": Later}
    assert list(inspect.signature(drop).parameters) == ["name"]


class Later:
    """Defined after it is named."""
