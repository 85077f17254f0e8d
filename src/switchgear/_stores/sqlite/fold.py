"""Notes in a SQLite file: a short text under a name, of use until a time.

They lie in `meta`, the table for everything that is neither circuit nor event. The value begins
with the time, so that a vacuum can compare it without reading the rest.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from switchgear._core.evidence import fold
from switchgear._core.policy import Policy
from switchgear._core.types import Acquire, Circuit, Event, Message, Step
from switchgear._stores.base import (
    NOTE_S,
    StoredCircuit,
    Transaction,
    is_only_time,
    last_commit,
    start_anew,
)
from switchgear._stores.sqlite import rows
from switchgear._stores.sqlite.connection import Link, undo
from switchgear._stores.sqlite.rows import ROW, UNWRITTEN, CircuitRow, UnreadableRow, Written, count

_PREFIX = "note:"


def read(db: sqlite3.Connection, name: str, now_s: float) -> str | None:
    """The note of that name; `None`: there is none that is still of use and can be read."""
    found = db.execute("SELECT value FROM meta WHERE name = ?", (_PREFIX + name,)).fetchone()
    if found is None or not isinstance(found[0], bytes):
        return None
    until_s, _, text = found[0].partition(b" ")
    try:
        return text.decode() if float(until_s) > now_s else None
    except ValueError:
        return None


def write(db: sqlite3.Connection, name: str, text: str | None, until_s: float) -> None:
    """Keep this note instead; `None`: none."""
    if text is None:
        db.execute("DELETE FROM meta WHERE name = ?", (_PREFIX + name,))
        return
    value = f"{until_s!r} {text}"
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_PREFIX + name, value))


def forget(db: sqlite3.Connection, now_s: float) -> None:
    """Remove the notes that are of no use any more."""
    db.execute(
        "DELETE FROM meta WHERE name >= 'note:' AND name < 'note;' AND CAST(value AS REAL) <= ?",
        (now_s,),
    )


T = TypeVar("T")

TRIM_EVERY = 256
KNOWN = 1024
"""Of how many circuits the last state is kept parsed."""

_LOAD = f"SELECT {ROW} FROM circuits WHERE key = ?"  # noqa: S608  columns, not values
_INSERT = """INSERT INTO circuits (version, phase, mode, seen_s, event_seq, state, policy, key)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_UPDATE = """UPDATE circuits SET version = ?, phase = ?, mode = ?, seen_s = ?, event_seq = ?,
    state = ? WHERE id = ?"""
_UPDATE_ALL = """UPDATE circuits SET version = ?, phase = ?, mode = ?, seen_s = ?, event_seq = ?,
    state = ?, policy = ? WHERE id = ?"""
_LAST_SEQ = "SELECT max(seq) FROM events WHERE circuit = ?"


class _KnownCircuit(NamedTuple):
    """A circuit as this process last saw it stored: equal text needs no parsing."""

    circuit: Circuit
    policy: Policy
    state: bytes
    policy_text: bytes
    written: Written = UNWRITTEN


