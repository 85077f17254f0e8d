"""The file of a SQLite store: permissions, obstacles, and their errors."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from switchgear._core.errors import StoreCorrupt, StoreError, StoreUnavailable
from switchgear._core.types import Record, Signal
from switchgear._stores.sqlite import SqliteStore
from switchgear._stores.sqlite import store as connection
from unit.sqlite_places import NOW_S, OK, POLICY, in_a_fork, set_aside, sql


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits until it is time to look whether the file was moved."""
    monkeypatch.setattr(connection, "CHECK_S", 0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path, busy_timeout_s=0.05)
    yield store
    store.close()


def test_only_the_owner_may_read_the_file_and_the_folder_made_for_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = tmp_path / "project" / ".switchgear" / "state.db"
        store = SqliteStore(path)
        store.apply("api", POLICY, OK, NOW_S)
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert {"state.db", "state.db-wal", "state.db-shm"} <= modes.keys()
    assert set(modes.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    store.close()


def test_no_file_is_created_before_it_is_needed(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "new" / "state.db").close()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["a b.db", "what?.db", "50%.db", "#1.db", "ünï.db", "a'b.db"])
def test_any_file_name_works(tmp_path: Path, name: str) -> None:
    store = SqliteStore(tmp_path / name)
    store.apply("api", POLICY, OK, NOW_S)
    store.close()
    assert (tmp_path / name).exists()


def test_a_relative_path_does_not_follow_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("state.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.apply("api", POLICY, OK, NOW_S)
    store.close()
    assert (tmp_path / "state.db").exists()
    assert store.label == "sqlite:///state.db"


def test_a_symbolic_link_is_refused(tmp_path: Path, path: Path) -> None:
    path.symlink_to(tmp_path / "target.db")
    with pytest.raises(StoreError, match="the path is a symbolic link; name an ordinary file"):
        SqliteStore(path).get("api")
    assert not (tmp_path / "target.db").exists()


def test_a_folder_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match="the path is a folder"):
        SqliteStore(path).get("api")


def test_a_pipe_is_refused(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(StoreError, match="the path is no ordinary file"):
        SqliteStore(path).get("api")


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="Not a directory"):
        SqliteStore(tmp_path / "file" / "state.db").get("api")


def test_the_database_of_another_program_is_left_unchanged(path: Path) -> None:
    sql(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="database of another program"):
        SqliteStore(path).apply("api", POLICY, OK, NOW_S)
    assert path.read_bytes() == before
    assert set_aside(path) == []


# Gone


def test_a_file_that_was_removed_is_created_again(store: SqliteStore, path: Path) -> None:
    store.apply("api", POLICY, OK, NOW_S)
    for file in path.parent.iterdir():
        file.unlink()
    assert store.apply("api", POLICY, OK, NOW_S).circuit.totals.succeeded == 1
    assert sql(path, "SELECT count(*) FROM circuits") == [(1,)]


def test_a_message_that_went_into_a_file_just_moved_away_is_repeated(
    store: SqliteStore, path: Path
) -> None:
    """Another process finds the file damaged and moves it in the middle of a message."""
    store.apply("api", POLICY, OK, NOW_S)
    opened = store._link._opened
    assert opened is not None

    def move_away(statement: str) -> None:
        if statement == "COMMIT":
            opened.db.set_trace_callback(None)
            for side in ("-wal", "-shm", ""):
                Path(f"{path}{side}").rename(f"{path}.moved{side}")

    opened.db.set_trace_callback(move_away)
    done = store.apply("api", POLICY, Record(Signal(ok=False)), NOW_S)
    assert (done.circuit.totals.succeeded, done.circuit.totals.failed) == (0, 1)
    with closing(SqliteStore(path)) as other:
        found = other.get("api")
        assert found is not None
        assert found.circuit.totals.failed == 1


# Life


def test_a_closed_store_opens_again_with_the_next_message(store: SqliteStore) -> None:
    store.apply("api", POLICY, OK, NOW_S)
    store.close()
    assert store.apply("api", POLICY, OK, NOW_S).circuit.totals.succeeded == 2


