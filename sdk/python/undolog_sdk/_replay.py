"""Stored results of a session that is resumed, read in one answer."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from .signature import signature_of_canonical

__all__ = ["Stored", "StoredResults", "read_stored"]


@dataclass(frozen=True)
class Stored:
    """A call that was committed, and what it gave."""

    effect_id: str
    tool_name: str
    step_index: int
    signature: str
    output: Any


class StoredResults:
    """Finds the stored result of a call. Each is given once."""

    def __init__(self) -> None:
        self._by_signature: dict[str, Stored] = {}
        self._by_key: dict[tuple[str, str], Stored] = {}
        self._steps: dict[int, str] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_signature)

    def add(self, stored: Stored, step_key: str | None) -> None:
        """Takes one result."""
        self._by_signature[stored.signature] = stored
        self._steps[stored.step_index] = stored.signature
        if step_key:
            self._by_key[(stored.tool_name, step_key)] = stored

    def find(
        self, session_id: str, tool: str, canonical: str, step_key: str | None, step_index: int
    ) -> Stored | None:
        """The result of a call.

        Concurrent calls may come in another order than in the first run. So when the natural step
        belongs to another call, an unused result of the same tool with the same arguments is
        taken.
        """
        with self._lock:
            if step_key is not None:
                stored = self._by_key.get((tool, step_key))
                if stored is None:
                    return None
                # The arguments are part of the call: other ones under the same key are refused by
                # the service, not answered from here.
                made = signature_of_canonical(session_id, stored.step_index, tool, canonical)
                return stored if made == stored.signature else None
            signature = signature_of_canonical(session_id, step_index, tool, canonical)
            stored = self._by_signature.pop(signature, None)
            if stored is not None or step_index not in self._steps:
                return stored
            for candidate in list(self._by_signature.values()):
                if candidate.tool_name != tool:
                    continue
                step = candidate.step_index
                if signature_of_canonical(session_id, step, tool, canonical) == candidate.signature:
                    return self._by_signature.pop(candidate.signature)
            return None


def read_stored(answer: dict[str, Any]) -> StoredResults | None:
    """The answer of `GET /sessions/{id}/replay`; `None` for one that broke off."""
    if not answer.get("complete"):
        return None
    results = StoredResults()
    for effect in answer.get("effects", []):
        result = effect.get("result") or {}
        stored = Stored(
            effect["effect_id"],
            effect["tool_name"],
            int(effect.get("step_index") or 0),
            effect.get("call_signature", ""),
            result.get("output"),
        )
        results.add(stored, effect.get("step_key"))
    return results
