"""What travels beside the documented arguments of `intercept`, `commit` and `fail`.

The decorator calls these three as documented, so that a subclass or a mock of the client is called
as its author expects. What the service takes beside them (tokens, attempts, policies) is in a
context variable, where the client's own methods find it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from .tier import CompensationDescriptor


@dataclass
class InterceptOptions:
    """What an intercepted call may say beside the documented arguments."""

    tool_version: str | None = None
    step_key: str | None = None
    signature: str | None = None
    grant_token: str | None = None
    wait_ms: int | None = None
    heartbeats: bool | None = None
    accepts_approved_args: bool | None = None
    agent_context: Any = None
    compensation: CompensationDescriptor | None = None


@dataclass
class ReportOptions:
    """What a report may say beside the documented arguments."""

    attempt: int = 0
    effect: str = "maybe_applied"
    on_tool_failure: str | None = None


_beside: ContextVar[InterceptOptions | ReportOptions | None] = ContextVar(
    "undolog_beside", default=None
)
_blocking: ContextVar[bool] = ContextVar("undolog_blocking", default=False)


@contextmanager
def beside(options: InterceptOptions | ReportOptions, *, blocking: bool) -> Iterator[None]:
    """While inside, the client's documented methods say this too."""
    token, mode = _beside.set(options), _blocking.set(blocking)
    try:
        yield
    finally:
        _blocking.reset(mode)
        _beside.reset(token)


def is_blocking() -> bool:
    """Whether the caller has no event loop that may go on meanwhile."""
    return _blocking.get()


def intercept_options() -> InterceptOptions:
    """What the decorator says beside the call; nothing outside of it."""
    options = _beside.get()
    return options if isinstance(options, InterceptOptions) else InterceptOptions()


def report_options() -> ReportOptions:
    """What the decorator says beside the report; nothing outside of it."""
    options = _beside.get()
    return options if isinstance(options, ReportOptions) else ReportOptions()
