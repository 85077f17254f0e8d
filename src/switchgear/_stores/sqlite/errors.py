"""Errors of SQLite and of the file system as errors of a store."""

import errno
import os
import sqlite3

from switchgear._core.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

_LACKS = ("no such table", "no such column", "has no column named")
"""How SQLite says that a file is not laid out as its own version number promises."""
_WRITABLE = "make the file and its folder writable for this user, or choose another store"
LEAST_BYTES = 65_536
"""A disk with less than this is full: SQLite's index of its log alone takes half of it."""
_SPACE = "free some space, then run `switchgear vacuum`"


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken, so that trying again would not help."""
    primary = _code(error) & 0xFF
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return True
    return primary == sqlite3.SQLITE_ERROR and any(lack in str(error) for lack in _LACKS)


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another process locked the file for too long."""
    locked = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
    return _code(error) & 0xFF in locked


def is_for_want_of_space(error: sqlite3.Error, folder: str) -> bool:
    """Whether the disk is full, whatever SQLite calls it: its index has no words for that."""
    primary = _code(error) & 0xFF
    # A full file is opened to be read only, so that looking still works.
    perhaps = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    return primary == sqlite3.SQLITE_FULL or (primary in perhaps and is_full(folder))


def from_sqlite(label: str, error: sqlite3.Error, busy_timeout_s: float, folder: str) -> StoreError:
    """The store's error for one of SQLite's; `folder` is where the file lies."""
    primary = _code(error) & 0xFF
    if is_locked(error):
        return locked_too_long(label, busy_timeout_s)
    if is_for_want_of_space(error, folder):
        return StoreFull(label, _why_full(error), _SPACE)
    if primary == sqlite3.SQLITE_READONLY:
        return StoreReadOnly(label, str(error), _WRITABLE)
    if is_damage(error):
        what = "restore it from a backup, or move it away: a new one is begun"
        return StoreCorrupt(label, str(error), what)
    what = "check that the file can be read and written, and that its disk is well"
    return StoreUnavailable(label, f"{error} ({_name(error)})", what)


def from_system(label: str, error: OSError) -> StoreError:
    """The store's error for one of the file system's."""
    why = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreReadOnly(label, why, _WRITABLE)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StoreFull(label, why, _SPACE)
    return StoreUnavailable(label, why, "check the path, and that its disk is well")


def locked_too_long(label: str, busy_timeout_s: float) -> StoreUnavailable:
    """Another process kept the file locked."""
    return StoreUnavailable(
        label,
        f"another process has kept it locked for more than {busy_timeout_s:g} s",
        "look for a stopped process, or an open transaction in a database browser",
    )


def is_full(folder: str) -> bool:
    """Whether the disk on which the folder lies has no space left to speak of."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < LEAST_BYTES


def _why_full(error: sqlite3.Error) -> str:
    told = "" if _code(error) & 0xFF == sqlite3.SQLITE_FULL else "the disk has no space left: "
    return f"{told}{error}"


def _code(error: sqlite3.Error) -> int:
    # Errors that the Python module makes itself carry no code.
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE))


def _name(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", type(error).__name__))
