"""Circuits and events in the rows of a SQLite file, and messages folded into them.

- Rows as values and back. What is read may be damaged: nothing of it is trusted to be whole.
- `Head`, a small file beside the database, describes the last commit, so that a file that lacks commits is
  noticed.
- Notes: short texts under a name, each with the time until which it is of use.
- `Folding` loads a circuit, folds a message in, and saves it with its events.
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
    """JSON without spaces, and without NaN: a state that holds one could not be read again."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
        return lambda value, _: (encoder.encode(value),)
    # What `JSONEncoder.encode` makes for each text, made once: a third of a message's JSON.
    escape = json.encoder.encode_basestring_ascii
    encode: Callable[[Any, int], Iterable[str]] = make(
        None, _no_json, escape, None, ":", ",", False, False, False
    )
    return encode


_pieces = _encoder()
LARGEST = 2**63 - 1
_LARGEST_FLOAT = sys.float_info.max
_AHEAD = 2**31
"""How far numbers of a circuit stay away from the largest that SQLite can hold."""


class UnreadableRow(Exception):
    """What is stored cannot be read: why."""


class Newer(Exception):
    """What is stored was written by a newer Switchgear: which schema."""


class CircuitRow(NamedTuple):
    """A row of `circuits`; the columns are what SQLite gives, so of any type if damaged."""

    state: Any
    policy: Any
    id: int
    version: Any
    event_seq: Any


ROW = "state, policy, id, version, event_seq"


def policy_text(policy: Policy) -> str:
    return "".join(_pieces(dump_policy(policy), 0))


class RecentText(NamedTuple):
    """The recent signals of a circuit, and texts of what does not change with each message."""

    recent: Recent
    base: dict[int, str]
    """The fields of `recent.base`, by their places."""
    tells: str
    """The text of `recent.tells`, without brackets."""


class Written(NamedTuple):
    """A circuit and the text of each of its fields: most messages change only a few of them."""

    circuit: Circuit | None
    texts: list[str]
    recent: RecentText | None = None

    def text(self) -> str:
        return f'{{"schema":{SCHEMA},{",".join(filter(None, self.texts))}}}'


_RECENT = len(RESTORED_FIELDS)
"""Where `recent` is among the fields of a circuit."""
UNWRITTEN = Written(None, [])
_TOTALS = '"totals":{' + ",".join(f'"{name}":%d' for name in Totals._fields) + "}"


def written(policy: Policy, circuit: Circuit, before: Written) -> Written:
    """The texts of a circuit's fields; those that have not changed are taken from `before`."""
    then, fields = before.circuit, Circuit._fields
    new = [""] * len(fields) if then is None else before.texts.copy()
    value: Any
    for index, value in enumerate(circuit):
        if then is not None and value is then[index]:
            continue
        kind = type(value)
        if kind is int or (kind is float and -_LARGEST_FLOAT <= value <= _LARGEST_FLOAT):
            new[index] = f'"{fields[index]}":{_number_text(value)}'  # most fields: without a call
        else:
            new[index] = _field_text(policy, fields[index], value)
    recent = circuit.recent
    if recent is None:
        return Written(circuit, new)
    if recent.base is None:
        new[_RECENT] = f'"recent":{{{_rest_text(recent)},"base":null,"tells":[]}}'
        return Written(circuit, new)
    parts, text = _recent_text(policy, circuit, recent, recent.base, before.recent)
    new[_RECENT] = text
    return Written(circuit, new, parts)


def _field_text(policy: Policy, name: str, value: Any) -> str:
    """One field of a circuit; "" for `recent`, which needs the others, and for what most have not."""
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
    return f'"{name}":{"".join(_pieces(plain, 0))}'


@lru_cache(maxsize=256)
def _failure_text(failure: Failure) -> str:
    """A failure as a JSON list; cached because a message adds one failure and keeps the others."""
    return "".join(_pieces(failure, 0))


