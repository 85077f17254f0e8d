"""Measure 9: a message to a circuit in a SQLite file against the least that such a file charges.

The floor reads a row of the same text, parses it, changes a number, writes it back, in a
transaction of its own, on the same file with the same settings. What a message adds is judging,
events, and being careful with a file that others may move or damage.

When another process wrote last, a message has to parse the row; when we did, it has not. Both are
measured, and the bar is for the dearer one.
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
from bench.result import TIMES, Bar, Row, Section, sorted_by_gauge
from switchgear import Cooldown, Panel, Policy, Signal, detectors

if TYPE_CHECKING:
    from bench.library import Function
    from switchgear import CircuitBreaker

FLOOR, ALONE, SHARED = (
    "bare read-modify-write",
    "switchgear, a message",
    "switchgear, another wrote last",
)
AT_MOST_TIMES = 3.0
NAME = "provider/bench"
FAILED = Signal(ok=False, error="529 overloaded")
NEVER_TRIPS = Policy(
    detectors=[detectors.ConsecutiveFailures(threshold=10**9)], recovery=Cooldown(base_s=60.0)
)


def section(effort: Effort) -> Section:
    with tempfile.TemporaryDirectory(prefix="switchgear-bench-") as folder, ExitStack() as panels:
        file = Path(folder) / "state.db"
        first, second = (
            panels.enter_context(Panel(f"sqlite:///{file}")).breaker(NAME, NEVER_TRIPS)
            for _ in range(2)
        )
        first.tell(FAILED)
        with closing(_connection(file)) as bare:
            functions: dict[str, tuple[Role, Function]] = {
                FLOOR: (Role.FLOOR, partial(_read_modify_write, bare)),
                ALONE: (Role.OURS, partial(first.tell, FAILED)),
                SHARED: (Role.OURS, _in_turn(first, second)),
            }
            timings = interleaved([_contender(*it) for it in functions.items()], effort)
        told = first.totals.failed
    return Section(
        key="sqlite",
        title="A message to a circuit in a SQLite file",
        method=(
            "A failure is told to a closed circuit. The floor is one transaction (BEGIN IMMEDIATE, "
            "SELECT, json.loads, a number changed, json.dumps, UPDATE, COMMIT) on a row with the "
            f"same text in the same file. SQLite {sqlite3.sqlite_version}; {told:,} messages."
        ),
        columns=("µs per message", "±", f"{TIMES} floor"),
        rows=sorted_by_gauge([_row(*it, timings) for it in functions.items()]),
        bars=[
            Bar("times a bare transaction", timings[name].times(timings[FLOOR]), AT_MOST_TIMES)
            for name in (ALONE, SHARED)
        ],
        numbers={name: timing.numbers() for name, timing in timings.items()},
    )


def _connection(file: Path) -> sqlite3.Connection:
    """A connection with the settings of the store, and a table of its own with our text in it."""
    bare = sqlite3.connect(file, isolation_level=None, timeout=5.0)
    bare.execute("PRAGMA journal_mode = WAL")
    bare.execute("PRAGMA synchronous = NORMAL")
    bare.execute("CREATE TABLE bare (key TEXT PRIMARY KEY, state TEXT NOT NULL)")
    bare.execute("INSERT INTO bare SELECT key, state FROM circuits")
    return bare


def _read_modify_write(bare: sqlite3.Connection) -> None:
    bare.execute("BEGIN IMMEDIATE")
    (text,) = bare.execute("SELECT state FROM bare WHERE key = ?", (NAME,)).fetchone()
    state = json.loads(text)
    state["version"] += 1
    bare.execute("UPDATE bare SET state = ? WHERE key = ?", (json.dumps(state), NAME))
    bare.execute("COMMIT")


def _in_turn(first: CircuitBreaker, second: CircuitBreaker) -> Function:
    """Two panels have two connections and know nothing of each other, like two processes."""
    turns = itertools.cycle((first, second))
    return lambda: next(turns).tell(FAILED)


def _contender(name: str, how: tuple[Role, Function]) -> Contender:
    role, function = how
    return Contender(name, role, lambda: function, Statement.CALL)


def _row(name: str, how: tuple[Role, Function], timings: dict[str, Timing]) -> Row:
    timing = timings[name]
    cells = (
        f"{timing.median_ns / 1e3:,.1f}",
        f"{timing.spread_ns / 1e3:,.1f}",
        f"{timing.times(timings[FLOOR]):.2f}",
    )
    return Row(name, how[0], cells, timing.median_ns)
