"""Values as JSON and back."""

import collections
import dataclasses
import datetime as dt
import enum
import json
import pathlib
import pickle
import typing
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from undolog_sdk import AwaitingApprovalError
from undolog_sdk.codec import decode, encode
from undolog_sdk.schema import Definitions, schema_of
from undolog_sdk.signature import canonical_json
from undolog_sdk.testing import UndoCheckError, check_undo


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: int
    tags: frozenset[str] = frozenset()
    inner: "Point | None" = None


class Pair(typing.NamedTuple):
    a: int
    b: dt.date


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=False)
    when: dt.datetime = pydantic.Field(alias="at")
    price: Decimal


class Row(typing.TypedDict):
    id: uuid.UUID


KEY = uuid.UUID("3f2b8c1e-5d4a-4e6f-9a7b-0c1d2e3f4a5b")
DAY = dt.date(2030, 1, 2)
AT = dt.datetime(2030, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    ("value", "hint", "form"),
    [
        (None, type(None), None),
        (5, int, 5),
        (1.5, float, 1.5),
        ("x", str, "x"),
        (DAY, dt.date, "2030-01-02"),
        (AT, dt.datetime, "2030-01-02T03:04:05+00:00"),
        (dt.time(1, 2), dt.time, "01:02:00"),
        (dt.timedelta(seconds=1.5), dt.timedelta, 1.5),
        (Decimal("1.10"), Decimal, "1.10"),
        (KEY, uuid.UUID, str(KEY)),
        (pathlib.PurePosixPath("/a"), pathlib.PurePosixPath, "/a"),
        (b"\x00\xff", bytes, "AP8="),
        (bytearray(b"a"), bytearray, "YQ=="),
        (Color.RED, Color, "red"),
        (Level.HIGH, Level, 3),
        ((1, "a"), tuple[int, str], [1, "a"]),
        ((1, 2), tuple[int, ...], [1, 2]),
        ({DAY}, set[dt.date], ["2030-01-02"]),
        (frozenset({"b", "a"}), frozenset[str], ["a", "b"]),
        ({KEY: DAY}, dict[uuid.UUID, dt.date], {str(KEY): "2030-01-02"}),
        ({1: "a"}, dict[int, str], {"1": "a"}),
        ([DAY], list[dt.date], ["2030-01-02"]),
        (Point(1, frozenset({"t"}), Point(2)), Point,
         {"x": 1, "tags": ["t"], "inner": {"x": 2, "tags": [], "inner": None}}),
        (Pair(1, DAY), Pair, [1, "2030-01-02"]),
        (Model(at=AT, price=Decimal("2.50")), Model,
         {"at": "2030-01-02T03:04:05Z", "price": "2.50"}),
        ({"id": KEY}, Row, {"id": str(KEY)}),
        (DAY, dt.date | None, "2030-01-02"),
        (None, dt.date | None, None),
        ("x", Literal["x", "y"], "x"),
        (KEY, Annotated[uuid.UUID, "a key"], str(KEY)),
        ({"a": [1]}, Any, {"a": [1]}),
    ],
)  # fmt: skip
def test_there_and_back(value, hint, form):
    made = encode(value)
    assert made == form
    assert decode(json.loads(json.dumps(made)), hint) == value
    # What a value becomes fits the schema of its type.
    assert isinstance(schema_of(hint, Definitions()), dict)


@pytest.mark.parametrize("value", [object(), print, {"a": object()}, {(1,): 2}, [lambda: 1]])
def test_what_has_no_form(value):
    with pytest.raises(TypeError):
        encode(value, "the_argument")


@pytest.mark.parametrize(
    ("value", "hint"),
    [("x", int), (5, str), ("x", uuid.UUID), ("?", bytes), ("z", Literal["x"]), (1, list[int]),
     ({"x": "no"}, Point), ("blue", Color), ([1], tuple[int, str])],
)  # fmt: skip
def test_what_cannot_be_of_the_type(value, hint):
    with pytest.raises((TypeError, ValueError, ArithmeticError)):
        decode(value, hint)


def test_mappings_of_other_kinds():
    assert encode(collections.OrderedDict(a=1)) == {"a": 1}
    assert encode(collections.ChainMap({"a": (1,)})) == {"a": [1]}


@given(st.sets(st.text() | st.integers(0, 100)))
def test_sets_have_one_order(value):
    assert canonical_json(encode(value)) == canonical_json(encode(set(sorted(value, key=repr))))


def test_schemas():
    defs = Definitions()
    assert schema_of(Point, defs)["required"] == ["x", "tags", "inner"]
    assert schema_of(int | None, defs) == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert schema_of(Literal["a", 1], defs) == {"enum": ["a", 1]}
    assert schema_of(Any, defs) == {}
    assert schema_of(dict[str, int], defs)["additionalProperties"] == {"type": "integer"}
    assert schema_of(Model, defs)["required"] == ["at", "price"]


def test_errors_survive_pickling():
    error = AwaitingApprovalError("a", "t", 2)
    error.session_id = "s"
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.approval_id, copy.tool_name, copy.step_index) == ("a", "t", 2)
    assert copy.session_id == "s"


def test_check_undo():
    rows: dict[int, str] = {}

    def do():
        rows[1] = "x"
        return 1

    assert check_undo(do, lambda key: rows.pop(key, None), rows.copy).result == 1
    with pytest.raises(UndoCheckError, match="did not restore"):
        check_undo(do, lambda key: None, rows.copy)
    rows.clear()

    def once(key):
        if key not in rows:
            rows[99] = "leaves a trace"
        rows.pop(key, None)

    with pytest.raises(UndoCheckError, match="second"):
        check_undo(do, once, rows.copy)
    rows.clear()
    with pytest.raises(UndoCheckError, match="changed nothing"):
        check_undo(lambda: None, lambda _: None, rows.copy)
