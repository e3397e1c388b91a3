"""Checks that an undo really restores: do, undo, compare, undo again."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from .._flow import drive_sync
from ..client import UndoLogClient
from ..session import UndoLogSession

__all__ = ["UndoCheck", "UndoCheckError", "check_tool_undo", "check_tool_undo_sync", "check_undo"]

CALL_SECONDS = 30.0


class UndoCheckError(AssertionError):
    """An undo that does not restore, or a check that could not show it."""


@dataclass(frozen=True)
class UndoCheck:
    """What a check saw."""

    result: Any
    """What doing it returned."""
    before: Any
    done: Any
    after: Any
    """The state after the undo; equal to `before`."""


Same = Callable[[Any, Any], Any]


def check_undo(
    do: Callable[[], Any],
    undo: Callable[[Any], Any],
    observe: Callable[[], Any],
    *,
    same: Same = operator.eq,
) -> UndoCheck:
    """Checks plain functions: `undo` gets what `do` returned, twice, as a retry would call it."""
    before = observe()
    result = do()
    done = observe()
    _expect_change(before, done, same)
    undo(result)
    after = observe()
    _expect_restored(before, after, same, "the undo")
    undo(result)
    _expect_restored(before, observe(), same, "the second undo")
    return UndoCheck(result, before, done, after)


async def check_tool_undo(
    tool: Callable[..., Any],
    *args: Any,
    observe: Callable[[], Any],
    client: UndoLogClient,
    org_id: str,
    same: Same = operator.eq,
    timeout: float = 60.0,
    **kwargs: Any,
) -> UndoCheck:
    """Checks a decorated tool and its registered compensation against a running UndoLog.

    The tool is called in a session of its own, the session is rolled back by a worker, and then
    each compensation is called once more with its key, as after a lost answer.
    """
    session = UndoLogSession(org_id, client=client)
    before = await _value(observe())
    result = await _value(tool(*args, _session=session, **kwargs))
    done = await _value(observe())
    _expect_change(before, done, same)
    plan = (await session.rollback(dry_run=True)).plan
    await session.rollback("check_tool_undo", wait=True, timeout=timeout)
    _expect_compensated(await session.wait_settled(timeout))
    after = await _value(observe())
    _expect_restored(before, after, same, "the undo")
    _call_again(plan)
    _expect_restored(before, await _value(observe()), same, "the second undo")
    return UndoCheck(result, before, done, after)


def check_tool_undo_sync(
    tool: Callable[..., Any],
    *args: Any,
    observe: Callable[[], Any],
    client: UndoLogClient,
    org_id: str,
    same: Same = operator.eq,
    timeout: float = 60.0,
    **kwargs: Any,
) -> UndoCheck:
    """`check_tool_undo` for plain functions."""
    session = UndoLogSession(org_id, client=client)
    before = observe()
    result = tool(*args, _session=session, **kwargs)
    done = observe()
    _expect_change(before, done, same)
    plan = session.rollback_sync(dry_run=True).plan
    session.rollback_sync("check_tool_undo", wait=True, timeout=timeout)
    _expect_compensated(drive_sync(session._settled(timeout), client._wire))
    after = observe()
    _expect_restored(before, after, same, "the undo")
    _call_again(plan)
    _expect_restored(before, observe(), same, "the second undo")
    return UndoCheck(result, before, done, after)


def _call_again(plan: list[dict[str, Any]]) -> None:
    """What a worker does that did not hear the first answer."""
    if not plan:
        raise UndoCheckError("the session has nothing to undo")
    for entry in plan:
        url, body = entry.get("url") or "", entry.get("body")
        if entry.get("action") != "call" or "{secret:" in url or "{secret:" in str(body):
            raise UndoCheckError(f"the undo of {entry.get('tool_name')} cannot be called from here")
        answer = httpx.request(
            entry.get("method") or "POST",
            url,
            json=body,
            headers={"Idempotency-Key": str(entry.get("undo_id"))},
            timeout=CALL_SECONDS,
        )
        if answer.status_code >= 500:
            raise UndoCheckError(f"the second undo answered {answer.status_code}: {url}")


def _expect_change(before: Any, done: Any, same: Same) -> None:
    if same(before, done):
        raise UndoCheckError(f"doing it changed nothing that is observed: {done!r}")


def _expect_restored(before: Any, now: Any, same: Same, what: str) -> None:
    if not same(before, now):
        raise UndoCheckError(f"{what} did not restore.\n  before: {before!r}\n  now:    {now!r}")


def _expect_compensated(state: str) -> None:
    if state != "compensated":
        raise UndoCheckError(f"the rollback ended in the state {state}")


async def _value(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