def test_a_child_never_uses_the_connection_of_its_parent(store: SqliteStore, path: Path) -> None:
    store.apply("api", POLICY, OK, NOW_S)
    opened = store._link._opened
    assert opened is not None
    opened.db.execute("BEGIN IMMEDIATE")
    opened.db.execute("UPDATE circuits SET seen_s = 5.0")

    def look() -> tuple[bool, int]:
        found = store.get("api")
        assert found is not None
        mine = store._link._opened
        assert mine is not None
        store.close()
        return mine.db is not opened.db, found.circuit.totals.succeeded

    assert in_a_fork(look) == (True, 1)
    opened.db.execute("COMMIT")
    assert sql(path, "SELECT seen_s FROM circuits") == [(5.0,)]
    assert store.apply("api", POLICY, OK, NOW_S).circuit.totals.succeeded == 2


def test_a_finalizer_in_the_middle_of_a_message_gets_an_error(store: SqliteStore) -> None:
    store.apply("api", POLICY, OK, NOW_S)
    opened = store._link._opened
    assert opened is not None
    errors: list[StoreError] = []

    def interrupt(statement: str) -> None:
        if statement == "COMMIT":
            try:
                store.apply("api", POLICY, OK, NOW_S)
            except StoreError as error:
                errors.append(error)

    opened.db.set_trace_callback(interrupt)
    assert store.apply("api", POLICY, OK, NOW_S).circuit.totals.succeeded == 2
    assert [type(error) for error in errors] == [StoreUnavailable]


def test_an_unclosed_store_leaves_no_warning(path: Path) -> None:
    script = (
        "import sys\n"
        "from switchgear._stores.sqlite import SqliteStore\n"
        "store = SqliteStore(sys.argv[1])\n"
        "store.get('api')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_opening_a_store_loads_nothing_heavy() -> None:
    heavy = {"asyncio", "ctypes", "dataclasses", "inspect", "logging", "pathlib", "redis", "urllib"}
    script = (
        "import sys, os; sys.path.insert(0, 'src')\n"
        "before = set(sys.modules)\n"
        "from switchgear._stores.sqlite import SqliteStore\n"
        "store = SqliteStore(sys.argv[1]); store.now_s(); store.get('api'); store.close()\n"
        "print(*sys.modules)\n"
    )
    root = Path(__file__).parents[3]
    target = root / ".pytest_cache" / f"light-{os.getpid()}.db"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script, str(target)],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    for file in target.parent.glob(f"{target.name}*"):
        file.unlink()
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize("is_there", [True, False], ids=["to a file", "to nothing"])
def test_a_lock_file_that_is_a_link_is_refused_and_its_target_untouched(
    path: Path, tmp_path: Path, is_there: bool
) -> None:
    target = tmp_path / "of-the-user"
    if is_there:
        target.write_text("precious")
    lock = path.with_name(path.name + ".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.symlink_to(target)
    store = SqliteStore(path)
    with pytest.raises(StoreError, match=r"its lock file .*\.lock is a symbolic link; find out"):
        store.apply("api", POLICY, OK, NOW_S)
    assert target.exists() == is_there
    assert not path.exists(), "nothing was started"
    lock.unlink()
    assert store.apply("api", POLICY, OK, NOW_S).circuit.totals.succeeded == 1
    store.close()


def test_a_lock_file_that_is_a_pipe_or_a_folder_is_refused(path: Path) -> None:
    lock = path.with_name(path.name + ".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(lock)
    with pytest.raises(StoreError, match="is no ordinary file"):
        SqliteStore(path).apply("api", POLICY, OK, NOW_S)
    lock.unlink()
    lock.mkdir()
    with pytest.raises(StoreError, match="is a folder"):
        SqliteStore(path).apply("api", POLICY, OK, NOW_S)


def test_a_link_as_lock_file_is_refused_when_the_file_is_there_already(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.apply("api", POLICY, OK, NOW_S)
    lock = path.with_name(path.name + ".lock")
    lock.unlink(missing_ok=True)
    lock.symlink_to("/dev/null")
    with closing(SqliteStore(path)) as store, pytest.raises(StoreError, match="symbolic link"):
        store.get("api")
