"""Heartbeats, on a thread of their own: a tool that blocks its thread does not look dead."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ._fork import watch
from .errors import UndoLogError

logger = logging.getLogger("undolog_sdk")


# Of a call that runs under heartbeats, as the service has it.
GRANT_LEASE_SECONDS = 60.0
# The part of a lease after whose silence its end is near.
ENDING = 0.6

_grant: ContextVar[Grant | None] = ContextVar("undolog_grant", default=None)


def stop_requested() -> bool:
    """Whether the running tool has been told to stop.

    An async tool is cancelled by itself; one that blocks its thread has to ask.
    """
    grant = _grant.get()
    return grant is not None and grant.stop_requested.is_set()


class Grant:
    """One call that runs now."""

    __slots__ = ("_cancelling", "_loop", "_task", "attempt", "effect_id", "stop_requested")

    def __init__(self, effect_id: str, attempt: int) -> None:
        self.effect_id = effect_id
        self.attempt = attempt
        self.stop_requested = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0

    @contextmanager
    def current(self) -> Iterator[None]:
        """While inside, the running code can ask whether it has to stop."""
        token = _grant.set(self)
        try:
            yield
        finally:
            _grant.reset(token)

    @contextmanager
    def on_loop(self) -> Iterator[None]:
        """While inside, a stop cancels the running task."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        # Not zero when some code before has swallowed a cancellation without taking it back.
        self._cancelling = int(getattr(self._task, "cancelling", int)())
        token = _grant.set(self)
        try:
            yield
        finally:
            self._task = None
            _grant.reset(token)

    def stop(self) -> None:
        """The service says that this call is over."""
        if self.stop_requested.is_set():
            return
        self.stop_requested.set()
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._cancel)
            except RuntimeError:
                logger.debug("the event loop of effect %s is closed", self.effect_id)

    def _cancel(self) -> None:
        # On the loop's own thread: the body either still runs, or this task is gone from here.
        if self._task is not None:
            self._task.cancel()

    def was_cancelled_by_stop(self, error: BaseException) -> bool:
        """Whether a cancellation came from here; it then counts no longer as one of the task's."""
        if not (isinstance(error, asyncio.CancelledError) and self.stop_requested.is_set()):
            return False
        task = asyncio.current_task()
        uncancel = getattr(task, "uncancel", None)
        return uncancel is None or int(uncancel()) <= self._cancelling


class _Beat:
    __slots__ = (
        "due", "grants", "idle_interval", "is_open", "is_out", "lease", "missed", "on_stop",
        "org_id", "taken",
    )  # fmt: skip

    def __init__(self, org_id: str, due: float) -> None:
        self.org_id = org_id
        self.grants: dict[str, Grant] = {}
        self.is_open = False
        self.idle_interval = 0.0
        self.lease = GRANT_LEASE_SECONDS
        self.due = due
        self.is_out = False
        self.missed = 0
        self.taken = time.monotonic()
        self.on_stop: Callable[[str], None] | None = None


