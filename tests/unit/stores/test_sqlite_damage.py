"""Damage in a SQLite file or row: set aside, reported, never treated as "closed", never lost."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stress.crew import together
from switchgear import Panel
from switchgear._core.errors import StoreCorrupt, StoreTooNew, StoreUnavailable
from switchgear._core.policy import Policy
from switchgear._core.types import Acquire, EventKind, Mode, Override, Phase, Signal
from switchgear._core.wire import SCHEMA
from switchgear._detectors import ConsecutiveFailures
from switchgear._stores.base import StoredCircuit
from switchgear._stores.sqlite import SqliteStore, file
from switchgear._stores.sqlite import store as connection
from unit.sqlite_places import (
    FAILED,
    NOW_S,
    OK,
    POLICY,
    STRICT,
    in_a_fork,
    lock_away,
    set_aside,
    sql,
)

UNREADABLE = EventKind.STATE_UNREADABLE


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits until it is time to look whether the file was moved."""
    monkeypatch.setattr(connection, "CHECK_S", 0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


def tripped(store: SqliteStore) -> None:
    for _ in range(3):
        store.apply("api", POLICY, FAILED, NOW_S)


def overwrite_pages(path: Path) -> None:
    """As a bad disk does: the header is whole, the pages behind it are not."""
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))


# Whole files


@pytest.mark.parametrize("content", [b"", b"x", b"not a database at all\n" * 500, b"\0" * 8192])
def test_a_file_that_is_not_a_database_is_set_aside_and_reported(
    path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    with closing(SqliteStore(path)) as store:
        done = store.apply("api", POLICY, OK, NOW_S)
    (aside,) = set_aside(path)
    assert aside.read_bytes() == content
    assert [event.kind for event in done.events] == [UNREADABLE]
    assert str(aside) in done.events[0].reason
    assert done.circuit.phase is Phase.CLOSED


def test_a_strict_policy_refuses_until_an_operator_releases_it(path: Path) -> None:
    path.write_bytes(b"x")
    with closing(SqliteStore(path)) as store:
        assert not store.apply("api", STRICT, Acquire(), NOW_S).verdict.admitted
        assert not store.apply("api", STRICT, Acquire(), NOW_S + 1e6).verdict.admitted
        store.apply("api", STRICT, Override("ada", "seen to", mode=Mode.AUTO), NOW_S)
        assert store.apply("api", STRICT, Acquire(), NOW_S).verdict.admitted


def test_damage_found_during_use_is_set_aside(store: SqliteStore, path: Path) -> None:
    tripped(store)
    store.close()
    overwrite_pages(path)
    done = store.apply("api", POLICY, OK, NOW_S)
    assert done.events[0].kind is UNREADABLE
    assert len(set_aside(path)) == 1
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]


def test_the_log_of_a_damaged_file_is_kept_with_it(store: SqliteStore, path: Path) -> None:
    tripped(store)
    log = Path(f"{path}-wal").read_bytes()
    shutil.copy(f"{path}-wal", f"{path}.copy")
    assert store._link._opened is not None
    store._link._opened.db.execute("DROP TABLE events")
    done = store.apply("other", POLICY, Override("ada", "drill", mode=Mode.SHADOW), NOW_S)
    assert done.events[0].kind is UNREADABLE
    (aside,) = set_aside(path)
    assert Path(f"{aside}-wal").read_bytes().startswith(log[:32])
    assert sql(aside, "SELECT key FROM circuits") == [("api",)]


def test_circuits_start_from_scratch_until_the_file_that_was_set_aside_is_removed(
    path: Path,
) -> None:
    path.write_bytes(b"x")
    with closing(SqliteStore(path)) as store:
        assert store.apply("one", POLICY, OK, NOW_S).events
    with closing(SqliteStore(path)) as store:
        assert store.apply("two", POLICY, OK, NOW_S).events, "another process says so, too"
        assert store.apply("two", POLICY, OK, NOW_S).events == (), "once"
        assert str(set_aside(path)[0]) in store.facts()["set aside"]
        set_aside(path)[0].unlink()
        assert store.apply("three", POLICY, OK, NOW_S).events == ()
        assert store.facts()["set aside"] == "nothing"


def test_a_kill_between_setting_aside_and_creating_the_new_file_is_recorded(path: Path) -> None:
    path.with_name("state.db.corrupt-20260101T000000.000000Z").write_bytes(b"x")
    with closing(SqliteStore(path)) as store:
        done = store.apply("api", POLICY, OK, NOW_S)
    assert [event.kind for event in done.events] == [UNREADABLE]


