"""What a session that is resumed has done already, and whether the resumed run goes the same
way."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Literal

from .errors import ResumeMismatchError
from .signature import signature_of_canonical

__all__ = ["History", "Open", "Stored", "StoredResults", "read_stored"]

History = Literal["rerun", "kept"]
# An open call in these states has not run, and never will.
_SPENT = frozenset({"rejected", "failed"})
# Calls that were taken back: made again, they run again.
_UNDONE = frozenset({"compensating", "compensated", "compensation_failed"})
_SHOWN_CHARS_MAX = 200


@dataclass(frozen=True)
class Stored:
    """A call that was committed, and what it gave."""

    effect_id: str
    tool_name: str
    step_index: int
    signature: str
    output: Any
    position: int = 0
    step_key: str | None = None


@dataclass(frozen=True)
class Open:
    """A call that waits, runs, was rejected, or may have happened."""

    tool_name: str
    step_index: int
    signature: str
    state: str = ""
    step_key: str | None = None


@dataclass(frozen=True)
class Wanted:
    """A call that a resumed run makes."""

    session_id: str
    tool_name: str
    canonical: str
    step_key: str | None
    step_index: int

    def equals(self, call: Stored | Open) -> bool:
        """Whether a call of the earlier run had this tool and these arguments."""
        return call.tool_name == self.tool_name and call.signature == signature_of_canonical(
            self.session_id, call.step_index, self.tool_name, self.canonical
        )


class StoredResults:
    """Finds what became of a call in an earlier run. Each result is given once.

    A run that starts over (`rerun`) makes its earlier calls again. Concurrent calls may come in
    another order than in the first run, so a call that is not found at its natural step is looked
    for at the others, by its tool and arguments; equal calls count up. What is found nowhere is a
    new call.

    A caller that remembers (`kept`) makes only new calls, and those that had no result.

    A call that fits neither is refused before it runs: it would do twice what was done, or tell the
    caller of a result that belongs to another call.
    """

    def __init__(self, next_step_index: int = 1, history: History = "rerun") -> None:
        self._history = history
        self._by_signature: dict[str, Stored] = {}
        self._by_key: dict[tuple[str, str], Stored] = {}
        self._open: dict[str, Open] = {}
        self._next_step = next_step_index
        self._asked: set[str] = set()
        self._passed = 0
        self._keys_hold = False
        self._resumed: set[int] = set()
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
            self._open = {s: c for s, c in self._open.items() if c.state in _SPENT}

    def unasked(self) -> list[Stored]:
        """The results that nobody has asked for."""
        with self._lock:
            return self._left()

    def passed(self, step_index: int) -> None:
        """A call has ended in this run; it counts if it had no result in the earlier one."""
        with self._lock:
            if step_index in self._resumed:
                self._passed = max(self._passed, step_index)

    def find(self, wanted: Wanted) -> Stored | int:
        """The result of a call, or the step at which it has to be asked for.

        Raises `ResumeMismatchError` for a call that the earlier run cannot have meant.
        """
        with self._lock:
            if wanted.step_key is not None:
                return self._find_by_key(wanted, wanted.step_key)
            if self._history == "kept":
                return self._find_kept(wanted)
            return self._find_by_step(wanted)

    def find_undone(self, wanted: Wanted, effects: list[dict[str, Any]]) -> int | None:
        """The step of a call whose earlier run was undone or changed nothing, so that it runs anew.

        Such calls are no part of the replay; `effects` are all calls of the session.
        """
        with self._lock:
            for effect in effects:
                effect_id = str(effect.get("effect_id"))
                if effect_id in self._asked or not _is_undone(effect):
                    continue
                call = _open(effect)
                if call.step_key == wanted.step_key and wanted.equals(call):
                    self._asked.add(effect_id)
                    return wanted.step_index if call.step_key else self._new_step(wanted)
        return None

    # ------------------------------------------------------------------ with the lock held

    def _left(self) -> list[Stored]:
        return [c for s, c in self._by_signature.items() if s not in self._asked]

    def _give(self, stored: Stored) -> Stored:
        self._asked.add(stored.signature)
        if stored.step_key is None:
            del self._by_signature[stored.signature]
        return stored

    def _find_by_key(self, wanted: Wanted, key: str) -> Stored | int:
        stored = self._by_key.get((wanted.tool_name, key))
        if stored is not None:
            if wanted.equals(stored):
                self._keys_hold = True
                return self._give(stored)
            raise _mismatch(wanted, stored, f"the key {key!r} belongs to a call of other arguments")
        waiting = next((c for c in self._open.values() if c.step_key == key), None)
        if waiting is not None:
            if not wanted.equals(waiting):
                raise _mismatch(wanted, waiting, f"the key {key!r} belongs to another call")
            self._keys_hold = True
            return wanted.step_index
        if self._history == "kept":
            # A key of the earlier run that comes again shows that the caller does remember: from
            # then on a new key is a new call.
            if not self._keys_hold:
                self._refuse_equal(wanted, "it has another key")
        else:
            self._refuse_new(wanted)
        return wanted.step_index

    def _find_kept(self, wanted: Wanted) -> int:
        waiting = self._waiting(wanted)
        if waiting is not None:
            return waiting.step_index
        self._refuse_equal(wanted, "without a step_key nobody can tell whether this is another one")
        return self._new_step(wanted)

    def _find_by_step(self, wanted: Wanted) -> Stored | int:
        natural = signature_of_canonical(
            wanted.session_id, wanted.step_index, wanted.tool_name, wanted.canonical
        )
        stored = self._by_signature.get(natural)
        if stored is None or stored.step_key is not None:
            waiting = self._waiting(wanted, natural)
            if waiting is not None:
                return waiting.step_index
            left = (c for c in self._left() if c.step_key is None and wanted.equals(c))
            stored = next(left, None)
        if stored is not None:
            if stored.step_index < self._passed:
                why = (
                    "a later call of the earlier run has ended in this one before it was asked for"
                )
                raise _mismatch(wanted, stored, why)
            return self._give(stored)
        waiting = self._waiting(wanted)
        if waiting is not None:
            return waiting.step_index
        self._refuse_new(wanted)
        return self._new_step(wanted)

    def _waiting(self, wanted: Wanted, signature: str | None = None) -> Open | None:
        if signature is not None:
            found = self._open.get(signature)
        else:
            same = (c for c in self._open.values() if not c.step_key and wanted.equals(c))
            found = next(same, None)
        if found is not None:
            del self._open[found.signature]
            self._resumed.add(found.step_index)
        return found

    def _new_step(self, wanted: Wanted) -> int:
        step = max(wanted.step_index, self._next_step)
        self._next_step = step + 1
        return step

    def _refuse_equal(self, wanted: Wanted, why: str) -> None:
        for stored in self._left():
            if wanted.equals(stored):
                raise _mismatch(wanted, stored, f"the earlier run made an equal call, and {why}")

    def _refuse_new(self, wanted: Wanted) -> None:
        """A rerun goes the same way: a new call comes after the old ones of its tool and step."""
        unspent = [c for c in self._open.values() if c.state not in _SPENT]
        left: list[Stored | Open] = [*self._left(), *unspent]

        def is_rival(call: Stored | Open) -> bool:
            at_its_step = wanted.step_key is None and call.step_index == wanted.step_index
            return call.tool_name == wanted.tool_name or at_its_step

        rival = next(filter(is_rival, left), None)
        if rival is not None:
            why = "this call is none of the earlier run's, and that one was not made again yet"
            raise _mismatch(wanted, rival, why)


def _mismatch(wanted: Wanted, call: Stored | Open, why: str) -> ResumeMismatchError:
    shown = wanted.canonical[:_SHOWN_CHARS_MAX]
    key = f", key {wanted.step_key!r}" if wanted.step_key else ""
    at = f"key {call.step_key!r}" if call.step_key else f"step {call.step_index}"
    effect = f", effect {call.effect_id}" if isinstance(call, Stored) else f", {call.state}"
    return ResumeMismatchError(
        f"{wanted.tool_name}({shown}){key} does not match what session {wanted.session_id} did "
        f"before: its call of {call.tool_name} at {at}{effect}: {why}. It did not run. If the "
        "caller remembers its earlier calls, resume with history='kept' and step keys; else make "
        "the same calls with the same arguments, or roll the session back",
        wanted.session_id,
    )


def _is_undone(effect: dict[str, Any]) -> bool:
    state, outcome = effect.get("state"), effect.get("outcome")
    return state in _UNDONE or (state == "failed" and outcome == "not_applied")


def _open(call: dict[str, Any]) -> Open:
    return Open(
        call["tool_name"],
        int(call.get("step_index") or 0),
        call.get("call_signature", ""),
        call.get("state", ""),
        call.get("step_key") or None,
    )


def read_stored(answer: dict[str, Any], history: History = "rerun") -> StoredResults | None:
    """The answer of `GET /sessions/{id}/replay`; `None` for one that broke off."""
    if not answer.get("complete"):
        return None
    results = StoredResults(int(answer.get("next_step_index") or 1), history)
    for call in answer.get("open", []):
        results.add_open(_open(call))
    for effect in answer.get("effects", []):
        result = effect.get("result") or {}
        key = effect.get("step_key") or None
        stored = Stored(
            effect["effect_id"],
            effect["tool_name"],
            int(effect.get("step_index") or 0),
            effect.get("call_signature", ""),
            result.get("output"),
            int(effect.get("position") or 0),
            key,
        )
        results.add(stored, key)
    return results
