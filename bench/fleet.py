"""Measures 11 and 12: many real processes over one Redis, each with its own panel.

A trip must reach the other processes in time to be useful, and a circuit that all of them write
must not delay them for long. How long depends on how sixteen processes share the machine, so a
message is compared with a PING that the same processes send under the same load.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from bench.library import Role
from bench.result import Bar, Row, Section
from bench.server import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.measure import Effort

OTHERS = 7
CROWD = 16
REACHED_WITHIN_MS = 100.0
AT_MOST_TIMES_PING = 10.0
ENDS_WITHIN_S = 10.0
HEAD_START_S = 0.05
"""So that all have read their orders before the phase begins."""


def section_of_trips(effort: Effort) -> Section:
    """How long a trip takes to reach seven other processes."""
    with running() as server, _fleet(server.url, OTHERS + 1) as (tripping, *others):
        taken_s = [_trip(tripping, others) for _ in range(effort.trips)]
        about = server.version
    each_ms = [seconds * 1e3 for round_s in taken_s for seconds in round_s]
    last_ms = [max(round_s) * 1e3 for round_s in taken_s]
    p99_ms = _p99(each_ms)
    return Section(
        key="trip",
        title=f"A trip reaches {OTHERS} other processes",
        method=(
            "From before the failure is recorded in one process until a call is refused in another, "
            f"which calls every millisecond; {effort.trips} trips, {len(each_ms):,} arrivals, "
            f"{about}."
        ),
        columns=("ms, median", "p99", "longest"),
        rows=[_row("each of them", each_ms), _row("the last of them", last_ms)],
        bars=[Bar("ms at p99 until another process refuses", p99_ms, REACHED_WITHIN_MS)],
        numbers={"arrivals (ms)": [round(taken_ms, 3) for taken_ms in each_ms]},
    )


def section_of_a_crowd(effort: Effort) -> Section:
    """What a message costs on a circuit that sixteen processes write as fast as they can."""
    pings: list[list[float]] = []
    tells: list[list[float]] = []
    with running() as server, _fleet(server.url, CROWD) as fleet:
        _phase(fleet, "record", effort.crowd_s)  # the first of a circuit starts it
        before = fleet[0].ask("told")
        for number in range(effort.crowded):
            # Which comes first changes, so that neither always follows the other's crowd.
            for what in ("ping", "record") if number % 2 else ("record", "ping"):
                (pings if what == "ping" else tells).append(_phase(fleet, what, effort.crowd_s))
        counted = fleet[0].ask("told") - before
        about = server.version
    told = sum(map(len, tells))
    ratios = [_p99(tell) / _p99(ping) for tell, ping in zip(tells, pings, strict=True)]
    return Section(
        key="crowd",
        title=f"{CROWD} processes on one circuit over Redis",
        method=(
            f"All at once, as fast as they can, for {effort.crowd_s:g} s: each records failures in "
            f"the one circuit, or sends PINGs; {effort.crowded} phases of each in turn, {about}. "
            f"{told:,} failures recorded, {counted:,} counted."
        ),
        columns=("ms, median", "p99", "longest"),
        rows=[
            _row("PING", [s * 1e3 for ping in pings for s in ping], Role.FLOOR),
            _row("a message", [s * 1e3 for tell in tells for s in tell]),
        ],
        bars=[
            Bar("times the p99 of a PING", statistics.median(ratios), AT_MOST_TIMES_PING),
            Bar("failures recorded but not counted", abs(told - counted), 0),
        ],
        numbers={"ratios of the p99": [round(ratio, 3) for ratio in ratios]},
    )


class _Process:
    """One worker, on the other end of two pipes."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-m", "bench.worker", url]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def send(self, *order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process of the fleet ended; the reason is above")
        return json.loads(line)

    def ask(self, *order: Any) -> Any:
        self.send(*order)
        return self.answer()

    def end(self) -> None:
        try:
            self._process.communicate(timeout=ENDS_WITHIN_S)  # its input ends, and so does it
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def _fleet(url: str, number: int) -> Iterator[list[_Process]]:
    with ExitStack() as stack:
        fleet = []
        for _ in range(number):
            fleet.append(_Process(url))
            stack.callback(fleet[-1].end)
        for process in fleet:
            process.answer()
        yield fleet


def _trip(tripping: _Process, others: Sequence[_Process]) -> list[float]:
    """Trip once; the seconds until each of the others refused."""
    tripping.ask("reset")
    for process in others:
        process.ask("until_admitted")
    for process in others:
        process.send("until_refused")
    begun_s = tripping.ask("trip")
    return [process.answer() - begun_s for process in others]


def _phase(fleet: Sequence[_Process], what: str, seconds: float) -> list[float]:
    """All do the same at the same time; how long each of all their messages took."""
    start_s = time.monotonic() + HEAD_START_S
    for process in fleet:
        process.send(what, start_s, start_s + seconds)
    return [taken_s for process in fleet for taken_s in process.answer()]


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[-1]


def _row(name: str, taken_ms: list[float], role: Role = Role.OURS) -> Row:
    median_ms, p99_ms = statistics.median(taken_ms), _p99(taken_ms)
    cells = (f"{median_ms:,.2f}", f"{p99_ms:,.2f}", f"{max(taken_ms):,.2f}")
    return Row(name, role, cells, p99_ms)
