"""Measures 13 and 14: reading one circuit must not become slower because there are many.

A hundred circuits against a hundred thousand, in a SQLite file and in a Redis server. Two ways to
read one: `panel.view(name)`, and all of `switchgear status NAME` except the start of Python, which
would hide the difference. Names are read in random order, so that in a large store consecutive
reads rarely hit the same page.
"""

from __future__ import annotations

import io
import itertools
import random
import sqlite3
import tempfile
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.library import Function, Role
from bench.measure import Contender, Effort, Statement, Timing, interleaved
from bench.result import TIMES, Bar, Row, Section
from bench.server import running
from switchgear import Panel, Signal
from switchgear._cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    Filled = Callable[[int], AbstractContextManager[str]]

FEW = 100
AT_MOST_TIMES = 2.0
PAGE = 1_000
SEED = "bench/000000"
VIEW, STATUS = "panel.view(name)", "switchgear status NAME"


def section_of_sqlite(effort: Effort) -> Section:
    return _section("many-sqlite", "a SQLite file", _sqlite, effort)


def section_of_redis(effort: Effort) -> Section:
    return _section("many-redis", "a Redis server", _redis, effort)


def _section(key: str, where: str, filled: Filled, effort: Effort) -> Section:
    sizes = (FEW, effort.circuits)
    with ExitStack() as stack:
        contenders = []
        for size in sizes:
            url = stack.enter_context(filled(size))
            panel = stack.enter_context(Panel(url))
            contenders += [
                _contender(VIEW, size, _viewing(panel)),
                _contender(STATUS, size, _asking(url)),
            ]
        timings = interleaved(contenders, effort)
    growth = {
        way: timings[_name(way, sizes[1])].times(timings[_name(way, FEW)]) for way in (VIEW, STATUS)
    }
    return Section(
        key=key,
        title=f"One circuit of {sizes[1]:,} in {where}",
        method="µs to read one circuit, among a hundred and among many, in random order.",
        columns=(*(f"of {size:,}" for size in sizes), "growth"),
        rows=[_row(way, timings, sizes, growth[way]) for way in growth],
        bars=[
            Bar(f"times that of {FEW}, {way}", times, AT_MOST_TIMES)
            for way, times in growth.items()
        ],
        numbers={name: timing.numbers() for name, timing in timings.items()},
    )


# --- stores with so many circuits ----------------------------------------------------------------


def name_of(number: int) -> str:
    """All as long as the first, so that its texts fit all of them."""
    return f"bench/{number:06}"


@contextmanager
def _sqlite(size: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="switchgear-bench-") as folder:
        file = Path(folder) / "state.db"
        _begin(f"sqlite:///{file}")
        with closing(sqlite3.connect(file)) as db, db:
            columns = [str(row[1]) for row in db.execute("PRAGMA table_info(circuits)")]
            kept = ", ".join(name for name in columns if name not in {"id", "key", "state"})
            db.executemany(
                f"INSERT INTO circuits (key, state, {kept}) "
                f"SELECT ?1, replace(state, '{SEED}', ?1), {kept} FROM circuits WHERE key = '{SEED}'",
                ((name_of(number),) for number in range(1, size)),
            )
        yield f"sqlite:///{file}"


@contextmanager
def _redis(size: int) -> Iterator[str]:
    redis: Any = import_module("redis")
    with running() as server:
        _begin(server.url)
        with closing(redis.Redis.from_url(server.url)) as client:
            (key,) = client.keys(f"*:c:{SEED}")  # a failure also leaves a mark, for a short time
            value = client.get(key)
            for first in range(1, size, PAGE):
                names = [name_of(n).encode() for n in range(first, min(first + PAGE, size))]
                seed = SEED.encode()
                client.mset({key.replace(seed, name): value.replace(seed, name) for name in names})
        yield server.url


def _begin(url: str) -> None:
    """One circuit, made by the store itself, of which the others are copies."""
    with Panel(url) as panel:
        panel.breaker(SEED).record(Signal(ok=False, error="529 overloaded"))


# --- reading one ---------------------------------------------------------------------------------


def _random_names(size: int) -> Iterator[str]:
    chosen = random.Random(size)
    return (name_of(chosen.randrange(size)) for _ in itertools.count())


def _viewing(panel: Panel) -> Callable[[Iterator[str]], None]:
    def read(names: Iterator[str]) -> None:
        name = next(names)
        view = panel.view(name)
        assert view is not None
        assert view.name == name

    return read


def _asking(url: str) -> Callable[[Iterator[str]], None]:
    def read(names: Iterator[str]) -> None:
        name, shown = next(names), io.StringIO()
        with redirect_stdout(shown):
            main(["status", name, "--store", url, "--json"], standalone_mode=False)
        assert name in shown.getvalue()

    return read


def _contender(way: str, size: int, read: Callable[[Iterator[str]], None]) -> Contender:
    names = _random_names(size)
    function: Function = lambda: read(names)  # noqa: E731  a name would say nothing more
    return Contender(_name(way, size), Role.OURS, lambda: function, Statement.CALL)


def _name(way: str, size: int) -> str:
    return f"{way}, {size}"


def _row(way: str, timings: dict[str, Timing], sizes: tuple[int, ...], growth: float) -> Row:
    cells = (f"{timings[_name(way, size)].median_ns / 1e3:,.0f}" for size in sizes)
    return Row(way, Role.OURS, (*cells, f"{growth:.2f} {TIMES}"))
