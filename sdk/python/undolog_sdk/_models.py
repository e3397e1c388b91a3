"""Pydantic models as the JSON from which they are validated again. Pydantic is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["dump_model"]


def dump_model(model: Any) -> Any:
    """The JSON form that `model_validate` takes, and that the model's schema describes.

    The serialization form would not do: it has computed fields, which a strict model refuses, and
    names (`serialization_alias`) that validation does not know.
    """
    fields = getattr(type(model), "model_fields", None)
    if not isinstance(fields, Mapping):
        # Something else with a `model_dump`.
        return model.model_dump(mode="json", by_alias=True)
    return _renamed(model, model.model_dump(mode="json", by_alias=False, round_trip=True))


def _renamed(value: Any, dumped: Any) -> Any:
    fields = getattr(type(value), "model_fields", None)
    if isinstance(fields, Mapping):
        if set(fields) == {"root"} and not (isinstance(dumped, dict) and "root" in dumped):
            return _renamed(value.root, dumped)
        if not isinstance(dumped, dict):
            return dumped
        made: dict[str, Any] = {}
        for name, item in dumped.items():
            field = fields.get(name)
            if field is None:
                made[name] = item
            else:
                made[_taken_as(name, field)] = _renamed(getattr(value, name), item)
        return made
    if isinstance(value, Mapping) and isinstance(dumped, dict) and len(value) == len(dumped):
        pairs = zip(value.values(), dumped.items(), strict=True)
        return {key: _renamed(inner, item) for inner, (key, item) in pairs}
    if isinstance(value, (list, tuple)) and isinstance(dumped, list) and len(value) == len(dumped):
        return [_renamed(inner, item) for inner, item in zip(value, dumped, strict=True)]
    return dumped


def _taken_as(name: str, field: Any) -> str:
    """The key under which validation looks for a field first."""
    alias = getattr(field, "validation_alias", None)
    choices = getattr(alias, "choices", None)
    if choices:
        alias = next((choice for choice in choices if isinstance(choice, str)), None)
    return alias if isinstance(alias, str) else name
