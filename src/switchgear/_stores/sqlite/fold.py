"""Circuits and events as rows of a SQLite file, and messages applied to them.

- Rows are converted to values and back. Stored data may be damaged, so nothing of it is trusted.
- `Head`, a small file next to the database, describes the last commit, so that a file that lacks
  commits is noticed.
- Notes are short texts with a name and a time at which they expire.
- `Folding` loads a circuit, applies a message, and saves the circuit with its events.
"""

import json
import json.encoder
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from switchgear._core.evidence import fold
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    Circuit,
    DatedRecord,
    Event,
    EventKind,
    Failure,
    Message,
    Mode,
    Phase,
    Recent,
    Record,
    Step,
    Totals,
)
from switchgear._core.wire import (
    RESTORED_FIELDS,
    SCHEMA,
    WireError,
    dump_dated,
    dump_event,
    dump_field,
    load_circuit,
    load_event,
)
from switchgear._detectors.policy_wire import dump_policy, load_policy
from switchgear._stores.base import (
    NOTE_S,
    StoredCircuit,
    Transaction,
    is_only_time,
    last_commit,
    start_from_scratch,
)

if TYPE_CHECKING:
    from switchgear._stores.sqlite.store import Link


def _no_json(value: Any) -> NoReturn:
    raise TypeError(f"{value!r} cannot be stored as JSON")


def _encoder() -> Callable[[Any, int], Iterable[str]]:
    """An encoder of JSON without spaces, which refuses NaN because it could not be loaded again."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
        return lambda value, _: (encoder.encode(value),)
    # `JSONEncoder.encode` creates this encoder for each text; creating it once saves a third of the time.
    escape = json.encoder.encode_basestring_ascii
    encode: Callable[[Any, int], Iterable[str]] = make(
        None, _no_json, escape, None, ":", ",", False, False, False
    )
    return encode


_encode = _encoder()
LARGEST = 2**63 - 1
_LARGEST_FLOAT = sys.float_info.max
_AHEAD = 2**31
"""Minimum distance of stored numbers to the largest integer of SQLite."""


class UnreadableRow(Exception):
    """A row cannot be read; the argument explains why."""


class NewerSchema(Exception):
    """A row was written by a newer Switchgear; the argument contains the schema."""


class CircuitRow(NamedTuple):
    """A row of `circuits`; if it is damaged, the columns may have any type."""

    state: Any
    policy: Any
    id: int
    version: Any
    event_seq: Any


ROW = "state, policy, id, version, event_seq"


def policy_text(policy: Policy) -> str:
    return "".join(_encode(dump_policy(policy), 0))


class RecentText(NamedTuple):
    """The recent signals of a circuit, and the texts of their parts that rarely change."""

    recent: Recent
    base: dict[int, str]
    """The texts of the fields of `recent.base`, by the index of the field."""
    tells: str
    """The text of `recent.tells`, without brackets."""


class FieldTexts(NamedTuple):
    """A circuit and the text of each of its fields: most messages change only a few of them."""

    circuit: Circuit | None
    texts: list[str]
    recent: RecentText | None = None

    def text(self) -> str:
        return f'{{"schema":{SCHEMA},{",".join(filter(None, self.texts))}}}'


_RECENT = len(RESTORED_FIELDS)
"""The index of `recent` among the fields of a circuit."""
NO_TEXTS = FieldTexts(None, [])
_TOTALS = '"totals":{' + ",".join(f'"{name}":%d' for name in Totals._fields) + "}"


def field_texts(policy: Policy, circuit: Circuit, before: FieldTexts) -> FieldTexts:
    """The texts of a circuit's fields; unchanged fields are taken from `before`."""
    then, fields = before.circuit, Circuit._fields
    new = [""] * len(fields) if then is None else before.texts.copy()
    value: Any
    for index, value in enumerate(circuit):
        if then is not None and value is then[index]:
            continue
        kind = type(value)
        if kind is int or (kind is float and -_LARGEST_FLOAT <= value <= _LARGEST_FLOAT):
            # The most frequent case of `_field_text`, inlined.
            new[index] = f'"{fields[index]}":{_number_text(value)}'
        else:
            new[index] = _field_text(policy, fields[index], value)
    recent = circuit.recent
    if recent is None:
        return FieldTexts(circuit, new)
    if recent.base is None:
        new[_RECENT] = f'"recent":{{{_rest_text(recent)},"base":null,"tells":[]}}'
        return FieldTexts(circuit, new)
    parts, text = _recent_text(policy, circuit, recent, recent.base, before.recent)
    new[_RECENT] = text
    return FieldTexts(circuit, new, parts)


