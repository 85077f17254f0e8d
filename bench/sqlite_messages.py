"""Measure 9: a message to a circuit in a SQLite file, against the minimum cost of such a file.

The floor reads a row of the same text, parses it, changes a number and writes it back, in its own
transaction, on the same file with the same settings. A message also evaluates the policy, writes
events, and checks whether another program has moved or damaged the file.

If another process wrote last, SQLite reads its pages again and the message parses the row; if this
process did, neither happens. Both cases are measured, each against a floor with the same condition.
Each has its own circuit: on a circuit that another process used within the last seconds, a trip
waits for the results of that process.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import tempfile
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.library import Role
from bench.measure import Contender, Effort, Statement, Timing, interleaved
from bench.result import TIMES, Bar, Row, Section
from switchgear import Cooldown, Panel, Policy, Signal, detectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.library import Function

ALONE, SHARED = "own row", "row of another"
AT_MOST_TIMES = 3.0
NAME = "provider/bench"
FAILED = Signal(ok=False, error="529 overloaded")
NEVER_TRIPS = Policy(
    detectors=[detectors.ConsecutiveFailures(threshold=10**9)], recovery=Cooldown(base_s=60.0)
)


def section(effort: Effort) -> Section:
    with tempfile.TemporaryDirectory(prefix="switchgear-bench-") as folder, ExitStack() as panels:
        file = Path(folder) / "state.db"
        # Two panels have two connections and know nothing of each other, like two processes.
        opened = [panels.enter_context(Panel(f"sqlite:///{file}")) for _ in range(2)]
        alone = opened[0].breaker(f"{NAME}-alone", NEVER_TRIPS)
        shared = [panel.breaker(NAME, NEVER_TRIPS) for panel in opened]
        for breaker in (alone, shared[0]):
            breaker.record(FAILED)
        bare = [panels.enter_context(closing(_connection(file))) for _ in range(2)]
        messages = [partial(breaker.record, FAILED) for breaker in shared]
        floors = [partial(_read_modify_write, db) for db in bare]
        contenders = [
            _contender(Role.FLOOR, ALONE, floors[0]),
            _contender(Role.OURS, ALONE, partial(alone.record, FAILED)),
            _contender(Role.FLOOR, SHARED, _in_turn(floors)),
            _contender(Role.OURS, SHARED, _in_turn(messages)),
        ]
        timings = interleaved(contenders, effort)
        told = alone.totals.failed + shared[0].totals.failed
    times = {
        how: timings[_name(Role.OURS, how)].times(timings[_name(Role.FLOOR, how)])
        for how in (ALONE, SHARED)
    }
    return Section(
        key="sqlite",
        title="A message to a circuit in a SQLite file",
        method=(
            "A failure is recorded on a closed circuit. The floor is one transaction (BEGIN IMMEDIATE, "
            "SELECT, json.loads, a number changed, json.dumps, UPDATE, COMMIT) on a row with the "
            "same text in the same file. If another process wrote last, pages are read and the state "
            f"is parsed again; shown without a limit. SQLite {sqlite3.sqlite_version}; {told:,} messages."
        ),
        columns=("µs per message", "±", f"{TIMES} floor"),
        rows=[_row(c, timings, times) for c in contenders],
        bars=[Bar("times a bare transaction", times[ALONE], AT_MOST_TIMES)],
        numbers={name: timing.numbers() for name, timing in timings.items()}
        | {"times the floor": times},
    )


def _connection(file: Path) -> sqlite3.Connection:
    """A connection with the settings of the store, and a table of its own with our text in it."""
    bare = sqlite3.connect(file, isolation_level=None, timeout=5.0)
    bare.execute("PRAGMA journal_mode = WAL")
    bare.execute("PRAGMA synchronous = NORMAL")
    bare.execute("CREATE TABLE IF NOT EXISTS bare (key TEXT PRIMARY KEY, state TEXT NOT NULL)")
    bare.execute("INSERT OR REPLACE INTO bare SELECT key, state FROM circuits")
    return bare


def _read_modify_write(bare: sqlite3.Connection) -> None:
    bare.execute("BEGIN IMMEDIATE")
    (text,) = bare.execute("SELECT state FROM bare WHERE key = ?", (NAME,)).fetchone()
    state = json.loads(text)
    state["version"] += 1
    bare.execute("UPDATE bare SET state = ? WHERE key = ?", (json.dumps(state), NAME))
    bare.execute("COMMIT")


def _in_turn(functions: Sequence[Function]) -> Function:
    turns = itertools.cycle(functions)

    def message() -> None:
        next(turns)()

    return message


def _contender(role: Role, how: str, function: Function) -> Contender:
    return Contender(_name(role, how), role, lambda: function, Statement.CALL)


def _name(role: Role, how: str) -> str:
    return f"{'bare' if role is Role.FLOOR else 'switchgear'}, {how}"


def _row(contender: Contender, timings: dict[str, Timing], times: dict[str, float]) -> Row:
    timing, how = timings[contender.name], contender.name.partition(", ")[2]
    cells = (
        f"{timing.median_ns / 1e3:,.1f}",
        f"{timing.spread_ns / 1e3:,.1f}",
        f"{1.0 if contender.role is Role.FLOOR else times[how]:.2f}",
    )
    return Row(contender.name, contender.role, cells, timing.median_ns)
