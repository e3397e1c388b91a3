"""Values made by hypothesis, signed by this package and by the engine's own core, in a process of
its own. The other way round, with values that the core's tests make, is a test in Rust."""

import json
import math
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from undolog_sdk.signature import DEPTH_MAX, CanonicalError, call_signature, canonical_json

SIGN = Path(__file__).resolve().parents[3] / "target" / "debug" / "examples" / "sign"
MANY = settings(
    max_examples=800,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Core:
    """The core's `sign` example."""

    def __init__(self, program):
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def sign(self, session, step, tool, text):
        call = {"session_id": session, "step_index": step, "tool_name": tool, "args": text}
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def core():
    if not SIGN.exists():
        why = "build it with `cargo build -p undolog-core --example sign`"
        (pytest.fail if os.environ.get("UNDOLOG_REQUIRED") else pytest.skip)(why)
    core = Core(SIGN)
    yield core
    core.end()


def signed_here(session, step, tool, value):
    try:
        form = canonical_json(value)
    except CanonicalError as error:
        return {"refused": error.reason, "path": error.path}
    return {"canonical": form, "signature": call_signature(session, step, tool, value)}


def parts(value):
    """The value, and each value within it."""
    yield value
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from parts(inner)


# Where printers differ: powers of ten and two, what lies beside them, and the ends of the range.
_EDGES = [float(f"1e{n}") for n in range(-30, 31)] + [2.0**n for n in range(-70, 71)]
_EDGES += [5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, 0.3, 1 / 3, 0.0]
odd_floats = st.builds(
    lambda edge, up, sign: sign * (math.nextafter(edge, math.inf if up else 0.0) if up else edge),
    st.sampled_from(_EDGES),
    st.booleans(),
    st.sampled_from((1.0, -1.0)),
).filter(math.isfinite)
floats = st.floats(allow_nan=False, allow_infinity=False) | odd_floats
integers = st.integers(-(2**63), 2**64 - 1) | st.sampled_from(
    [-(2**63), 2**63 - 1, 2**63, 2**64 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 0, -1]
)
# Quotes, escapes, controls, NUL, what sorts differently in UTF-16, and what looks like a path.
odd_texts = st.text(st.sampled_from('"\\/{}.[]$ab \x00\x01\x1f\x7f\u2028\ufb33\uffff\U0001f600é'))
names = st.text(st.characters(exclude_categories=["Cs"]))
texts = names | odd_texts
scalars = st.none() | st.booleans() | integers | floats | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(texts, inner, max_size=8),
    max_leaves=20,
)
calls = st.tuples(st.uuids().map(str), st.integers(0, 2**31 - 1), names)


@MANY
@given(calls, values, st.booleans())
def test_any_value(core, call, value, ascii_only):
    for part in parts(value):
        text = json.dumps(part, ensure_ascii=ascii_only)
        assert core.sign(*call, text) == signed_here(*call, part)


@settings(MANY, max_examples=400)
@given(calls, st.lists(floats | integers, min_size=30, max_size=60))
def test_numbers(core, call, numbers):
    assert core.sign(*call, json.dumps(numbers)) == signed_here(*call, numbers)


@settings(MANY, max_examples=400)
@given(calls, st.dictionaries(texts, st.just(0), min_size=3, max_size=30))
def test_keys(core, call, value):
    # Written in another order than the canonical one.
    text = json.dumps(dict(reversed(value.items())), ensure_ascii=False)
    assert core.sign(*call, text) == signed_here(*call, value)


@settings(MANY, max_examples=300)
@given(calls, st.integers(1, DEPTH_MAX + 4), st.randoms(use_true_random=False), scalars)
def test_depth(core, call, depth, random, value):
    for _ in range(depth):
        value = [value] if random.random() < 0.5 else {"a b": value}
    here = signed_here(*call, value)
    assert core.sign(*call, json.dumps(value)) == here
    assert ("refused" in here) == (depth > DEPTH_MAX)


surrogates = st.characters(categories=["Cs"])
split = st.builds("{}{}{}".format, texts, surrogates, texts)
faults = (
    st.sampled_from([math.nan, math.inf, -math.inf, 2**64, -(2**63) - 1, 10**40])
    | st.integers(2**64, 2**80)
    | split
    | split.map(lambda key: {key: 1})
)


def plant(value, fault, random):
    """The value with the fault at some place in it."""
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        return [*value[:at], plant(value[at], fault, random), *value[at + 1 :]]
    if isinstance(value, dict) and value and random.random() < 0.8:
        at = random.choice(sorted(value))
        return {**value, at: plant(value[at], fault, random)}
    return fault


@MANY
@given(calls, values, faults, st.randoms(use_true_random=False))
def test_what_is_refused(core, call, value, fault, random):
    value = plant(value, fault, random)
    here = signed_here(*call, value)
    there = core.sign(*call, json.dumps(value))
    assert "refused" in here
    assert there == here


@settings(MANY, max_examples=300)
@given(calls, values, faults, faults, st.randoms(use_true_random=False))
def test_what_is_refused_for_two_reasons(core, call, value, first, second, random):
    value = plant([plant(value, first, random), value], second, random)
    # Each names the fault that it comes to first.
    assert "refused" in signed_here(*call, value)
    assert "refused" in core.sign(*call, json.dumps(value))
