"""Measure 7: the bytes of a breaker, because an agent platform has one per tool, task and loop.

Counted by tracemalloc: everything that Python allocates for the breakers and what they reference.
Not counted: their names and the list that contains them. Each failure has a different message, as
in production, so that libraries that keep the error, or the exception with its frames, are charged
for it.
"""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.floors import UpstreamError, succeed, succeed_async
from bench.ours import OURS
from bench.peers import PEERS
from bench.result import Bar, Row, Section, sorted_by_gauge

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.library import Function, Library
    from bench.measure import Effort

AT_MOST_BYTES = 1_200.0

request_numbers = itertools.count(1_000_000)


class Footprint(NamedTuple):
    """Bytes per breaker: just made, and after one success and one failure."""

    fresh: float
    used: float


def section(effort: Effort) -> Section:
    libraries = (OURS, *PEERS)
    footprints = {lib.distribution: _footprint(lib, effort.breakers) for lib in libraries}
    rows = [_row(lib, footprints[lib.distribution]) for lib in libraries]
    ours = footprints[OURS.distribution]
    return Section(
        key="memory",
        title="Bytes per default breaker",
        method=(
            f"tracemalloc over {effort.breakers:,} breakers with different names; the names and "
            "the list that holds them are not counted. Used: one success, then one failure."
        ),
        columns=("fresh", "used"),
        rows=sorted_by_gauge(rows),
        bars=[
            Bar("bytes per fresh breaker", ours.fresh, AT_MOST_BYTES),
            Bar("bytes per used breaker", ours.used, AT_MOST_BYTES),
        ],
        numbers={name: footprint._asdict() for name, footprint in footprints.items()},
    )


def _row(library: Library, footprint: Footprint) -> Row:
    cells = (f"{footprint.fresh:,.0f}", f"{footprint.used:,.0f}")
    return Row(library.distribution, library.role, cells, footprint.used)


def _footprint(library: Library, count: int) -> Footprint:
    succeeding, failing = (
        (succeed_async, _fail_async) if library.uses_coroutines else (succeed, _fail)
    )
    # What a library allocates once, on first use, is not a breaker's.
    _use(library, library.create("warm-up"), succeeding, failing)
    names = [f"bench-{number}" for number in range(count)]
    breakers: list[Any] = [None] * count
    with _Traced() as bytes_since:
        for index, name in enumerate(names):
            breakers[index] = library.create(name)
        fresh = bytes_since() / count
        for breaker in breakers:
            _use(library, breaker, succeeding, failing)
        return Footprint(fresh, bytes_since() / count)


class _Traced:
    """Counts the bytes allocated and still alive since it was entered."""

    def __enter__(self) -> Callable[[], int]:
        gc.collect()
        tracemalloc.start()
        return self._bytes

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()

    @staticmethod
    def _bytes() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]


def _use(library: Library, breaker: Any, succeeding: Function, failing: Function) -> None:
    library.use(breaker, succeeding)
    try:
        library.use(breaker, failing)
    except Exception:
        pass


def _fail() -> None:
    raise UpstreamError(f"529 overloaded, request {next(request_numbers)}")


async def _fail_async() -> None:
    _fail()
