"""Reports that could not be delivered at once: sent again, with the same outcome, until taken."""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from ._flow import Flow, Wire, drive_sync
from ._fork import watch
from .errors import UndoLogError

logger = logging.getLogger("undolog_sdk")

FIRST_DELAY = 0.5
DELAY_MAX = 20.0
GIVE_UP_SECONDS = 3600.0
EXIT_SECONDS = 5.0


class _Report:
    __slots__ = ("born", "delay", "flow", "session_id", "what")

    def __init__(self, session_id: str, what: str, flow: Callable[[], Flow[Any]]) -> None:
        self.session_id = session_id
        self.what = what
        self.flow = flow
        self.born = time.monotonic()
        self.delay = FIRST_DELAY


class Reporter:
    """Delivers reports on a thread of its own."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._heap: list[tuple[float, int, _Report]] = []
        self._open: dict[str, int] = {}
        self._number = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        _ALL.add(self)
        watch(self)

    def after_fork(self) -> None:
        """A child has no thread yet, and what waits is its parent's to deliver."""
        self._heap = []
        self._open = {}
        self._changed = threading.Condition()
        self._thread = None

    def put(self, session_id: str, what: str, flow: Callable[[], Flow[Any]]) -> None:
        """Takes over a report."""
        with self._changed:
            self._open[session_id] = self._open.get(session_id, 0) + 1
            report = _Report(session_id, what, flow)
            heapq.heappush(self._heap, (time.monotonic(), next(self._number), report))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="undolog-reports", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def is_idle(self, session_id: str) -> bool:
        """Whether nothing of this session waits."""
        return session_id not in self._open

    def count(self, session_id: str) -> int:
        """How many reports of this session wait, with the one that is being delivered."""
        return self._open.get(session_id, 0)

    def flush(self, session_id: str | None, timeout: float) -> bool:
        """Waits until nothing waits any more; `False` when the time was not enough."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._open if session_id is None else session_id not in self._open,
                timeout,
            )

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._heap or self._heap[0][0] > time.monotonic():
                    wait = self._heap[0][0] - time.monotonic() if self._heap else None
                    self._changed.wait(wait)
                _, number, report = heapq.heappop(self._heap)
            if self._deliver(report):
                self._done(report)
            else:
                with self._changed:
                    due = time.monotonic() + report.delay
                    report.delay = min(report.delay * 2, DELAY_MAX)
                    heapq.heappush(self._heap, (due, number, report))

    def _deliver(self, report: _Report) -> bool:
        try:
            drive_sync(report.flow(), self._wire)
        except UndoLogError as error:
            if error.retryable and time.monotonic() - report.born < GIVE_UP_SECONDS:
                return False
            logger.warning("the report '%s' was not taken: %s", report.what, error)
        except Exception:
            logger.exception("the report '%s' failed", report.what)
        return True

    def _done(self, report: _Report) -> None:
        with self._changed:
            left = self._open[report.session_id] - 1
            if left:
                self._open[report.session_id] = left
            else:
                del self._open[report.session_id]
            self._changed.notify_all()


_ALL: weakref.WeakSet[Reporter] = weakref.WeakSet()


@atexit.register
def _last_reports() -> None:
    """A process that ends gives its last reports a moment; after that the leases decide."""
    deadline = time.monotonic() + EXIT_SECONDS
    for reporter in list(_ALL):
        if not reporter.flush(None, max(0.0, deadline - time.monotonic())):
            left = ", ".join(sorted(report.what for _, _, report in list(reporter._heap)))
            logger.error("the process ends with reports that were not delivered: %s", left)
