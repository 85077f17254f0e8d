"""Two hundred kills -9, between and inside transactions: nothing answered is lost, no wedge."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from switchgear._core.types import Acquire
from switchgear._stores.base import StoredCircuit
from switchgear._stores.sqlite import SqliteStore
from timeouts import LIMIT_S

pytestmark = pytest.mark.stress

SCRIPT = Path(__file__).with_name("sqlite_victims.py")
AT_RANDOM, INSIDE, AFTER_ASKING = 100, 60, 40


def found(store: SqliteStore, key: str) -> StoredCircuit:
    it = store.get(key)
    assert it is not None
    return it


def test_two_hundred_kills_lose_nothing_and_block_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    numbers = map(str, (AT_RANDOM, INSIDE, AFTER_ASKING))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(path), *numbers],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    answered = json.loads(done.stdout)

    with closing(SqliteStore(path)) as store:
        # A process may die after its message is committed and before it hears the answer.
        told = found(store, "told").circuit.totals
        assert answered["told"] <= told.succeeded + told.failed <= answered["told"] + AT_RANDOM
        assert told.cost_micros == told.succeeded + told.failed

        # Killed before the commit: exactly what was answered is there.
        inside = found(store, "inside").circuit.totals
        assert inside.succeeded + inside.failed == answered["inside"]

        asked = found(store, "asked")
        admitted = store.apply("asked", asked.policy, Acquire(), asked.circuit.seen_s + 6.0)
        assert admitted.verdict.admitted, "the last probe's lease is over, too"

        for key in ("told", "inside", "asked"):
            entries = store.events(glob=key, limit=100_000)
            last = found(store, key).circuit.event_seq
            kept = [entry.event.seq for entry in entries]
            assert kept == list(range(last - len(kept) + 1, last + 1))
        store.apply("told", found(store, "told").policy, Acquire(), store.now_s())
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert [file.name for file in tmp_path.glob("*.corrupt-*")] == []
