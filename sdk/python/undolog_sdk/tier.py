"""What a tool is classified as, and how a call of it is undone."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = ["CompensationDescriptor", "ToolTier"]


class ToolTier(str, Enum):
    """The classification of a tool. It is declared where the tool is written, never guessed."""

    SAFE = "safe"
    """Reads, or does the same however often it runs. Nothing is recorded."""
    COMPENSABLE = "compensable"
    """Changes something that a compensation undoes."""
    IRREVERSIBLE = "irreversible"
    """Cannot be undone, so a human approves each call."""

    @property
    def is_safe(self) -> bool:
        """Whether calls run at once and leave no record."""
        return self is ToolTier.SAFE

    @property
    def is_compensable(self) -> bool:
        """Whether calls are undone by a compensation."""
        return self is ToolTier.COMPENSABLE

    @property
    def requires_approval(self) -> bool:
        """Whether a human decides before a call runs."""
        return self is ToolTier.IRREVERSIBLE


@dataclass
class CompensationDescriptor:
    """The compensation to call when a call of a compensable tool is rolled back.

    Strings in `args` may hold placeholders: `{to}` or `{args.to}` is the call's argument `to`,
    `{result.id}` is the field `id` of what the tool returned. A placeholder alone keeps its type.
    """

    fn_name: str
    """The name in the compensation registry."""
    fn_version: str = "1.0.0"
    """The compensation's version (semver)."""
    args: dict[str, Any] = field(default_factory=dict)
    """The compensation's arguments, or a template of them."""
    max_retries: int = 3
    """Calls after the first one, before a human is asked."""
    retry_backoff_ms: int = 1000
    """The first delay between calls."""

    @classmethod
    def new(cls, fn_name: str, args: dict[str, Any] | None = None) -> CompensationDescriptor:
        """A descriptor with the default version and retries."""
        return cls(fn_name=fn_name, args=dict(args) if args else {})
