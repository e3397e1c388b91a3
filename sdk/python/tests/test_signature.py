"""The shared vectors, and values made by hypothesis against the vectors' own reference."""

import importlib.util
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undolog_sdk.signature import CanonicalError, call_signature, canonical_json

VECTORS = Path(__file__).resolve().parents[3] / "tests" / "vectors"
SESSION = "3f2b8c1e-5d4a-4e6f-9a7b-0c1d2e3f4a5b"


def _reference():
    spec = importlib.util.spec_from_file_location("reference", VECTORS / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = _reference()


def rows(name):
    return [pytest.param(row, id=row["name"]) for row in json.loads((VECTORS / name).read_text())]


def read(text):
    # JSON knows the integer -0, Python does not; the canonical form of both is -0.0.
    return json.loads(text, parse_int=lambda digits: -0.0 if digits == "-0" else int(digits))


@pytest.mark.parametrize("row", rows("canonical.json"))
def test_canonical_vectors(row):
    assert canonical_json(read(row["input"])) == row["canonical"]


@pytest.mark.parametrize("row", rows("signature.json"))
def test_signature_vectors(row):
    args = read(row["input"])
    assert canonical_json(args) == row["canonical"]
    made = call_signature(row["session_id"], row["step_index"], row["tool_name"], args)
    assert made == row["signature"]


# What Python's own reader lets through, or never makes a value of.
PYTHON_SEES = ("not_finite", "lone_surrogate", "integer_out_of_range", "too_deep")


def refused():
    found = json.loads((VECTORS / "refused.json").read_text())
    return [pytest.param(r, id=r["name"]) for r in found if r["reason"] in PYTHON_SEES]


@pytest.mark.parametrize("row", refused())
def test_refused_vectors(row):
    with pytest.raises(CanonicalError) as caught:
        canonical_json(json.loads(row["input"]))
    assert (caught.value.reason, caught.value.path) == (row["reason"], row["path"])


@pytest.mark.parametrize("session", ["", "no-uuid", "3f2b8c1e"])
def test_a_session_that_is_no_uuid(session):
    with pytest.raises(ValueError):
        call_signature(session, 1, "t", {})


@pytest.mark.parametrize("step", [-1, 2**31])
def test_a_step_out_of_range(step):
    with pytest.raises(ValueError):
        call_signature(SESSION, step, "t", {})


@pytest.mark.parametrize("value", [{1: 2}, {"a": object()}, b"x", {"a": {1, 2}}])
def test_what_is_no_json(value):
    with pytest.raises(ValueError):
        canonical_json(value)


def test_subclasses_are_printed_as_their_json_type():
    class Odd(int):
        def __repr__(self):
            return "odd"

    assert canonical_json([Odd(3), True]) == "[3,true]"


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@settings(max_examples=500, deadline=None)
@given(values, st.integers(0, 2**31 - 1), st.text(min_size=1), st.uuids())
def test_the_reference_agrees(value, step, tool, session):
    form = canonical_json(value)
    assert form == reference.canonical(reference.read(json.dumps(value)))
    made = call_signature(str(session), step, tool, value)
    assert made == reference.signature(str(session), step, tool, form)


@settings(max_examples=500, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_survives(value):
    form = canonical_json(value)
    assert float(form) == value
    assert math.copysign(1, float(form)) == math.copysign(1, value)
    assert form == reference.canonical(reference.Num(repr(value)))


@given(values)
def test_canonical_twice_is_canonical(value):
    form = canonical_json(value)
    assert canonical_json(read(form)) == form
