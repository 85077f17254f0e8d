"""Many processes on one circuit: every result is applied, events are numbered without gaps."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from servers.server import eventually
from stress.sqlite_teller import POLICY
from switchgear._core.types import EventKind, Record, Signal
from switchgear._stores.sqlite import SqliteStore

pytestmark = pytest.mark.stress

SCRIPT = Path(__file__).with_name("sqlite_teller.py")
PROCESSES, TIMES = 8, 2000
PATIENCE_S = 300.0


def test_the_records_of_eight_processes_are_all_counted(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    tellers = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(path), str(who), str(TIMES)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for who in range(PROCESSES)
    ]
    said = 0
    for teller in tellers:
        out, err = teller.communicate(timeout=PATIENCE_S)
        assert teller.returncode == 0, err
        said += int(out)

    with closing(SqliteStore(path)) as store:
        found = store.get("told")
        assert found is not None
        entries = store.events(limit=10**6)
    totals = found.circuit.totals
    assert totals.succeeded + totals.failed == PROCESSES * TIMES
    assert totals.cost_micros == TIMES * sum(range(1, PROCESSES + 1))
    assert found.circuit.version == PROCESSES * TIMES
    assert found.circuit.event_seq == said > 100, "each event was told to one of them"
    numbers = [entry.event.seq for entry in entries]
    assert numbers == list(range(said - len(numbers) + 1, said + 1))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_processes_that_create_the_file_at_once_create_one_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "state.db"
    tellers = [
        subprocess.Popen([sys.executable, str(SCRIPT), str(path), str(who), "1"])
        for who in range(PROCESSES)
    ]
    assert [teller.wait(PATIENCE_S) for teller in tellers] == [0] * PROCESSES
    with closing(SqliteStore(path)) as store:
        found = store.get("told")
    assert found is not None
    assert found.circuit.version == PROCESSES


def test_processes_whose_file_is_damaged_under_them_all_continue_with_one_new_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    tellers = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(path), str(who), "1000"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for who in range(4)
    ]
    eventually(lambda: _told(path) > 200, "they are at work")
    with path.open("r+b") as file:
        file.write(b"garbage" * 2000)
    for teller in tellers:
        _, err = teller.communicate(timeout=PATIENCE_S)
        assert teller.returncode == 0, err
    with closing(SqliteStore(path)) as store:
        done = store.apply("told", POLICY, Record(Signal(ok=True)), store.now_s())
        assert done.circuit.totals.succeeded > 0
        if list(tmp_path.glob("*.corrupt-*Z")):
            kinds = [entry.event.kind for entry in store.events(limit=10**6)]
            assert EventKind.STATE_UNREADABLE in kinds
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def _told(path: Path) -> int:
    if not path.exists():
        return 0
    with closing(SqliteStore(path)) as store:
        found = store.get("told")
    return found.circuit.version if found else 0
