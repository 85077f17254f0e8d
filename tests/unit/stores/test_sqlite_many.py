"""Many circuits in one SQLite file do not slow down one circuit: every query uses an index."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from switchgear._core.types import Mode, Override
from switchgear._stores.sqlite import SqliteStore, fold
from switchgear._stores.sqlite import store as sqlite
from unit.sqlite_places import FAILED, NOW_S, OK, POLICY, sql

QUESTIONS = {
    fold._LOAD: ("api",),
    fold._LAST_SEQ: ("api",),
    fold._UPDATE: (1, "", "", 0.0, 1, "", 1),
    f"SELECT key, state FROM circuits WHERE key > ? ORDER BY key LIMIT {sqlite.PAGE}": ("a",),
    "SELECT cursor FROM events WHERE cursor > ? ORDER BY cursor": (5,),
    "DELETE FROM events WHERE cursor <= ?": (5,),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_query_reads_a_whole_table(tmp_path: Path, question: str) -> None:
    path = tmp_path / "state.db"
    with closing(SqliteStore(path)) as store:
        store.apply("api", POLICY, OK, NOW_S)
    plan = sql(path, f"EXPLAIN QUERY PLAN {question}", *QUESTIONS[question])
    assert plan
    assert all("SEARCH" in row[-1] for row in plan), plan
    assert not any("TEMP B-TREE" in row[-1] for row in plan), plan


def test_a_glob_reads_only_names_with_its_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "PAGE", 10)
    pages: list[str] = []
    read = sqlite._page

    def page(db: sqlite3.Connection, operator: str, key: str) -> Any:
        pages.append(key)
        return read(db, operator, key)

    monkeypatch.setattr(sqlite, "_page", page)
    with closing(SqliteStore(tmp_path / "state.db")) as store:
        for number in range(100):
            store.apply(f"loop/{number:03}", POLICY, OK, NOW_S)
        store.apply("op/git", POLICY, OK, NOW_S)
        assert [found.circuit.key for found in store.find("op/*")] == ["op/git"]
        assert len(list(store.find("loop/09?"))) == 10
        assert [found.circuit.key for found in store.find("loop/042")] == ["loop/042"]
    assert pages == ["op/", "loop/09", "loop/099"], "a plain name needs no page at all"


def test_more_circuits_than_are_kept_parsed_are_all_read_correctly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "KNOWN", 5)
    with closing(SqliteStore(tmp_path / "state.db")) as store:
        for _ in range(3):
            for number in range(12):
                store.apply(f"loop/{number}", POLICY, FAILED, NOW_S)
        assert {found.circuit.totals.failed for found in store.find()} == {3}
        assert len(store._folding._known) <= 5


def test_a_vacuum_releases_disk_space(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(SqliteStore(path)) as store:
        for number in range(500):
            store.apply(f"loop/{number}", POLICY, OK, NOW_S)
            store.apply(f"loop/{number}", POLICY, Override("ada", "x" * 500, mode=Mode.AUTO), NOW_S)
        store.vacuum(keep_events=10**6, idle_s=1e9, now_s=NOW_S)
        full = path.stat().st_size
        gone = store.vacuum(keep_events=10, idle_s=0.0, now_s=NOW_S)
        assert gone == (500, 490)
        assert path.stat().st_size < full / 4
