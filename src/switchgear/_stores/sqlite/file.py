"""The file of a SQLite store: how it is created, opened, locked, and set aside if it is damaged.

SQLite synchronises access to the content. Operations on the file as a whole (creating it, moving a
damaged file away) hold a lock file next to it, so that if many processes find the same damage, only one
of them acts.
"""

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from switchgear._core.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
)
from switchgear._stores.sqlite.fold import MISSING, SUFFIX, Commit, Head, lacks_commit

if TYPE_CHECKING:
    from switchgear._stores.sqlite.store import BootClock


_LAYOUT_ERRORS = ("no such table", "no such column", "has no column named")
"""Messages of SQLite for a file whose layout does not match its version number."""
_WRITABLE = "make the file and its folder writable for this user, or choose another store"
LEAST_BYTES = 65_536
"""Free bytes below which a disk counts as full: the index of SQLite's log takes half of it."""
_SPACE = "free some space, then run `switchgear vacuum`"


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken, so that trying again would not help."""
    primary = _code(error) & 0xFF
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return True
    return primary == sqlite3.SQLITE_ERROR and any(lack in str(error) for lack in _LAYOUT_ERRORS)


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another process locked the file for too long."""
    locked = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
    return _code(error) & 0xFF in locked


def is_out_of_space(error: sqlite3.Error, folder: str) -> bool:
    """Whether the disk is full: SQLite reports this with different errors."""
    primary = _code(error) & 0xFF
    # On a full disk the file is opened read-only, so that it can still be read.
    possible_codes = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    return primary == sqlite3.SQLITE_FULL or (primary in possible_codes and is_full(folder))


def from_sqlite(label: str, error: sqlite3.Error, busy_timeout_s: float, folder: str) -> StoreError:
    """The store's error for an error of SQLite; `folder` contains the file."""
    primary = _code(error) & 0xFF
    if is_locked(error):
        return locked_too_long(label, busy_timeout_s)
    if is_out_of_space(error, folder):
        return StoreFull(label, _why_full(error), _SPACE)
    if primary == sqlite3.SQLITE_READONLY:
        return StoreReadOnly(label, str(error), _WRITABLE)
    if is_damage(error):
        what = "restore it from a backup, or move it away: a new one is created"
        return StoreCorrupt(label, str(error), what)
    what = "check that the file can be read and written, and its disk"
    return StoreUnavailable(label, f"{error} ({_name(error)})", what)


def from_system(label: str, error: OSError) -> StoreError:
    why = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreReadOnly(label, why, _WRITABLE)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StoreFull(label, why, _SPACE)
    return StoreUnavailable(label, why, "check the path, and its disk")


def locked_too_long(label: str, busy_timeout_s: float) -> StoreUnavailable:
    return StoreUnavailable(
        label,
        f"another process has kept it locked for more than {busy_timeout_s:g} s",
        "look for a stopped process, or an open transaction in a database browser",
    )


def is_full(folder: str) -> bool:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < LEAST_BYTES


def _why_full(error: sqlite3.Error) -> str:
    prefix = "" if _code(error) & 0xFF == sqlite3.SQLITE_FULL else "the disk has no space left: "
    return f"{prefix}{error}"


def _code(error: sqlite3.Error) -> int:
    # Errors that the Python module creates itself have no code.
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE))


