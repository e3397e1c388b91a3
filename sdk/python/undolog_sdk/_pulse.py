"""Heartbeats, on a thread of their own: a tool that blocks its thread does not look dead."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ._fork import watch
from .errors import UndoLogError

logger = logging.getLogger("undolog_sdk")


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
    __slots__ = ("due", "grants", "idle_interval", "is_open", "on_stop", "org_id")

    def __init__(self, org_id: str, due: float) -> None:
        self.org_id = org_id
        self.grants: dict[str, Grant] = {}
        self.is_open = False
        self.idle_interval = 0.0
        self.due = due
        self.on_stop: Callable[[str], None] | None = None


class Pulse:
    """Renews the leases of open sessions and running calls."""

    def __init__(
        self,
        send: Callable[[str, str, list[dict[str, Any]]], dict[str, Any]],
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
        while True:
            self._wake.wait()
            now = time.monotonic()
            with self._lock:
                if not self._beats:
                    self._wake.clear()
                due = [
                    (s, b.org_id, list(b.grants.values()))
                    for s, b in self._beats.items()
                    if b.due <= now
                ]
            for session_id, org_id, grants in due:
                self._one(session_id, org_id, grants)
            # Polling keeps the start of a call free of wake-ups.
            time.sleep(self.interval / 4)

    def _one(self, session_id: str, org_id: str, grants: list[Grant]) -> None:
        refs = [{"effect_id": g.effect_id, "attempt": g.attempt} for g in grants]
        answer: dict[str, Any] = {}
        try:
            answer = self._send(org_id, session_id, refs)
        except UndoLogError as error:
            logger.info("a heartbeat of session %s was not taken: %s", session_id, error)
        except Exception:
            logger.exception("a heartbeat of session %s failed", session_id)
        on_stop = self._plan_next(session_id)
        self._obey(answer, grants, on_stop)

    def _plan_next(self, session_id: str) -> Callable[[str], None] | None:
        with self._lock:
            beat = self._beats.get(session_id)
            if beat is None:
                return None
            wait = self.interval if beat.grants or not beat.is_open else beat.idle_interval
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
