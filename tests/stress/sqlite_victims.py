"""Processes that use a SQLite store until they are killed; what they were answered is counted.

Run as a script, so that it has one thread and may fork: `sqlite_victims.py PATH RANDOM INSIDE ASKED`
with the numbers of kills of each kind. It prints what the survivors must find, as JSON.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable

from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import Acquire, Record, Signal
from switchgear._detectors import ConsecutiveFailures
from switchgear._stores.sqlite import SqliteStore

POLICY = Policy([ConsecutiveFailures(threshold=2)], Cooldown(base_s=1.0, max_s=1.0, lease_s=5.0))
LEASE_S = 5.0
NOW_S = 1_750_000_000.0
MOMENTS = ("SELECT", "UPDATE", "INSERT", "COMMIT")
"""The statements of a transaction, before each of which a process is killed in turn."""


def child(work: Callable[[int], None]) -> tuple[int, int]:
    """Fork a process that works and reports each answer by a byte; its id and our end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        try:
            work(writer)
        finally:
            os._exit(1)  # who is to be killed does not get here
    os.close(writer)
    return pid, reader


def answers(pid: int, reader: int) -> int:
    """The number of answers that a process had when it was killed."""
    reported = b""
    while chunk := os.read(reader, 65_536):
        reported += chunk
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"it ended by itself: {status}"
    assert os.WTERMSIG(status) == signal.SIGKILL
    return len(reported)


def telling(path: str, who: int) -> Callable[[int], None]:
    def work(writer: int) -> None:
        store = SqliteStore(path)
        number = 0
        while True:
            number += 1
            signal_ = Signal(ok=(number + who) % 5 == 0, cost_micros=1)
            store.apply("told", POLICY, Record(signal_), store.now_s())
            os.write(writer, b".")

    return work


def killed_at_random(path: str, kills: int) -> int:
    """Processes that record at the same time, killed at random moments."""
    chance = random.Random(11)
    answered = 0
    for start in range(0, kills, 4):
        victims = [child(telling(path, who)) for who in range(min(4, kills - start))]
        first = os.read(victims[0][1], 1)  # they are at work
        time.sleep(chance.uniform(0.0, 0.02))
        for pid, _ in victims:
            os.kill(pid, signal.SIGKILL)
        answered += len(first) + sum(answers(pid, reader) for pid, reader in victims)
    return answered


def killed_inside(path: str, kills: int) -> int:
    """Processes killed inside a transaction, before its second, third, fourth… statement."""
    answered = 0
    for number in range(kills):
        moment = MOMENTS[number % len(MOMENTS)]

        def work(writer: int, moment: str = moment) -> None:
            store = SqliteStore(path)
            told = Record(Signal(ok=False, cost_micros=1))
            for _ in range(2):  # the second opens the circuit, so that there is an event
                store.apply("inside", POLICY, Record(Signal(ok=True, cost_micros=1)), NOW_S)
                os.write(writer, b".")
                store.apply("inside", POLICY, told, NOW_S)
                os.write(writer, b".")
            opened = store._link._opened
            assert opened is not None

            def strike(statement: str) -> None:
                if statement.startswith(moment):
                    os.kill(os.getpid(), signal.SIGKILL)

            opened.db.set_trace_callback(strike)
            store.apply("inside", POLICY, told, NOW_S)
            os.write(writer, b"!")

        answered += answers(*child(work))
        # So that the next one finds it closed.
        store = SqliteStore(path)
        done = store.apply("inside", POLICY, Record(Signal(ok=True, cost_micros=1)), NOW_S)
        assert done.circuit.phase == "closed", done
        store.close()
        answered += 1
    return answered


def killed_after_asking(path: str, kills: int) -> int:
    """Probes that never report. Each lease ends, and the next process may probe."""
    store = SqliteStore(path)
    now_s = NOW_S
    for _ in range(2):
        store.apply("asked", POLICY, Record(Signal(ok=False)), now_s)
    now_s += 1.0
    store.close()
    for _ in range(kills):

        def work(writer: int, now_s: float = now_s) -> None:
            verdict = SqliteStore(path).apply("asked", POLICY, Acquire(), now_s).verdict
            os.write(writer, b"y" if verdict.admitted else b"n")
            signal.pause()

        pid, reader = child(work)
        assert os.read(reader, 1) == b"y", "the circuit is wedged"
        os.kill(pid, signal.SIGKILL)
        answers(pid, reader)
        with_lease = SqliteStore(path)
        refused = with_lease.apply("asked", POLICY, Acquire(), now_s + LEASE_S - 0.01).verdict
        assert not refused.admitted, "the probe's place is its own as long as its lease"
        with_lease.close()
        now_s += LEASE_S
    return kills


def main(path: str, at_random: int, inside: int, after_asking: int) -> None:
    report = {
        "told": killed_at_random(path, at_random),
        "inside": killed_inside(path, inside),
        "asked": killed_after_asking(path, after_asking),
    }
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
