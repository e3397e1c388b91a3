"""A second implementation of what the vectors hold: a strict JSON reader, the canonical printer,
the signature's byte stream and the descriptor's templates. It shares nothing with the code that
the vectors test, on purpose. It needs Python 3.10 or later and the package `blake3`.
"""

import re
import struct
import uuid
from dataclasses import dataclass
from decimal import Decimal

from blake3 import blake3

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
    short = {meaning: "\\" + letter for letter, meaning in ESCAPES.items() if letter != "/"}
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


def without_braces(text):
    """Text between placeholders: a brace there is a placeholder that was meant and missed."""
    if "{" in text or "}" in text:
        raise NoRender("stray_brace")
    return text


def parts(text):
    """A descriptor string as literals and (source, path) pairs."""
    found, at, lit = [], 0, ""
    for match in PART.finditer(text):
        lit += without_braces(text[at : match.start()])
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
    lit += without_braces(text[at:])
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
