"""The canonical form of a call's arguments, and the signature over it.

The printer is our own: the layout of numbers is part of the signature, so it must not follow
whatever a JSON library happens to print. The shared test vectors freeze it.
"""

from __future__ import annotations

import re
import struct
import uuid
from json.encoder import encode_basestring as _quoted
from typing import Any

from blake3 import blake3

__all__ = ["CanonicalError", "call_signature", "canonical_json"]

DEPTH_MAX = 128
INT_MIN = -(2**63)
INT_MAX = 2**64 - 1
STEP_MAX = 2**31 - 1

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_U32 = struct.Struct("<I")


class CanonicalError(ValueError):
    """A value without a canonical form: `reason` says why, `path` says where."""

    def __init__(self, reason: str, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.reason = reason
        self.path = path


def canonical_json(value: Any) -> str:
    """Compact JSON with recursively sorted keys, numbers laid out as the engine lays them out."""
    out: list[str] = []
    path: list[str | int] = []
    try:
        _write(value, out, path, 0)
        text = "".join(out)
        text.encode("utf-8")
    except UnicodeEncodeError:
        _find_surrogate(value, [])
        raise
    except _Refused as refused:
        raise CanonicalError(refused.reason, _path_text(path), refused.message) from None
    return text


def call_signature(session_id: str, step_index: int, tool_name: str, args: Any) -> str:
    """The BLAKE3-256 of a call, as 64 lower-case hex digits.

    Raises `ValueError` when `session_id` is no UUID, when `step_index` is out of range, and when
    the arguments have no canonical form.
    """
    return signature_of_canonical(session_id, step_index, tool_name, canonical_json(args))


def signature_of_canonical(
    session_id: str, step_index: int, tool_name: str, canonical_args: str
) -> str:
    """The signature of a call whose arguments are in their canonical form already."""
    if not 0 <= step_index <= STEP_MAX:
        raise ValueError(f"step_index {step_index} is not within 0 and {STEP_MAX}")
    name = tool_name.encode("utf-8")
    args = canonical_args.encode("utf-8")
    stream = b"".join(
        (
            uuid.UUID(session_id).bytes,
            _U32.pack(step_index),
            _U32.pack(len(name)),
            name,
            _U32.pack(len(args)),
            args,
        )
    )
    return blake3(stream).hexdigest()


class _Refused(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.message = message


def _write(value: Any, out: list[str], path: list[str | int], depth: int) -> None:
    """Appends the canonical form; on a refusal `path` is left at the fault."""
    if isinstance(value, str):
        out.append(_quoted(str(value)))
    elif value is None:
        out.append("null")
    elif value is True:
        out.append("true")
    elif value is False:
        out.append("false")
    elif isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise _Refused("integer_out_of_range", "an integer outside of 64 bits")
        out.append(int.__repr__(value))
    elif isinstance(value, float):
        out.append(_number(float(value)))
    elif isinstance(value, dict):
        _write_object(value, out, path, depth + 1)
    elif isinstance(value, (list, tuple)):
        _write_array(value, out, path, depth + 1)
    else:
        raise _Refused("unsupported_type", f"a {type(value).__qualname__} is no JSON value")


def _write_object(value: dict[Any, Any], out: list[str], path: list[str | int], depth: int) -> None:
    if depth > DEPTH_MAX:
        raise _Refused("too_deep", f"nested deeper than {DEPTH_MAX}")
    for key in value:
        if not isinstance(key, str):
            raise _Refused("unsupported_type", f"the key {key!r} is no string")
    out.append("{")
    first = True
    # Strings compare by code point, which is the documented order.
    for key in sorted(value):
        out.append((_quoted(key) if first else "," + _quoted(key)) + ":")
        first = False
        path.append(key)
        _write(value[key], out, path, depth)
        path.pop()
    out.append("}")


def _write_array(
    value: list[Any] | tuple[Any, ...], out: list[str], path: list[str | int], depth: int
) -> None:
    if depth > DEPTH_MAX:
        raise _Refused("too_deep", f"nested deeper than {DEPTH_MAX}")
    out.append("[")
    for index, item in enumerate(value):
        if index:
            out.append(",")
        path.append(index)
        _write(item, out, path, depth)
        path.pop()
    out.append("]")


def _number(value: float) -> str:
    """A float: plain digits from 1e-5 up to below 1e16, else a signed exponent."""
    text = repr(value)
    if "n" in text:
        # "nan", "inf" and "-inf" are the only ones with this letter.
        raise _Refused("not_finite", f"{text} is no JSON number")
    if "e" not in text:
        return text
    mantissa, _, power = text.partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    digits = mantissa.lstrip("-").replace(".", "")
    exponent = int(power)
    if exponent == -5:
        # The one decade that repr() writes with an exponent and the engine does not.
        return f"{sign}0.0000{digits}"
    return f"{mantissa}e{exponent:+d}"


def _find_surrogate(value: Any, path: list[str | int]) -> None:
    if isinstance(value, str):
        _refuse_surrogate(value, path)
    elif isinstance(value, dict):
        for key in sorted(value):
            _refuse_surrogate(key, path)
            _find_surrogate(value[key], [*path, key])
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _find_surrogate(item, [*path, index])


def _refuse_surrogate(text: str, path: list[str | int]) -> None:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise CanonicalError("lone_surrogate", _path_text(path), "half of a surrogate pair")


def _path_text(path: list[str | int]) -> str:
    return "$" + "".join(map(_step_text, path))


def _step_text(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN_KEY.fullmatch(step):
        return "." + step
    return "[" + _quoted(step[:64]) + "]"
