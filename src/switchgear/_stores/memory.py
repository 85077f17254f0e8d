"""Circuits in this process's memory: a lock, `step`, one assignment."""

from collections import deque
from collections.abc import Callable, Sequence
from time import time
from typing import Any, TypeVar

from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Event, Message, Step
from switchgear._stores.base import (
    KEEP_EVENTS,
    NOTE_S,
    Entry,
    MemoryLedger,
    StoredCircuit,
    Transaction,
    Vacuumed,
    is_abandoned,
    last_commit,
)
from switchgear._system.clock import Clock, Shifted, monotonic
from switchgear._system.threads import ForkSafeLock
from switchgear._text.glob import matcher

T = TypeVar("T")

LONGEST_CURSOR = 19


class MemoryCell(ForkSafeLock):  # type: ignore[misc]  # final in the stubs, not in CPython
    """Keeps one circuit in memory. Thread-safe and fork-safe; user code never runs under its lock.

    The cell is itself the lock, which the breaker also uses for its own short sections: one object
    needs less memory than three, and the two never need the lock at the same time.
    """

    __slots__ = ("_circuit",)

    refresh_s: float | None = None
    pushes = False

    def __init__(self) -> None:
        super().__init__()
        self._circuit: Circuit | None = None

    def apply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        with self:
            circuit = self._circuit or policy.start(key, now_s)
            done = step(policy, circuit, message, now_s)
            self._circuit, last_commit.message = done.circuit, message
        return done

    async def aapply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        return self.apply(key, policy, message, now_s)

    def restore(self, circuit: Circuit) -> None:
        self._circuit = circuit