def _field_text(policy: Policy, name: str, value: Any) -> str:
    """The text of one field; "" for `recent`, which depends on the others, and for an empty `isolated`."""
    kind = type(value)
    if kind is int or (kind is float and -_LARGEST_FLOAT <= value <= _LARGEST_FLOAT):
        return f'"{name}":{_number_text(value)}'
    if isinstance(value, Totals):
        return _TOTALS % value
    if name == "failures":
        return f'"failures":[{",".join(map(_failure_text, value))}]'
    if name == "recent" or (name == "isolated" and not value):
        return ""
    plain = value if kind is str else dump_field(policy, name, value)
    return f'"{name}":{"".join(_encode(plain, 0))}'


@lru_cache(maxsize=256)
def _failure_text(failure: Failure) -> str:
    """A failure as a JSON list; cached because a message adds one failure and keeps the others."""
    return "".join(_encode(failure, 0))


_number_text = lru_cache(maxsize=64, typed=True)(repr)
"""A finite number as JSON; cached because the time of a message occurs in several fields."""


def _recent_text(
    policy: Policy, circuit: Circuit, recent: Recent, base: Circuit, before: RecentText | None
) -> tuple[RecentText, str]:
    base_texts: dict[int, str] = {}
    if before is not None and before.recent.base is base:
        base_texts = before.base
    text = (
        f'"recent":{{{_rest_text(recent)},"base":{_difference(policy, circuit, base, base_texts)}'
    )
    if recent.settled is not None:
        text += f',"settled":{_difference(policy, circuit, recent.settled, {})}'
    tells = _records_text(recent.tells, before)
    return RecentText(recent, base_texts, tells), f'{text},"tells":[{tells}]}}'


def _records_text(tells: tuple[DatedRecord, ...], before: RecentText | None) -> str:
    """The signals in order; a signal with the same record as the one before is written as its time only.

    Most messages append a signal to the signals of the message before, whose text is known.
    """
    known = () if before is None else before.recent.tells
    start, parts, last = 0, [], None
    if known and before is not None and tells[: len(known)] == known:
        start, parts, last = len(known), [before.tells], tells[len(known) - 1].record
    for dated in tells[start:]:
        if dated.record is last:
            parts.append(f"[{_number_text(dated.at_s)}]")
        else:
            parts.append("".join(_encode(dump_dated(dated), 0)))
            last = dated.record
    return ",".join(parts)


def _rest_text(recent: Recent) -> str:
    reports = "".join(_encode(recent.reports, 0))
    return f'"version":{recent.version},"final":{recent.final},"reports":{reports}'


def _difference(policy: Policy, circuit: Circuit, earlier: Circuit, known: dict[int, str]) -> str:
    """The fields of an earlier state that differ from the circuit, as JSON; adds their texts to `known`."""
    texts = []
    for index, name in enumerate(RESTORED_FIELDS):
        if earlier[index] is not circuit[index]:
            if index not in known:
                known[index] = _field_text(policy, name, earlier[index])
            texts.append(known[index])
    return f"{{{','.join(texts)}}}"


def event_text(event: Event) -> str:
    return "".join(_encode(dump_event(event), 0))


def read_policy(stored: Any) -> Policy:
    """The inverse of `policy_text`. Raises `UnreadableRow`."""
    try:
        return load_policy(_values(stored))
    except Exception as error:
        raise UnreadableRow(f"its stored policy cannot be read: {_short_error(error)}") from error


def read_circuit(policy: Policy, key: str, stored: Any) -> Circuit:
    """The circuit of a stored state. Raises `UnreadableRow`, or `NewerSchema`."""
    try:
        circuit = load_circuit(policy, _values(stored))
        if circuit.key != key:
            raise WireError(f"it is that of {circuit.key!r}")
        if max(circuit.version, circuit.event_seq) > LARGEST - _AHEAD:
            raise WireError("its numbers are too large")
    except Exception as error:
        if isinstance(error, WireError) and "newer switchgear" in str(error):
            raise NewerSchema(f"the state of circuit {key!r} was {error}") from error
        raise UnreadableRow(f"its stored state cannot be read: {_short_error(error)}") from error
    return circuit


