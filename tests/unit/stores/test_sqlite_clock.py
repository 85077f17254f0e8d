"""The clock of a SQLite store: one for all processes, whatever happens to the wall clock."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from switchgear._stores.sqlite import SqliteStore
from switchgear._stores.sqlite import store as sqlite_store
from switchgear.testing import FakeClock
from unit.sqlite_places import NOW_S, OK, POLICY, set_aside, sql


class Machine:
    """A machine whose wall clock can be set and which can be started again."""

    def __init__(self) -> None:
        self.wall = FakeClock(1_750_000_000.0)
        self.since_boot = FakeClock(100.0)
        self.boot = "first"

    def advance(self, seconds: float) -> None:
        self.wall.advance(seconds)
        self.since_boot.advance(seconds)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    machine = Machine()
    monkeypatch.setattr(sqlite_store, "boot_name", lambda: machine.boot)
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    with monkeypatch.context() as clocks:
        clocks.setattr(time, "time", machine.wall)
        clocks.setattr(time, "clock_gettime", lambda _: machine.since_boot())
        yield machine


def test_the_clock_of_a_file_returns_seconds_since_the_epoch(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "state.db")) as store:
        assert abs(store.now_s() - time.time()) < 5.0


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_setting_the_wall_clock_changes_nothing(
    tmp_path: Path, machine: Machine, jump_s: float
) -> None:
    path = tmp_path / "state.db"
    with closing(SqliteStore(path)) as one:
        assert one.now_s() == 1_750_000_000.0
        machine.wall.now_s += jump_s
        machine.advance(5.0)
        with closing(SqliteStore(path)) as another:
            assert one.now_s() == another.now_s() == 1_750_000_005.0


def test_after_a_start_of_the_machine_the_wall_clock_is_read_again(
    tmp_path: Path, machine: Machine
) -> None:
    path = tmp_path / "state.db"
    with closing(SqliteStore(path)) as store:
        store.now_s()
    machine.wall.advance(600.0)
    machine.since_boot.now_s, machine.boot = 3.0, "second"
    with closing(SqliteStore(path)) as store:
        assert store.now_s() == 1_750_000_600.0
    assert len(sql(path, "SELECT * FROM meta WHERE name GLOB 'clock:*'")) == 1


def test_without_a_known_machine_start_the_wall_clock_is_used(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "boot_name", lambda: None)
    with closing(SqliteStore(tmp_path / "state.db")) as store:
        machine.wall.advance(42.0)
        assert store.now_s() == 1_750_000_042.0


def test_time_continues_while_the_file_cannot_be_opened(tmp_path: Path, machine: Machine) -> None:
    path = tmp_path / "state.db"
    path.mkdir()
    store = SqliteStore(path)
    before_s = store.now_s()
    machine.advance(7.0)
    assert store.now_s() == before_s + 7.0


def test_a_new_file_does_not_move_the_time(tmp_path: Path, machine: Machine) -> None:
    path = tmp_path / "state.db"
    with closing(SqliteStore(path)) as store:
        store.apply("api", POLICY, OK, NOW_S)
        machine.wall.now_s -= 3600.0
        store.close()
        path.write_bytes(b"x")
        store.apply("api", POLICY, OK, NOW_S)
        assert len(set_aside(path)) == 1
        assert store.now_s() == 1_750_000_000.0


def test_a_clock_that_cannot_be_read_is_damage(tmp_path: Path, machine: Machine) -> None:
    path = tmp_path / "state.db"
    with closing(SqliteStore(path)) as store:
        store.apply("api", POLICY, OK, NOW_S)
    sql(path, "UPDATE meta SET value = 'noon' WHERE name GLOB 'clock:*'")
    with closing(SqliteStore(path)) as store:
        assert store.apply("api", POLICY, OK, NOW_S).events
    assert len(set_aside(path)) == 1
