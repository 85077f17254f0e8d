"""What steps took: tokens and money, as recorded, else by the price list, else not known."""

from collections.abc import Iterable
from typing import NamedTuple

from switchgear.agents.events import Usage
from switchgear.agents.prices import cost_of
from switchgear.recordings.recorded import Recorded, RecordedStep


class Money(NamedTuple):
    """An amount in millionths of a dollar, or why it is not known."""

    micros: int | None
    unknown: str = ""


def tokens_of(steps: Iterable[RecordedStep]) -> int:
    """All tokens, in and out."""
    return sum(usage.input_tokens + usage.output_tokens for step in steps for usage in step.usages)


def cost_of_steps(run: Recorded, after: int) -> Money:
    """What the steps behind the first `after` of them cost.

    A recording that has only the cost of the whole run is taken to have spent it evenly.
    """
    usages = [usage for step in run.steps[after:] for usage in step.usages]
    if usages and (run.cost_micros is None or any(usage.cost_micros for usage in usages)):
        if any(usage.model is None and usage.cost_micros is None for usage in usages):
            return Money(None, "the recording names no model for its tokens, or only their sum")
        cost = cost_of(_added_up(usages))
        return Money(cost.micros, cost.unknown)
    if run.cost_micros is not None and run.steps:
        return Money(run.cost_micros * (len(run.steps) - after) // len(run.steps))
    return Money(None, "the recording tells no usage")


def _added_up(usages: Iterable[Usage]) -> Iterable[Usage]:
    """One usage for each model, apart for those that come with a cost."""
    sums: dict[tuple[str | None, bool], Usage] = {}
    for usage in usages:
        key = usage.model, usage.cost_micros is None
        held = sums.get(key)
        sums[key] = usage if held is None else _sum(held, usage)
    return sums.values()


def _sum(held: Usage, more: Usage) -> Usage:
    costs = (held.cost_micros, more.cost_micros)
    return Usage(
        held.model,
        held.input_tokens + more.input_tokens,
        held.output_tokens + more.output_tokens,
        held.cache_read_tokens + more.cache_read_tokens,
        held.cache_write_tokens + more.cache_write_tokens,
        None if None in costs else sum(cost for cost in costs if cost is not None),
    )