def read_event(circuit: str, seq: int, stored: Any) -> Event:
    """The inverse of `event_text`; an unreadable event is replaced by an event that reports this.

    So the numbers have no gap, and readers of the stream can continue. Raises `NewerSchema`.
    """
    try:
        event = load_event(_values(stored))
        if (event.circuit, event.seq) != (circuit, seq):
            raise WireError(f"it is number {event.seq} of {event.circuit!r}")
    except Exception as error:
        if isinstance(error, WireError) and "newer switchgear" in str(error):
            raise NewerSchema(f"event {seq} of circuit {circuit!r} was {error}") from error
        why = f"this event cannot be read: {_short_error(error)}"
        kind, phase = EventKind.STATE_UNREADABLE, Phase.CLOSED
        return Event(circuit, seq, 0.0, kind, phase, phase, Mode.AUTO, 0, why, by="switchgear")
    return event


def column_text(column: Any) -> str:
    """A text from a column that may be damaged."""
    return column.decode(errors="replace") if isinstance(column, bytes) else str(column)


def column_number(column: Any) -> int:
    """A number from a column that may be damaged; 0 if it is not a valid number."""
    return column if isinstance(column, int) and 0 <= column <= LARGEST - _AHEAD else 0


def _values(stored: Any) -> Any:
    if not isinstance(stored, bytes):
        raise WireError(f"not a text but {type(stored).__name__}")
    return json.loads(stored.decode())


def _short_error(error: Exception) -> str:
    # Damaged texts contain lone surrogates, which can be neither stored nor printed.
    text = (str(error) or type(error).__name__).encode(errors="backslashreplace").decode()
    return text if len(text) <= 200 else f"{text[:200]}…"


SUFFIX = ".head"
MISSING = (
    "saved state is missing: the file or its write-ahead log was removed, cut short "
    "or replaced by an older copy"
)
_FORMAT = b"switchgear 1"
_LONGEST = 4096
"""Maximum size of a description in bytes; commits with longer names of circuits are not described."""

_COUNT = """INSERT INTO meta VALUES ('commits', '1')
    ON CONFLICT (name) DO UPDATE SET value = CAST(value AS INTEGER) + 1"""
_COUNTED = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'commits'"


class Commit(NamedTuple):
    """A commit: a circuit and its version, or, without a key, the number of the commit."""

    key: str
    number: int
    at_ns: int
    """The time inside the transaction, in nanoseconds on the machine's monotonic clock."""


class Head:
    """The description of the last commit to one database. Thread-safe."""

    __slots__ = ("_boot", "_file")

    def __init__(self, file: int, boot: str | None) -> None:
        self._file = file
        self._boot = _boot_text(boot)

    def write(self, commit: Commit) -> None:
        """Describe a commit. Never raises, because an older description is still correct."""
        key, number, at_ns = commit
        line = b"%s %d %d %s" % (self._boot, at_ns, number, key.encode(errors="replace"))
        # Written twice, so that a partly written description is recognised.
        record = b"%s %d\n%s\n%s\n" % (_FORMAT, len(line), line, line)
        if len(record) > _LONGEST:
            return
        try:
            os.pwrite(self._file, record, 0)
        except OSError:
            return

    def read(self) -> Commit | None:
        """The last commit that was described since the machine started; `None`: unknown."""
        try:
            record = os.pread(self._file, _LONGEST, 0)
        except OSError:
            return None
        return _parse_commit(record, self._boot)

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def count_commit(db: sqlite3.Connection) -> int:
    """Count a commit that changes no circuit, and return its number. Inside the transaction."""
    db.execute(_COUNT)
    return column_number(db.execute(_COUNTED).fetchone()[0])


def remember_deletion(db: sqlite3.Connection, boot: str | None) -> None:
    """Save when circuits were deleted, so that they do not count as lost. Inside the same transaction."""
    value = f"{_boot_text(boot).decode()} {time.monotonic_ns()}"
    db.execute("INSERT OR REPLACE INTO meta VALUES ('deleted', ?)", (value,))


