"""Measure 8: a larger window must not make a call slower.

A window that is summed again for each call costs a microsecond with 20 entries and a millisecond
with 20,000, so the safest setting would be too slow to use. Windows are filled before they are
timed: an empty one evicts nothing.
"""

from __future__ import annotations

from bench.floors import UpstreamError, bare, fail, succeed
from bench.library import Function, Library, Role
from bench.measure import Contender, Effort, Statement, Timing, interleaved
from bench.ours import OURS
from bench.peers import PEERS
from bench.result import TIMES, Bar, Row, Section

AT_MOST_TIMES = 1.5


def section_of_successes(effort: Effort) -> Section:
    return _section("window-success", "success", succeed, effort)


def section_of_failures(effort: Effort) -> Section:
    return _section("window-failure", "failure", fail, effort)


def _section(key: str, outcome: str, function: Function, effort: Effort) -> Section:
    libraries = [library for library in (OURS, *PEERS) if library.by_rate_of is not None]
    floor = bare(function)
    contenders = [_contender("bare wrapper", Role.FLOOR, floor)]
    for library in libraries:
        contenders += [_filled(library, window, function) for window in effort.windows]
    timings = interleaved(contenders, effort)
    by_library = {
        library.distribution: [timings[_name(library, window)] for window in effort.windows]
        for library in libraries
    }
    growth = _growth(by_library[OURS.distribution])
    return Section(
        key=key,
        title=f"Closed, a {outcome}, by size of the failure-rate window",
        method=(
            f"ns per call with the window full; the caller catches. Growth: the slowest size over the fastest. "
            f"A bare wrapper takes {timings['bare wrapper'].median_ns:,.0f} ns."
        ),
        columns=(*(f"{window:,}" for window in effort.windows), "growth"),
        rows=[_row(library, by_library[library.distribution]) for library in libraries],
        bars=[Bar("times the fastest window size, for the slowest", growth, AT_MOST_TIMES)],
        numbers={name: timing.numbers() for name, timing in timings.items()},
    )


def _filled(library: Library, window: int, function: Function) -> Contender:
    """A contender whose one breaker has a full window; filling it every round would take hours."""
    assert library.by_rate_of is not None
    guarded = library.by_rate_of(window)(function)
    for _ in range(window):
        try:
            guarded()
        except UpstreamError:
            pass
    return _contender(_name(library, window), library.role, guarded)


def _contender(name: str, role: Role, guarded: Function) -> Contender:
    """Only the function's own error is caught: a breaker that trips after all ends the run."""
    return Contender(name, role, lambda: guarded, Statement.CALL_CAUGHT, UpstreamError)


def _name(library: Library, window: int) -> str:
    return f"{library.distribution}, window {window}"


def _row(library: Library, timings: list[Timing]) -> Row:
    cells = (*(f"{timing.median_ns:,.0f}" for timing in timings), f"{_growth(timings):.2f} {TIMES}")
    return Row(library.distribution, library.role, cells)


def _growth(timings: list[Timing]) -> float:
    """The slowest size over the fastest, each relative to the smallest window of the same round."""
    relative = [timing.times(timings[0]) for timing in timings]
    return max(relative) / min(relative)
