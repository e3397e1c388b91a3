"""What a session that is resumed has done already, read in one answer."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from .signature import signature_of_canonical

__all__ = ["Open", "Stored", "StoredResults", "read_stored"]


@dataclass(frozen=True)
class Stored:
    """A call that was committed, and what it gave."""

    effect_id: str
    tool_name: str
    step_index: int
    signature: str
    output: Any
    position: int = 0


@dataclass(frozen=True)
class Open:
    """A call that waits, runs, was rejected, or may have happened."""

    tool_name: str
    step_index: int
    signature: str


class StoredResults:
    """Finds what became of a call in an earlier run. Each result is given once.

    Concurrent calls may come in another order than in the first run. So a call that is not found
    at its natural step is looked for at the others, by its tool and arguments. One that is found
    nowhere is a new call, and gets a step that nobody has used: a step of the first run may belong
    to a call that was undone since.
    """

    def __init__(self, next_step_index: int = 1) -> None:
        self._by_signature: dict[str, Stored] = {}
        self._by_key: dict[tuple[str, str], Stored] = {}
        self._open: dict[str, Open] = {}
        self._next_step = next_step_index
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_signature)

    def add(self, stored: Stored, step_key: str | None) -> None:
        """Takes one result."""
        self._by_signature[stored.signature] = stored
        if step_key:
            self._by_key[(stored.tool_name, step_key)] = stored

    def after_fork(self) -> None:
        """In a forked process nobody holds the parent's lock any more."""
        self._lock = threading.Lock()

    def add_open(self, call: Open) -> None:
        """Takes one call without a result."""
        self._open[call.signature] = call

    def undone(self, next_step_index: int, position: int | None, step: int | None) -> None:
        """Forgets what a rollback undoes: from a position on, after a step, or everything."""

        def stays(call: Stored) -> bool:
            if position is not None:
                return call.position < position
            return step is not None and call.step_index <= step

        with self._lock:
            self._next_step = max(self._next_step, next_step_index)
            self._by_signature = {s: c for s, c in self._by_signature.items() if stays(c)}
            self._by_key = {key: c for key, c in self._by_key.items() if stays(c)}

    def find(
        self, session_id: str, tool: str, canonical: str, step_key: str | None, step_index: int
    ) -> Stored | int:
        """The result of a call, or the step at which it has to be asked for."""
        with self._lock:
            if step_key is not None:
                stored = self._by_key.get((tool, step_key))
                if stored is None:
                    return step_index
                # The arguments are part of the call: other ones under the same key are refused by
                # the service, not answered from here.
                made = signature_of_canonical(session_id, stored.step_index, tool, canonical)
                return stored if made == stored.signature else step_index
            signature = signature_of_canonical(session_id, step_index, tool, canonical)
            if signature in self._by_signature:
                return self._by_signature.pop(signature)
            if signature in self._open:
                return self._open.pop(signature).step_index

            def same(call: Stored | Open) -> bool:
                at = call.step_index
                return call.tool_name == tool and call.signature == signature_of_canonical(
                    session_id, at, tool, canonical
                )

            found = next((c for c in self._by_signature.values() if same(c)), None)
            if found is not None:
                return self._by_signature.pop(found.signature)
            waiting = next((c for c in self._open.values() if same(c)), None)
            if waiting is not None:
                return self._open.pop(waiting.signature).step_index
            step = max(step_index, self._next_step)
            self._next_step = step + 1
            return step


def read_stored(answer: dict[str, Any]) -> StoredResults | None:
    """The answer of `GET /sessions/{id}/replay`; `None` for one that broke off."""
    if not answer.get("complete"):
        return None
    results = StoredResults(int(answer.get("next_step_index") or 1))
    for call in answer.get("open", []):
        # With keys the service finds the call by itself.
        if not call.get("step_key"):
            step = int(call.get("step_index") or 0)
            results.add_open(Open(call["tool_name"], step, call.get("call_signature", "")))
    for effect in answer.get("effects", []):
        result = effect.get("result") or {}
        stored = Stored(
            effect["effect_id"],
            effect["tool_name"],
            int(effect.get("step_index") or 0),
            effect.get("call_signature", ""),
            result.get("output"),
            int(effect.get("position") or 0),
        )
        results.add(stored, effect.get("step_key"))
    return results
