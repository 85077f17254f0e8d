"""Processes that commit, delete and are killed at random: no database is taken for an older one."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from switchgear._stores.sqlite import SqliteStore
from timeouts import LIMIT_S

pytestmark = pytest.mark.stress

MESSAGES = 500
PROCESSES = 4
KILLS = 12

WORKER = f"""
import random, sys
from contextlib import closing
from switchgear._detectors import ConsecutiveFailures
from switchgear._core.policy import Policy
from switchgear._core.policy import Cooldown
from switchgear._core.types import Signal, Record
from switchgear._stores.base import Amended
from switchgear._stores.sqlite import SqliteStore

path, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
policy = Policy([ConsecutiveFailures(threshold=2)], Cooldown(base_s=0.01))
store = SqliteStore(path, busy_timeout_s=60.0)
for number in range({MESSAGES}):
    key = f"c/{{chance.randrange(3)}}"
    kind = chance.random()
    if kind < 0.7:
        store.apply(key, policy, Record(Signal(ok=chance.random() < 0.5)), store.now_s())
    elif kind < 0.8:
        store.forget(key)
    elif kind < 0.85:
        store.vacuum(keep_events=50, idle_s=0.0, now_s=store.now_s())
    elif kind < 0.9:
        store.ledger().amend("s", key, lambda value, now_s: Amended(None, {{"n": number}}, ()))
    else:
        store.close()
        with closing(SqliteStore(path, busy_timeout_s=60.0)) as other:
            assert other.lost() is None, other.lost()
assert store.lost() is None, store.lost()
"""


def start(path: Path, seed: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WORKER, str(path), str(seed)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_processes_that_are_killed_at_random_raise_no_false_alarm(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    chance = random.Random(13)
    workers = [start(path, seed) for seed in range(PROCESSES)]
    seed = PROCESSES
    try:
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.05, 0.4))  # when the kill comes is what is varied
            at = chance.randrange(PROCESSES)
            os.kill(workers[at].pid, signal.SIGKILL)
            _, told = workers[at].communicate(timeout=LIMIT_S)
            assert "Error" not in told, told
            with closing(SqliteStore(path, busy_timeout_s=60.0)) as store:
                assert store.lost() is None
            workers[at] = start(path, seed)
            seed += 1
        for worker in workers:
            _, told = worker.communicate(timeout=LIMIT_S)
            assert worker.returncode == 0, told
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    with closing(SqliteStore(path)) as store:
        assert store.lost() is None
    assert list(tmp_path.glob("*.corrupt-*")) == []
