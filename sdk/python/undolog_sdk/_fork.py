"""What a forked process must not share with its parent: connections, threads, held locks."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """Something that begins anew in a forked process."""

    def after_fork(self) -> None:
        """Called in the child, before any other code of it."""


_ALL: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch(thing: Forkable) -> None:
    """From now on a forked process calls the thing's `after_fork`."""
    _ALL.add(thing)


def _in_child() -> None:
    for thing in list(_ALL):
        thing.after_fork()


# Where processes cannot be forked there is nothing to register with.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
