"""Rows of a SQLite store as circuits and events, and back. Nothing here is trusted to be whole."""

import json
import json.encoder
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, DatedRecord, Event, EventKind, Mode, Phase, Recent
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


def _encoder() -> Callable[[Any], str]:
    """JSON without spaces, and without NaN: a state that holds one could not be read again."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
    # What `JSONEncoder.encode` makes for each text, made once: a third of a message's JSON.
    escape = json.encoder.encode_basestring_ascii
    encode = make(None, _no_json, escape, None, ":", ",", False, False, False)
    return lambda value: "".join(encode(value, 0))


def _no_json(value: Any) -> NoReturn:
    raise TypeError(f"{value!r} cannot be stored as JSON")


_encode = _encoder()
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
    """A policy as it is stored."""
    return _encode(dump_policy(policy))


class Written(NamedTuple):
    """A circuit and the text of each of its fields: most messages change only a few of them."""

    circuit: Circuit | None
    texts: list[str]
    recent: "RecentText | None" = None

    def text(self) -> str:
        """The circuit as it is stored."""
        return f'{{"schema":{SCHEMA},{",".join(filter(None, self.texts))}}}'


class RecentText(NamedTuple):
    """The recent signals of a circuit, and texts of what does not change with each message."""

    recent: Recent
    base: dict[int, str]
    """The fields of `recent.base`, by their places."""
    tells: str
    """The text of `recent.tells`, without brackets."""


_RECENT = len(RESTORED_FIELDS)
"""Where `recent` is among the fields of a circuit."""
UNWRITTEN = Written(None, [])


def written(policy: Policy, circuit: Circuit, before: Written) -> Written:
    """The texts of a circuit's fields; those that have not changed are taken from `before`."""
    then, texts = before.circuit, before.texts
    new = []
    for index, name in enumerate(Circuit._fields):
        value: Any = circuit[index]
        kind = type(value)
        if then is not None and value is then[index]:
            new.append(texts[index])
        elif name == "recent":
            new.append("")
        elif kind is int or (kind is float and -_LARGEST_FLOAT <= value <= _LARGEST_FLOAT):
            new.append(f'"{name}":{value!r}')
        else:
            new.append(_field_text(policy, name, value))
    recent = circuit.recent
    if recent is None:
        return Written(circuit, new)
    if recent.base is None:
        new[_RECENT] = f'"recent":{{{_rest(recent)},"base":null,"tells":[]}}'
        return Written(circuit, new)
    parts, text = _recent_text(policy, circuit, recent, recent.base, before.recent)
    new[_RECENT] = text
    return Written(circuit, new, parts)


def _recent_text(
    policy: Policy, circuit: Circuit, recent: Recent, base: Circuit, before: RecentText | None
) -> tuple[RecentText, str]:
    base_texts: dict[int, str] = {}
    if before is not None and before.recent.base is base:
        base_texts = before.base
    text = f'"recent":{{{_rest(recent)},"base":{_difference(policy, circuit, base, base_texts)}'
    if recent.settled is not None:
        text += f',"settled":{_difference(policy, circuit, recent.settled, {})}'
    tells = _tells_text(recent.tells, before)
    return RecentText(recent, base_texts, tells), f'{text},"tells":[{tells}]}}'


def _tells_text(tells: tuple[DatedRecord, ...], before: RecentText | None) -> str:
    """The signals in order; one whose record is that of the signal before it is only its time.

    Most messages add a signal to those of the message before, whose text is known.
    """
    known = () if before is None else before.recent.tells
    start, parts, last = 0, [], None
    if known and before is not None and tells[: len(known)] == known:
        start, parts, last = len(known), [before.tells], tells[len(known) - 1].record
    for dated in tells[start:]:
        if dated.record is last:
            parts.append(f"[{dated.at_s!r}]")
        else:
            parts.append(_encode(dump_dated(dated)))
            last = dated.record
    return ",".join(parts)


def _rest(recent: Recent) -> str:
    reports = _encode(recent.reports)
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


def _field_text(policy: Policy, name: str, value: Any) -> str:
    if value == () and name == "isolated":
        return ""  # most circuits have none
    return f'"{name}":{_encode(dump_field(policy, name, value))}'


def event_text(event: Event) -> str:
    """An event as it is stored."""
    return _encode(dump_event(event))


def read_policy(stored: Any) -> Policy:
    """The inverse of `policy_text`. Raises `UnreadableRow`."""
    try:
        return load_policy(_values(stored))
    except Exception as error:
        raise UnreadableRow(f"its stored policy cannot be read: {_short(error)}") from error


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
        raise UnreadableRow(f"its stored state cannot be read: {_short(error)}") from error
    return circuit


def read_event(circuit: str, seq: int, stored: Any) -> Event:
    """The inverse of `event_text`; what cannot be read is an event that says so.

    So the numbers have no gap, and who follows the stream gets past it. Raises `Newer`.
    """
    try:
        event = load_event(_values(stored))
        if (event.circuit, event.seq) != (circuit, seq):
            raise WireError(f"it is number {event.seq} of {event.circuit!r}")
    except Exception as error:
        if isinstance(error, WireError) and "newer switchgear" in str(error):
            raise Newer(f"event {seq} of circuit {circuit!r} was {error}") from error
        why = f"this event cannot be read: {_short(error)}"
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


def _short(error: Exception) -> str:
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
        """The last commit that was described since the machine started; `None`: not known."""
        try:
            record = os.pread(self._file, _LONGEST, 0)
        except OSError:
            return None
        return _parsed(record, self._boot)

    def close(self) -> None:
        """Let go of the file."""
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


def _parsed(record: bytes, boot: bytes) -> Commit | None:
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