class MemoryStore:
    """Keeps circuits and their events in memory, as long as the process runs. Thread-safe."""

    refresh_s: float | None = None
    label = "memory:"
    pushes = False

    def __init__(self, *, clock: Clock | None = None, keep_events: int = KEEP_EVENTS) -> None:
        # The wall clock is read only now: setting it later has no effect.
        self._clock = clock or Shifted(monotonic, time() - monotonic())
        self._lock = ForkSafeLock()
        self._circuits: dict[str, StoredCircuit] = {}
        self._events: deque[Entry] = deque(maxlen=keep_events)
        self._last_cursor = 0
        self._highest_removed = 0
        """The highest version of removed circuits: a circuit of the same name continues from it."""
        self._operator_digest: str | None = None
        self._notes: dict[str, tuple[float, str]] = {}
        self._ledger: MemoryLedger | None = None

    def ledger(self) -> MemoryLedger:
        """The ledger for budgets and locks."""
        with self._lock:
            if self._ledger is None:
                self._ledger = MemoryLedger(self.label, self.now_s)
            return self._ledger

    def now_s(self) -> float:
        """Seconds since the epoch."""
        return self._clock()

    def apply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """Apply one message to the circuit, which starts closed."""
        with self._lock:
            changed: dict[str, StoredCircuit] = {}
            done = self._fold_message(key, policy, message, now_s, changed)
            self._circuits |= changed
            last_commit.message = message
            self._write(done.events)
        return done

    async def aapply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """`apply`, which never blocks."""
        return self.apply(key, policy, message, now_s)

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        """As in `Store.transact`: all or nothing."""
        with self._lock:
            now_s = self._clock()
            until_s, text = self._notes.get(name, (0.0, None))
            transaction = _MemoryTransaction(self, now_s, text if until_s > now_s else None)
            result = work(transaction)
            self._circuits |= transaction.changed
            self._write(transaction.events)
            if transaction.note is None:
                self._notes.pop(name, None)
            elif transaction.note != text or until_s <= now_s:
                self._notes[name] = (now_s + transaction.keep_s, transaction.note)
        return result

    def get(self, key: str) -> StoredCircuit | None:
        """One circuit as stored, not advanced to the current time; `None`: it does not exist."""
        return self._circuits.get(key)

    def release(self, key: str) -> None:
        """Remove a circuit that is no longer used, if it has no evidence.

        No evidence means: no failure, no event, and empty memories of the detectors.
        """
        with self._lock:
            found = self._circuits.get(key)
            if found is not None and _has_no_evidence(found):
                del self._circuits[key]

    def find(self, glob: str = "*") -> list[StoredCircuit]:
        """The circuits whose names match, sorted by name."""
        matches = matcher(glob)
        with self._lock:
            return [found for key, found in sorted(self._circuits.items()) if matches(key)]

    def events(
        self, *, after: str | None = None, glob: str = "*", limit: int = 1000
    ) -> list[Entry]:
        """The events after a cursor, or the newest events; oldest first."""
        matches = matcher(glob)
        after_number = None if after is None else _cursor_number(after)
        with self._lock:
            entries = [entry for entry in self._events if matches(entry.event.circuit)]
        if after_number is None:
            return entries[-limit:] if limit else []
        return [entry for entry in entries if int(entry.cursor) > after_number][:limit]

    def put(self, found: StoredCircuit, events: Sequence[Event] = ()) -> bool:
        """Save a circuit of another store; false: this store has the same or a newer version."""
        key = found.circuit.key
        with self._lock:
            known = self._circuits.get(key)
            if known is not None and known.circuit.version >= found.circuit.version:
                return False
            circuit = found.circuit
            if known is None and circuit.version <= self._highest_removed:
                # A process with the removed circuit would ignore an older version.
                found = StoredCircuit(
                    circuit._replace(version=self._highest_removed + 1), found.policy
                )
            self._circuits[key] = found
            seen = {(entry.event.circuit, entry.event.seq) for entry in self._events}
            self._write([event for event in events if (event.circuit, event.seq) not in seen])
        return True

    def forget(self, key: str) -> bool:
        """Remove one circuit and its events, whatever its state; false: it did not exist."""
        with self._lock:
            kept = [entry for entry in self._events if entry.event.circuit != key]
            self._events.clear()
            self._events.extend(kept)
            return self._remove(key)

    def retain(self, *, keep_events: int, idle_s: float) -> None:
        """Keep `keep_events` events from now on; only `vacuum` removes circuits."""
        del idle_s
        with self._lock:
            self._events = deque(self._events, maxlen=keep_events)

    def vacuum(self, *, keep_events: int, idle_s: float, now_s: float) -> Vacuumed:
        """Remove the oldest events and abandoned circuits."""
        with self._lock:
            abandoned = [
                key
                for key, found in self._circuits.items()
                if is_abandoned(found.circuit, idle_s, now_s)
            ]
            for key in abandoned:
                self._remove(key)
            for name in [name for name, (until_s, _) in self._notes.items() if until_s <= now_s]:
                del self._notes[name]
            extra = max(0, len(self._events) - keep_events)
            for _ in range(extra):
                self._events.popleft()
        return Vacuumed(len(abandoned), extra)

    def operator_digest(self) -> str | None:
        """The SHA-256 of the token that overrides need; `None`: they need none."""
        return self._operator_digest

    def set_operator_digest(self, digest: str | None, *, instead_of: str | None) -> bool:
        """Replace the digest `instead_of`, or remove it; false: the stored digest is another one."""
        with self._lock:
            if self._operator_digest != instead_of:
                return False
            self._operator_digest = digest
        return True

    def on_change(self, listener: Callable[[Circuit], object]) -> None:
        """Never called: no other process changes circuits in this process's memory."""

    def facts(self) -> dict[str, str]:
        """The numbers of circuits and events."""
        return {"circuits": str(len(self._circuits)), "events": str(len(self._events))}

    def close(self) -> None:
        """Does nothing."""

    def _fold_message(
        self,
        key: str,
        policy: Policy,
        message: Message,
        now_s: float,
        changed: dict[str, StoredCircuit],
    ) -> Step:
        """Apply one message on top of `changed`, the pending changes, and add its change to them."""
        known = changed.get(key) or self._circuits.get(key)
        circuit = _fit_to_policy(known, policy) if known else self._start(key, policy, now_s)
        done = step(policy, circuit, message, now_s)
        # A request to a circuit without records must not create it.
        if known or done.circuit is not circuit:
            changed[key] = StoredCircuit(done.circuit, policy)
        return done

    def _start(self, key: str, policy: Policy, now_s: float) -> Circuit:
        # A circuit with this name may have been removed: its events may still be here, and readers that
        # know it ignore lower versions.
        seqs = [entry.event.seq for entry in self._events if entry.event.circuit == key]
        started = policy.start(key, now_s)
        return started._replace(event_seq=max(seqs, default=0), version=self._highest_removed)

    def _remove(self, key: str) -> bool:
        found = self._circuits.pop(key, None)
        if found is not None:
            self._highest_removed = max(self._highest_removed, found.circuit.version)
        return found is not None

    def _write(self, events: Sequence[Event]) -> None:
        for event in events:
            self._last_cursor += 1
            self._events.append(Entry(str(self._last_cursor), event))


class _MemoryTransaction:
    """The changes of a transaction until it is committed. Used under the store's lock."""

    __slots__ = ("_store", "changed", "events", "keep_s", "note", "now_s")

    def __init__(self, store: MemoryStore, now_s: float, note: str | None) -> None:
        self._store = store
        self.now_s = now_s
        self.note = note
        self.keep_s = NOTE_S
        self.changed: dict[str, StoredCircuit] = {}
        self.events: list[Event] = []

    def apply(self, key: str, policy: Policy, message: Message) -> Step:
        done = self._store._fold_message(key, policy, message, self.now_s, self.changed)  # noqa: SLF001
        self.events.extend(done.events)
        return done


def _cursor_number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= LONGEST_CURSOR):
        raise ValueError(f"after is {cursor!r}: it must be a cursor of this stream")
    return int(cursor)


def _fit_to_policy(found: StoredCircuit, policy: Policy) -> Circuit:
    """The circuit with its memories converted to this policy, matched by detector."""
    if found.policy is policy or found.policy == policy:
        return found.circuit
    from switchgear._core.wire import dump_circuit, load_circuit  # noqa: PLC0415  rarely needed

    data: Any = dump_circuit(found.policy, found.circuit)
    return load_circuit(policy, data)


def _has_no_evidence(found: StoredCircuit) -> bool:
    circuit = found.circuit
    totals = circuit.totals._replace(succeeded=0)
    fresh = found.policy.start(circuit.key, circuit.seen_s)
    return circuit == fresh._replace(version=circuit.version, totals=circuit.totals) and not any(
        totals
    )
