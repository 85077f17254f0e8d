"""A SQLite file that is locked, full or read-only: distinct errors, and nothing is half-written."""

import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from switchgear._core.errors import StoreFull, StoreReadOnly, StoreUnavailable
from switchgear._core.types import Acquire, Phase
from switchgear._stores.sqlite import SqliteStore, file
from switchgear._stores.sqlite.file import DatabaseFile
from timeouts import LIMIT_S
from unit.sqlite_places import FAILED, NOW_S, OK, POLICY, in_a_fork, lock_away


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path, busy_timeout_s=0.05)
    yield store
    store.close()


# Locked


def test_a_file_that_is_locked_too_long_is_unavailable(store: SqliteStore, path: Path) -> None:
    store.apply("api", POLICY, OK, NOW_S)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"kept it locked for more than 0\.05 s"):
            store.apply("api", POLICY, OK, NOW_S)
        assert store.apply("api", POLICY, Acquire(), NOW_S).verdict.admitted, "reading goes on"
        other.execute("ROLLBACK")
    assert store.apply("api", POLICY, OK, NOW_S).circuit.totals.succeeded == 2


def test_a_waiter_behind_one_that_gave_up_gives_up_too(store: SqliteStore, path: Path) -> None:
    store.apply("api", POLICY, OK, NOW_S)
    store._link._busy_timeout_s = 0.3
    store.close()
    waits: list[float] = []

    def tell() -> None:
        start_s = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.apply("api", POLICY, OK, NOW_S)
        waits.append(time.monotonic() - start_s)

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        threads = [threading.Thread(target=tell) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
    assert len(waits) == 20
    assert max(waits) < 20 * 0.05, "not one after the other"


def test_a_stopped_process_that_holds_the_lock_file_does_not_hang_the_others(path: Path) -> None:
    script = (
        "import fcntl, os, sys\n"
        "lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, f"{path}.lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(StoreUnavailable, match=r"locked for more than 0\.02 s"):
            SqliteStore(path, busy_timeout_s=0.02).get("api")
        holder.kill()


# Full


def test_a_full_disk_is_reported_and_nothing_is_half_written(path: Path) -> None:
    tiny = path.parent / "tiny"
    tiny.mkdir()
    mounted = (
        shutil.which("mount")
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(tiny)],
            capture_output=True,
            check=False,
        ).returncode
    )
    if not mounted:
        pytest.skip("no small disk can be mounted here; the next test limits the file instead")
    try:
        store = SqliteStore(tiny / "state.db")
        _fill(store)
        (tiny / "state.db").parent.joinpath("room").unlink(missing_ok=True)
        store.close()
    finally:
        subprocess.run(["umount", "-l", str(tiny)], check=True)


def test_on_a_full_disk_a_store_can_be_read_and_reports_why_it_cannot_be_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteStore(path)) as store:
        store.apply("api", POLICY, FAILED, NOW_S)
    fails_for_want_of_space(monkeypatch)
    with closing(SqliteStore(path)) as store:
        for _ in range(2):
            found = store.get("api")
            assert found is not None
            assert found.circuit.totals.failed == 1
            with pytest.raises(StoreFull, match=r"the disk has no space left: .*; free some space"):
                store.apply("api", POLICY, FAILED, NOW_S)
        monkeypatch.undo()
        assert store.apply("api", POLICY, FAILED, NOW_S).circuit.totals.failed == 2


def test_an_error_of_a_disk_that_has_space_is_not_called_full(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_for_want_of_space(monkeypatch)
    monkeypatch.setattr(file, "is_full", lambda _: False)
    with pytest.raises(StoreUnavailable, match="SQLITE_IOERR_SHMSIZE"):
        SqliteStore(path).get("api")


def fails_for_want_of_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail as SQLite does when there is no space for the index of its log."""

    def connect(_: DatabaseFile) -> NoReturn:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
        error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
        raise error

    monkeypatch.setattr(DatabaseFile, "_connect", connect)
    monkeypatch.setattr(file, "is_full", lambda _: True)


def test_a_file_that_may_not_grow_is_full(store: SqliteStore) -> None:
    store.get("api")
    assert store._link._opened is not None
    store._link._opened.db.execute("PRAGMA max_page_count = 40")
    _fill(store)
    assert store.vacuum(keep_events=0, idle_s=0.0, now_s=NOW_S + 1.0).circuits > 0
    assert store.apply("again", POLICY, OK, NOW_S).circuit.totals.succeeded == 1


def _fill(store: SqliteStore) -> None:
    """Record in new circuits until the disk is full; exactly the confirmed ones are stored."""
    answered = []
    with pytest.raises(StoreFull, match=r"is full: .*; free some space"):
        for number in range(10_000):
            done = store.apply(f"loop/{number:05}", POLICY, FAILED, NOW_S)
            answered.append(done.circuit.key)
    assert [found.circuit.key for found in store.find()] == answered
    assert store.facts()["integrity"] == "ok"


# Read-only


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_read_only_file_can_be_read_and_not_written(tmp_path: Path, is_closed: bool) -> None:
    path = tmp_path / "shared" / "state.db"
    writer = SqliteStore(path)
    for _ in range(3):
        writer.apply("api", POLICY, FAILED, NOW_S)
    if is_closed:
        writer.close()
    lock_away(path)

    def look() -> tuple[str, int, str]:
        store = SqliteStore(path)
        found = store.get("api")
        assert found is not None
        try:
            store.apply("api", POLICY, FAILED, NOW_S)
        except StoreReadOnly as error:
            refused = error.problem
        return found.circuit.phase, len(store.events()), refused

    assert in_a_fork(look, as_nobody=True) == (Phase.OPEN, 1, "is read-only")
    path.parent.chmod(0o755)
    writer.close()


def test_a_folder_without_write_permission_is_read_only(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    lock_away(folder / "state.db")
    for path in (folder / "state.db", folder / "deeper" / "state.db"):
        store = SqliteStore(path)
        error = in_a_fork(partial(store.get, "api"), as_nobody=True)
        assert isinstance(error, StoreReadOnly), error
        assert "writable for this user" in str(error)
    folder.chmod(0o755)