_number_text = lru_cache(maxsize=64, typed=True)(repr)
"""A finite number as JSON; cached because a message has its time in several places."""


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
    """The signals in order; one whose record is that of the signal before it is only its time.

    Most messages add a signal to those of the message before, whose text is known.
    """
    known = () if before is None else before.recent.tells
    start, parts, last = 0, [], None
    if known and before is not None and tells[: len(known)] == known:
        start, parts, last = len(known), [before.tells], tells[len(known) - 1].record
    for dated in tells[start:]:
        if dated.record is last:
            parts.append(f"[{_number_text(dated.at_s)}]")
        else:
            parts.append("".join(_pieces(dump_dated(dated), 0)))
            last = dated.record
    return ",".join(parts)


def _rest_text(recent: Recent) -> str:
    reports = "".join(_pieces(recent.reports, 0))
    return f'"version":{recent.version},"final":{recent.final},"reports":{reports}'


def _difference(policy: Policy, circuit: Circuit, earlier: Circuit, known: dict[int, str]) -> str:
    """The fields of an earlier state of a circuit that differ from it; adds to the `known` ones."""
    texts = []
    for index, name in enumerate(RESTORED_FIELDS):
        if earlier[index] is not circuit[index]:
            if index not in known:
                known[index] = _field_text(policy, name, earlier[index])
            texts.append(known[index])
    return f"{{{','.join(texts)}}}"


def event_text(event: Event) -> str:
    return "".join(_pieces(dump_event(event), 0))


def read_policy(stored: Any) -> Policy:
    """The inverse of `policy_text`. Raises `UnreadableRow`."""
    try:
        return load_policy(_values(stored))
    except Exception as error:
        raise UnreadableRow(f"its stored policy cannot be read: {_short_error(error)}") from error


def read_circuit(policy: Policy, key: str, stored: Any) -> Circuit:
    """The inverse of `circuit_text`. Raises `UnreadableRow`, or `Newer`."""
    try:
        circuit = load_circuit(policy, _values(stored))
        if circuit.key != key:
            raise WireError(f"it is that of {circuit.key!r}")
        if max(circuit.version, circuit.event_seq) > LARGEST - _AHEAD:
            raise WireError("its numbers are too large")
    except Exception as error:
        if isinstance(error, WireError) and "newer switchgear" in str(error):
            raise Newer(f"the state of circuit {key!r} was {error}") from error
        raise UnreadableRow(f"its stored state cannot be read: {_short_error(error)}") from error
    return circuit


def read_event(circuit: str, seq: int, stored: Any) -> Event:
    """The inverse of `event_text`; an unreadable event becomes one that reports this.

    So the numbers have no gap, and readers of the stream get past it. Raises `Newer`.
    """
    try:
        event = load_event(_values(stored))
        if (event.circuit, event.seq) != (circuit, seq):
            raise WireError(f"it is number {event.seq} of {event.circuit!r}")
    except Exception as error:
        if isinstance(error, WireError) and "newer switchgear" in str(error):
            raise Newer(f"event {seq} of circuit {circuit!r} was {error}") from error
        why = f"this event cannot be read: {_short_error(error)}"
        kind, phase = EventKind.STATE_UNREADABLE, Phase.CLOSED
        return Event(circuit, seq, 0.0, kind, phase, phase, Mode.AUTO, 0, why, by="switchgear")
    return event


def name(column: Any) -> str:
    """A text from a column that may be damaged."""
    return column.decode(errors="replace") if isinstance(column, bytes) else str(column)


def whole(column: Any) -> int:
    """A number from a column that may be damaged; 0 if it is none."""
    return column if isinstance(column, int) and 0 <= column <= LARGEST - _AHEAD else 0


def _values(stored: Any) -> Any:
    if not isinstance(stored, bytes):
        raise WireError(f"not a text but {type(stored).__name__}")
    return json.loads(stored.decode())


