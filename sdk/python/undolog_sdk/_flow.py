"""One description of each exchange, run by an event loop or by a plain thread.

A flow is a generator that yields what it needs done (`Send`, `Pause`, `Ask`, `Invoke`, `Blocking`)
and is resumed with the outcome. So every rule about retries and reports is written once.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import httpx

from ._ours import InterceptOptions, ReportOptions, beside

if TYPE_CHECKING:
    from ._pulse import Grant

T = TypeVar("T")
Flow = Generator[Any, Any, T]


@dataclass
class Send:
    """One HTTP request; resumed with its response."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes | None
    timeout: float | None = None
    """Seconds; `None`: the HTTP client's own."""


@dataclass
class Pause:
    """A wait."""

    seconds: float


@dataclass
class Invoke:
    """The tool's own body; resumed with what it returns."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grant: Grant | None


@dataclass
class Ask:
    """A call of a documented method of the client, which may be a subclass's or a mock's."""

    method: Callable[..., Any]
    arguments: dict[str, Any]
    options: InterceptOptions | ReportOptions
    is_own: bool
    """The method is `UndoLogClient`'s, which never suspends where it has to block."""


@dataclass
class Blocking:
    """Something that blocks, and must not block an event loop."""

    fn: Callable[[], Any]


class Wire(Protocol):
    """How requests are sent."""

    async def send_async(self, ask: Send) -> httpx.Response:
        """Sends on the running event loop."""

    def send_sync(self, ask: Send) -> httpx.Response:
        """Sends on this thread."""


async def drive_async(flow: Flow[T], wire: Wire) -> T:
    """Runs a flow on the running event loop."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            need = flow.send(value) if error is None else flow.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        value = error = None
        try:
            if type(need) is Send:
                value = await wire.send_async(need)
            elif type(need) is Invoke:
                value = await _invoke(need)
            elif type(need) is Ask:
                with beside(need.options, blocking=False):
                    value = await need.method(**need.arguments)
            elif type(need) is Pause:
                await asyncio.sleep(need.seconds)
            else:
                value = await asyncio.to_thread(need.fn)
        except BaseException as caught:
            error = caught


async def _invoke(need: Invoke) -> Any:
    if need.grant is None:
        return await need.fn(*need.args, **need.kwargs)
    with need.grant.on_loop():
        return await need.fn(*need.args, **need.kwargs)


def _invoke_sync(need: Invoke) -> Any:
    if need.grant is None:
        return need.fn(*need.args, **need.kwargs)
    with need.grant.current():
        return need.fn(*need.args, **need.kwargs)


def _ask_sync(need: Ask) -> Any:
    with beside(need.options, blocking=True):
        call = need.method(**need.arguments)
        return _finished(call) if need.is_own else run_blocking(call)


def _finished(call: Coroutine[Any, Any, T]) -> T:
    """The outcome of a coroutine that never suspends."""
    try:
        call.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    call.close()
    raise RuntimeError("a blocking call has suspended")


def run_blocking(call: Coroutine[Any, Any, T]) -> T:
    """Runs somebody's coroutine to its end on an event loop of its own, and blocks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(call)
    # This thread's loop runs already, so another thread has to.
    outcome: list[T] = []
    fault: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.append(context.run(asyncio.run, call))
        except BaseException as error:
            fault.append(error)

    thread = threading.Thread(target=run, name="undolog-blocking-call")
    thread.start()
    thread.join()
    if fault:
        raise fault[0]
    return outcome[0]


def drive_sync(flow: Flow[T], wire: Wire) -> T:
    """Runs a flow on this thread."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            need = flow.send(value) if error is None else flow.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        value = error = None
        try:
            if type(need) is Send:
                value = wire.send_sync(need)
            elif type(need) is Invoke:
                value = _invoke_sync(need)
            elif type(need) is Ask:
                value = _ask_sync(need)
            elif type(need) is Pause:
                time.sleep(need.seconds)
            else:
                value = need.fn()
        except BaseException as caught:
            error = caught
