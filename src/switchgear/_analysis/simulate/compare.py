"""The result of a simulation as rows and as JSON values."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from switchgear._analysis.simulate.engine import (
    Engine,
    Guarded,
    Harm,
    Tally,
    Unguarded,
)
from switchgear._analysis.simulate.world import (
    BURN,
    CONVOY,
    FEWEST,
    MOST,
    OUTAGE,
    POISON,
    SCENARIOS,
    SLOW,
    World,
)
from switchgear._core import values
from switchgear._core.policy import Policy
from switchgear._detectors import LatencyP95, LockWait
from switchgear._fleet.categories import Breakers, default_breakers
from switchgear._fleet.manifest import near
from switchgear._panel.panel import PolicyOf
from switchgear._sinks.log import silenced
from switchgear._text.formats import dollars, duration

NOT_MADE = 0.95
INTERVALS = 2
LONGEST_HOURS = 24.0 * 7
COLLECT = (1_000_000, 20, 1_000_000)
"""Thresholds for rare garbage collections, see `gc.set_threshold`."""
Progress = Callable[[int, int], object]
"""Receives the number of simulated hours so far and in total; each side begins at 0."""


class Bar(NamedTuple):
    """A promised result, and whether it was achieved."""

    kept: bool
    words: str


class Result(NamedTuple):
    """Both sides of one simulation."""

    world: World
    plain: Tally
    """Without breakers."""
    guarded: Tally

    @property
    def pairs(self) -> list[tuple[Harm, Harm]]:
        """Each trouble without breakers and with them."""
        return list(zip(self.plain.harms, self.guarded.harms, strict=True))

    @property
    def bars(self) -> list[Bar]:
        """The promised results of every simulation."""
        found: list[Bar] = []
        for plain, guarded in self.pairs:
            if plain.span.kind == OUTAGE:
                found += [_spared_bar(plain, guarded), _recovery_bar(guarded)]
        well = sorted(self.guarded.halted_well)
        sentence = (
            f"{len(well)} healthy agents were halted" if well else "no healthy agent was halted"
        )
        return [*found, Bar(not well, sentence)]

    @property
    def kept(self) -> bool:
        """Whether all promises were kept."""
        return all(bar.kept for bar in self.bars)


def simulate(
    name: str,
    *,
    agents: int = 1000,
    hours: float | None = None,
    seed: int = 1,
    noise: float = 0.0,
    breakers: Breakers | None = None,
    policies: PolicyOf | None = None,
    progress: Progress | None = None,
) -> Result:
    """Simulate a scenario without breakers and with them. The same seed, the same result.

    - `agents`: 10 to 100,000; `hours`: above 0 (default: the scenario's own), at most a week.
    - `noise`: the share of calls that a healthy provider fails, 0 and below 1.
    - `breakers`, `policies`: the policies of the circuits; default: the seven categories as documented.

    Raises ValueError for values out of range.

    >>> result = simulate("outage", agents=10, hours=0.2)
    >>> result.guarded.harms[0].wasted < result.plain.harms[0].wasted
    True
    """
    scenario = SCENARIOS.get(name)
    if scenario is None:
        raise ValueError(f"there is no scenario {name!r}; {near(name, SCENARIOS)}")
    _check(agents, hours, seed, noise)
    world = World(scenario, agents, scenario.hours if hours is None else hours, seed, noise)
    on = default_breakers() if breakers is None else breakers
    crew = world.crew()
    plain, guarded = Tally(world, *_limits(on)), Tally(world, *_limits(on))
    with _few_collections(), silenced():
        Engine(world, plain).run(Unguarded(crew), _hourly(progress, world))
        engine = Engine(world, guarded)
        gate = Guarded(crew, on, policies, engine.clock, guarded.on_event)
        with gate.panel:
            engine.run(gate, _hourly(progress, world))
    return Result(world, plain, guarded)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Collect garbage rarely.

    The heap of a large fleet has no garbage: full collections would find nothing, and ten times the agents
    would take more than ten times as long.
    """
    before = gc.get_threshold()
    gc.set_threshold(*COLLECT)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _hourly(progress: Progress | None, world: World) -> Callable[[float], object] | None:
    if progress is None:
        return None
    hours = max(1, int(world.length_s / 3600))
    progress(0, hours)
    return lambda hour: progress(int(hour), hours)


def _check(agents: Any, hours: Any, seed: Any, noise: Any) -> None:
    values.check_int("agents", agents, least=FEWEST)
    if agents > MOST:
        raise ValueError(f"agents is {agents!r}: it must be at most {MOST:,}")
    if hours is not None and values.check_positive("hours", hours) > LONGEST_HOURS:
        raise ValueError(f"hours is {hours!r}: it must be at most {LONGEST_HOURS:g}, a week")
    values.check_int("seed", seed, least=0)
    values.check_fraction("noise", noise)


def _limits(breakers: Breakers) -> tuple[float, float]:
    """The durations in seconds from which a call is late and a wait is too long."""
    late = _detector(breakers.latency.policy, LatencyP95)
    waits = _detector(breakers.resource_lock.policy, LockWait)
    return late.limit_s, waits.limit_s


def _detector(policy: Policy, kind: type[Any]) -> Any:
    return next(one for one in policy.detectors if isinstance(one, kind))


def _spared_bar(plain: Harm, guarded: Harm) -> Bar:
    share = 1.0 - guarded.wasted / plain.wasted if plain.wasted else 0.0
    made = f"{guarded.wasted:,} of {plain.wasted:,}"
    sentence = (
        f"{share:.2%} of the doomed calls were not made ({made} were), at least {NOT_MADE:.0%}"
    )
    return Bar(share >= NOT_MADE, sentence)


def _recovery_bar(guarded: Harm) -> Bar:
    took_s = guarded.last_s - guarded.span.ends_s
    most_s = INTERVALS * guarded.interval_s
    if guarded.detected_s is None:
        return Bar(False, "the outage was not detected")
    sentence = f"all calls pass {took_s:.0f} s after the provider is back, at most {most_s:.0f} s (two probe intervals)"
    return Bar(took_s <= most_s and not guarded.still_open, sentence)


NEVER = "never"
WASTED = {
    OUTAGE: "calls to a dead provider",
    SLOW: "calls that came too late",
    POISON: "calls that failed or broke a rule",
    BURN: "calls at fifty times the price",
    CONVOY: "waits that were too long",
}
"""What each trouble wastes."""


class ComparisonRow(NamedTuple):
    """One measure on both sides."""

    name: str
    plain: str
    guarded: str


class TableBlock(NamedTuple):
    """The measures of one trouble, or of all."""

    title: str
    rows: list[ComparisonRow]


def blocks(result: Result) -> list[TableBlock]:
    """All measures, trouble by trouble."""
    found = [_trouble(plain, guarded) for plain, guarded in result.pairs]
    return [*found, _totals_table(result.plain, result.guarded)]


def _trouble(plain: Harm, guarded: Harm) -> TableBlock:
    span = plain.span
    when = f"{hours(span.begins_s)} to {hours(span.ends_s)}"
    both = (plain, guarded)
    rows = [
        ComparisonRow(WASTED[span.kind], *(f"{one.wasted:,}" for one in both)),
        ComparisonRow("money wasted", *(cents(one.micros) for one in both)),
        ComparisonRow("agents' time wasted", *(duration(one.seconds) for one in both)),
        ComparisonRow(
            "time to detect", *(_delay_text(one.detected_s, span.begins_s) for one in both)
        ),
        ComparisonRow("time to recover", *(_recovery(one) for one in both)),
    ]
    return TableBlock(f"{span.kind}, {when}", rows)


def _totals_table(plain: Tally, guarded: Tally) -> TableBlock:
    both = (plain, guarded)
    rows = [
        ComparisonRow("calls made", *(f"{sum(one.made):,}" for one in both)),
        ComparisonRow("work items done", *(f"{one.done:,}" for one in both)),
        ComparisonRow("money spent", *(cents(one.spent_micros) for one in both)),
        ComparisonRow("refused or sent elsewhere", *(f"{sum(one.refused):,}" for one in both)),
        ComparisonRow("trips", *(f"{one.trips:,}" for one in both)),
        ComparisonRow("wrong trips", *(f"{one.wrong_trips:,}" for one in both)),
        ComparisonRow("agents halted", *(f"{len(one.halted):,}" for one in both)),
        ComparisonRow("healthy agents halted", *(f"{len(one.halted_well):,}" for one in both)),
    ]
    return TableBlock("in all", rows)


def cents(micros: int) -> str:
    """Money, rounded to cents.

    >>> cents(12_345_678)
    '$12.35'
    """
    return dollars((micros + 5_000) // 10_000 * 10_000)


def hours(seconds: float) -> str:
    """A time since the beginning, in hours and minutes.

    >>> hours(34_200.0)
    '9:30'
    """
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02}"


def _delay_text(at_s: float | None, begins_s: float) -> str:
    return NEVER if at_s is None else duration(at_s - begins_s)


def _recovery(harm: Harm) -> str:
    if harm.still_open:
        return "not before the end"
    return duration(harm.last_s - harm.span.ends_s)


def as_json(result: Result) -> dict[str, Any]:
    """All measures as JSON values. Fields are only ever added."""
    world = result.world
    return {
        "scenario": world.scenario.name,
        "agents": world.agents,
        "hours": world.length_s / 3600.0,
        "seed": world.seed,
        "noise": world.noise,
        "kept": result.kept,
        "bars": [bar._asdict() for bar in result.bars],
        "without_breakers": _side(result.plain),
        "with_breakers": _side(result.guarded),
    }


def _side(tally: Tally) -> dict[str, Any]:
    return {
        "calls": sum(tally.made),
        "done": tally.done,
        "spent_micros": tally.spent_micros,
        "refused": sum(tally.refused),
        "rerouted": tally.rerouted,
        "trips": tally.trips,
        "wrong_trips": tally.wrong_trips,
        "halted": sorted(tally.halted),
        "healthy_halted": sorted(tally.halted_well),
        "troubles": [_harm_dict(one) for one in tally.harms],
        "slots": {"made": tally.made, "doomed": tally.doomed, "refused": tally.refused},
    }


def _harm_dict(harm: Harm) -> dict[str, Any]:
    span = harm.span
    found = None if harm.detected_s is None else round(harm.detected_s - span.begins_s, 3)
    back = None if harm.still_open else round(harm.last_s - span.ends_s, 3)
    return {
        "kind": span.kind,
        "begins_s": span.begins_s,
        "ends_s": span.ends_s,
        "wasted_calls": harm.wasted,
        "wasted_micros": harm.micros,
        "wasted_s": round(harm.seconds, 3),
        "detect_s": found,
        "recover_s": back,
        "probe_interval_s": harm.interval_s,
    }
