"""Measure 10: closed calls over Redis, against the same in memory and against two peers.

The peers that can share a circuit over Redis are interlock-cb, which polls in the background, and
pybreaker, which queries the server for each call. Both are used with their own storages, as their
documentation shows, on the same server. Each must first trip in one object and then refuse in
another one, which can know of the trip only through the server.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import floors
from bench.library import Function, Library, Role
from bench.measure import Contender, Effort, Statement, Timing, interleaved
from bench.ours import OURS
from bench.peers import INTERLOCK, PYBREAKER, interlock, pybreaker
from bench.proof import NotGuardingError, Upstream, trip
from bench.result import TIMES, Bar, Row, Section, sorted_by_gauge
from bench.server import Server, running
from switchgear import CircuitBreaker, Panel

if TYPE_CHECKING:
    from collections.abc import Callable

interlock_redis: Any = import_module("interlock.integrations.redis")
redis: Any = import_module("redis")

BURST = 10_000
"""So few that what this process does once a second seldom falls in."""
BURSTS = 51
WARM_UP_S = 2.0
"""Connections are made and threads started; what is measured is how it goes on."""
HEARD_WITHIN_S = 10.0
FLOOR, IN_MEMORY, OVER_REDIS = "bare wrapper", "switchgear, in memory", "switchgear, Redis"


class Sharing(NamedTuple):
    """A library over Redis: `shared(url, name)` puts a breaker for that circuit around functions."""

    library: Library
    name: str
    shared: Callable[[str, str], Function]


def section(effort: Effort) -> Section:
    with running() as server, ExitStack() as panels:

        def ours(url: str, name: str) -> Function:
            panel = panels.enter_context(Panel(url))
            return panel.breaker(name, CircuitBreaker("bench", threshold=5).policy)

        sharing = [
            Sharing(OURS, OVER_REDIS, ours),
            Sharing(INTERLOCK, "interlock-cb, Redis", _interlock),
            Sharing(PYBREAKER, "pybreaker, Redis", _pybreaker),
        ]
        bursts = _commands_of_bursts(server, ours(server.url, "bench")(floors.succeed))
        for one in sharing:
            _prove(one, server)
        contenders = [
            _contender(FLOOR, Role.FLOOR, floors.bare(floors.succeed)),
            _contender(IN_MEMORY, Role.OURS, OURS.in_a_row(floors.succeed)),  # type: ignore[misc]
            *(
                _contender(one.name, one.library.role, one.shared(server.url, "bench")(succeed))
                for one in sharing
                for succeed in (floors.succeed,)
            ),
        ]
        _warm_up([contender.fresh() for contender in contenders])
        timings = interleaved(contenders, effort)
        about = server.version
    return _section(contenders, timings, bursts, about)


def _section(
    contenders: list[Contender], timings: dict[str, Timing], bursts: list[int], about: str
) -> Section:
    ours = timings[OVER_REDIS]
    interlock_s, pybreaker_s = (timings[f"{name}, Redis"] for name in ("interlock-cb", "pybreaker"))
    return Section(
        key="redis",
        title="Closed, a success, over Redis",
        method=(
            f"As measure 1, with one circuit for all rounds, on {about}. Commands are counted by "
            f"the server, over {len(bursts)} bursts of {BURST:,} calls; {sum(bursts)} in total, "
            "because counted calls are recorded about once a second."
        ),
        columns=("ns per call", "±", f"{TIMES} floor"),
        rows=sorted_by_gauge([_row(c, timings) for c in contenders]),
        bars=[
            Bar(f"commands per {BURST:,} calls, the median", statistics.median(bursts), 0.0),
            Bar("of the rate in memory", timings[IN_MEMORY].times(ours), 0.5, at_least=True),
            Bar("times as fast as interlock-cb", interlock_s.times(ours), 1.0, at_least=True),
            Bar("times as fast as pybreaker", pybreaker_s.times(ours), 8.0, at_least=True),
        ],
        numbers={name: timing.numbers() for name, timing in timings.items()}
        | {"commands of each burst": bursts},
    )


def _warm_up(functions: list[Function]) -> None:
    """Use them now and then, as one does."""
    until_s = time.monotonic() + WARM_UP_S
    while time.monotonic() < until_s:
        for function in functions:
            function()
        time.sleep(0.01)


def _commands_of_bursts(server: Server, guarded: Function) -> list[int]:
    _warm_up([guarded])
    counts = []
    for _ in range(BURSTS):
        before = server.commands()
        for _ in range(BURST):
            guarded()
        counts.append(server.commands() - before)
    # Nothing at all would mean that calls are not counted, or commands are not.
    before, deadline_s = server.commands(), time.monotonic() + HEARD_WITHIN_S
    while server.commands() == before:
        if time.monotonic() > deadline_s:
            raise NotGuardingError(f"{OVER_REDIS} never sent its calls to the server")
        time.sleep(0.05)
    return counts


def _prove(one: Sharing, server: Server) -> None:
    """Trip it here, and wait until it refuses there."""
    upstream, elsewhere = Upstream(), Upstream()
    here = one.shared(server.url, "proof")(upstream.function())
    there = one.shared(server.url, "proof")(elsewhere.function())
    there()
    trip(one.library, upstream, here)
    deadline_s = time.monotonic() + HEARD_WITHIN_S
    while time.monotonic() < deadline_s:
        try:
            there()
        except one.library.refusal:
            return
        time.sleep(0.01)
    raise NotGuardingError(f"{one.name} tripped here and did not refuse there")


def _interlock(url: str, name: str) -> Any:
    storage = interlock_redis.RedisStorage(redis.Redis.from_url(url))
    return interlock.CircuitBreaker(name=name, storage=storage)


def _pybreaker(url: str, name: str) -> Any:
    storage = pybreaker.CircuitRedisStorage(
        pybreaker.STATE_CLOSED, redis.Redis.from_url(url), namespace=name
    )
    return pybreaker.CircuitBreaker(fail_max=5, reset_timeout=60, state_storage=storage)


def _contender(name: str, role: Role, guarded: Function) -> Contender:
    """One breaker for all rounds: each has a thread or a connection, which are made once."""
    return Contender(name, role, lambda: guarded, Statement.CALL)


def _row(contender: Contender, timings: dict[str, Timing]) -> Row:
    timing = timings[contender.name]
    cells = (
        f"{timing.median_ns:,.0f}",
        f"{timing.spread_ns:,.0f}",
        f"{timing.times(timings[FLOOR]):.2f}",
    )
    return Row(contender.name, contender.role, cells, timing.median_ns)