def _short_error(error: Exception) -> str:
    # Half characters, of which damaged texts are full, can be neither stored nor printed.
    text = (str(error) or type(error).__name__).encode(errors="backslashreplace").decode()
    return text if len(text) <= 200 else f"{text[:200]}…"


SUFFIX = ".head"
MISSING = (
    "saved state is missing: the file or its write-ahead log was removed, cut short "
    "or replaced by an older copy"
)
_FORMAT = b"switchgear 1"
_LONGEST = 4096
"""Bytes of a description; circuits with names that do not fit are not described."""

_COUNT = """INSERT INTO meta VALUES ('commits', '1')
    ON CONFLICT (name) DO UPDATE SET value = CAST(value AS INTEGER) + 1"""
_COUNTED = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'commits'"


class Commit(NamedTuple):
    """A commit: a circuit and its version, or, without a key, the number of the commit."""

    key: str
    number: int
    at_ns: int
    """When it was made, inside the transaction; on the machine's monotonic clock."""


class Head:
    """The description of the last commit to one database. Thread-safe."""

    __slots__ = ("_boot", "_file")

    def __init__(self, file: int, boot: str | None) -> None:
        self._file = file
        self._boot = _boot_text(boot)

    def write(self, commit: Commit) -> None:
        """Describe a commit that was made. Never raises: an older description is as true."""
        key, number, at_ns = commit
        line = b"%s %d %d %s" % (self._boot, at_ns, number, key.encode(errors="replace"))
        # Twice, so that what is read in the middle of a write is not taken for a description.
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


def count(db: sqlite3.Connection) -> int:
    """Count a commit that changes no circuit; its number. Inside the transaction."""
    db.execute(_COUNT)
    return whole(db.execute(_COUNTED).fetchone()[0])


def remember_deletion(db: sqlite3.Connection, boot: str | None) -> None:
    """Note when circuits were deleted, which is no loss. Inside the transaction that deletes."""
    value = f"{_boot_text(boot).decode()} {time.monotonic_ns()}"
    db.execute("INSERT OR REPLACE INTO meta VALUES ('deleted', ?)", (value,))


def lacks(db: sqlite3.Connection, commit: Commit, boot: str | None) -> bool:
    """Whether the database is older than a commit that was made to it."""
    if not commit.key:
        found = db.execute(_COUNTED).fetchone()
        return found is None or whole(found[0]) < commit.number
    version, deleted = db.execute(
        "SELECT (SELECT version FROM circuits WHERE key = ?), "
        "(SELECT value FROM meta WHERE name = 'deleted')",
        (commit.key,),
    ).fetchone()
    if version is not None and not (whole(version) and version < commit.number):
        return False  # as new, or a damaged row, which is no matter of the whole file
    return not _is_later(deleted, commit, _boot_text(boot))


def _is_later(deleted: object, commit: Commit, boot: bytes) -> bool:
    """Whether circuits were deleted after a commit, perhaps the one that it changed."""
    if not isinstance(deleted, bytes):
        return False
    where, _, at_ns = deleted.partition(b" ")
    return where == boot and at_ns.isdigit() and int(at_ns) >= commit.at_ns


def _boot_text(boot: str | None) -> bytes:
    return (boot or "-").replace(" ", "_").encode()


def _parse_commit(record: bytes, boot: bytes) -> Commit | None:
    """The commit of a description. Anything else than a whole one of this start is `None`."""
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
    if where != boot or at_ns > time.monotonic_ns() or not whole(number):
        return None
    return Commit(key.decode(errors="replace"), number, at_ns)


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) < 20  # 2**63 has 19 digits


def undo(db: sqlite3.Connection) -> None:
    """Roll back a failed transaction, unless SQLite has done so."""
    if db.in_transaction:
        db.execute("ROLLBACK")


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
    db.execute(
        "DELETE FROM meta WHERE name >= 'note:' AND name < 'note;' AND CAST(value AS REAL) <= ?",
        (now_s,),
    )


T = TypeVar("T")