class Pulse:
    """Renews the leases of open sessions and running calls.

    One thread with an event loop of its own sends all beats, at the same time: neither a tool that
    blocks nor a beat without an answer holds up another session's.
    """

    def __init__(
        self,
        send: Callable[[str, str, list[dict[str, Any]]], Awaitable[dict[str, Any]]],
        interval: float,
    ) -> None:
        self._send = send
        self.interval = interval
        self._beats: dict[str, _Beat] = {}
        self._inherited: dict[str, _Beat] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        watch(self)

    def after_fork(self) -> None:
        """A child has no thread yet. Its parent's sessions become its own when it works in them.

        Otherwise an idle child would keep alive what its parent has left behind.
        """
        self._inherited = {**self._inherited, **self._beats}
        self._beats = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread = None

    def open(
        self, org_id: str, session_id: str, lease_seconds: int, on_stop: Callable[[str], None]
    ) -> None:
        """Keeps a session alive until `close`."""
        with self._lock:
            beat = self._beat(org_id, session_id)
            beat.is_open = True
            beat.on_stop = on_stop
            # Several beats fit into one lease, so a lost one does no harm.
            beat.idle_interval = max(self.interval, lease_seconds / 6)
            beat.lease = float(lease_seconds)
            beat.taken = time.monotonic()
            beat.due = time.monotonic() + min(self.interval, beat.idle_interval)
        self._start()

    def close(self, session_id: str) -> None:
        """Lets a session go; its running calls go on being renewed."""
        with self._lock:
            self._inherited.pop(session_id, None)
            beat = self._beats.get(session_id)
            if beat is not None:
                beat.is_open = False
                beat.on_stop = None
                if not beat.grants:
                    del self._beats[session_id]

    def add(self, org_id: str, session_id: str, grant: Grant) -> None:
        """Keeps a running call's grant alive."""
        with self._lock:
            beat = self._beat(org_id, session_id)
            if not beat.grants:
                beat.taken = time.monotonic()
                beat.due = min(beat.due, time.monotonic() + self.interval)
            beat.grants[grant.effect_id] = grant
        if self._thread is None:
            self._start()
        elif not self._wake.is_set():
            self._wake.set()

    def remove(self, session_id: str, grant: Grant) -> None:
        """The call has ended."""
        with self._lock:
            beat = self._beats.get(session_id)
            if beat is not None:
                beat.grants.pop(grant.effect_id, None)
                if not beat.grants and not beat.is_open:
                    del self._beats[session_id]

    def _beat(self, org_id: str, session_id: str) -> _Beat:
        beat = self._beats.get(session_id)
        if beat is None:
            beat = self._inherited.pop(session_id, None) or _Beat(org_id, 0.0)
            # The calls that ran at the fork are the parent's.
            beat.grants = {}
            beat.is_out = False
            beat.missed = 0
            beat.taken = time.monotonic()
            beat.due = time.monotonic() + self.interval
            self._beats[session_id] = beat
        return beat

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="undolog-heartbeat", daemon=True
                )
                self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        while True:
            self._wake.wait()
            loop.run_until_complete(self._until_idle())

    async def _until_idle(self) -> None:
        out: set[asyncio.Task[None]] = set()
        while True:
            now = time.monotonic()
            with self._lock:
                if not self._beats and not out:
                    self._wake.clear()
                    return
                due = [(s, b) for s, b in self._beats.items() if b.due <= now and not b.is_out]
                # Whoever has gone longest without an answer goes first.
                due.sort(key=lambda one: one[1].taken)
                for _, beat in due:
                    beat.is_out = True
                asked = [(s, b, list(b.grants.values())) for s, b in due]
            for session_id, beat, grants in asked:
                task = asyncio.create_task(self._one(session_id, beat, grants))
                out.add(task)
                task.add_done_callback(out.discard)
            # Polling keeps the start of a call free of wake-ups.
            await asyncio.sleep(self.interval / 4)

    async def _one(self, session_id: str, beat: _Beat, grants: list[Grant]) -> None:
        refs = [{"effect_id": g.effect_id, "attempt": g.attempt} for g in grants]
        answer: dict[str, Any] = {}
        fault: Exception | None = None
        try:
            answer = await self._send(beat.org_id, session_id, refs)
        except Exception as error:
            fault = error
        self._tell(session_id, beat, grants, fault)
        on_stop = self._plan_next(session_id)
        self._obey(answer, grants, on_stop)

    def _tell(
        self, session_id: str, beat: _Beat, grants: list[Grant], fault: Exception | None
    ) -> None:
        """One lost beat does no harm; more of them end in calls that are lost."""
        if fault is None:
            beat.missed, beat.taken = 0, time.monotonic()
            return
        beat.missed += 1
        silent = time.monotonic() - beat.taken
        lease = GRANT_LEASE_SECONDS if grants else beat.lease
        level = logging.INFO if beat.missed == 1 else logging.WARNING
        what = f"{beat.missed} heartbeats of session %s were not taken"
        if silent > lease * ENDING:
            level = logging.ERROR
            what += ": it or its running calls will be taken for lost and rolled back"
        unexpected = (
            None if isinstance(fault, (UndoLogError, TimeoutError, asyncio.TimeoutError)) else fault
        )
        logger.log(level, what + ": %s", session_id, fault or type(fault), exc_info=unexpected)

    def _plan_next(self, session_id: str) -> Callable[[str], None] | None:
        with self._lock:
            beat = self._beats.get(session_id)
            if beat is None:
                return None
            wait = self.interval if beat.grants or not beat.is_open else beat.idle_interval
            if beat.missed:
                wait = min(wait, self.interval)
            beat.is_out = False
            beat.due = time.monotonic() + wait
            return beat.on_stop

    def _obey(
        self,
        answer: dict[str, Any],
        grants: list[Grant],
        on_stop: Callable[[str], None] | None,
    ) -> None:
        stopped = {g.get("effect_id") for g in answer.get("grants", []) if g.get("stop")}
        all_stop = bool(answer.get("stop"))
        if all_stop and on_stop is not None:
            on_stop(str(answer.get("state", "")))
        for grant in grants:
            if all_stop or grant.effect_id in stopped:
                grant.stop()
