"""The SQLite store: messages, and queries for readers.

Each message is one `BEGIN IMMEDIATE` transaction: load, `step`, save with the events. A message that
changes nothing only reads.
"""

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from switchgear._core.errors import StoreCorrupt, StoreError, StoreTooNew, StoreUnavailable
from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Event, Message, Record, Step
from switchgear._stores.base import (
    KEEP_EVENTS,
    Entry,
    StoredCircuit,
    Transaction,
    Vacuumed,
    Work,
    as_text,
    from_text,
)
from switchgear._stores.sqlite import fold
from switchgear._stores.sqlite.file import (
    DatabaseFile,
    Opened,
    from_system,
    is_damage,
    is_locked,
    locked_too_long,
    set_aside_stamps,
)
from switchgear._stores.sqlite.fold import (
    ROW,
    CircuitRow,
    Commit,
    Folding,
    NewerSchema,
    UnreadableRow,
    count_commit,
    remember_deletion,
    undo,
)
from switchgear._system.clock import Clock
from switchgear._system.threads import ForkSafeLock, run_in_thread
from switchgear._text.glob import is_plain, matcher, prefix

T = TypeVar("T")

CHECK_S = 0.05
"""Seconds between two checks whether the open file is still the one at the path."""


class Link:
    """The connection to the file, opened on first use and again when necessary. Thread-safe and fork-safe."""

    def __init__(self, file: DatabaseFile, busy_timeout_s: float) -> None:
        self.label: str = file.label
        self._file = file
        self._busy_timeout_s = busy_timeout_s
        self._lock = ForkSafeLock()
        self._opened: Opened | None = None
        self._opened_by = 0
        self._stamps: dict[str, str] = {}
        self._gave_up_s = 0.0
        self._check_at_s = 0.0

    def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a function with the connection, and again if the file was replaced in the meantime."""
        if self._lock.is_mine():
            raise StoreUnavailable(
                self.label,
                "a finalizer or signal handler ran in the middle of a transaction",
                "record it later, from ordinary code",
            )
        asked_s = time.monotonic()
        with self._lock:
            if self._gave_up_s > asked_s:
                # Another thread gave up after this one began to wait, so this one has waited as long.
                raise locked_too_long(self.label, self._busy_timeout_s)
            for _ in range(5):
                try:
                    opened = self._opened
                    if opened is None or self._opened_by != os.getpid() or opened.db.in_transaction:
                        opened = self._connection()
                    result = work(opened.db, *arguments)
                except sqlite3.Error as error:
                    self._set_aside_damaged(error)
                    continue
                except NewerSchema as newer:
                    raise self.too_new(newer) from None
                except BaseException:
                    self._undo()  # an interrupt may have come right after a BEGIN
                    raise
                if asked_s < self._check_at_s:
                    return result
                # Checked after the commit: work on a file that was moved away is repeated.
                if opened.identity == self._file.identity():
                    self._check_at_s = asked_s + CHECK_S
                    if opened.read_only:
                        self._close_file()  # the next read must see what other processes wrote
                    return result
                self._close_file()
            raise StoreUnavailable(
                self.label,
                "the file is replaced again and again",
                "find out which program writes it",
            )

    def write(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a function with the connection in a transaction."""
        done: T = self.run(self.transact, work, *arguments)
        return done

    def transact(self, db: sqlite3.Connection, work: Callable[..., T], *arguments: Any) -> T:
        """Run a function in a transaction: all or nothing."""
        try:
            db.execute("BEGIN IMMEDIATE")
            before = db.total_changes
            result = work(db, *arguments)
            number = count_commit(db) if db.total_changes != before else 0
            at_ns = time.monotonic_ns()
            db.execute("COMMIT")
        except BaseException:
            undo(db)
            raise
        if number:
            self.committed("", number, at_ns)
        return result

    def committed(self, key: str, number: int, at_ns: int) -> None:
        """Describe the last commit in the head file. Under the lock."""
        opened = self._opened
        if opened is not None and opened.head is not None:
            opened.head.write(Commit(key, number, at_ns))

    def _undo(self) -> None:
        """Roll back a transaction that an interrupt left open: it would block all other processes."""
        if self._opened is not None and self._opened_by == os.getpid():
            undo(self._opened.db)

    def _connection(self) -> Opened:
        opened = self._opened
        if opened is not None:
            if self._opened_by == os.getpid():
                if opened.db.in_transaction:
                    undo(opened.db)  # a second interrupt may have stopped an earlier rollback
                return opened
            # The connection belongs to the parent process, and even closing it is not safe here.
            _never_close(opened.db)
            self._opened = None
        try:
            self._opened = opened = self._file.open()
        except OSError as error:
            raise from_system(self.label, error) from error
        self._opened_by = os.getpid()
        self._stamps = set_aside_stamps(opened.db)
        return opened

    def _set_aside_damaged(self, error: sqlite3.Error) -> None:
        """Set a damaged file aside; raise the store's error for anything else."""
        opened = self._opened
        if opened is not None and is_damage(error) and not opened.read_only:
            try:
                self._file.set_aside(opened.identity, str(error))
            except OSError as cause:
                raise from_system(self.label, cause) from error
            except sqlite3.Error as cause:
                raise self._file.store_error(cause) from error
            self._close_file()
            return
        if opened is not None and opened.read_only:
            self._close_file()
        if is_locked(error):
            self._gave_up_s = time.monotonic()
        raise self._file.store_error(error) from error

    def _close_file(self) -> None:
        opened, self._opened = self._opened, None
        self._check_at_s = 0.0
        if opened is not None:
            if self._opened_by == os.getpid():
                opened.close()
            else:
                _never_close(opened.db)

    def too_new(self, newer: NewerSchema) -> StoreTooNew:
        """The error for a row that a newer Switchgear wrote."""
        return StoreTooNew(self.label, str(newer), "use the newer Switchgear that wrote it")

    def asides(self) -> list[str]:
        """The paths of the damaged files that were set aside before this file was created, and still exist."""
        stamps = [stamp for stamp in self._stamps if self._file.aside_exists(stamp)]
        return [self._file.aside_path(stamp) for stamp in stamps]

    def aside_reason(self) -> str:
        """Why the newest of these files was set aside, in parentheses; "": unknown."""
        reasons = [why for stamp, why in self._stamps.items() if self._file.aside_exists(stamp)]
        return f" ({reasons[-1]})" if reasons and reasons[-1] else ""

    def close(self) -> None:
        """Close the file. Idempotent; the next use opens it again."""
        with self._lock:
            self._close_file()

    def __del__(self) -> None:
        # Closes the file with a garbage-collected store, but only if this process opened it.
        if getattr(self, "_opened", None) is not None and self._opened_by == os.getpid():
            self._close_file()


