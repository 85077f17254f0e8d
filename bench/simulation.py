"""Measure 15: an hour of a thousand agents must be simulated in a minute, of ten thousand in ten.

`python -m bench.simulation` runs it alone, with only Switchgear installed. The time includes both
simulations, without breakers and with them. The minute is wall-clock time; the two sizes are
compared by CPU time, so that a busy machine does not affect the result.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.library import Role
from bench.result import TIMES, Bar, Row, Section
from switchgear._analysis.simulate.compare import simulate

if TYPE_CHECKING:
    from bench.measure import Effort

SCENARIO = "outage"
HOURS = 1.0
WITHIN_S = 60.0
AT_MOST_TIMES = 12.0
SIZES, QUICK_SIZES = (1_000, 10_000), (100, 1_000)
QUICK_BELOW = 100
"""An effort of fewer rounds than this is a look, not a verdict."""


class Taken(NamedTuple):
    agents: int
    wall_s: float
    cpu_s: float
    calls: int


def section(effort: Effort) -> Section:
    return measured(QUICK_SIZES if effort.rounds < QUICK_BELOW else SIZES)


def measured(sizes: tuple[int, int]) -> Section:
    small, large = sizes
    before, many, after, again = (_taken(size) for size in (small, large, small, small))
    # The large one takes minutes, in which a machine changes: the median of those around it.
    few = sorted((before, after, again), key=lambda taken: taken.cpu_s)[1]
    minute = few if few.agents == SIZES[0] else many
    bars = [Bar(f"s for an hour of {minute.agents:,} agents", minute.wall_s, WITHIN_S)]
    if (
        sizes == SIZES
    ):  # a hundred agents fit into the caches, so their time does not predict larger fleets
        ratio = many.cpu_s / few.cpu_s
        bars.append(Bar(f"times the CPU time of {few.agents:,}", ratio, AT_MOST_TIMES))
    return Section(
        key="simulation",
        title=f"One hour of a fleet, with and without breakers ({SCENARIO})",
        method=f"`switchgear simulate {SCENARIO}` without the printing, seed 1; the small fleet is the median of three, before and after the large one.",
        columns=("s", "s of CPU time", "calls", TIMES),
        rows=[_row(taken, few) for taken in (few, many)],
        bars=bars,
        numbers={"taken": [taken._asdict() for taken in (few, many)]},
    )


def _taken(agents: int) -> Taken:
    gc.collect()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    result = simulate(SCENARIO, agents=agents, hours=HOURS)
    calls = sum(result.plain.made) + sum(result.guarded.made)
    return Taken(agents, time.perf_counter() - wall_s, time.process_time() - cpu_s, calls)


def _row(taken: Taken, few: Taken) -> Row:
    cells = (
        f"{taken.wall_s:.1f}",
        f"{taken.cpu_s:.1f}",
        f"{taken.calls:,}",
        f"{taken.cpu_s / few.cpu_s:.1f}",
    )
    return Row(f"{taken.agents:,} agents", Role.OURS, cells)


def main() -> int:
    found = measured(QUICK_SIZES if "--quick" in sys.argv[1:] else SIZES)
    for row in found.rows:
        print(row.name, *(f"{name}: {cell}" for name, cell in zip(found.columns, row.cells)), sep="  ")  # noqa: B905  # fmt: skip
    for bar in found.bars:
        sign = "ok" if bar.passed else "MISSED"
        print(f"{sign}: {bar.measured:.2f} {bar.promise}, at most {bar.limit:g}")
    return 0 if all(bar.passed for bar in found.bars) else 1


if __name__ == "__main__":
    sys.exit(main())
