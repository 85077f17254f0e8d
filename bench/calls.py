"""Measures 1 to 5: what a call costs when the circuit is closed, and when it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bench import floors, ours
from bench.library import Function, Guard, Role
from bench.measure import Contender, Effort, Statement, Timing, interleaved
from bench.peers import INTERLOCK, PEERS
from bench.proof import tripped, tripped_async
from bench.result import TIMES, Bar, Row, Section, sorted_by_gauge

ALL = (ours.OURS, *PEERS)
OURS_NAME = ours.OURS.distribution
INTERLOCK_NAME = INTERLOCK.distribution

IN_LOOP = "All are awaited in one running event loop, so no call starts one."


@dataclass(frozen=True, slots=True)
class Race:
    """One table: who takes part, and how many times the floor ours may cost (None: no bar)."""

    key: str
    title: str
    method: str
    contenders: list[Contender]
    at_most_times_floor: float | None


def closed_sync(effort: Effort) -> Section:
    contenders = [
        _closed("bare wrapper", Role.FLOOR, floors.bare),
        Contender(
            f"{OURS_NAME}, breaker.call(f)", Role.OURS, ours.call, Statement.CALL_WITH_FUNCTION
        ),
        *(_closed(lib.distribution, lib.role, lib.in_a_row) for lib in ALL if lib.in_a_row),
    ]
    method = (
        "A decorated function that does nothing, called by a compiled loop. "
        "Trips on failures in a row, or on the library's nearest rule."
    )
    return run(Race("closed", "Closed, a success", method, contenders, 1.6), effort)


def closed_windowed(effort: Effort) -> Section:
    contenders = [
        _closed("bare wrapper", Role.FLOOR, floors.bare),
        *(_closed(lib.distribution, lib.role, lib.by_rate) for lib in ALL if lib.by_rate),
    ]
    method = (
        "The same with a failure-rate window of 20 calls and each call timed against a slow "
        "limit of 10 s. The others have no such window."
    )
    title = "Closed, a success, with windows"
    return run(Race("windowed", title, method, contenders, 3.0), effort)


def closed_async(effort: Effort) -> Section:
    contenders = [
        _awaited("bare async wrapper", Role.FLOOR, floors.bare_async),
        Contender(
            f"{OURS_NAME}, breaker.acall(f)", Role.OURS, ours.acall, Statement.AWAIT_WITH_FUNCTION
        ),
        *(
            _awaited(lib.distribution, lib.role, lib.in_a_row_async)
            for lib in ALL
            if lib.in_a_row_async
        ),
    ]
    method = f"A decorated coroutine function that does nothing. {IN_LOOP}"
    return run(Race("async", "Closed, a success, async", method, contenders, 1.5), effort)


def refusal_sync(effort: Effort) -> Section:
    contenders = [
        _caught("bare raise", Role.FLOOR, floors.refusing, floors.FloorRefusedError),
        *(
            _caught(lib.distribution, lib.role, partial(tripped, lib, lib.in_a_row), lib.refusal)
            for lib in ALL
            if lib.in_a_row
        ),
    ]
    method = (
        "A circuit opened by real failures; the caller catches the exception. "
        "The floor is a wrapper that raises a new exception with a message."
    )
    return run(Race("refusal", "Open, a refusal", method, contenders, 2.0), effort)


def refusal_async(effort: Effort) -> Section:
    floor = floors.refusing_async
    awaited = Statement.AWAIT_CAUGHT
    contenders = [
        _caught("bare async raise", Role.FLOOR, floor, floors.FloorRefusedError, awaited),
    ]
    for lib in ALL:
        if lib.in_a_row_async:
            opened = partial(tripped_async, lib, lib.in_a_row_async)
            contenders.append(_caught(lib.distribution, lib.role, opened, lib.refusal, awaited))
    method = f"The same for coroutine functions; shown without a limit. {IN_LOOP}"
    return run(Race("refusal-async", "Open, a refusal, async", method, contenders, None), effort)


def run(race: Race, effort: Effort) -> Section:
    """Time the contenders and judge ours against the floor, interlock-cb and the fastest peer."""
    timings = interleaved(race.contenders, effort)
    floor = next(timings[c.name] for c in race.contenders if c.role is Role.FLOOR)
    rows = [_row(contender, timings[contender.name], floor) for contender in race.contenders]
    return Section(
        key=race.key,
        title=race.title,
        method=race.method,
        columns=("ns per call", "±", f"{TIMES} floor"),
        rows=sorted_by_gauge(rows),
        bars=_bars(race, timings, floor),
        numbers={
            name: timing.numbers() | {"times_floor": round(timing.times(floor), 3)}
            for name, timing in timings.items()
        },
    )


def _bars(race: Race, timings: dict[str, Timing], floor: Timing) -> list[Bar]:
    if race.at_most_times_floor is None:
        return []
    our_timing = timings[OURS_NAME]
    peers = [c.name for c in race.contenders if c.role is Role.PEER]
    faster_than = {name: timings[name].times(our_timing) for name in peers}
    fastest = min(peers, key=lambda name: faster_than[name])
    return [
        Bar("times the floor", our_timing.times(floor), race.at_most_times_floor),
        Bar(f"times as fast as {INTERLOCK_NAME}", faster_than[INTERLOCK_NAME], 4.0, at_least=True),
        Bar(
            f"times as fast as the fastest peer, {fastest}",
            faster_than[fastest],
            1.0,
            at_least=True,
        ),
    ]


def _row(contender: Contender, timing: Timing, floor: Timing) -> Row:
    cells = (
        f"{timing.median_ns:,.0f}",
        f"{timing.spread_ns:,.0f}",
        f"{timing.times(floor):.2f}",
    )
    return Row(contender.name, contender.role, cells, timing.median_ns)


def _closed(name: str, role: Role, guard: Guard) -> Contender:
    return Contender(name, role, partial(guard, floors.succeed), Statement.CALL)


def _awaited(name: str, role: Role, guard: Guard) -> Contender:
    return Contender(name, role, partial(guard, floors.succeed_async), Statement.AWAIT)


def _caught(
    name: str,
    role: Role,
    opened: Function,
    refusal: type[BaseException],
    statement: Statement = Statement.CALL_CAUGHT,
) -> Contender:
    return Contender(name, role, opened, statement, refusal)
