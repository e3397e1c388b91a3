"""Writes the shared test vectors, or with --check verifies that they are current.

This is a second implementation on purpose: its own JSON reader, canonical printer, byte stream
and template renderer, so that the files never repeat a fault of the code that they test. It needs
Python 3.10 or later and the package `blake3`.
"""

import argparse
import json
import re
import struct
import sys
import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from blake3 import blake3

HERE = Path(__file__).resolve().parent
DEPTH_MAX = 128
MISSING = object()


class Refused(Exception):
    """A text that has no signature, with the reason and the path of the fault."""

    def __init__(self, reason, path):
        super().__init__(reason, path)
        self.reason = reason
        self.path = path


@dataclass(frozen=True)
class Num:
    """A number as it was written."""

    text: str


# ------------------------------------------------------------------------------------ reading

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
SPACE = re.compile(r"[ \t\n\r]*")
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def step_text(step):
    """One step of a path, as error messages write it."""
    if isinstance(step, int):
        return f"[{step}]"
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", step):
        return "." + step
    return "[" + quoted(step[:64]) + "]"


class Reader:
    """A strict recursive-descent reader; objects become lists of pairs."""

    def __init__(self, data):
        try:
            self.text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("invalid_utf8", "$") from None
        self.at = 0
        self.path = []

    def refuse(self, reason):
        raise Refused(reason, "$" + "".join(step_text(step) for step in self.path))

    def unexpected(self):
        self.refuse("unexpected_end" if self.at >= len(self.text) else "syntax")

    def skip(self):
        self.at = SPACE.match(self.text, self.at).end()

    def peek(self):
        return self.text[self.at : self.at + 1]

    def document(self):
        if self.text.startswith("\ufeff"):
            self.refuse("byte_order_mark")
        value = self.value(0)
        self.skip()
        if self.at < len(self.text):
            self.refuse("trailing_data")
        return value

    def value(self, depth):
        self.skip()
        char = self.peek()
        if char == "{":
            return self.object(depth + 1)
        if char == "[":
            return self.array(depth + 1)
        if char == '"':
            return self.string()
        if char and char in "-0123456789":
            return self.number()
        for word, meaning in (("null", None), ("true", True), ("false", False)):
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return meaning
        if self.text.startswith(("NaN", "Infinity"), self.at):
            self.refuse("not_finite")
        return self.unexpected()

    def enter(self, depth):
        if depth > DEPTH_MAX:
            self.refuse("too_deep")
        self.at += 1
        self.skip()

    def ends(self, end):
        self.skip()
        char = self.peek()
        if char not in (",", end) or not char:
            self.unexpected()
        self.at += 1
        return char == end

    def array(self, depth):
        self.enter(depth)
        items = []
        if self.peek() == "]":
            self.at += 1
            return items
        while True:
            self.path.append(len(items))
            items.append(self.value(depth))
            self.path.pop()
            if self.ends("]"):
                return items

    def object(self, depth):
        self.enter(depth)
        pairs = []
        if self.peek() == "}":
            self.at += 1
            return tuple(pairs)
        while True:
            self.skip()
            if self.peek() != '"':
                self.unexpected()
            key = self.string()
            self.skip()
            if self.peek() != ":":
                self.unexpected()
            self.at += 1
            self.path.append(key)
            pairs.append((key, self.value(depth)))
            self.path.pop()
            if self.ends("}"):
                break
        keys = sorted((key for key, _ in pairs), key=code_points)
        for first, second in zip(keys, keys[1:]):
            if first == second:
                self.path.append(first)
                self.refuse("duplicate_key")
        return tuple(pairs)

    def number(self):
        if self.text.startswith("-Infinity", self.at):
            self.refuse("not_finite")
        match = NUMBER.match(self.text, self.at)
        if not match:
            self.at += 1
            self.unexpected()
        self.at = match.end()
        follow = self.peek()
        if follow and follow in "0123456789":
            self.refuse("syntax")
        if follow and follow in ".eE":
            self.at += 2 if self.text[self.at + 1 : self.at + 2] in ("+", "-") else 1
            self.unexpected()
        text = match.group()
        if re.fullmatch(r"-?[0-9]+", text):
            if not -(2**63) <= int(text) < 2**64:
                self.refuse("integer_out_of_range")
        elif abs(float(text)) == float("inf"):
            self.refuse("number_overflow")
        return Num(text)

    def string(self):
        self.at += 1
        out = []
        while True:
            char = self.peek()
            if char == '"':
                self.at += 1
                return "".join(out)
            if not char or char < " ":
                self.unexpected()
            self.at += 1
            if char != "\\":
                out.append(char)
                continue
            kind = self.peek()
            if kind == "u":
                out.append(self.unicode())
            elif kind and kind in ESCAPES:
                self.at += 1
                out.append(ESCAPES[kind])
            else:
                self.unexpected()

    def unicode(self):
        first = self.hex4()
        if 0xDC00 <= first < 0xE000:
            self.refuse("lone_surrogate")
        if not 0xD800 <= first < 0xDC00:
            return chr(first)
        if not self.text.startswith("\\u", self.at):
            self.refuse("lone_surrogate")
        self.at += 1
        second = self.hex4()
        if not 0xDC00 <= second < 0xE000:
            self.refuse("lone_surrogate")
        return chr(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))

    def hex4(self):
        self.at += 1
        digits = self.text[self.at : self.at + 4]
        if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            self.at = len(self.text) if len(digits) < 4 else self.at
            self.unexpected()
        self.at += 4
        return int(digits, 16)