def lacks_commit(db: sqlite3.Connection, commit: Commit, boot: str | None) -> bool:
    """Whether the database is older than this commit, which was made to it."""
    if not commit.key:
        found = db.execute(_COUNTED).fetchone()
        return found is None or column_number(found[0]) < commit.number
    version, deleted = db.execute(
        "SELECT (SELECT version FROM circuits WHERE key = ?), "
        "(SELECT value FROM meta WHERE name = 'deleted')",
        (commit.key,),
    ).fetchone()
    if version is not None and not (column_number(version) and version < commit.number):
        return False  # as new as the commit, or only this row is damaged
    return not _is_later(deleted, commit, _boot_text(boot))


def _is_later(deleted: object, commit: Commit, boot: bytes) -> bool:
    """Whether circuits were deleted after the commit, possibly the circuit that it changed."""
    if not isinstance(deleted, bytes):
        return False
    where, _, at_ns = deleted.partition(b" ")
    return where == boot and at_ns.isdigit() and int(at_ns) >= commit.at_ns


def _boot_text(boot: str | None) -> bytes:
    return (boot or "-").replace(" ", "_").encode()


def _parse_commit(record: bytes, boot: bytes) -> Commit | None:
    """The commit of a description; `None`: it is incomplete, or from another start of the machine."""
    start, _, rest = record.partition(b"\n")
    start, _, length = start.rpartition(b" ")
    if start != _FORMAT or not _is_number(length):
        return None
    line = rest[: int(length)]
    if not rest.startswith(b"%s\n%s\n" % (line, line)) or len(line) != int(length):
        return None
    fields = line.split(b" ", 3)
    if len(fields) != 4 or not (_is_number(fields[1]) and _is_number(fields[2])):
        return None
    where, at_ns, number, key = fields[0], int(fields[1]), int(fields[2]), fields[3]
    if where != boot or at_ns > time.monotonic_ns() or not column_number(number):
        return None
    return Commit(key.decode(errors="replace"), number, at_ns)


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) < 20  # 2**63 has 19 digits


def undo(db: sqlite3.Connection) -> None:
    """Roll back a failed transaction, unless SQLite has done so."""
    if db.in_transaction:
        db.execute("ROLLBACK")


_PREFIX = "note:"


def read_note(db: sqlite3.Connection, name: str, now_s: float) -> str | None:
    """The note with this name; `None`: there is none, or it has expired or cannot be read."""
    found = db.execute("SELECT value FROM meta WHERE name = ?", (_PREFIX + name,)).fetchone()
    if found is None or not isinstance(found[0], bytes):
        return None
    until_s, _, text = found[0].partition(b" ")
    try:
        return text.decode() if float(until_s) > now_s else None
    except ValueError:
        return None


def write_note(db: sqlite3.Connection, name: str, text: str | None, until_s: float) -> None:
    """Replace the note with this name; `None` removes it."""
    if text is None:
        db.execute("DELETE FROM meta WHERE name = ?", (_PREFIX + name,))
        return
    value = f"{until_s!r} {text}"
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_PREFIX + name, value))


def remove_expired_notes(db: sqlite3.Connection, now_s: float) -> None:
    db.execute(
        "DELETE FROM meta WHERE name >= 'note:' AND name < 'note;' AND CAST(value AS REAL) <= ?",
        (now_s,),
    )


T = TypeVar("T")

TRIM_EVERY = 256
"""Number of new events after which the oldest events are removed."""
KNOWN = 1024
"""Maximum number of circuits whose last state is kept parsed."""

