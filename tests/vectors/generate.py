"""Writes the shared test vectors, or with --check verifies that they are current.

Everything in them is computed by `reference.py`, never by the code that they test.
"""

import argparse
import json
import struct
import sys
from pathlib import Path

from reference import MISSING, NoRender, Num, Refused
from reference import canonical, complete, exact, fill, read, signature

HERE = Path(__file__).resolve().parent


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
        "0 -1 1.0 1.50 -0.0 0.0 0e0 -0e-5 1E5 1e5 1e+5 100000.0 1e15 1e16 1e21 1e-5 1e-6 1e-7 "
        "1.5e-7 0.00001 0.000012345 5e-324 2.2250738585072014e-308 1.7976931348623157e308 1e-400 "
        "0.1 0.3 0.30000000000000004 123456.789 9007199254740991 9007199254740992 9007199254740993 "
        "9007199254740993.0 -9007199254740993 18446744073709551615 9223372036854775807 "
        "9223372036854775808 -9223372036854775808 1234567890123456.7 12345678901234567.8 "
        "999999999999999.9 9999999999999998.0 99999999999999999.0 4.35 2.675 1e23 8.41e21 "
        "9.5e-5 0.99999999999999994 1234500000000000000000.0 1e22 1e100 -1e-100"
    )
    for text in numbers.split():
        cases["number " + text] = text
    # Shortest digits that are equally near on both sides, and powers of two.
    ties = "209872886734037.625 209872886734037.875 1125899906842624.125 -4503599627370497.5"
    for text in ties.split():
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
        ("other order", session, 1, "send_email", '{"subject":"Hi", "to":"ann@example.com"}'),
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
        ("large numbers", session, 7, "t", '{"a":1e21,"b":9007199254740993}'),
        ("the largest number", session, 7, "t", '{"c":18446744073709551615}'),
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
    args = '{"to":"ann","amount":12.50,"big":123456789012345678,"tags":["a",{"id":7}],'
    args += '"o":{"k":[1]},'
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
        ("braces of JSON are doubled", '{"a":"{{\\"json\\":1}}"}', result),
        ("braces around no placeholder", '{"a":"{\\"json\\":1}"}', result),
        ("braces around nothing", '{"b":"{}"}', result),
        ("white space is no placeholder", '{"c":"{ to }"}', result),
        ("an index has a dot", '{"c":"{result[0]}"}', result),
        ("a conversion is no placeholder", '{"c":"{to!r}"}', result),
        ("an open brace", '{"a":"{to"}', result),
        ("a closing brace", '{"a":"{to}}"}', result),
        ("a lone brace at the end", '{"a":"x{"}', result),
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
            case["pending"] = {pointer: segments(parts) for pointer, parts in pending.items()}
            output = MISSING if result_text is None else lossless(result_text)
            case["completed"] = exact(complete(filled, output, "", pending))
        except NoRender as error:
            case["error"] = str(error)
        cases.append(case)
    return cases


def segments(parts):
    """The waiting parts of one string, as they are stored."""
    return [{"lit": p} if isinstance(p, str) else {"result": ".".join(p[1])} for p in parts]


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
