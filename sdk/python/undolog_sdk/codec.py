"""Python values as JSON, and back to the annotated types.

| Python | JSON |
|---|---|
| None, bool, int, float, str | themselves (NaN and infinities are refused) |
| list, tuple, named tuple | array |
| set, frozenset | array, ordered by the canonical form of its items |
| dict and other mappings | object; keys are strings, or UUID, int, Enum, date written as such; two
  keys of one spelling are refused |
| Pydantic model | its fields, under the names that it is validated from; no computed fields |
| dataclass | object of its fields |
| datetime, date, time | ISO 8601 |
| timedelta | seconds, as a number |
| Decimal, UUID, Path | string |
| bytes, bytearray, memoryview | base64 (standard alphabet) |
| Enum | its value |

The same value always gives the same JSON, so a repeated call has the same signature.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import enum
import pathlib
import types
import typing
import uuid
from collections.abc import Mapping, Sequence, Set
from decimal import Decimal
from typing import Any, Literal, Union

from ._models import dump_model
from .signature import canonical_json

__all__ = ["EncodeError", "decode", "encode"]


class EncodeError(TypeError):
    """A value without a JSON form."""


def encode(value: Any, where: str = "value") -> Any:
    """The JSON form of a value."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or kind is float or value is None:
        return value
    if kind is dict:
        return _object(value, where)
    if kind is list or kind is tuple:
        return [encode(item, where) for item in value]
    return _encode_other(value, where)


def _encode_other(value: Any, where: str) -> Any:
    if isinstance(value, enum.Enum):
        return encode(value.value, where)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, (Decimal, uuid.UUID, pathlib.PurePath)):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode("ascii")
    if not isinstance(value, type) and callable(getattr(value, "model_dump", None)):
        return encode(dump_model(value), where)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {f.name: encode(getattr(value, f.name), f"{where}.{f.name}") for f in fields}
    if isinstance(value, Mapping):
        return _object(value, where)
    if isinstance(value, Set):
        return sorted((encode(item, where) for item in value), key=canonical_json)
    if isinstance(value, Sequence):
        return [encode(item, where) for item in value]
    raise EncodeError(f"{where}: a {type(value).__qualname__} has no JSON form")


def _object(value: Mapping[Any, Any], where: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, item in value.items():
        name = _key(key, where)
        if name in made:
            # One of the two would be lost: recorded would be another call than the one that runs.
            raise EncodeError(f"{where}: two keys are written {name!r}")
        made[name] = encode(item, where)
    return made


def _key(key: Any, where: str) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return str(key)
    if isinstance(key, (uuid.UUID, Decimal)) or (
        isinstance(key, int) and not isinstance(key, bool)
    ):
        return str(key)
    if isinstance(key, (dt.date, dt.datetime)):
        return key.isoformat()
    raise EncodeError(f"{where}: the key {key!r} is no string")


def decode(value: Any, hint: Any) -> Any:
    """A JSON value as the annotated type; what the type does not say stays as it is.

    Raises `ValueError` or `TypeError` when the value cannot be of that type.
    """
    if hint is Any or hint is None or hint is object or isinstance(hint, (str, typing.TypeVar)):
        return value
    hint = getattr(hint, "__supertype__", hint)
    origin = typing.get_origin(hint)
    if origin is not None:
        return _decode_generic(value, hint, origin)
    if hint is type(None):
        return None
    if not isinstance(hint, type):
        return value
    if typing.is_typeddict(hint):
        hints = typing.get_type_hints(hint)
        return {k: decode(v, hints.get(k, Any)) for k, v in _mapping(value, hint).items()}
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    return _decode_class(value, hint)


def _decode_class(value: Any, hint: type) -> Any:
    if issubclass(hint, enum.Enum):
        return hint(value)
    if hint is dt.datetime or hint is dt.date or hint is dt.time:
        # Python 3.10 does not read the Z that other programs write.
        text = value[:-1] + "+00:00" if isinstance(value, str) and value.endswith("Z") else value
        return hint.fromisoformat(text)
    if hint is dt.timedelta:
        return dt.timedelta(seconds=value)
    if hint is Decimal:
        return Decimal(str(value))
    if hint is uuid.UUID or issubclass(hint, pathlib.PurePath):
        return hint(value)
    if hint in (bytes, bytearray, memoryview):
        raw = base64.b64decode(value, validate=True)
        return raw if hint is bytes else hint(raw)
    if callable(getattr(hint, "model_validate", None)):
        return hint.model_validate(value)  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(hint):
        return _decode_dataclass(value, hint)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (tuple, set, frozenset) and isinstance(value, list):
        return hint(value)
    if issubclass(hint, tuple) and hasattr(hint, "_fields") and isinstance(value, list):
        hints = typing.get_type_hints(hint)
        names = hint._fields
        return hint(*(decode(v, hints.get(n, Any)) for n, v in zip(names, value, strict=True)))
    if hint in (str, int, bool, float, list, dict):
        raise TypeError(f"{value!r} is no {hint.__name__}")
    return value


def _decode_dataclass(value: Any, hint: type) -> Any:
    hints = typing.get_type_hints(hint, include_extras=True)
    given = {k: decode(v, hints.get(k, Any)) for k, v in _mapping(value, hint).items()}
    fields = dataclasses.fields(hint)
    unknown = given.keys() - {f.name for f in fields}
    if unknown:
        # Set as attributes, they could hide a method.
        raise ValueError(f"{hint.__qualname__} has no field {', '.join(sorted(unknown))}")
    made = hint(**{f.name: given.pop(f.name) for f in fields if f.init and f.name in given})
    for name, left in given.items():
        object.__setattr__(made, name, left)
    return made


def _decode_generic(value: Any, hint: Any, origin: Any) -> Any:
    inner = typing.get_args(hint)
    if origin is typing.Annotated:
        return decode(value, inner[0])
    if origin is Literal:
        for option in inner:
            if encode(option) == value and type(encode(option)) is type(value):
                return option
        raise ValueError(f"{value!r} is none of {inner}")
    if origin is Union or origin is types.UnionType:
        return _decode_union(value, inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, item = inner if len(inner) == 2 else (Any, Any)
        pairs = _mapping(value, hint).items()
        return {_decode_key(k, key): decode(v, item) for k, v in pairs}
    if origin is tuple and isinstance(value, list):
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(decode(item, inner[0]) for item in value)
        return tuple(decode(v, h) for v, h in zip(value, inner, strict=True))
    if isinstance(origin, type) and issubclass(origin, (Sequence, Set)):
        if not isinstance(value, list):
            raise TypeError(f"{value!r} is no array")
        made = [decode(item, inner[0] if inner else Any) for item in value]
        if issubclass(origin, frozenset):
            return frozenset(made)
        return set(made) if issubclass(origin, Set) else made
    return decode(value, origin)


def _decode_key(key: str, hint: Any) -> Any:
    return int(key) if hint is int else decode(key, hint)


def _decode_union(value: Any, options: tuple[Any, ...]) -> Any:
    if value is None and type(None) in options:
        return None
    # An exact match first: a string stays a string where a Decimal would be possible too.
    for option in options:
        if isinstance(option, type) and type(value) is option:
            return value
    fault: Exception | None = None
    for option in options:
        if option is type(None):
            continue
        try:
            return decode(value, option)
        except (TypeError, ValueError, ArithmeticError) as error:
            fault = error
    raise fault or ValueError(f"{value!r} fits none of {options}")


def _mapping(value: Any, hint: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is no object for {hint}")
    return value