def read(text):
    """Reads JSON text or bytes strictly."""
    return Reader(text.encode("utf-8") if isinstance(text, str) else text).document()


# ----------------------------------------------------------------------------------- printing


def code_points(text):
    return [ord(char) for char in text]


def quoted(text):
    out = ['"']
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    for char in text:
        if char in short:
            out.append(short[char])
        elif ord(char) < 0x20:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(char)
    out.append('"')
    return "".join(out)


def number(num):
    """The canonical form of a number: its own layout rules over the digits of repr()."""
    if re.fullmatch(r"-?[0-9]+", num.text) and num.text != "-0":
        return num.text
    value = float(num.text)
    sign = "-" if struct.pack(">d", value)[0] & 0x80 else ""
    if value == 0:
        return sign + "0.0"
    _, digits, shift = Decimal(repr(abs(value))).as_tuple()
    digits = "".join(map(str, digits))
    stripped = digits.rstrip("0")
    shift += len(digits) - len(stripped)
    digits = stripped
    exponent = len(digits) - 1 + shift  # of the first digit
    if 0 <= exponent <= 15:
        whole = digits[: exponent + 1].ljust(exponent + 1, "0")
        return sign + whole + "." + (digits[exponent + 1 :] or "0")
    if -5 <= exponent < 0:
        return sign + "0." + "0" * (-exponent - 1) + digits
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{sign}{mantissa}e{exponent:+d}"