def _never_close(db: sqlite3.Connection) -> None:
    """Keep the connection of the parent process alive in a forked child until the child ends.

    Closing it could undo a transaction that the parent has begun.
    """
    import ctypes  # noqa: PLC0415  rarely needed

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))


LINES_PAGE = 1000
"""Number of lines that are read at a time, so that the write-ahead log can shrink in between."""


class SqliteLedger:
    """The ledger of a SQLite store. Can be shared between threads and, by path, between processes."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self.label: str = link.label
        self.now_s = clock
        self._link = link

    def amend(self, shelf: str, key: str, work: Work) -> Any:
        """As in `Ledger.amend`, in a transaction that excludes other writers."""
        self.now_s()  # reads the clock of the file, which is impossible inside the transaction
        return self._link.run(self._link.transact, self._amend, shelf, key, work)

    def value(self, shelf: str, key: str) -> Any:
        return self._link.run(self._read, shelf, key)

    def keys(self, shelf: str) -> list[str]:
        return [fold.column_text(key) for (key,) in self._link.run(_keys, shelf)]

    def lines(self, shelf: str, key: str) -> Iterator[Any]:
        """All lines of a value, oldest first; a page at a time."""
        last = 0
        while True:
            page = self._link.run(_ledger_page, shelf, key, last)
            for number, line in page:
                yield from_text(self.label, f"line {number} of {shelf} {key!r}", line)
            if len(page) < LINES_PAGE:
                return
            last = page[-1][0]

    def remove(self, shelf: str, key: str) -> None:
        self._link.write(_remove, shelf, key)

    def _amend(self, db: sqlite3.Connection, shelf: str, key: str, work: Work) -> Any:
        done = work(self._read(db, shelf, key), self.now_s())
        if done.value is not None:
            db.execute(
                "INSERT INTO ledger_values (shelf, key, value) VALUES (?, ?, ?) "
                "ON CONFLICT (shelf, key) DO UPDATE SET value = excluded.value",
                (shelf, key, as_text(done.value)),
            )
            db.executemany(
                "INSERT INTO ledger_lines (shelf, key, line) VALUES (?, ?, ?)",
                [(shelf, key, as_text(line)) for line in done.lines],
            )
        return done.answer

    def _read(self, db: sqlite3.Connection, shelf: str, key: str) -> Any:
        """The value of a key, or `None`. Raises `StoreCorrupt` if it may have been in a damaged file."""
        select = "SELECT value FROM ledger_values WHERE shelf = ? AND key = ?"
        found = db.execute(select, (shelf, key)).fetchone()
        if found is not None and found[0] is not None:
            return from_text(self.label, f"{shelf} {key!r}", found[0])
        if asides := self._link.asides():
            why = f"{shelf} {key!r} may have been in a damaged file, set aside as {asides[-1]}"
            why += self._link.aside_reason()
            raise StoreCorrupt(self.label, why, "look at it, then move it away")
        return None


def _remove(db: sqlite3.Connection, shelf: str, key: str) -> None:
    for table in ("ledger_values", "ledger_lines"):
        db.execute(f"DELETE FROM {table} WHERE shelf = ? AND key = ?", (shelf, key))  # noqa: S608  constants


def _keys(db: sqlite3.Connection, shelf: str) -> list[Any]:
    return db.execute(
        "SELECT key FROM ledger_values WHERE shelf = ? ORDER BY key", (shelf,)
    ).fetchall()


def _ledger_page(db: sqlite3.Connection, shelf: str, key: str, last: int) -> list[Any]:
    return db.execute(
        "SELECT number, line FROM ledger_lines "
        "WHERE shelf = ? AND key = ? AND number > ? ORDER BY number LIMIT ?",
        (shelf, key, last, LINES_PAGE),
    ).fetchall()


SLOTS = 512
"""Number of slots; a failure of one circuit also warms the other circuits of its slot."""
_SIZE = SLOTS * 8


class Marks:
    """The times of the last failures, in a file that processes share. Thread-safe: a slot is written whole."""

    def __init__(self, path: str) -> None:
        self._path = path + ".warm"
        self._view: memoryview[float] | None = None
        self._tried = False
        self._last = "", 0

    def set(self, key: str, at_s: float) -> None:
        view = self._view if self._tried else self._opened()
        if view is not None:
            last = self._last  # read once, because another thread may replace it
            if last[0] != key:
                self._last = last = key, _slot(key)
            view[last[1]] = at_s

    def of(self, key: str) -> Callable[[], float]:
        """A function that returns when a circuit last failed; 0: unknown."""
        view = self._view if self._tried else self._opened()
        return float if view is None else partial(view.__getitem__, _slot(key))

    def _opened(self) -> "memoryview[float] | None":
        try:
            self._view = _map_file(self._path)
        except (OSError, ValueError):
            self._view = None  # read-only, full or not a regular file: works without marks
        self._tried = True
        return self._view


def _slot(key: str) -> int:
    from zlib import crc32  # noqa: PLC0415  hooks rarely need it

    return crc32(key.encode(errors="replace")) % SLOTS


def _map_file(path: str) -> "memoryview[float]":
    import mmap  # noqa: PLC0415  hooks rarely need it

    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        if status.st_size < _SIZE:
            # Without it, writing into a hole of the file on a full disk would kill the process.
            os.posix_fallocate(file, 0, _SIZE)
        return memoryview(mmap.mmap(file, _SIZE)).cast("d")
    finally:
        os.close(file)


PAGE = 500
"""Number of circuits that `find` reads at a time, so that the write-ahead log can shrink in between."""
POLICIES = 256
"""Maximum number of stored policies that are kept parsed for readers."""


_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_TIME_NAMESPACE = "/proc/self/ns/time"


def boot_name() -> str | None:
    """The name of this start of this machine; `None`: unknown. Processes with the same name share a clock."""
    try:
        with open(_BOOT_ID, encoding="utf-8") as file:
            boot = file.read().strip()
    except (OSError, ValueError):
        return None
    try:
        # A container may have its own offset of the time since the start.
        return f"{boot}/{os.stat(_TIME_NAMESPACE).st_ino}"
    except OSError:
        return boot


class BootClock:
    """Seconds since the epoch: the time since the machine started, plus an anchor that processes share.

    Setting the wall clock does not move it. Thread-safe: every operation is one read or one assignment.
    """

    __slots__ = ("anchor_s", "is_shared", "name", "read")

    def __init__(self) -> None:
        self.name: str | None = boot_name() if hasattr(time, "CLOCK_BOOTTIME") else None
        """The name of this start of this machine; `None`: unknown."""
        self.read: Clock = time.time
        if self.name is not None:
            self.read = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
        # A local anchor until the shared one is known, so that there is a time without the file.
        self.anchor_s: float = self._own_anchor_s()
        self.is_shared: bool = self.name is None

    def __call__(self) -> float:
        return self.read() + self.anchor_s

    def learn(self, db: sqlite3.Connection) -> bool:
        """Use the anchor in the file; false: there is none yet. Raises ValueError if it is not a number."""
        if self.name is None:
            return True
        found = db.execute("SELECT value FROM meta WHERE name = ?", (self._key(),)).fetchone()
        if found is None:
            return False
        self.anchor_s = float(found[0])
        self.is_shared = True
        return True

    def teach(self, db: sqlite3.Connection) -> None:
        """Write the anchor for other processes, in a transaction, after `learn` found none."""
        if not self.is_shared:  # in a new file, the shared anchor stays, so that time does not jump
            self.anchor_s = self._own_anchor_s()
        # Anchors of earlier starts of the machine are no longer needed.
        db.execute("DELETE FROM meta WHERE name >= 'clock:' AND name < 'clock;'")
        db.execute("INSERT INTO meta VALUES (?, ?)", (self._key(), repr(self.anchor_s)))
        self.is_shared = True

    def _key(self) -> str:
        return f"clock:{self.name}"

    def _own_anchor_s(self) -> float:
        if self.name is None:
            return 0.0
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class SqliteStore:
    """Keeps circuits in a file. Can be shared between threads and, by path, between processes.

    - `path`: the file; it is created with mode 0600 on first use, its folder with 0700.
    - `clock`: returns seconds since the epoch, for tests. Default: a clock that all processes of this
      machine share and that setting the wall clock does not move.
    - `busy_timeout_s` (5): seconds to wait for other processes before `StoreUnavailable` is raised.
    - `refresh_s` (0.1): maximum age in seconds of a breaker's snapshot of a circuit.
    - `keep_events` (10,000): number of events that are kept, plus or minus 256.

    A killed process loses nothing that was committed. A power failure may lose the last seconds
    (`synchronous=NORMAL`: the file stays intact, its newest transactions may be missing), because
    waiting for the disk would cost each message milliseconds.

    A file that is damaged or lacks commits is set aside, and a new file is created. New circuits then
    start with an event that reports the loss, until an operator has removed that file.

    >>> import tempfile, os
    >>> store = SqliteStore(os.path.join(tempfile.mkdtemp(), "state.db"))
    >>> store.get("provider/anthropic") is None
    True
    >>> store.close()
    """

    pushes = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        busy_timeout_s: float = 5.0,
        refresh_s: float = 0.1,
        keep_events: int = KEEP_EVENTS,
    ) -> None:
        path = os.fspath(path)
        self.label: str = f"sqlite:///{path}"
        self.refresh_s: float | None = refresh_s
        self._boot_clock = BootClock()
        self._clock = clock or self._boot_clock
        absolute = os.path.abspath(path)
        file = DatabaseFile(absolute, self.label, busy_timeout_s, self._boot_clock)
        self._link = Link(file, busy_timeout_s)
        self._folding = Folding(self._link, keep_events)
        self._policies: dict[bytes, Policy] = {}
        self._path = absolute
        self._marks = Marks(absolute)
        self._process = 0, ""

    def apply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """Load or start the circuit, apply the message, save the circuit and its events: all or nothing."""
        if isinstance(message, Record) and message.signal.ok is False and message.signal.count:
            self._marks.set(key, now_s)
        return self._link.run(self._folding.fold, key, policy, message, now_s)

    async def aapply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """`apply` in a thread, without blocking the event loop; it completes even if the task is cancelled."""
        return await run_in_thread(partial(self.apply, key, policy, message, now_s))

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        """As in `Store.transact`, in one `BEGIN IMMEDIATE` transaction."""
        done: T = self._link.run(self._folding.transact, name, self._clock, work)
        return done

    def now_s(self) -> float:
        """Seconds since the epoch, the same for all processes of this machine. Never raises."""
        clock = self._boot_clock
        if self._clock is not clock:
            return self._clock()
        if not clock.is_shared:
            with suppress(StoreError):  # without the file, the local anchor applies
                self._link.run(_open_only)
        return clock.read() + clock.anchor_s

    def get(self, key: str) -> StoredCircuit | None:
        """One circuit as stored. Raises `StoreCorrupt` if it cannot be read."""
        row = self._link.run(_load, key)
        if row is None:
            return None
        try:
            return self._stored_circuit(key, row)
        except UnreadableRow as why:
            raise self._corrupt(f"circuit {key!r}: {why}") from None

    def find(self, glob: str = "*") -> Iterator[StoredCircuit]:
        """The circuits whose names match a glob, sorted by name.

        If some circuits cannot be read, the others are returned first, and then `StoreCorrupt` is raised.
        """
        unreadable: list[str] = []
        for key, row in self._rows(glob):
            try:
                yield self._stored_circuit(key, row)
            except UnreadableRow as why:
                unreadable.append(f"{key!r}: {why}")
        if unreadable:
            number = "1 circuit" if len(unreadable) == 1 else f"{len(unreadable)} circuits"
            raise self._corrupt(f"{number} cannot be read; the first is {unreadable[0]}")

    def lost(self) -> StoreCorrupt | None:
        """Why a missing circuit may be lost, if a damaged file was set aside; `None`: nothing is lost."""
        self._link.run(_open_only)
        asides = self._link.asides()
        if not asides:
            return None
        aside = asides[-1] + self._link.aside_reason()
        why = f"a damaged file was set aside as {aside}; its content is not in the new file"
        return StoreCorrupt(self.label, why, "look at it, then move it away")

    def events(
        self, *, after: str | None = None, glob: str = "*", limit: int = 1000
    ) -> list[Entry]:
        """The events after a cursor, oldest first; without a cursor the newest events, oldest first."""
        try:
            after_number = None if after is None else int(after)
        except ValueError:
            raise ValueError(f"after is {after!r}: it must be a cursor of this stream") from None
        return self._link.run(_events, after_number, glob, limit)

    def put(self, found: StoredCircuit, events: Sequence[Event] = ()) -> bool:
        """Save a circuit of another store; false: this store has the same or a newer version."""
        return self._link.write(self._folding.put, found, events, self.now_s())

    def retain(self, *, keep_events: int, idle_s: float) -> None:
        """Keep `keep_events` events from now on; only `vacuum` removes circuits."""
        del idle_s
        self._folding.keep_events = keep_events

    def vacuum(self, *, keep_events: int, idle_s: float, now_s: float) -> Vacuumed:
        """Remove the oldest events and abandoned circuits, and release the space."""
        gone = self._link.write(_vacuum, keep_events, idle_s, now_s, self._boot_clock.name)
        self._link.run(_shrink)
        return gone

    def forget(self, key: str) -> bool:
        """Remove one circuit and its events, whatever its state; false: it did not exist."""
        return self._link.write(_forget, key, self._boot_clock.name)

    def operator_digest(self) -> str | None:
        """The SHA-256 of the token that overrides need; `None`: they need none."""
        return self._link.run(_operator_digest)

    def set_operator_digest(self, digest: str | None, *, instead_of: str | None) -> bool:
        """Replace the digest `instead_of`, or remove it; false: the stored digest is another one."""
        return self._link.write(_set_operator_digest, digest, instead_of)

    def ledger(self) -> SqliteLedger:
        """The ledger for budgets and locks."""
        return SqliteLedger(self._link, self.now_s)

    def failure_mark(self, key: str) -> Callable[[], float]:
        """A function that returns when a process last reported a failure of a circuit; 0: unknown."""
        return self._marks.of(key)

    def process(self) -> str:
        """The name under which this process reports to shared circuits."""
        if self._process[0] != os.getpid():
            self._process = os.getpid(), os.urandom(4).hex()
        return self._process[1]

    def on_change(self, listener: Callable[[Circuit], object]) -> None:
        """Does nothing, because a file does not push: breakers read it every `refresh_s` seconds."""

    def facts(self) -> dict[str, str]:
        """Versions, sizes and counts, after a check of the whole file. Raises `StoreCorrupt` on damage."""
        facts = self._link.run(_facts)
        if facts["integrity"] != "ok":
            raise self._corrupt(f"the integrity check reports {facts['integrity']!r}")
        facts["file"] = self._path
        facts["size"] = f"{os.stat(self._path).st_size} bytes"
        asides = ", ".join(self._link.asides())
        facts["set aside"] = f"{asides}{self._link.aside_reason()}" if asides else "nothing"
        return facts

    def close(self) -> None:
        """Close the file. Idempotent; the next message opens it again."""
        self._link.close()

    def _rows(self, glob: str) -> Iterator[tuple[str, CircuitRow]]:
        """The rows of circuits whose names match, a page at a time."""
        if is_plain(glob):
            row = self._link.run(_load, glob)
            if row is not None:
                yield glob, row
            return
        matches, start = matcher(glob), prefix(glob)
        page = self._link.run(_page, ">=", start)
        while page:
            for key, row in page:
                if not key.startswith(start):
                    return
                if matches(key):
                    yield key, row
            page = self._link.run(_page, ">", page[-1][0]) if len(page) == PAGE else []

    def _stored_circuit(self, key: str, row: CircuitRow) -> StoredCircuit:
        """The circuit of a row. Raises `UnreadableRow`, or `StoreTooNew`."""
        if (found := self._folding.seen(key, row)) is not None:
            return found
        policy = self._policies.get(row.policy)
        if policy is None:
            policy = fold.read_policy(row.policy)
            if len(self._policies) >= POLICIES:
                self._policies.clear()
            self._policies[row.policy] = policy
        try:
            return StoredCircuit(fold.read_circuit(policy, key, row.state), policy)
        except NewerSchema as newer:
            raise self._link.too_new(newer) from None

    def _corrupt(self, why: str) -> StoreCorrupt:
        what = "the next update sets the stored state aside and starts the circuit from scratch"
        return StoreCorrupt(self.label, why, what)


def _open_only(_: sqlite3.Connection) -> None:
    """Do nothing: `Link.run` has opened the file."""


def _load(db: sqlite3.Connection, key: str) -> CircuitRow | None:
    found = db.execute(f"SELECT {ROW} FROM circuits WHERE key = ?", (key,)).fetchone()  # noqa: S608
    return None if found is None else CircuitRow(*found)


def _page(db: sqlite3.Connection, operator: str, key: str) -> list[tuple[str, CircuitRow]]:
    select = f"SELECT key, {ROW} FROM circuits WHERE key {operator} ? ORDER BY key LIMIT {PAGE}"  # noqa: S608
    found = db.execute(select, (key,)).fetchall()
    return [(fold.column_text(key), CircuitRow(*columns)) for key, *columns in found]


def _events(db: sqlite3.Connection, after_number: int | None, glob: str, limit: int) -> list[Entry]:
    matches = matcher(glob)
    select = "SELECT cursor, circuit, seq, event FROM events WHERE cursor > ? ORDER BY cursor"
    if after_number is None:
        select += " DESC"
    entries: list[Entry] = []
    found = db.execute(select, (-1 if after_number is None else min(after_number, fold.LARGEST),))
    for cursor, circuit, seq, event in found:
        if len(entries) >= limit:
            break
        if matches(key := fold.column_text(circuit)):
            entries.append(Entry(str(cursor), fold.read_event(key, fold.column_number(seq), event)))
    found.close()
    return entries[::-1] if after_number is None else entries


def _vacuum(
    db: sqlite3.Connection, keep_events: int, idle_s: float, now_s: float, boot: str | None
) -> Vacuumed:
    (last,) = db.execute("SELECT max(cursor) FROM events").fetchone()
    events = db.execute("DELETE FROM events WHERE cursor <= ?", ((last or 0) - keep_events,))
    circuits = db.execute(
        "DELETE FROM circuits WHERE mode = 'auto' AND phase = 'closed' AND ? - seen_s >= ?",
        (now_s, idle_s),
    )
    if circuits.rowcount:
        remember_deletion(db, boot)
    fold.remove_expired_notes(db, now_s)
    return Vacuumed(circuits.rowcount, events.rowcount)


def _forget(db: sqlite3.Connection, key: str, boot: str | None) -> bool:
    db.execute("DELETE FROM events WHERE circuit = ?", (key,))
    if not db.execute("DELETE FROM circuits WHERE key = ?", (key,)).rowcount:
        return False
    remember_deletion(db, boot)
    return True


def _operator_digest(db: sqlite3.Connection) -> str | None:
    found = db.execute("SELECT value FROM meta WHERE name = 'operator_token_sha256'").fetchone()
    return None if found is None else fold.column_text(found[0])


def _set_operator_digest(
    db: sqlite3.Connection, digest: str | None, instead_of: str | None
) -> bool:
    if _operator_digest(db) != instead_of:
        return False
    db.execute("DELETE FROM meta WHERE name = 'operator_token_sha256'")
    if digest is not None:
        db.execute("INSERT INTO meta VALUES ('operator_token_sha256', ?)", (digest,))
    return True


def _shrink(db: sqlite3.Connection) -> None:
    # As a script, because with `execute` the first statement would release only one page.
    db.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")


def _facts(db: sqlite3.Connection) -> dict[str, str]:
    facts = {"sqlite": sqlite3.sqlite_version}
    for name, pragma in (
        ("journal", "journal_mode"),
        ("layout", "user_version"),
        ("integrity", "quick_check(1)"),
    ):
        facts[name] = fold.column_text(db.execute(f"PRAGMA {pragma}").fetchone()[0])
    for table in ("circuits", "events", "unreadable"):
        facts[table] = str(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608
    return facts
