"""Detects that a database lacks commits: a small file beside it describes the last one.

A process that is killed leaves its newest commits in the write-ahead log. Without that log SQLite
opens the database as it was before them, and nothing in the database tells. So each process writes
down what it committed, after the commit: a circuit and its version, or the number of the commit.
Both only rise. A database that is behind the description has lost commits.

The description is written without a lock and without waiting for the disk. It may be older than
the database, never newer. It counts only until the machine restarts: a power cut may keep the
description and lose the commit.
"""

import os
import sqlite3
import time
from typing import NamedTuple

from switchgear._stores.sqlite import rows

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
    return rows.whole(db.execute(_COUNTED).fetchone()[0])


def remember_deletion(db: sqlite3.Connection, boot: str | None) -> None:
    """Note when circuits were deleted, which is no loss. Inside the transaction that deletes."""
    value = f"{_boot_text(boot).decode()} {time.monotonic_ns()}"
    db.execute("INSERT OR REPLACE INTO meta VALUES ('deleted', ?)", (value,))


def lacks(db: sqlite3.Connection, commit: Commit, boot: str | None) -> bool:
    """Whether the database is older than a commit that was made to it."""
    if not commit.key:
        found = db.execute(_COUNTED).fetchone()
        return found is None or rows.whole(found[0]) < commit.number
    version, deleted = db.execute(
        "SELECT (SELECT version FROM circuits WHERE key = ?), "
        "(SELECT value FROM meta WHERE name = 'deleted')",
        (commit.key,),
    ).fetchone()
    if version is not None and not (rows.whole(version) and version < commit.number):
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
    if where != boot or at_ns > time.monotonic_ns() or not rows.whole(number):
        return None
    return Commit(key.decode(errors="replace"), number, at_ns)


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) < 20  # 2**63 has 19 digits
