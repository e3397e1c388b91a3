"""JSON schemas from type hints: what the registry checks a call's arguments against."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import pathlib
import re
import types
import typing
import uuid
from collections.abc import Mapping, Sequence, Set
from decimal import Decimal
from typing import Any, Literal, Union

from .codec import encode

__all__ = ["checkable", "schema_of"]

_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    set: {"type": "array", "uniqueItems": True},
    frozenset: {"type": "array", "uniqueItems": True},
    dict: {"type": "object"},
    dt.datetime: {"type": "string", "format": "date-time"},
    dt.date: {"type": "string", "format": "date"},
    dt.time: {"type": "string", "format": "time"},
    dt.timedelta: {"type": "number", "description": "seconds"},
    # A whole number or a float where a Decimal is asked for works in Python too.
    Decimal: {"type": ["string", "number"]},
    uuid.UUID: {"type": "string", "format": "uuid"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    bytearray: {"type": "string", "contentEncoding": "base64"},
}


class Definitions(dict[str, Any]):
    """The `$defs` of one schema."""


def schema_of(hint: Any, defs: Definitions, seen: tuple[type, ...] = ()) -> dict[str, Any]:
    """The schema of one annotation; `{}` where it says nothing that JSON Schema can say."""
    hint = getattr(hint, "__supertype__", hint)
    if hint is Any or hint is None or hint is object or isinstance(hint, (str, typing.TypeVar)):
        return {}
    origin = typing.get_origin(hint)
    if origin is not None:
        return _generic(hint, origin, defs, seen)
    if not isinstance(hint, type):
        return {}
    if hint in _SIMPLE:
        return dict(_SIMPLE[hint])
    return _class(hint, defs, seen)


def _class(hint: type, defs: Definitions, seen: tuple[type, ...]) -> dict[str, Any]:
    if issubclass(hint, enum.Enum):
        return {"enum": [encode(member) for member in hint]}
    if issubclass(hint, pathlib.PurePath):
        return {"type": "string"}
    model_schema = getattr(hint, "model_json_schema", None)
    if callable(model_schema):
        return _model(model_schema, defs)
    if hint in seen:
        # A class that holds itself: one level is checked.
        return {"type": "object"}
    if dataclasses.is_dataclass(hint):
        fields = dataclasses.fields(hint)
        hints = typing.get_type_hints(hint, include_extras=True)
        deeper = (*seen, hint)
        properties = {f.name: schema_of(hints.get(f.name, Any), defs, deeper) for f in fields}
        return {"type": "object", "properties": properties, "required": [f.name for f in fields]}
    if typing.is_typeddict(hint):
        hints = typing.get_type_hints(hint)
        required = sorted(getattr(hint, "__required_keys__", ()))
        properties = {k: schema_of(v, defs, (*seen, hint)) for k, v in hints.items()}
        return {"type": "object", "properties": properties, "required": required}
    for base in (str, bool, int, float):
        if issubclass(hint, base):
            return dict(_SIMPLE[base])
    return {"type": "array"} if issubclass(hint, tuple) else {}


def _model(model_schema: Any, defs: Definitions) -> dict[str, Any]:
    """A Pydantic model's own schema. Two models of one name do not share a definition."""
    made: dict[str, Any] = model_schema(ref_template="#/$defs/{model}", by_alias=True)
    own: dict[str, Any] = made.pop("$defs", {})
    number = 1
    while any(defs.get(name, schema) != schema for name, schema in own.items()):
        number += 1
        made = model_schema(ref_template=f"#/$defs/{{model}}_{number}", by_alias=True)
        own = {f"{name}_{number}": schema for name, schema in made.pop("$defs", {}).items()}
    defs.update(own)
    return made


# Not schemas, but values: nothing in them is a keyword.
_DATA = frozenset({"const", "default", "enum", "examples", "example"})
# Schemas by names of the caller's own, which are no keywords either.
_BY_NAME = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)


def checkable(schema: Any) -> Any:
    """A schema without the patterns that the registry does not take.

    Its regular expressions run in linear time, so there are no look-arounds and no references to
    groups. Python's own validation has them still.
    """
    if isinstance(schema, list):
        return [checkable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "pattern" and isinstance(value, str) and _needs_backtracking(value):
            continue
        if key in _BY_NAME and isinstance(value, dict):
            made[key] = {
                name: checkable(inner)
                for name, inner in value.items()
                if key != "patternProperties" or not _needs_backtracking(name)
            }
        else:
            made[key] = value if key in _DATA else checkable(value)
    return made


_BACKTRACKING = re.compile(r"(?<!\\)(?:\\\\)*\\[1-9]|\(\?(?:[=!>]|<[=!]|P=|\()|\\k<")


def _needs_backtracking(pattern: str) -> bool:
    return _BACKTRACKING.search(pattern) is not None


def _generic(hint: Any, origin: Any, defs: Definitions, seen: tuple[type, ...]) -> dict[str, Any]:
    inner = typing.get_args(hint)
    if origin is typing.Annotated:
        made = schema_of(inner[0], defs, seen)
        notes = [note for note in inner[1:] if isinstance(note, str)]
        return {**made, "description": notes[0]} if notes else made
    if origin is Literal:
        return {"enum": [encode(option) for option in inner]}
    if origin is Union or origin is types.UnionType:
        options = [schema_of(option, defs, seen) for option in inner]
        return {} if {} in options else {"anyOf": options}
    if not isinstance(origin, type):
        return {}
    if issubclass(origin, Mapping):
        item = schema_of(inner[1], defs, seen) if len(inner) == 2 else {}
        return {"type": "object", "additionalProperties": item} if item else {"type": "object"}
    if origin is tuple and not (len(inner) == 2 and inner[1] is Ellipsis):
        return {"type": "array", "minItems": len(inner), "maxItems": len(inner)}
    if issubclass(origin, (Sequence, Set)):
        item = schema_of(inner[0], defs, seen) if inner else {}
        return {"type": "array", "items": item} if item else {"type": "array"}
    return {}