def test_concurrent_processes_set_a_damaged_file_aside_once(path: Path) -> None:
    path.write_bytes(b"x" * 5000)
    stores = [SqliteStore(path) for _ in range(8)]
    together(*[lambda store=store: store.apply("api", POLICY, FAILED, NOW_S) for store in stores])
    assert len(set_aside(path)) == 1
    found = stores[0].get("api")
    assert found is not None
    assert found.circuit.totals.failed == 8
    assert [entry.event.kind for entry in stores[0].events()].count(UNREADABLE) == 1
    for store in stores:
        store.close()


def test_the_second_process_that_finds_the_damage_leaves_the_new_file_alone(path: Path) -> None:
    with closing(SqliteStore(path)) as one, closing(SqliteStore(path)) as other:
        tripped(one)
        tripped(other)
        for store in (one, other):
            assert store._link._opened is not None
            store._link._file.set_aside(store._link._opened.identity)
            store.apply("api", POLICY, OK, NOW_S)
    assert len(set_aside(path)) == 1


def test_a_process_with_the_old_file_continues_with_the_new_one(
    store: SqliteStore, path: Path
) -> None:
    tripped(store)

    def move() -> str:
        with closing(SqliteStore(path)) as other:
            other.get("api")
            opened = other._link._opened
            assert opened is not None
            other._link._file.set_aside(opened.identity)
            return other.apply("api", POLICY, FAILED, NOW_S).events[0].kind

    assert in_a_fork(move) == UNREADABLE
    done = store.apply("api", POLICY, FAILED, NOW_S)
    assert done.circuit.totals.failed == 2, "not in the old file, where there were three"
    store.close()
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("content", [b"x", b"x" * 5000])
def test_a_damaged_file_that_cannot_be_set_aside_is_reported(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "shared" / "state.db"
    path.parent.mkdir()
    path.write_bytes(content)
    lock_away(path)
    store = SqliteStore(path)
    error = in_a_fork(lambda: store.apply("api", POLICY, OK, NOW_S), as_nobody=True)
    assert isinstance(error, StoreCorrupt), error
    assert path.read_bytes() == content


# Rows


@pytest.mark.parametrize(
    "state",
    [
        "",
        "null",
        "{}",
        "[" * 100_000,
        '{"schema": 1}',
        b"\xff\xfe",
        b"",
        12,
        2.5,
        f'{{"schema":{SCHEMA},"key":"\\ud800"}}',
    ],
)
def test_an_unreadable_row_is_set_aside_and_its_circuit_starts_from_scratch(
    store: SqliteStore, path: Path, state: object
) -> None:
    tripped(store)
    store.apply("other", POLICY, OK, NOW_S)
    sql(path, "UPDATE circuits SET state = ? WHERE key = 'api'", state)
    ((policy,),) = sql(path, "SELECT CAST(policy AS BLOB) FROM circuits WHERE key = 'api'")
    done = store.apply("api", POLICY, FAILED, NOW_S)
    assert [event.kind for event in done.events] == [UNREADABLE]
    assert done.events[0].seq == 2, "its events are numbered on"
    assert done.circuit.version > 3, "nobody takes the older state for the newer"
    assert done.circuit.totals.failed == 1
    kept = sql(path, "SELECT key, state, policy FROM unreadable")
    raw = state if isinstance(state, bytes) else str(state).encode()
    assert kept == [("api", raw, policy)]
    assert store.apply("other", POLICY, OK, NOW_S).circuit.totals.succeeded == 2


def test_a_strict_circuit_whose_row_cannot_be_read_refuses(store: SqliteStore, path: Path) -> None:
    store.apply("api", STRICT, OK, NOW_S)
    sql(path, "UPDATE circuits SET state = '{}'")
    assert not store.apply("api", STRICT, Acquire(), NOW_S).verdict.admitted


def test_the_state_of_another_circuit_is_rejected(store: SqliteStore, path: Path) -> None:
    tripped(store)
    store.apply("calm", POLICY, OK, NOW_S)
    sql(path, "UPDATE circuits SET state = (SELECT state FROM circuits WHERE key = 'calm')")
    assert store.apply("api", POLICY, OK, NOW_S).events[0].kind is UNREADABLE


def test_a_state_older_than_its_events_is_rejected(store: SqliteStore, path: Path) -> None:
    store.apply("api", POLICY, OK, NOW_S)
    ((old,),) = sql(path, "SELECT state FROM circuits")
    tripped(store)
    sql(path, "UPDATE circuits SET state = ?", old)
    for _ in range(3):
        done = store.apply("api", POLICY, FAILED, NOW_S)
    assert [entry.event.seq for entry in store.events()] == [1, 2]
    assert done.circuit.event_seq == 2


def test_an_unreadable_policy_is_set_aside_and_replaced(store: SqliteStore, path: Path) -> None:
    tripped(store)
    sql(path, "UPDATE circuits SET policy = 'rubbish'")
    with pytest.raises(StoreCorrupt, match=r"circuit 'api': its stored policy cannot be read"):
        store.get("api")
    assert not store.apply("api", POLICY, Acquire(), NOW_S).verdict.admitted, "the state is whole"
    assert sql(path, "SELECT policy FROM unreadable") == [(b"rubbish",)]
    found = store.get("api")
    assert found is not None
    assert found.policy == POLICY


def test_circuits_that_cannot_be_read_do_not_hide_the_others(
    store: SqliteStore, path: Path
) -> None:
    for name in ("a", "b", "c"):
        store.apply(name, POLICY, OK, NOW_S)
    sql(path, "UPDATE circuits SET state = 'x' WHERE key = 'b'")
    seen: list[str] = []
    with pytest.raises(StoreCorrupt, match=r"1 circuit cannot be read; the first is 'b'"):
        seen.extend(found.circuit.key for found in store.find())
    assert seen == ["a", "c"]


def test_an_event_that_cannot_be_read_leaves_no_gap(store: SqliteStore, path: Path) -> None:
    for mode in (Mode.SHADOW, Mode.HELD_OPEN, Mode.AUTO):
        store.apply("api", POLICY, Override("ada", "drill", mode=mode), NOW_S)
    sql(path, "UPDATE events SET event = x'ff00' WHERE seq = 2")
    first, second, third = [entry.event for entry in store.events()]
    assert (first.seq, second.seq, third.seq) == (1, 2, 3)
    assert second.kind is UNREADABLE
    assert second.reason.startswith("this event cannot be read")


def test_an_imported_circuit_replaces_a_row_that_cannot_be_read_and_keeps_it(
    store: SqliteStore, path: Path
) -> None:
    tripped(store)
    found = store.get("api")
    assert found is not None
    sql(path, "UPDATE circuits SET state = 'x'")
    assert store.put(StoredCircuit(found.circuit._replace(version=9), POLICY))
    assert sql(path, "SELECT state FROM unreadable") == [(b"x",)]


def test_an_imported_circuit_never_uses_an_event_number_twice(store: SqliteStore) -> None:
    tripped(store)
    assert store.put(StoredCircuit(POLICY.start("api", NOW_S)._replace(version=9), POLICY))
    for _ in range(3):
        store.apply("api", POLICY, FAILED, NOW_S)
    assert [entry.event.seq for entry in store.events()] == [1, 2]


def test_a_circuit_that_was_vacuumed_continues_its_event_numbers(store: SqliteStore) -> None:
    store.apply("api", POLICY, Override("ada", "drill", mode=Mode.SHADOW), NOW_S)
    store.apply("api", POLICY, Override("ada", "done", mode=Mode.AUTO), NOW_S)
    assert store.vacuum(keep_events=10, idle_s=0.0, now_s=NOW_S).circuits == 1
    tripped(store)
    events = [entry.event for entry in store.events()]
    assert [event.seq for event in events] == [1, 2, 3]
    assert events[-1].kind is EventKind.MOVED, "nothing was unreadable"


# Newer


def test_a_row_of_a_newer_switchgear_is_left_unchanged(store: SqliteStore, path: Path) -> None:
    tripped(store)
    ((text,),) = sql(path, "SELECT state FROM circuits")
    newer = json.dumps({**json.loads(text), "schema": SCHEMA + 1})
    sql(path, "UPDATE circuits SET state = ?", newer)
    for use in (
        lambda: store.apply("api", POLICY, OK, NOW_S),
        lambda: store.apply("api", POLICY, Acquire(), NOW_S),
        lambda: store.get("api"),
        lambda: list(store.find()),
        lambda: store.put(StoredCircuit(POLICY.start("api", NOW_S)._replace(version=99), POLICY)),
    ):
        with pytest.raises(StoreTooNew, match=r"newer switchgear.*use the newer Switchgear"):
            use()
    assert sql(path, "SELECT state FROM circuits") == [(newer,)]
    assert sql(path, "SELECT * FROM unreadable") == []


def test_an_event_of_a_newer_switchgear_is_reported(store: SqliteStore, path: Path) -> None:
    tripped(store)
    sql(path, "UPDATE events SET event = '{\"schema\": 99}'")
    with pytest.raises(StoreTooNew, match="event 1 of circuit 'api'"):
        store.events()


def test_a_file_of_a_newer_layout_is_left_unchanged(store: SqliteStore, path: Path) -> None:
    store.apply("api", POLICY, OK, NOW_S)
    store.close()
    newer = len(file.MIGRATIONS) + 1
    sql(path, f"PRAGMA user_version = {newer}")
    with pytest.raises(StoreTooNew, match=f"its layout is number {newer}"):
        store.apply("api", POLICY, OK, NOW_S)
    assert set_aside(path) == []
    assert sql(path, "SELECT count(*) FROM circuits") == [(1,)]


# Older


GOLDEN_1 = Path(__file__).parents[1] / "golden" / "sqlite_layout_1.sql"


def test_a_file_of_the_first_layout_is_still_read(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(GOLDEN_1.read_text())
    with closing(SqliteStore(path)) as store:
        found = store.get("provider/anthropic")
        assert found is not None
        assert found.circuit.phase is Phase.OPEN
        assert found.circuit.totals.failed == 3
        assert found.policy == Policy([ConsecutiveFailures(threshold=3)])
        assert [entry.event.seq for entry in store.events()] == [1]
        assert store.apply("provider/anthropic", POLICY, FAILED, NOW_S).circuit.totals.failed == 4
        assert store.facts()["layout"] == str(len(file.MIGRATIONS))


GOLDEN_2 = Path(__file__).parents[1] / "golden" / "sqlite_layout_2.sql"


def test_budgets_and_locks_of_the_second_layout_are_still_read(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(GOLDEN_2.read_text())
    with Panel(SqliteStore(path, clock=lambda: 1750000110.0)) as panel:
        budgets = panel.budgets
        assert budgets.free_micros("atlas/wave-1") == 1_580_000
        audit = budgets.audit("atlas")
        assert (audit.charged_micros, audit.problems) == (120_000, ())
        budgets.reserve("atlas/wave-1", 1_580_000).settle(1)
        [seen] = panel.locks.all()
        assert seen.tenure.holder is not None
        assert (seen.resource, seen.tenure.holder.owner) == ("db", "ada")


def test_budgets_of_a_damaged_file_are_not_reserved_again(path: Path) -> None:
    with Panel(SqliteStore(path)) as panel:
        panel.budgets.open("atlas", 100)
        panel.budgets.charge("atlas", 90)
        panel.lock("db").acquire()
    path.write_bytes(b"garbage" * 1000)
    with Panel(SqliteStore(path)) as panel:
        panel.breaker("api").record(Signal(ok=True))
        for ask in (
            lambda: panel.budgets.open("atlas", 100),
            lambda: panel.budgets.tree("atlas"),
            lambda: panel.lock("db").acquire(),
        ):
            with pytest.raises(StoreCorrupt, match="may have been in a damaged file"):
                ask()
        for aside in path.parent.glob("*.corrupt-*"):
            aside.unlink()
        panel.budgets.open("atlas", 100)


def test_an_older_layout_is_upgraded_once(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tripped(store)
    store.close()
    grow = (
        "ALTER TABLE circuits ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'",
        "INSERT INTO ledger_lines (shelf, key, line) VALUES ('runs', 'grow', '1')",
    )
    monkeypatch.setattr(file, "MIGRATIONS", [*file.MIGRATIONS, grow])
    others = [SqliteStore(path) for _ in range(4)]
    together(*[lambda other=other: other.apply("api", POLICY, OK, NOW_S) for other in others])
    assert sql(path, "SELECT line FROM ledger_lines WHERE shelf = 'runs'") == [("1",)]
    assert sql(path, "SELECT colour FROM circuits") == [("red",)]
    assert sql(path, "PRAGMA user_version") == [(len(file.MIGRATIONS),)]
    for other in others:
        other.close()


def test_a_failed_upgrade_of_the_layout_changes_nothing(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tripped(store)
    store.close()
    failing = ("DROP TABLE events", "CREATE TABLE circuits (id)")
    monkeypatch.setattr(file, "MIGRATIONS", [*file.MIGRATIONS, failing])
    with pytest.raises(StoreUnavailable, match="already exists"):
        store.get("api")
    assert sql(path, "SELECT count(*) FROM events") == [(1,)]
    assert sql(path, "PRAGMA user_version") == [(len(file.MIGRATIONS) - 1,)]