TRIM_EVERY = 256
KNOWN = 1024
"""Number of circuits whose last state is kept parsed."""

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

    def __init__(self, link: "Link", keep_events: int) -> None:
        self._link = link
        self.keep_events = keep_events
        self._known: dict[str, _KnownCircuit] = {}

    def fold(
        self, db: sqlite3.Connection, key: str, policy: Policy, message: Message, now_s: float
    ) -> Step:
        """Fold a message in: load, `step`, save with the events; or only read, if that is all."""
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
                last_commit.message = message  # an interrupt right behind the commit
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
        """Fold several messages and a note in one transaction."""
        try:
            db.execute("BEGIN IMMEDIATE")
            inside = _SqliteTransaction(self, db, name, clock())
            result = work(inside)
            # One of the things that are committed together is enough.
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
        known = _fit_to_policy(seen.get(key) or self._known.get(key), key, policy, now_s)
        done, after = self._fold_in(db, known, message, now_s)
        if after is not None:
            seen[key] = after
        return done

    def _peek(
        self, db: sqlite3.Connection, known: _KnownCircuit, message: Message, now_s: float
    ) -> Step | None:
        """The answer, if it changes nothing in the store."""
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
        """Fold a message into a circuit that is not stored."""
        key, policy = known.circuit.key, known.policy
        # A circuit of that name may have been vacuumed away, and its events not yet.
        seq = self._last_seq(db, key)
        asides = self._link.asides()
        if asides:
            why = f"the store's file was damaged and is set aside as {asides[-1]}"
            why += self._link.why_aside()
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
        """Fold a message into a circuit whose row cannot be read, and keep what the row held."""
        key = known.circuit.key
        self._keep_unreadable(db, key, row, now_s, why)
        seq = max(whole(row.event_seq), self._last_seq(db, key))
        done = start_from_scratch(known.policy, key, message, now_s, why=why, event_seq=seq)
        # Versions rise, so that an older state is never taken for a newer one.
        version = done.circuit.version + whole(row.version)
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
        texts = written(known.policy, circuit, known.written)
        state = texts.text()
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
        """The circuit of a row, if it is unchanged."""
        known = self._known.get(key)
        if known and known.state == row.state and known.policy_text == row.policy:
            return StoredCircuit(known.circuit, known.policy)
        return None

    def _read(self, known: _KnownCircuit, row: CircuitRow) -> Circuit:
        """The circuit of a row; parsed only if it has changed."""
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
        """A policy is replaced by the one that judges now; one that cannot be read is kept, too."""
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
        return whole(db.execute(_LAST_SEQ, (key,)).fetchone()[0])

    def put(
        self, db: sqlite3.Connection, found: StoredCircuit, events: Sequence[Event], now_s: float
    ) -> bool:
        """Save a circuit inside a transaction, unless the store has the same or a newer version."""
        circuit, policy = found
        row = db.execute(_LOAD, (circuit.key,)).fetchone()
        if row is not None:
            row = CircuitRow(*row)
            if whole(row.version) >= circuit.version:
                return False
            self._keep_if_unreadable(db, circuit.key, row, now_s)
        self._add_events(db, events)
        # The events here may have gone on further; their numbers are never used twice.
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
        folding, db = self._folding, self._db
        return folding.fold_inside(db, key, policy, message, self.now_s, seen=self.seen)

    def keep_note(self) -> bool:
        """Write the note, if it is another one; whether it was written."""
        if self.note == self._before:
            return False
        write(self._db, self._name, self.note, self.now_s + self.keep_s)
        return True


def _fit_to_policy(
    known: _KnownCircuit | None, key: str, policy: Policy, now_s: float
) -> _KnownCircuit:
    """What is known of a circuit, if this policy judged it; else a fresh one."""
    if known is not None and (known.policy is policy or known.policy == policy):
        return known
    text = policy_text(policy).encode()
    return _KnownCircuit(policy.start(key, now_s), policy, b"", text)