def canonical(value):
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, Num):
        return number(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    pairs = sorted(value, key=lambda pair: code_points(pair[0]))
    return "{" + ",".join(quoted(key) + ":" + canonical(item) for key, item in pairs) + "}"


def signature(session_id, step_index, tool_name, canonical_args):
    name, args = tool_name.encode("utf-8"), canonical_args.encode("utf-8")
    stream = uuid.UUID(session_id).bytes + struct.pack("<I", step_index)
    stream += struct.pack("<I", len(name)) + name
    stream += struct.pack("<I", len(args)) + args
    return blake3(stream).hexdigest()


# ---------------------------------------------------------------------------------- templates

WORD = r"[\w$@-]+"
PART = re.compile(r"\{\{|\}\}|\{(" + WORD + r"(?:\." + WORD + r")*)\}|\{(secret:\w+)\}")


class NoRender(Exception):
    """A descriptor that cannot be filled in."""


def exact(value):
    """Compact text with key order and numbers as they were written."""
    if isinstance(value, Num):
        return value.text
    if isinstance(value, list):
        return "[" + ",".join(exact(item) for item in value) + "]"
    if isinstance(value, tuple):
        return "{" + ",".join(quoted(key) + ":" + exact(item) for key, item in value) + "}"
    return canonical(value)


def plain(value):
    return value if isinstance(value, str) else exact(value)


def look_up(value, path):
    for step in path:
        if isinstance(value, tuple):
            value = dict(value).get(step, MISSING)
        elif isinstance(value, list) and re.fullmatch(r"0|[1-9][0-9]*", step):
            value = value[int(step)] if int(step) < len(value) else MISSING
        else:
            return MISSING
        if value is MISSING:
            return MISSING
    return value


def parts(text):
    """A descriptor string as literals and (source, path) pairs."""
    found, at, lit = [], 0, ""
    for match in PART.finditer(text):
        lit += text[at : match.start()]
        at = match.end()
        if match.group() in ("{{", "}}"):
            lit += match.group()[0]
            continue
        if match.group(2):
            raise NoRender("unknown_placeholder " + match.group())
        head, *path = match.group(1).split(".")
        if head == "comp":
            # Not a namespace here, so it is an argument of that name.
            head, path = "args", ["comp", *path]
        elif head not in ("args", "result"):
            head, path = "args", [head, *path]
        if lit:
            found.append(lit)
            lit = ""
        found.append((head, path))
    lit += text[at:]
    if lit or not found:
        found.append(lit)
    return found


def fill(node, args, pointer, pending):
    """The descriptor's args with the call's arguments, and what waits for a result."""
    if isinstance(node, list):
        return [fill(item, args, f"{pointer}/{i}", pending) for i, item in enumerate(node)]
    if isinstance(node, tuple):
        escaped = [(key.replace("~", "~0").replace("/", "~1"), key, item) for key, item in node]
        return tuple((key, fill(item, args, f"{pointer}/{e}", pending)) for e, key, item in escaped)
    if not isinstance(node, str):
        return node
    found, shown, waiting = parts(node), "", []
    for part in found:
        if isinstance(part, str):
            shown += part
            waiting.append(part)
            continue
        head, path = part
        dotted = ".".join([head, *path])
        if head == "result":
            shown += "{" + dotted + "}"
            waiting.append(part)
            continue
        value = look_up(args, path)
        if value is MISSING:
            raise NoRender("missing_arg {" + dotted + "}")
        if len(found) == 1:
            return value
        shown += plain(value)
        waiting.append(plain(value))
    if any(not isinstance(part, str) for part in waiting):
        merged = []
        for part in waiting:
            if isinstance(part, str) and merged and isinstance(merged[-1], str):
                merged[-1] += part
            elif part != "":
                merged.append(part)
        pending[pointer] = merged
    return shown


def complete(node, result, pointer, pending):
    if isinstance(node, list):
        return [complete(item, result, f"{pointer}/{i}", pending) for i, item in enumerate(node)]
    if isinstance(node, tuple):
        done = []
        for key, item in node:
            step = key.replace("~", "~0").replace("/", "~1")
            done.append((key, complete(item, result, f"{pointer}/{step}", pending)))
        return tuple(done)
    if not isinstance(node, str) or pointer not in pending:
        return node
    text, waiting = "", pending[pointer]
    for part in waiting:
        if isinstance(part, str):
            text += part
            continue
        value = MISSING if result is MISSING else look_up(result, part[1])
        if value is MISSING:
            raise NoRender("missing_result {" + ".".join(["result", *part[1]]) + "}")
        if len(waiting) == 1:
            return value
        text += plain(value)
    return text


# -------------------------------------------------------------------------------------- cases


def nested(depth):
    return "[" * depth + "]" * depth


def canonical_cases():
    control = "".join(f"\\u{c:04x}" for c in range(0x20))
    cases = {
        "empty object": "{}",
        "empty array": "[]",
        "empty string": '""',
        "empty key": '{"":""}',
        "null": " null ",
        "booleans": "[true,false]",
        "white space": '\t{ "a" : [ 1 , 2 ] ,\r\n "b" : { } }\n',
        "keys in order": '{"b":1,"a":2}',
        "keys in order, nested": '{"z":{"b":[{"y":1,"x":2}],"a":0},"a":null}',
        "keys by code point, not by UTF-16 unit": '{"\U0001f600":1,"\ufb33":2,"z":3,"\u00e9":4}',
        "the same keys, escaped": '{"\\ud83d\\ude00":1,"\\uFB33":2,"\\u007a":3,"\\u00E9":4}',
        "a key that starts another": '{"ab":1,"a":2,"":3,"a\\u0000":4}',
        "quotes in keys, one key": '{"a\\":1,\\"b":2}',
        "quotes in keys, two keys": '{"a":1,"b":2}',
        "control characters": f'"{control}"',
        "short escapes": '"\\b\\f\\n\\r\\t\\"\\\\\\/"',
        "DEL and separators": '"\\u007f\\u2028\\u2029\\u0085"',
        "NUL in a string and a key": '{"a\\u0000b":"\\u0000"}',
        "emoji": '"\U0001f469\u200d\U0001f4bb e\u0301 \u00e9"',
        "no normalisation": '["\\u0065\\u0301","\\u00e9"]',
        "highest code point": '"\\udbff\\udfff"',
        "negative zero, integer": "-0",
        "depth 128": nested(128),
        "a template stays text": '{"a":"{b}"}',
    }
    numbers = (
        "0 -1 1.0 1.50 -0.0 0.0 0e0 -0e-5 1E5 1e5 1e+5 100000.0 1e15 1e16 1e21 1e-5 1e-6 1e-7 1.5e-7 "
        "0.00001 0.000012345 5e-324 2.2250738585072014e-308 1.7976931348623157e308 1e-400 0.1 0.3 "
        "0.30000000000000004 123456.789 9007199254740991 9007199254740992 9007199254740993 "
        "9007199254740993.0 -9007199254740993 18446744073709551615 9223372036854775807 "
        "9223372036854775808 -9223372036854775808 1234567890123456.7 12345678901234567.8 "
        "999999999999999.9 9999999999999998.0 99999999999999999.0 4.35 2.675 1e23 8.41e21 "
        "9.5e-5 0.99999999999999994 1234500000000000000000.0 1e22 1e100 -1e-100"
    )
    for text in numbers.split():
        cases["number " + text] = text
    # Shortest digits that are equally near on both sides, and powers of two.
    for text in "209872886734037.625 209872886734037.875 1125899906842624.125 -4503599627370497.5".split():
        cases["tie " + text] = text
    for power in range(-1074, 1024, 61):
        cases[f"2 to the power {power}"] = repr(2.0**power)
    state = 0x9E3779B97F4A7C15
    made = 0
    while made < 200:
        # A fixed linear congruential generator: the files must come out the same everywhere.
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        value = struct.unpack(">d", struct.pack(">Q", state))[0]
        if value == value and abs(value) != float("inf"):
            cases[f"bits {state:016x}"] = repr(value)
            made += 1
    return [{"name": n, "input": t, "canonical": canonical(read(t))} for n, t in cases.items()]


def signature_cases():
    session = "3f2b8c1e-5d4a-4e6f-9a7b-0c1d2e3f4a5b"
    nil = "00000000-0000-0000-0000-000000000000"
    top = "ffffffff-ffff-ffff-ffff-ffffffffffff"
    rows = [
        ("a plain call", session, 1, "send_email", '{"to":"ann@example.com","subject":"Hi"}'),
        ("the same, other order", session, 1, "send_email", '{"subject":"Hi", "to":"ann@example.com"}'),
        ("step 0", session, 0, "send_email", "{}"),
        ("the highest step", session, 2**31 - 1, "send_email", "{}"),
        ("nil session", nil, 1, "t", "{}"),
        ("highest session", top, 1, "t", "{}"),
        ("empty tool name", session, 1, "", "{}"),
        ("unicode tool name", session, 1, "übermitteln\U0001f600", "{}"),
        ("longest tool name", session, 1, "t" * 256, "{}"),
        ("args that are no object", session, 1, "t", '["a",1,null]'),
        ("emoji and U+FB33 keys", session, 7, "t", '{"\U0001f600":1,"\ufb33":2}'),
        ("small numbers", session, 7, "t", '{"a":1e-7,"b":5e-324,"c":-0.0}'),
        ("large numbers", session, 7, "t", '{"a":1e21,"b":9007199254740993,"c":18446744073709551615}'),
        ("quotes in keys, one key", session, 7, "t", '{"a\\":1,\\"b":2}'),
        ("quotes in keys, two keys", session, 7, "t", '{"a":1,"b":2}'),
        ("length is part of it, left", session, 7, "ab", '"c"'),
        ("length is part of it, right", session, 7, "a", '"bc"'),
        ("NUL", session, 7, "t", '{"a":"\\u0000"}'),
        ("depth 128", session, 7, "t", nested(128)),
        ("longer than one BLAKE3 chunk", session, 7, "t", '{"a":"' + "x" * 5000 + '"}'),
    ]
    cases = []
    for name, session_id, step, tool, text in rows:
        form = canonical(read(text))
        cases.append(
            {
                "name": name,
                "session_id": session_id,
                "step_index": step,
                "tool_name": tool,
                "input": text,
                "canonical": form,
                "signature": signature(session_id, step, tool, form),
            }
        )
    return cases


def refused_cases():
    cases = {
        "duplicate key": '{"a":1,"a":2}',
        "duplicate key, escaped": '{"x":[{"a":1,"\\u0061":1}]}',
        "duplicate key that needs quotes": '{"a b":1,"a b":2}',
        "NaN": '{"a":NaN}',
        "Infinity": "[1,Infinity]",
        "-Infinity": '{"a":{"b":-Infinity}}',
        "lone high surrogate": '{"a":["x",{"b":"\\ud800"}]}',
        "lone low surrogate": '{"a":"\\udc00"}',
        "high surrogate, then a letter": '"\\ud800x"',
        "two high surrogates": '"\\ud800\\ud800"',
        "high surrogate, then another escape": '"\\ud800\\n"',
        "lone surrogate in a key": '{"\\ud800":1}',
        "one above u64": '{"a":[0,18446744073709551616]}',
        "one below i64": "-9223372036854775809",
        "a 20-digit integer": '{"id":99999999999999999999}',
        "1e400": '{"a":[1,2,1e400]}',
        "-1e400": "-1e400",
        "1.8e308": "1.8e308",
        "depth 129": nested(129),
        "depth 129, objects": '{"a":' * 129 + "1" + "}" * 129,
        "trailing data": "{} {}",
        "trailing comma": "[1,]",
        "trailing comma, object": '{"a":1,}',
        "no comma": "[1 2]",
        "no colon": '{"a" 1}',
        "key without quotes": "{a:1}",
        "single quotes": "{'a':1}",
        "comment": "/* */ {}",
        "leading zero": '{"a":01}',
        "minus with a leading zero": "-01",
        "plus sign": "+1",
        "bare minus": "-",
        "no digits after the point": "1.",
        "no digits before the point": ".5",
        "no exponent": "1e",
        "no exponent after a sign": "1e+",
        "hexadecimal": "0x10",
        "empty text": "",
        "white space only": " \n",
        "open array": "[1",
        "open object": '{"a":1',
        "open string": '"abc',
        "open escape": '"\\u12',
        "unknown escape": '"\\x41"',
        "short unicode escape": '"\\u00g1"',
        "raw newline in a string": '"a\nb"',
        "raw NUL in a string": '"a\x00b"',
        "vertical tab": "\x0b1",
        "no-break space": "\u00a01",
        "byte order mark": "\ufeff{}",
        "wrong case": "[True]",
        "invalid UTF-8": b'{"a":"\xff"}',
        "overlong UTF-8": b'"\xc0\xaf"',
        "surrogate as UTF-8": b'"\xed\xa0\x80"',
    }
    rows = []
    for name, text in cases.items():
        try:
            read(text)
        except Refused as refused:
            source = {"input": text} if isinstance(text, str) else {"input_hex": text.hex()}
            rows.append({"name": name, **source, "reason": refused.reason, "path": refused.path})
        else:
            raise AssertionError(f"{name} is not refused")
    return rows


def template_cases():
    args = '{"to":"ann","amount":12.50,"big":123456789012345678,"tags":["a",{"id":7}],"o":{"k":[1]},'
    args += '"evil":"{result.id}{{to}}","n":null,"flag":true,"comp":"c","session_id":"s","a b":1}'
    result = '{"id":"r-1","n":99999999999999999999,"items":[{"id":"i0"}],"note":"{to}","z":null}'
    rows = [
        ("no placeholder", '{"soft":true,"n":1.0,"s":"x"}', result),
        ("bare name", '{"to":"{to}"}', result),
        ("args name", '{"to":"{args.to}"}', result),
        ("a number keeps its type and text", '{"a":"{amount}","b":"{big}"}', result),
        ("a number in text", '{"a":"{amount} EUR, {big}"}', result),
        ("array, object, null, bool keep their type", '["{tags}","{o}","{n}","{flag}"]', result),
        ("and in text are JSON", '["{tags}!","{o}!","{n}!","{flag}!"]', result),
        ("array index", '"{tags.1.id}/{args.tags.0}"', result),
        ("all of args", '{"all":"{args}"}', result),
        ("result alone", '{"id":"{result.id}"}', result),
        ("result alone keeps a huge number", '{"id":"{result.n}"}', result),
        ("result in text", '{"id":"x {result.n} y"}', result),
        ("result with an argument", '{"a":"{to}: {result.items.0.id}, {to}"}', result),
        ("all of the result", '{"r":"{result}"}', result),
        ("result null is a value", '{"r":"{result.z}"}', result),
        ("an argument is never scanned again", '{"a":"{evil}","b":"{evil} {result.id}"}', result),
        ("a result is never scanned again", '{"a":"{result.note} {to}"}', result),
        ("braces", '{"a":"{{to}}","b":"{{{to}}}","c":"}}{{"}', result),
        ("braces that are no placeholder stay", '{"a":"{\\"json\\":1}","b":"{}","c":"{ to }","d":"}"}', result),
        ("an open brace stays", '{"a":"{to","b":"{{to","c":"{"}', result),
        ("keys are no templates", '{"{to}":"{to}"}', result),
        ("pointers escape", '{"a/b":{"c~d":"{result.id}"}}', result),
        ("a bare id is an argument", '{"s":"{session_id}"}', result),
        ("comp is an argument here", '{"c":"{comp}"}', result),
        ("missing argument", '{"a":"{nobody}"}', result),
        ("missing argument, deep", '{"a":"{tags.2}"}', result),
        ("an index needs plain digits", '{"a":"{tags.01}"}', result),
        ("missing result value", '{"a":"{result.nobody}"}', result),
        ("no result", '{"a":"{result.id}"}', None),
        ("no result, not needed", '{"a":"{to}"}', None),
        ("no secrets in descriptors", '{"a":"{secret:TOKEN}"}', result),
    ]
    cases = []
    for name, template, result_text in rows:
        case = {"name": name, "template": template, "args": args, "result": result_text}
        pending = {}
        try:
            filled = fill(read(template), read(args), "", pending)
            case["rendered"] = exact(filled)
            case["pending"] = {
                pointer: [{"lit": p} if isinstance(p, str) else {"result": ".".join(p[1])} for p in parts_]
                for pointer, parts_ in pending.items()
            }
            output = MISSING if result_text is None else lossless(result_text)
            case["completed"] = exact(complete(filled, output, "", pending))
        except NoRender as error:
            case["error"] = str(error)
        cases.append(case)
    return cases


def lossless(text):
    """Reads a result, whose numbers may have any size."""
    return json.loads(text, object_pairs_hook=tuple, parse_int=Num, parse_float=Num)


FILES = {
    "canonical.json": canonical_cases,
    "signature.json": signature_cases,
    "refused.json": refused_cases,
    "template.json": template_cases,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="verify the files, write nothing")
    check = parser.parse_args().check
    stale = []
    for name, cases in FILES.items():
        text = json.dumps(cases(), indent=1, ensure_ascii=True) + "\n"
        path = HERE / name
        if check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.exit("not current, run generate.py: " + ", ".join(stale))


if __name__ == "__main__":
    main()
