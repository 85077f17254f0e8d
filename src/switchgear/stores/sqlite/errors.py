"""What SQLite and the file system say went wrong, told apart as errors of a store."""

import errno
import sqlite3

from switchgear.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

_LACKS = ("no such table", "no such column", "has no column named")
"""How SQLite says that a file is not laid out as its own version number promises."""
_WRITABLE = "make the file and its folder writable for this user, or choose another store"
_SPACE = "free some space, then run `switchgear vacuum`"


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken, so that trying again would not help."""
    primary = _code(error) & 0xFF
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return True
    return primary == sqlite3.SQLITE_ERROR and any(lack in str(error) for lack in _LACKS)


def is_locked(error: sqlite3.Error) -> bool:
    """Whether somebody else had the file for too long."""
    locked = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
    return _code(error) & 0xFF in locked


def from_sqlite(label: str, error: sqlite3.Error, busy_timeout_s: float) -> StoreError:
    """The store's error for one of SQLite's."""
    primary = _code(error) & 0xFF
    if is_locked(error):
        return locked_too_long(label, busy_timeout_s)
    if primary == sqlite3.SQLITE_FULL:
        return StoreFull(label, str(error), _SPACE)
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
    """Somebody else kept the file to himself."""
    return StoreUnavailable(
        label,
        f"another process has kept it locked for more than {busy_timeout_s:g} s",
        "look for a stopped process, or an open transaction in a database browser",
    )


def _code(error: sqlite3.Error) -> int:
    # Errors that the Python module makes itself carry no code.
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE))


def _name(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", type(error).__name__))