class Folding:
    """Folds messages on a connection. Called under the lock of its link."""

    def __init__(self, link: Link, keep_events: int) -> None:
        self._link = link
        self.keep_events = keep_events
        self._known: dict[str, _KnownCircuit] = {}

    def fold(
        self, db: sqlite3.Connection, key: str, policy: Policy, message: Message, now_s: float
    ) -> Step:
        """Fold a message in: load, `step`, save with the events; or only read, if that is all."""
        known = _fitted(self._known.get(key), key, policy, now_s)
        if isinstance(message, Acquire) or is_only_time(message):
            done = self._peek(db, known, message, now_s)
            if done is not None:
                return done
        committing = False
        try:
            db.execute("BEGIN IMMEDIATE")
            done, seen = self._fold_in(db, known, message, now_s)
            at_ns = time.monotonic_ns()
            committing = True
            db.execute("COMMIT")
            last_commit.message = message
        except sqlite3.Error:
            undo(db)
            raise
        except BaseException:
            if committing and not db.in_transaction:
                last_commit.message = message  # an interrupt right behind the commit
            undo(db)
            raise
        if seen is not None:
            self._remember(key, seen)
            self._link.committed(key, seen.circuit.version, at_ns)
        return done

    def transact(
        self,
        db: sqlite3.Connection,
        name: str,
        clock: Callable[[], float],
        work: Callable[[Transaction], T],
    ) -> T:
        """Fold several messages and a note in one transaction."""
        try:
            db.execute("BEGIN IMMEDIATE")
            inside = _SqliteTransaction(self, db, name, clock())
            result = work(inside)
            # Of what is committed together, one thing stands for all.
            number = count(db) if inside.keep_note() and not inside.seen else 0
            at_ns = time.monotonic_ns()
            db.execute("COMMIT")
        except BaseException:
            undo(db)
            raise
        key = ""
        for key, seen in inside.seen.items():
            self._remember(key, seen)
            number = seen.circuit.version
        if number:
            self._link.committed(key, number, at_ns)
        return result

    def fold_inside(
        self,
        db: sqlite3.Connection,
        key: str,
        policy: Policy,
        message: Message,
        now_s: float,
        *,
        seen: dict[str, _KnownCircuit],
    ) -> Step:
        """Fold a message in, inside a transaction that has seen these circuits so far."""
        known = _fitted(seen.get(key) or self._known.get(key), key, policy, now_s)
        done, after = self._fold_in(db, known, message, now_s)
        if after is not None:
            seen[key] = after
        return done

    def _peek(
        self, db: sqlite3.Connection, known: _KnownCircuit, message: Message, now_s: float
    ) -> Step | None:
        """The answer, if giving it changes nothing that is stored."""
        key, policy = known.circuit.key, known.policy
        row = db.execute(_LOAD, (key,)).fetchone()
        if row is None:
            if self._link.asides():
                return None
            circuit = policy.start(key, now_s)
        else:
            row = CircuitRow(*row)
            if row.policy != known.policy_text:
                return None
            try:
                circuit = self._read(known, row)
            except UnreadableRow:
                return None
            if circuit is not known.circuit:
                self._remember(key, known._replace(circuit=circuit, state=row.state))
        done = fold(policy, circuit, message, now_s)
        return done if done.circuit is circuit else None

    def _fold_in(
        self, db: sqlite3.Connection, known: _KnownCircuit, message: Message, now_s: float
    ) -> tuple[Step, _KnownCircuit | None]:
        """Fold a message in, inside a transaction."""
        seen, policy, state, policy_text, _ = known
        row = db.execute(_LOAD, (seen.key,)).fetchone()
        if row is None:
            return self._start(db, known, message, now_s)
        if row[1] != policy_text:
            self._check_policy(db, seen.key, CircuitRow(*row), now_s)
        try:
            circuit = seen if row[0] == state else rows.read_circuit(policy, seen.key, row[0])
            done = fold(policy, circuit, message, now_s)
            if done.events and done.events[0].seq <= self._last_seq(db, seen.key):
                raise UnreadableRow("its events have gone on further than its stored state knows")
        except UnreadableRow as why:
            return self._start_anew(db, known, CircuitRow(*row), message, now_s, why=str(why))
        if done.circuit is circuit and row[1] == policy_text:
            return done, None
        return done, self._save(db, known, CircuitRow(*row), done.circuit, done.events)

    def _start(
        self, db: sqlite3.Connection, known: _KnownCircuit, message: Message, now_s: float
    ) -> tuple[Step, _KnownCircuit | None]:
        """Fold a message into a circuit that is not stored."""
        key, policy = known.circuit.key, known.policy
        # A circuit of that name may have been vacuumed away, and its events not yet.
        seq = self._last_seq(db, key)
        asides = self._link.asides()
        if asides:
            why = f"the store's file was damaged and is set aside as {asides[-1]}"
            why += self._link.why_aside()
            done = start_anew(policy, key, message, now_s, why=why, event_seq=seq)
        else:
            fresh = policy.start(key, now_s)._replace(event_seq=seq)
            done = fold(policy, fresh, message, now_s)
            if done.circuit is fresh:
                return done, None
        return done, self._save(db, known, None, done.circuit, done.events)

    def _start_anew(
        self,
        db: sqlite3.Connection,
        known: _KnownCircuit,
        row: CircuitRow,
        message: Message,
        now_s: float,
        *,
        why: str,
    ) -> tuple[Step, _KnownCircuit | None]:
        """Fold a message into a circuit whose row cannot be read, and keep what the row held."""
        key = known.circuit.key
        self._keep_unreadable(db, key, row, now_s, why)
        seq = max(rows.whole(row.event_seq), self._last_seq(db, key))
        done = start_anew(known.policy, key, message, now_s, why=why, event_seq=seq)
        # Versions rise, so that an older state is never taken for a newer one.
        version = done.circuit.version + rows.whole(row.version)
        done = done._replace(circuit=done.circuit._replace(version=version))
        return done, self._save(db, known, row._replace(policy=None), done.circuit, done.events)

    def _save(
        self,
        db: sqlite3.Connection,
        known: _KnownCircuit,
        row: CircuitRow | None,
        circuit: Circuit,
        events: Sequence[Event],
    ) -> _KnownCircuit:
        written = rows.written(known.policy, circuit, known.written)
        state = written.text()
        # The plain texts of the enum members; `value` is a slow property.
        phase, mode = circuit.phase._value_, circuit.mode._value_
        values = (circuit.version, phase, mode, circuit.seen_s, circuit.event_seq, state)
        if row is None:
            db.execute(_INSERT, (*values, known.policy_text.decode(), circuit.key))
        elif row.policy == known.policy_text:
            db.execute(_UPDATE, (*values, row.id))
        else:
            db.execute(_UPDATE_ALL, (*values, known.policy_text.decode(), row.id))
        if events:
            self._add_events(db, events)
        return _KnownCircuit(circuit, known.policy, state.encode(), known.policy_text, written)

    def _add_events(self, db: sqlite3.Connection, events: Sequence[Event]) -> None:
        for event in events:
            cursor = db.execute(
                "INSERT OR IGNORE INTO events (circuit, seq, event) VALUES (?, ?, ?)",
                (event.circuit, event.seq, rows.event_text(event)),
            )
            newest = cursor.lastrowid or 0
            if not newest % TRIM_EVERY:
                db.execute("DELETE FROM events WHERE cursor <= ?", (newest - self.keep_events,))

    def seen(self, key: str, row: CircuitRow) -> StoredCircuit | None:
        """The circuit of a row, if it is as we saw it last."""
        known = self._known.get(key)
        if known and known.state == row.state and known.policy_text == row.policy:
            return StoredCircuit(known.circuit, known.policy)
        return None

    def _read(self, known: _KnownCircuit, row: CircuitRow) -> Circuit:
        """The circuit of a row; parsed only if it is not as we saw it last."""
        if row.state == known.state:
            return known.circuit
        return rows.read_circuit(known.policy, known.circuit.key, row.state)

    def _remember(self, key: str, known: _KnownCircuit) -> None:
        if len(self._known) >= KNOWN and key not in self._known:
            self._known.clear()
        self._known[key] = known

    def _check_policy(
        self, db: sqlite3.Connection, key: str, row: CircuitRow, now_s: float
    ) -> None:
        """A policy is replaced by the one that judges now; one that cannot be read is kept, too."""
        try:
            rows.read_policy(row.policy)
        except UnreadableRow as why:
            self._keep_unreadable(db, key, row, now_s, str(why))

    def _keep_unreadable(
        self, db: sqlite3.Connection, key: str, row: CircuitRow, now_s: float, why: str
    ) -> None:
        db.execute(
            "INSERT INTO unreadable (key, at_s, why, state, policy) VALUES (?, ?, ?, ?, ?)",
            (key, now_s, why, row.state, row.policy),
        )

    def _last_seq(self, db: sqlite3.Connection, key: str) -> int:
        return rows.whole(db.execute(_LAST_SEQ, (key,)).fetchone()[0])

    def put(
        self, db: sqlite3.Connection, found: StoredCircuit, events: Sequence[Event], now_s: float
    ) -> bool:
        """Take over a circuit inside a transaction, unless as new a version is here."""
        circuit, policy = found
        row = db.execute(_LOAD, (circuit.key,)).fetchone()
        if row is not None:
            row = CircuitRow(*row)
            if rows.whole(row.version) >= circuit.version:
                return False
            self._keep_if_unreadable(db, circuit.key, row, now_s)
        self._add_events(db, events)
        # The events here may have gone on further; their numbers are never used twice.
        seq = max(circuit.event_seq, self._last_seq(db, circuit.key))
        known = _KnownCircuit(circuit, policy, b"", rows.policy_text(policy).encode())
        self._save(db, known, row, circuit._replace(event_seq=seq), ())
        return True

    def _keep_if_unreadable(
        self, db: sqlite3.Connection, key: str, row: CircuitRow, now_s: float
    ) -> None:
        try:
            rows.read_circuit(rows.read_policy(row.policy), key, row.state)
        except UnreadableRow as why:
            self._keep_unreadable(db, key, row, now_s, str(why))


