"""Checks a compensation's template against the signature of the tool that it undoes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["check_placeholders"]

_WORD = r"[\w$@-]+"
_PART = re.compile(
    r"\{\{|\}\}|\{(?P<path>" + _WORD + r"(?:\." + _WORD + r")*)\}|\{(?P<secret>secret:\w+)\}"
)


def check_placeholders(template: Any, names: frozenset[str], *, takes_any: bool) -> None:
    """Raises `ValueError` for a placeholder that no call of the tool could fill in."""
    for text in _strings(template):
        rest = _PART.sub("", text)
        if "{" in rest or "}" in rest:
            raise ValueError(
                f"{text!r} holds a brace that belongs to no placeholder: write {{{{ and }}}} for "
                "the braces themselves"
            )
        for part in _PART.finditer(text):
            if part["secret"]:
                raise ValueError(
                    f"{part.group()} cannot stand in a descriptor: secrets belong into the "
                    "registered compensation's headers"
                )
            if part["path"]:
                _check(part["path"].split("."), names, takes_any)


def _check(path: list[str], names: frozenset[str], takes_any: bool) -> None:
    head = path[0]
    if head == "result":
        return
    if head == "args":
        if len(path) == 1:
            return
        head = path[1]
    if head not in names and not takes_any:
        known = ", ".join(sorted(names)) or "none"
        shown = "{" + ".".join(path) + "}"
        raise ValueError(f"the placeholder {shown} names no argument of the tool (it has: {known})")


def _strings(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for item in node.values():
            yield from _strings(item)
    elif isinstance(node, (list, tuple)):
        for item in node:
            yield from _strings(item)
