"""Medians and ratios from interleaved rounds.

Each round times every contender once, in a new random order, on a freshly made breaker. Noise of
the machine (another process, a clock step, heat) then affects all contenders alike, not only the
one measured last, and effects of one object's memory layout average out. A ratio is the median of
the ratios within each round: virtual machines change speed by half from one second to the next,
and two medians, each taken over both speeds, may come from different ones (seen: 2.7 to 3.2 for
what is steadily 3.0 within the rounds).

The loop is compiled for each contender, as `timeit` does, because CPython specialises a call site
for the first callee: with a shared loop, all others would be slower. The garbage collector is off
inside a sample, again as in `timeit`, which favours contenders that allocate the most.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.floors import succeed, succeed_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.library import Function, Role


class Effort(NamedTuple):
    """How long to try: the whole run takes some three minutes, the quick one half a minute.

    `trips` are sent to other processes; `crowded` phases of `crowd_s` seconds each are spent by
    many processes on one circuit; `circuits` are in the large one of two stores; `iterations` are
    those of a run.
    """

    rounds: int
    sample_s: float
    sleep_rounds: int
    breakers: int
    windows: tuple[int, ...]
    trips: int
    crowded: int
    crowd_s: float
    circuits: int
    iterations: int


FULL = Effort(201, 0.0025, 7, 10_000, (100, 1_000, 10_000, 100_000), 150, 41, 0.25, 100_000, 61)
QUICK = Effort(25, 0.001, 3, 1_000, (100, 1_000, 10_000), 30, 11, 0.2, 10_000, 15)


class Statement(StrEnum):
    """What is timed, over and over."""

    CALL = "function()"
    CALL_WITH_FUNCTION = "function(succeed)"
    CALL_CAUGHT = "\n            try: function()\n            except caught: pass"
    AWAIT = "await function()"
    AWAIT_WITH_FUNCTION = "await function(succeed_async)"
    AWAIT_CAUGHT = "\n            try: await function()\n            except caught: pass"

    @property
    def is_async(self) -> bool:
        return "await" in self.value


LOOP = """
{prefix}def timed(function, caught, repeats, clock):
    begun_s = clock()
    for _ in repeats: {statement}
    return clock() - begun_s
"""


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of a table: `fresh` makes the callable that is timed, once per round."""

    name: str
    role: Role
    fresh: Callable[[], Function]
    statement: Statement
    caught: type[BaseException] = Exception


class Timing:
    """Nanoseconds per call, one sample per round."""

    def __init__(self, samples_ns: Sequence[float]) -> None:
        self._samples_ns = samples_ns
        lower_ns, self.median_ns, upper_ns = statistics.quantiles(samples_ns, n=4)
        self.spread_ns = (upper_ns - lower_ns) / 2

    def times(self, other: Timing) -> float:
        """How many times as long as the other: the median of the ratios within each round."""
        pairs = zip(self._samples_ns, other._samples_ns, strict=True)
        return statistics.median(mine / its for mine, its in pairs)

    def numbers(self) -> dict[str, float]:
        """For the record: the median, and half the distance of the quartiles."""
        return {"median_ns": round(self.median_ns, 1), "spread_ns": round(self.spread_ns, 1)}


class Stopwatch:
    """Times one contender. All async contenders are awaited inside one running loop.

    `await function()` never reaches the loop when nothing waits, so this is the bare cost of the
    coroutines, and peers that need a running loop have one.
    """

    def __init__(self, contender: Contender, runner: asyncio.Runner) -> None:
        self._contender = contender
        self._runner = runner
        self._timed = _compiled(contender.statement)
        self._repeats = 1

    def calibrate(self, sample_s: float) -> None:
        """Choose how often to repeat so that one sample takes about `sample_s`."""
        repeats, taken_s = 1, 0.0
        function = self._contender.fresh()
        while taken_s < sample_s / 4:
            repeats *= 2
            taken_s = self._seconds(function, repeats)
        self._repeats = max(1, round(repeats * sample_s / taken_s))

    def sample_ns(self) -> float:
        """Nanoseconds per call on a fresh breaker, after a warm-up of a tenth as many calls."""
        function = self._contender.fresh()
        self._seconds(function, self._repeats // 10 + 1)
        return self._seconds(function, self._repeats) / self._repeats * 1e9

    def _seconds(self, function: Function, repeats: int) -> float:
        arguments = (
            function,
            self._contender.caught,
            itertools.repeat(None, repeats),
            time.perf_counter,
        )
        with _collector_off():
            if self._contender.statement.is_async:
                return float(self._runner.run(self._timed(*arguments)))
            return float(self._timed(*arguments))


def interleaved(contenders: Sequence[Contender], effort: Effort) -> dict[str, Timing]:
    """Time all contenders in interleaved rounds; the result keeps their order."""
    with asyncio.Runner() as runner:
        stopwatches = {contender.name: Stopwatch(contender, runner) for contender in contenders}
        for stopwatch in stopwatches.values():
            stopwatch.calibrate(effort.sample_s)
        samples: dict[str, list[float]] = {name: [] for name in stopwatches}
        for seed in range(effort.rounds):
            order = list(stopwatches)
            random.Random(seed).shuffle(order)
            for name in order:
                samples[name].append(stopwatches[name].sample_ns())
    return {name: Timing(taken) for name, taken in samples.items()}


def _compiled(statement: Statement) -> Callable[..., Any]:
    source = LOOP.format(prefix="async " * statement.is_async, statement=statement.value)
    namespace: dict[str, Any] = {"succeed": succeed, "succeed_async": succeed_async}
    exec(compile(source, "<bench loop>", "exec"), namespace)
    return namespace["timed"]  # type: ignore[no-any-return]


@contextmanager
def _collector_off() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