class _SqliteTransaction:
    """A transaction on a connection, under the lock of its link."""

    __slots__ = ("_before", "_db", "_folding", "_name", "keep_s", "note", "now_s", "seen")

    def __init__(self, folding: Folding, db: sqlite3.Connection, name: str, now_s: float) -> None:
        self._folding = folding
        self._db = db
        self._name = name
        self.now_s = now_s
        self.keep_s = NOTE_S
        self.note = self._before = read(db, name, now_s)
        self.seen: dict[str, _KnownCircuit] = {}

    def apply(self, key: str, policy: Policy, message: Message) -> Step:
        """Fold one message."""
        folding, db = self._folding, self._db
        return folding.fold_inside(db, key, policy, message, self.now_s, seen=self.seen)

    def keep_note(self) -> bool:
        """Write the note, if it is another one; whether it was written."""
        if self.note == self._before:
            return False
        write(self._db, self._name, self.note, self.now_s + self.keep_s)
        return True


def _fitted(known: _KnownCircuit | None, key: str, policy: Policy, now_s: float) -> _KnownCircuit:
    """What is known of a circuit, if this policy judged it; else a fresh one."""
    if known is not None and (known.policy is policy or known.policy == policy):
        return known
    text = rows.policy_text(policy).encode()
    return _KnownCircuit(policy.start(key, now_s), policy, b"", text)
