"""The connection of a SQLite store: one per process, used by one thread at a time.

Several would not be faster: writers wait for each other anyway, and in line is better than in a
crowd. A connection outlives neither a fork nor the file it is on.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any, TypeVar

from switchgear._core.errors import StoreTooNew, StoreUnavailable
from switchgear._stores.sqlite.file import (
    DatabaseFile,
    Opened,
    from_system,
    is_damage,
    is_locked,
    locked_too_long,
    set_aside_stamps,
)
from switchgear._stores.sqlite.rows import Commit, Newer, count
from switchgear._system.threads import ForkSafeLock

T = TypeVar("T")

LOOK_S = 0.05
"""How often a busy process looks whether its file is still the one at the path."""


def undo(db: sqlite3.Connection) -> None:
    """Leave a transaction that failed, unless SQLite has left it by itself."""
    if db.in_transaction:
        db.execute("ROLLBACK")


class Link:
    """Opens the file when it is needed, and again when it must. Thread-safe and fork-safe."""

    def __init__(self, file: DatabaseFile, busy_timeout_s: float) -> None:
        self.label: str = file.label
        self._file = file
        self._busy_timeout_s = busy_timeout_s
        self._lock = ForkSafeLock()
        self._opened: Opened | None = None
        self._opened_by = 0
        self._stamps: dict[str, str] = {}
        self._gave_up_s = 0.0
        self._look_at_s = 0.0

    def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do something with the connection, again if the file turns out to be another one."""
        if self._lock.is_mine():
            raise StoreUnavailable(
                self.label,
                "a finalizer or signal handler came in the middle of a transaction",
                "tell it later, from ordinary code",
            )
        asked_s = time.monotonic()
        with self._lock.taken():
            if self._gave_up_s > asked_s:
                # A thread behind one that gave up has waited as long.
                raise locked_too_long(self.label, self._busy_timeout_s)
            for _ in range(5):
                try:
                    opened = self._connection()
                    result = work(opened.db, *arguments)
                except sqlite3.Error as error:
                    self._look_after(error)
                    continue
                except Newer as newer:
                    raise self.too_new(newer) from None
                except BaseException:
                    self._undo()  # an interrupt right behind a BEGIN
                    raise
                if asked_s < self._look_at_s:
                    return result
                # Asked after the commit: what went into a file that was moved away is done anew.
                if opened.identity == self._file.identity():
                    self._look_at_s = asked_s + LOOK_S
                    if opened.read_only:
                        self._let_go()  # the next look must see what others wrote
                    return result
                self._let_go()
            raise StoreUnavailable(
                self.label, "the file is replaced again and again", "see what else writes it"
            )

    def write(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do something with the connection in a transaction."""
        done: T = self.run(self._write, work, *arguments)
        return done

    def _write(self, db: sqlite3.Connection, work: Callable[..., T], *arguments: Any) -> T:
        """Do something in a transaction: all or nothing."""
        try:
            db.execute("BEGIN IMMEDIATE")
            before = db.total_changes
            result = work(db, *arguments)
            number = count(db) if db.total_changes != before else 0
            at_ns = time.monotonic_ns()
            db.execute("COMMIT")
        except BaseException:
            undo(db)
            raise
        if number:
            self.committed("", number, at_ns)
        return result

    def committed(self, key: str, number: int, at_ns: int) -> None:
        """Describe a commit that was made just now. Under the lock."""
        opened = self._opened
        if opened is not None and opened.head is not None:
            opened.head.write(Commit(key, number, at_ns))

    def _undo(self) -> None:
        """Leave a transaction that an interrupt left open: it would lock out all other processes."""
        if self._opened is not None and self._opened_by == os.getpid():
            undo(self._opened.db)

    def _connection(self) -> Opened:
        opened = self._opened
        if opened is not None:
            if self._opened_by == os.getpid():
                undo(opened.db)  # a second interrupt may have come in the middle of an undo
                return opened
            _never_close(opened.db)  # the parent's: not even closing it would be safe here
            self._opened = None
        try:
            self._opened = opened = self._file.open()
        except OSError as error:
            raise from_system(self.label, error) from error
        self._opened_by = os.getpid()
        self._stamps = set_aside_stamps(opened.db)
        return opened

    def _look_after(self, error: sqlite3.Error) -> None:
        """Set a damaged file aside; raise the store's error for anything else."""
        opened = self._opened
        if opened is not None and is_damage(error) and not opened.read_only:
            try:
                self._file.set_aside(opened.identity, str(error))
            except OSError as cause:
                raise from_system(self.label, cause) from error
            except sqlite3.Error as cause:
                raise self._file.trouble(cause) from error
            self._let_go()
            return
        if opened is not None and opened.read_only:
            self._let_go()
        if is_locked(error):
            self._gave_up_s = time.monotonic()
        raise self._file.trouble(error) from error

    def _let_go(self) -> None:
        opened, self._opened = self._opened, None
        self._look_at_s = 0.0
        if opened is not None:
            if self._opened_by == os.getpid():
                opened.close()
            else:
                _never_close(opened.db)

    def too_new(self, newer: Newer) -> StoreTooNew:
        """The error for a row that a newer Switchgear wrote."""
        return StoreTooNew(self.label, str(newer), "use the newer Switchgear that wrote it")

    def asides(self) -> list[str]:
        """Files that were set aside before this one was begun, and that are still there."""
        stamps = [stamp for stamp in self._stamps if self._file.lies_aside(stamp)]
        return [self._file.aside(stamp) for stamp in stamps]

    def why_aside(self) -> str:
        """Why the newest of them was set aside, in parentheses; "": not known."""
        whys = [why for stamp, why in self._stamps.items() if self._file.lies_aside(stamp)]
        return f" ({whys[-1]})" if whys and whys[-1] else ""

    def close(self) -> None:
        """Let go of the file. Idempotent; the next use opens it again."""
        with self._lock.taken():
            self._let_go()

    def __del__(self) -> None:
        # Who was merely forgotten lets go, too, but only of what its own process opened.
        if getattr(self, "_opened", None) is not None and self._opened_by == os.getpid():
            self._let_go()


def _never_close(db: sqlite3.Connection) -> None:
    """Keep a parent's connection alive in a forked child until the child's end, and after it.

    Closing it would undo a transaction that the parent is in the middle of.
    """
    import ctypes  # noqa: PLC0415  seldom needed

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
