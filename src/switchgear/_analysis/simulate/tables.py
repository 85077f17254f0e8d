"""A result as rows for people and as values for machines."""

from typing import Any, NamedTuple

from switchgear._analysis.simulate.compare import Result
from switchgear._analysis.simulate.scenarios import BURN, CONVOY, OUTAGE, POISON, SLOW
from switchgear._analysis.simulate.tally import Harm, Tally
from switchgear._core.errors import duration
from switchgear._text.money import dollars

NEVER = "never"
WASTED = {
    OUTAGE: "calls to a dead provider",
    SLOW: "calls that came too late",
    POISON: "calls that failed or broke a rule",
    BURN: "calls at fifty times the price",
    CONVOY: "waits that were too long",
}
"""What is wasted by each trouble."""


class Row(NamedTuple):
    """One measure on both sides."""

    name: str
    plain: str
    guarded: str


class Block(NamedTuple):
    """The measures of a trouble, or of all."""

    title: str
    rows: list[Row]


def blocks(result: Result) -> list[Block]:
    """All that was measured, trouble by trouble."""
    found = [_trouble(plain, guarded) for plain, guarded in result.pairs]
    return [*found, _whole(result.plain, result.guarded)]


def _trouble(plain: Harm, guarded: Harm) -> Block:
    span = plain.span
    when = f"{hours(span.begins_s)} to {hours(span.ends_s)}"
    both = (plain, guarded)
    rows = [
        Row(WASTED[span.kind], *(f"{one.wasted:,}" for one in both)),
        Row("money wasted", *(cents(one.micros) for one in both)),
        Row("agents' time wasted", *(duration(one.seconds) for one in both)),
        Row("time to detect", *(_since(one.detected_s, span.begins_s) for one in both)),
        Row("time to recover", *(_recovery(one) for one in both)),
    ]
    return Block(f"{span.kind}, {when}", rows)


def _whole(plain: Tally, guarded: Tally) -> Block:
    both = (plain, guarded)
    rows = [
        Row("calls made", *(f"{sum(one.made):,}" for one in both)),
        Row("pieces of work done", *(f"{one.done:,}" for one in both)),
        Row("money spent", *(cents(one.spent_micros) for one in both)),
        Row("refused or sent elsewhere", *(f"{sum(one.refused):,}" for one in both)),
        Row("trips", *(f"{one.trips:,}" for one in both)),
        Row("wrong trips", *(f"{one.wrong_trips:,}" for one in both)),
        Row("agents halted", *(f"{len(one.halted):,}" for one in both)),
        Row("healthy agents halted", *(f"{len(one.halted_well):,}" for one in both)),
    ]
    return Block("in all", rows)


def cents(micros: int) -> str:
    """Money to the cent: a simulation knows no more.

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


def _since(at_s: float | None, begins_s: float) -> str:
    return NEVER if at_s is None else duration(at_s - begins_s)


def _recovery(harm: Harm) -> str:
    if harm.still_open:
        return "not before the end"
    return duration(harm.last_s - harm.span.ends_s)


def as_json(result: Result) -> dict[str, Any]:
    """All that was measured; fields are only ever added."""
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
        "troubles": [_harm(one) for one in tally.harms],
        "slots": {"made": tally.made, "doomed": tally.doomed, "refused": tally.refused},
    }


def _harm(harm: Harm) -> dict[str, Any]:
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