def _name(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", type(error).__name__))


APPLICATION_ID = 0x53574752
"""The application id in the header of the file: "SWGR"."""

# Rows of circuits are long, so an ordinary table with an index on the name is better: a table without
# row ids would move long rows to overflow pages.
_LAYOUT_1 = (
    """CREATE TABLE circuits (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        phase TEXT NOT NULL,
        mode TEXT NOT NULL,
        seen_s REAL NOT NULL,
        event_seq INTEGER NOT NULL,
        state TEXT NOT NULL,
        policy TEXT NOT NULL
    )""",
    """CREATE TABLE events (
        cursor INTEGER PRIMARY KEY AUTOINCREMENT,
        circuit TEXT NOT NULL,
        seq INTEGER NOT NULL,
        event TEXT NOT NULL,
        UNIQUE (circuit, seq)
    )""",
    """CREATE TABLE unreadable (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        at_s REAL NOT NULL,
        why TEXT NOT NULL,
        state BLOB,
        policy BLOB
    )""",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    f"PRAGMA application_id = {APPLICATION_ID}",
)
_LAYOUT_2 = (
    """CREATE TABLE ledger_values (
        shelf TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (shelf, key)
    )""",
    """CREATE TABLE ledger_lines (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        shelf TEXT NOT NULL,
        key TEXT NOT NULL,
        line TEXT NOT NULL
    )""",
    "CREATE INDEX ledger_lines_by_key ON ledger_lines (shelf, key, number)",
)
MIGRATIONS: list[tuple[str, ...]] = [_LAYOUT_1, _LAYOUT_2]
"""The statements from each layout to the next; the first create layout 1 in an empty file."""


def check(db: sqlite3.Connection, label: str) -> int:
    """The layout number of the file; 0: empty. Raises `StoreCorrupt` for another program's database."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables or version or application:
            raise StoreCorrupt(
                label,
                "it is a database of another program, and was left as it is",
                "name another file",
            )
    if version > len(MIGRATIONS):
        raise StoreTooNew(
            label,
            f"its layout is number {version}, and this Switchgear reads up to {len(MIGRATIONS)}",
            "use the newer Switchgear that wrote it",
        )
    return int(version)


def migrate(db: sqlite3.Connection, label: str) -> None:
    """Migrate a file to the newest layout, each step in its own transaction."""
    while check(db, label) < len(MIGRATIONS):
        db.execute("BEGIN IMMEDIATE")
        try:
            version = check(db, label)  # again, because another process may have migrated it
            if version < len(MIGRATIONS):
                for statement in MIGRATIONS[version]:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {version + 1}")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


_UNKNOWN = "set aside"


def remember_set_aside(
    db: sqlite3.Connection, stamps: Sequence[str], reasons: Mapping[str, str]
) -> None:
    """Save when and why files were set aside before this file was created."""
    rows = [(f"corrupt:{stamp}", reasons.get(stamp) or _UNKNOWN) for stamp in stamps]
    db.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", rows)


def set_aside_stamps(db: sqlite3.Connection) -> dict[str, str]:
    """When files were set aside before this file was created, oldest first, and why ("": unknown)."""
    rows = db.execute(
        "SELECT CAST(name AS TEXT), CAST(value AS TEXT) FROM meta "
        "WHERE name >= 'corrupt:' AND name < 'corrupt;' ORDER BY name"
    ).fetchall()
    texts = [[bytes(column).decode(errors="replace") for column in row] for row in rows]
    return {name.removeprefix("corrupt:"): why.removeprefix(_UNKNOWN) for name, why in texts}


FILE_SUFFIXES = ("-wal", "-shm", "")
"""The endings of the files of a database, in the order in which they are moved: a database without its
log is still recognised as damaged, while SQLite would discard a log without its database."""


class Damaged(Exception):
    """The file is damaged; the argument explains how."""


class Opened(NamedTuple):
    """A connection and the identity of its file."""

    db: sqlite3.Connection
    identity: tuple[int, int] | None
    read_only: bool
    head: Head | None = None
    """The description of the last commit; `None`: it cannot be written."""

    def close(self) -> None:
        self.db.close()
        if self.head is not None:
            self.head.close()


class DatabaseFile:
    """Opens connections to one file. Called under the lock of its store."""

    __slots__ = ("_busy_timeout_s", "_clock", "_folder", "label", "path")

    def __init__(self, path: str, label: str, busy_timeout_s: float, clock: "BootClock") -> None:
        self.path: str = path
        self.label: str = label
        self._folder = os.path.dirname(path)
        self._busy_timeout_s = busy_timeout_s
        self._clock = clock

    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the file at the path: they change if the file is replaced. `None`: no file."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def open(self) -> Opened:
        """A connection to the file, which is created if missing and replaced if damaged."""
        exists = self._check_file()
        if exists and not os.access(self._folder, os.W_OK):
            return self._open_to_read()
        if not exists:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
        lock = self._lock()
        try:
            # Checked again: under the lock, no other process moves the file.
            if not self._check_file():
                self._create_file(self._if_removed())
            elif not os.access(self.path, os.W_OK):
                return self._open_to_read()
            try:
                return self._connect()
            except Damaged as damage:
                reasons = self._move_away(str(damage))
            except sqlite3.Error as error:
                if not is_out_of_space(error, self._folder):
                    raise
                return self._open_to_read()
            self._create_file(reasons)
            return self._connect()
        except Damaged as damage:
            raise StoreCorrupt(
                self.label, str(damage), "find out which program writes this file"
            ) from None
        finally:
            os.close(lock)

    def set_aside(self, damaged: tuple[int, int] | None, why: str = "") -> None:
        """Move the damaged file away and create a new one, unless another process has done so.

        Connections to the old file continue to use it; closing them does not affect the new file.
        """
        lock = self._lock()
        try:
            if damaged is not None and damaged == self.identity():
                self._create_file(self._move_away(why))
        finally:
            os.close(lock)

    def store_error(self, error: sqlite3.Error) -> StoreError:
        return from_sqlite(self.label, error, self._busy_timeout_s, self._folder)

    def aside_exists(self, stamp: str) -> bool:
        """Whether a file that was set aside still exists."""
        return os.path.exists(self.aside_path(stamp))

    def aside_path(self, stamp: str) -> str:
        """The path of the file that was set aside at that time."""
        return f"{self.path}.corrupt-{stamp}"

    # Under the lock file

    def _check_file(self) -> bool:
        """Whether the file exists. Raises `StoreError` for anything but a regular file at the path."""
        try:
            mode = os.lstat(self.path).st_mode
        except FileNotFoundError:
            return False
        if stat.S_ISREG(mode):
            return True
        kind = _kind(self.path)
        raise StoreError(self.label, f"the path is {kind}", "name an ordinary file")

    def _lock(self) -> int:
        import fcntl  # noqa: PLC0415  not on every system

        lock = self._open_companion("lock file", f"{self.path}.lock")
        try:
            deadline_s = time.monotonic() + self._busy_timeout_s
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() >= deadline_s:
                        raise locked_too_long(self.label, self._busy_timeout_s) from None
                    time.sleep(0.001)
                else:
                    return lock
        except BaseException:
            os.close(lock)
            raise

    def _open_companion(self, what: str, path: str) -> int:
        """Open or create a file next to the database. Raises `StoreError` unless it is a regular file.

        A link is refused, because its creator could choose which file of this user is written.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            lock = os.open(path, flags, 0o600)
        except OSError as error:
            kind = _kind(path)
            if kind is None:
                raise
            raise self._not_regular(what, path, kind) from error
        if stat.S_ISREG(os.fstat(lock).st_mode):
            return lock
        os.close(lock)
        raise self._not_regular(what, path, _kind(path) or "no ordinary file")

    def _open_head(self) -> Head | None:
        """The description of the last commit; `None`: it cannot be created, as on a full disk."""
        try:
            file = self._open_companion("head file", self.path + SUFFIX)
        except PermissionError:
            raise
        except OSError:
            return None
        return Head(file, self._clock.name)

    def _not_regular(self, what: str, path: str, kind: str) -> StoreError:
        why = f"its {what} {path} is {kind}"
        return StoreError(self.label, why, "find out where it comes from, then remove it")

    def _create_file(self, reasons: Mapping[str, str]) -> None:
        """Create a new file under another name and rename it, so that a kill leaves no partial file.

        `reasons`: why a file was just set aside, by its stamp; may be empty.
        """
        new = f"{self.path}.new"
        for side in FILE_SUFFIXES:
            if os.path.lexists(new + side):
                os.unlink(new + side)
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            db = self._connection(new, "rw")
            try:
                db.execute("PRAGMA synchronous = OFF")  # `fsync` below waits for the disk once
                db.execute("PRAGMA auto_vacuum = INCREMENTAL")
                db.execute("PRAGMA journal_mode = WAL")
                migrate(db, self.label)
                remember_set_aside(db, self._stamps(), reasons)
                self._share_clock(db)
            finally:
                db.close()
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(new, self.path)

    def _connect(self) -> Opened:
        status = os.stat(self.path)
        if not status.st_size:
            raise Damaged("the file is empty")
        # Read before the database, which other processes may write in the meantime.
        head = self._open_head()
        try:
            last = None if head is None else head.read()
            db = self._connected(last)
        except BaseException:
            if head is not None:
                head.close()
            raise
        return Opened(db, (status.st_dev, status.st_ino), read_only=False, head=head)

    def _connected(self, last: Commit | None) -> sqlite3.Connection:
        """A connection to the file. Raises `Damaged` if the file is damaged or lacks the commit `last`."""
        db = self._connection(self.path, "rw")
        try:
            # SQLite treats a truncated file as an empty database, and Switchgear never creates one.
            if not check(db, self.label):
                raise Damaged("the file is empty")
            migrate(db, self.label)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            if last is not None and lacks_commit(db, last, self._clock.name):
                raise Damaged(MISSING)
            self._share_clock(db)
        except sqlite3.Error as error:
            db.close()
            if is_damage(error):
                raise Damaged(str(error)) from error
            raise
        except UnicodeDecodeError:
            # SQLite's message quotes the damaged description of a table, which Python cannot decode.
            db.close()
            raise Damaged("the description of its tables cannot be read") from None
        except BaseException:
            db.close()
            raise
        return db

    def _share_clock(self, db: sqlite3.Connection) -> None:
        try:
            if self._clock.learn(db):
                return
            db.execute("BEGIN IMMEDIATE")
            try:
                if not self._clock.learn(db):
                    self._clock.teach(db)
            finally:
                db.execute("COMMIT")
        except ValueError:
            raise Damaged("its clock cannot be read") from None

    def _if_removed(self) -> dict[str, str]:
        """Leave an empty file aside if the missing file held commits; returns the reason by its stamp."""
        last = self._last_commit()
        return {} if last is None else self._move_away(MISSING)

    def _last_commit(self) -> Commit | None:
        """The last commit that is described; `None`: unknown, or not readable for this process."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            head = Head(os.open(self.path + SUFFIX, flags), self._clock.name)
        except OSError:
            return None
        try:
            return head.read()
        finally:
            head.close()

    def _move_away(self, why: str) -> dict[str, str]:
        """Set the file and its log aside; returns the reason by the stamp in the new name."""
        now_s = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_s)) + f".{int(now_s % 1 * 1e6):06}Z"
        while os.path.lexists(self.aside_path(stamp)):
            stamp += "+"
        for side in FILE_SUFFIXES:
            try:
                os.rename(self.path + side, self.aside_path(stamp) + side)
            except FileNotFoundError:
                if not side:  # the file was removed: an empty file takes its place
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    os.close(os.open(self.aside_path(stamp), flags, 0o600))
        try:  # noqa: SIM105  hooks do not import contextlib
            os.unlink(self.path + SUFFIX)  # it describes a commit of the file that was set aside
        except FileNotFoundError:
            pass
        return {stamp: why}

    def _stamps(self) -> list[str]:
        """The stamps of the files that were set aside and still exist, sorted."""
        start = os.path.basename(self.aside_path(""))
        names = [name for name in os.listdir(self._folder or ".") if name.startswith(start)]
        return sorted(name[len(start) :] for name in names if not name.endswith(FILE_SUFFIXES[:2]))

    # Connections

    def _open_to_read(self) -> Opened:
        """A connection for one read of a file that this process may not or cannot write."""
        last = self._last_commit()
        log = self.path + "-wal"
        logged = os.path.exists(log) and os.path.getsize(log) > 0
        db = self._connection(self.path, "ro" if logged else "ro&immutable=1")
        try:
            layout = check(db, self.label)
            if not layout:
                raise StoreCorrupt(self.label, "the file is empty", "name another file")
            if layout < len(MIGRATIONS):
                why = "its layout is an older one, and it cannot be brought up to date"
                raise StoreReadOnly(self.label, why, "open it once where it can be written")
            if last is not None and lacks_commit(db, last, self._clock.name):
                what = "open it once where it can be written: it is set aside, and a new one is created"
                raise StoreCorrupt(self.label, MISSING, what)
        except sqlite3.Error as error:
            db.close()
            raise self.store_error(error) from error
        except BaseException:
            db.close()
            raise
        return Opened(db, self.identity(), read_only=True)

    def _connection(self, path: str, mode: str) -> sqlite3.Connection:
        quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        db = sqlite3.connect(
            f"file:{quoted}?mode={mode}",
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=64,
            uri=True,
        )
        # Stored text may be damaged, and bytes can always be read.
        db.text_factory = bytes
        return db


def _kind(path: str) -> str | None:
    """The kind of a path that should be a regular file, in words; `None`: a regular file, or nothing."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder"}
    return None if stat.S_ISREG(mode) else kinds.get(stat.S_IFMT(mode), "no ordinary file")