_LOAD = f"SELECT {ROW} FROM circuits WHERE key = ?"  # noqa: S608  columns, not values
_INSERT = """INSERT INTO circuits (version, phase, mode, seen_s, event_seq, state, policy, key)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_UPDATE = """UPDATE circuits SET version = ?, phase = ?, mode = ?, seen_s = ?, event_seq = ?,
    state = ? WHERE id = ?"""
_UPDATE_ALL = """UPDATE circuits SET version = ?, phase = ?, mode = ?, seen_s = ?, event_seq = ?,
    state = ?, policy = ? WHERE id = ?"""
_LAST_SEQ = "SELECT max(seq) FROM events WHERE circuit = ?"


class _KnownCircuit(NamedTuple):
    """A circuit as this process last read or wrote it: an equal text needs no parsing."""

    circuit: Circuit
    policy: Policy
    state: bytes
    policy_text: bytes
    written: FieldTexts = NO_TEXTS


class Folding:
    """Applies messages on a connection. Called under the lock of its link."""

    def __init__(self, link: "Link", keep_events: int) -> None:
        self._link = link
        self.keep_events = keep_events
        self._known: dict[str, _KnownCircuit] = {}

    def fold(
        self, db: sqlite3.Connection, key: str, policy: Policy, message: Message, now_s: float
    ) -> Step:
        """Apply a message: load, `step`, save with the events; only read if nothing changes."""
        known = self._known.get(key)
        if known is None or known.policy is not policy:
            known = _fit_to_policy(known, key, policy, now_s)
        is_report = isinstance(message, Record) and message.signal.count
        if not is_report and (isinstance(message, Acquire) or is_only_time(message)):
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
                last_commit.message = message  # the interrupt came right after the commit
            undo(db)
            raise
        if seen is not None:
            if key in self._known:
                self._known[key] = seen
            else:
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
        """Apply several messages and a note in one transaction."""
        try:
            db.execute("BEGIN IMMEDIATE")
            inside = _SqliteTransaction(self, db, name, clock())
            result = work(inside)
            # If a circuit is committed as well, describing that is enough.
            number = count_commit(db) if inside.keep_note() and not inside.seen else 0
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
        """Apply a message inside a transaction; `seen` are the circuits that it has changed so far."""
        known = _fit_to_policy(seen.get(key) or self._known.get(key), key, policy, now_s)
        done, after = self._fold_in(db, known, message, now_s)
        if after is not None:
            seen[key] = after
        return done

    def _peek(
        self, db: sqlite3.Connection, known: _KnownCircuit, message: Message, now_s: float
    ) -> Step | None:
        """The result of a message that changes nothing; `None`: it needs a transaction."""
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
        """Apply a message inside a transaction."""
        seen, policy, state, policy_text, _ = known
        row = db.execute(_LOAD, (seen.key,)).fetchone()
        if row is None:
            return self._start(db, known, message, now_s)
        if row[1] != policy_text:
            self._check_policy(db, seen.key, CircuitRow(*row), now_s)
        try:
            circuit = seen if row[0] == state else read_circuit(policy, seen.key, row[0])
            done = fold(policy, circuit, message, now_s)
            if done.events and done.events[0].seq <= self._last_seq(db, seen.key):
                raise UnreadableRow("its stored events are newer than its stored state")
        except UnreadableRow as why:
            return self._start_from_scratch(
                db, known, CircuitRow(*row), message, now_s, why=str(why)
            )
        if done.circuit is circuit and row[1] == policy_text:
            return done, None
        return done, self._save(db, known, CircuitRow(*row), done.circuit, done.events)

    def _start(
        self, db: sqlite3.Connection, known: _KnownCircuit, message: Message, now_s: float
    ) -> tuple[Step, _KnownCircuit | None]:
        """Apply a message to a circuit that is not stored."""
        key, policy = known.circuit.key, known.policy
        # A circuit with this name may have been removed while its events are still stored.
        seq = self._last_seq(db, key)
        asides = self._link.asides()
        if asides:
            why = f"the store's file was damaged and is set aside as {asides[-1]}"
            why += self._link.aside_reason()
            done = start_from_scratch(policy, key, message, now_s, why=why, event_seq=seq)
        else:
            fresh = policy.start(key, now_s)._replace(event_seq=seq)
            done = fold(policy, fresh, message, now_s)
            if done.circuit is fresh:
                return done, None
        return done, self._save(db, known, None, done.circuit, done.events)

    def _start_from_scratch(
        self,
        db: sqlite3.Connection,
        known: _KnownCircuit,
        row: CircuitRow,
        message: Message,
        now_s: float,
        *,
        why: str,
    ) -> tuple[Step, _KnownCircuit | None]:
        """Apply a message to a circuit whose row cannot be read, and keep the content of the row."""
        key = known.circuit.key
        self._keep_unreadable(db, key, row, now_s, why)
        seq = max(column_number(row.event_seq), self._last_seq(db, key))
        done = start_from_scratch(known.policy, key, message, now_s, why=why, event_seq=seq)
        # Versions only increase, so that an older state is never taken for a newer one.
        version = done.circuit.version + column_number(row.version)
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
        texts = field_texts(known.policy, circuit, known.written)
        state = texts.text()
        # `_value_`, because `value` of an enum member is a slow property.
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
        return _KnownCircuit(circuit, known.policy, state.encode(), known.policy_text, texts)

    def _add_events(self, db: sqlite3.Connection, events: Sequence[Event]) -> None:
        for event in events:
            cursor = db.execute(
                "INSERT OR IGNORE INTO events (circuit, seq, event) VALUES (?, ?, ?)",
                (event.circuit, event.seq, event_text(event)),
            )
            newest = cursor.lastrowid or 0
            if not newest % TRIM_EVERY:
                db.execute("DELETE FROM events WHERE cursor <= ?", (newest - self.keep_events,))

    def seen(self, key: str, row: CircuitRow) -> StoredCircuit | None:
        """The circuit of a row without parsing; `None`: the row has changed."""
        known = self._known.get(key)
        if known and known.state == row.state and known.policy_text == row.policy:
            return StoredCircuit(known.circuit, known.policy)
        return None

    def _read(self, known: _KnownCircuit, row: CircuitRow) -> Circuit:
        """The circuit of a row, parsed only if the row has changed."""
        if row.state == known.state:
            return known.circuit
        return read_circuit(known.policy, known.circuit.key, row.state)

    def _remember(self, key: str, known: _KnownCircuit) -> None:
        if len(self._known) >= KNOWN and key not in self._known:
            self._known.clear()
        self._known[key] = known

    def _check_policy(
        self, db: sqlite3.Connection, key: str, row: CircuitRow, now_s: float
    ) -> None:
        """Keep a copy of a stored policy that cannot be read, because the current policy replaces it."""
        try:
            read_policy(row.policy)
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
        return column_number(db.execute(_LAST_SEQ, (key,)).fetchone()[0])

    def put(
        self, db: sqlite3.Connection, found: StoredCircuit, events: Sequence[Event], now_s: float
    ) -> bool:
        """Save a circuit inside a transaction, unless the store has the same or a newer version."""
        circuit, policy = found
        row = db.execute(_LOAD, (circuit.key,)).fetchone()
        if row is not None:
            row = CircuitRow(*row)
            if column_number(row.version) >= circuit.version:
                return False
            self._keep_if_unreadable(db, circuit.key, row, now_s)
        self._add_events(db, events)
        # There may be later events here, and no number is used twice.
        seq = max(circuit.event_seq, self._last_seq(db, circuit.key))
        known = _KnownCircuit(circuit, policy, b"", policy_text(policy).encode())
        self._save(db, known, row, circuit._replace(event_seq=seq), ())
        return True

    def _keep_if_unreadable(
        self, db: sqlite3.Connection, key: str, row: CircuitRow, now_s: float
    ) -> None:
        try:
            read_circuit(read_policy(row.policy), key, row.state)
        except UnreadableRow as why:
            self._keep_unreadable(db, key, row, now_s, str(why))


class _SqliteTransaction:
    """A transaction on a connection. Used under the lock of its link."""

    __slots__ = ("_before", "_db", "_folding", "_name", "keep_s", "note", "now_s", "seen")

    def __init__(self, folding: Folding, db: sqlite3.Connection, name: str, now_s: float) -> None:
        self._folding = folding
        self._db = db
        self._name = name
        self.now_s = now_s
        self.keep_s = NOTE_S
        self.note = self._before = read_note(db, name, now_s)
        self.seen: dict[str, _KnownCircuit] = {}

    def apply(self, key: str, policy: Policy, message: Message) -> Step:
        folding, db = self._folding, self._db
        return folding.fold_inside(db, key, policy, message, self.now_s, seen=self.seen)

    def keep_note(self) -> bool:
        """Write the note if it has changed; return whether it was written."""
        if self.note == self._before:
            return False
        write_note(self._db, self._name, self.note, self.now_s + self.keep_s)
        return True


def _fit_to_policy(
    known: _KnownCircuit | None, key: str, policy: Policy, now_s: float
) -> _KnownCircuit:
    """What is known of a circuit if this policy evaluated it, else a new circuit."""
    if known is not None and (known.policy is policy or known.policy == policy):
        return known
    text = policy_text(policy).encode()
    return _KnownCircuit(policy.start(key, now_s), policy, b"", text)
