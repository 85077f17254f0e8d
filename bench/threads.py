"""Measure 6: a breaker must not serialise calls that wait at the same time.

The most common defect of breakers is a lock held during the guarded call: eight calls of 50 ms
through one breaker then take 400 ms. A benchmark with one thread cannot detect that.

The best of the rounds counts, not the median: a busy machine only adds time, and calls that are
serialised are slow in every round.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from bench.floors import ONE_SLEEP_S, bare, sleep
from bench.library import Function, Guard, Role
from bench.ours import OURS
from bench.peers import PEERS
from bench.result import TIMES, Bar, Row, Section, sorted_by_gauge

if TYPE_CHECKING:
    from bench.measure import Effort

THREADS = 8


def section(effort: Effort) -> Section:
    guards: dict[str, tuple[Role, Guard]] = {"bare wrapper": (Role.FLOOR, bare)}
    for library in (OURS, *PEERS):
        if library.in_a_row is not None:
            guards[library.distribution] = (library.role, library.in_a_row)
    taken_s: dict[str, list[float]] = {name: [] for name in guards}
    for _ in range(effort.sleep_rounds):
        for name, (_, guard) in guards.items():
            taken_s[name].append(_wall_s(guard(sleep)))
    best_s = {name: min(taken) for name, taken in taken_s.items()}
    rows = [_row(name, role, best_s[name]) for name, (role, _) in guards.items()]
    return Section(
        key="threads",
        title=f"{THREADS} threads through one breaker",
        method=f"Each thread makes one call that sleeps {ONE_SLEEP_S * 1e3:.0f} ms; the best of {effort.sleep_rounds} rounds.",
        columns=("ms in all", f"{TIMES} one sleep"),
        rows=sorted_by_gauge(rows),
        bars=[
            Bar("times one sleep", best_s[OURS.distribution] / ONE_SLEEP_S, 2.0),
        ],
        numbers={f"{name} (s)": seconds for name, seconds in best_s.items()},
    )


def _row(name: str, role: Role, seconds: float) -> Row:
    cells = (f"{seconds * 1e3:.0f}", f"{seconds / ONE_SLEEP_S:.2f}")
    return Row(name, role, cells, seconds)


def _wall_s(guarded: Function) -> float:
    """Seconds from the common start until the last thread is through."""
    start = threading.Barrier(THREADS + 1)

    def work() -> None:
        start.wait()
        guarded()

    workers = [threading.Thread(target=work) for _ in range(THREADS)]
    for worker in workers:
        worker.start()
    start.wait()
    begun_s = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - begun_s
