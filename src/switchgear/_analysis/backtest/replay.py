"""Replays a recorded run with the `step` of live circuits.

The circuit records each step in the order of the recording, at its time, until it opens: after that, the
run would have been different from the recording, so later steps are not judged.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from switchgear._agents.events import Usage
from switchgear._agents.prices import cost_of
from switchgear._agents.recordings.recording import RecordedRun, RecordedStep
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Phase, Record
from switchgear._text.agent_text import one_line


class RunFacts(NamedTuple):
    """One recorded run, without its texts."""

    id: str
    source: str
    format: str
    agent: str = ""
    model: str | None = None
    task: str = ""
    solved: bool | None = None
    ended: str = ""
    steps: int = 0
    tokens: int = 0
    """0: the recording has none."""
    cost_micros: int | None = None
    cost_unknown: str = ""
    """Why there is no cost; empty: there is one."""
    timed: bool = False
    """Whether the recording has the times of its steps."""
    outcome_from: str = ""
    """The source of `solved`: `label`, `given`, `recording` or `inferred`; empty: unknown."""
    confidence: float | None = None
    """How likely the outcome is right, 0.5 to 1."""
    outcome_how: str = ""
    """The evidence for an inferred outcome, in one line."""


class Shown(NamedTuple):
    """One step as evidence: each text is one bounded, printable line."""

    number: int
    tool: str
    args: str
    ok: bool | None
    told: str
    """The error, else the beginning of the result."""
    thought: str


class Judged(NamedTuple):
    """What one policy would have done with one run. Steps count from 1."""

    policy: str
    warned_at: int | None = None
    """The first step after which it warned."""
    warnings: int = 0
    tripped_at: int | None = None
    """The step after which it would have stopped the run."""
    detector: str = ""
    """The kind of the detector that was the hottest at the trip."""
    reason: str = ""
    hottest: float = 0.0
    saved_steps: int = 0
    saved_tokens: int = 0
    saved_micros: int | None = 0
    """`None`: steps were saved, but their price is unknown."""
    harmful: bool | None = None
    """For a solved run: whether the work was changed after the stop."""
    evidence: tuple[Shown, ...] = ()
    kinds: tuple[str, ...] = ()
    heats: tuple[tuple[int, tuple[float, ...]], ...] = ()
    """For the picture: the heat of each detector after some of the steps."""

    @property
    def stopped(self) -> bool:
        """Whether it would have stopped the run before its last step."""
        return self.tripped_at is not None and self.saved_steps > 0


class RunRow(NamedTuple):
    """One run with the judgement of each policy."""

    run: RunFacts
    judged: tuple[Judged, ...]


class StepsCost(NamedTuple):
    """An amount in millionths of a dollar, or why it is unknown."""

    micros: int | None
    unknown: str = ""


def tokens_of(steps: Iterable[RecordedStep]) -> int:
    return sum(usage.input_tokens + usage.output_tokens for step in steps for usage in step.usages)


def cost_of_steps(run: RecordedRun, after: int) -> StepsCost:
    """The cost of all steps but the first `after`.

    If the recording has only the cost of the whole run, each step counts with an equal part.
    """
    usages = [usage for step in run.steps[after:] for usage in step.usages]
    if usages and (run.cost_micros is None or any(usage.cost_micros for usage in usages)):
        if any(usage.model is None and usage.cost_micros is None for usage in usages):
            return StepsCost(None, "the recording names no model for its tokens, or only their sum")
        cost = cost_of(_sum_by_model(usages))
        return StepsCost(cost.micros, cost.unknown)
    if run.cost_micros is not None and run.steps:
        return StepsCost(run.cost_micros * (len(run.steps) - after) // len(run.steps))
    return StepsCost(None, "the recording has no token usage")


def _sum_by_model(usages: Iterable[Usage]) -> Iterable[Usage]:
    """The sum of the usages of each model, separately for usages with and without a cost."""
    sums: dict[tuple[str | None, bool], Usage] = {}
    for usage in usages:
        key = usage.model, usage.cost_micros is None
        total = sums.get(key)
        sums[key] = usage if total is None else _sum(total, usage)
    return sums.values()


def _sum(first: Usage, second: Usage) -> Usage:
    costs = (first.cost_micros, second.cost_micros)
    return Usage(
        first.model,
        first.input_tokens + second.input_tokens,
        first.output_tokens + second.output_tokens,
        first.cache_read_tokens + second.cache_read_tokens,
        first.cache_write_tokens + second.cache_write_tokens,
        None if None in costs else sum(cost for cost in costs if cost is not None),
    )


EVIDENCE = 6
"""Steps shown before a trip."""
POINTS = 240
"""Steps of a run whose heat is kept for its picture."""
APART_S = 1.0
"""Seconds between steps that were recorded without times."""


class Named(NamedTuple):
    """A policy and its name in reports."""

    name: str
    policy: Policy


def judge(run: RecordedRun, policies: Sequence[Named], *, pictures: bool = False) -> RunRow:
    """What each policy would have done with a run."""
    whole = cost_of_steps(run, 0)
    facts = RunFacts(
        id=run.id,
        source=run.source,
        format=run.format,
        agent=run.agent,
        model=run.model,
        task=run.task,
        solved=run.solved,
        ended=run.ended,
        steps=len(run.steps),
        tokens=tokens_of(run.steps),
        cost_micros=whole.micros,
        cost_unknown=whole.unknown,
        timed=any(each.at_s is not None for each in run.steps),
        outcome_from=run.outcome_from,
        confidence=run.confidence if run.confidence is None else round(run.confidence, 2),
        outcome_how=run.outcome_how,
    )
    return RunRow(facts, tuple(replay(named, run, pictures=pictures) for named in policies))


def times(steps: Sequence[RecordedStep]) -> Iterator[float]:
    """The time of each step; steps without times are `APART_S` apart."""
    now_s = 0.0
    for each in steps:
        now_s = now_s + APART_S if each.at_s is None else max(each.at_s, now_s)
        yield now_s


def replay(named: Named, run: RecordedRun, *, pictures: bool = False) -> Judged:
    """What one policy would have done with a run."""
    policy = named.policy
    circuit, stride = policy.start(run.id, 0.0), max(len(run.steps) // POINTS, 1)
    judged = Judged(named.name, kinds=tuple(detector.kind for detector in policy.detectors))
    heats: list[tuple[int, tuple[float, ...]]] = []
    phase, hottest = Phase.CLOSED, 0.0
    for number, (each, now_s) in enumerate(zip(run.steps, times(run.steps), strict=True), 1):
        circuit = step(policy, circuit, Record(each.signal()), now_s).circuit
        hottest = max(hottest, circuit.heat)
        opened = circuit.phase is Phase.OPEN
        if pictures and (opened or number % stride == 0):
            heats.append((number, _heats(policy, circuit, now_s)))
        if circuit.phase is Phase.TRIPPING and phase is not Phase.TRIPPING:
            judged = _add_warning(judged, circuit, number)
        phase = circuit.phase
        if opened:
            judged = _add_trip(judged, run, number, _heats(policy, circuit, now_s))._replace(
                reason=circuit.outage.reason
            )
            break
    return judged._replace(hottest=min(hottest, 9.99), heats=tuple(heats))


def _heats(policy: Policy, circuit: Circuit, now_s: float) -> tuple[float, ...]:
    pairs = zip(policy.detectors, circuit.memories, strict=True)
    return tuple(round(min(one.heat(memory, now_s), 9.99), 3) for one, memory in pairs)


def _add_warning(judged: Judged, circuit: Circuit, number: int) -> Judged:
    if judged.warned_at is None:
        judged = judged._replace(warned_at=number, reason=circuit.outage.reason)
    return judged._replace(warnings=judged.warnings + 1)


def _add_trip(judged: Judged, run: RecordedRun, number: int, heats: tuple[float, ...]) -> Judged:
    remaining = run.steps[number:]
    money = cost_of_steps(run, number) if remaining else StepsCost(0)
    return judged._replace(
        tripped_at=number,
        detector=judged.kinds[heats.index(max(heats))],
        saved_steps=len(remaining) + run.left_out,
        saved_tokens=tokens_of(remaining),
        saved_micros=money.micros,
        harmful=_is_harmful(remaining) if run.solved else None,
        evidence=tuple(
            _shown_step(index, run.steps[index - 1])
            for index in range(max(number - EVIDENCE + 1, 1), number + 1)
        ),
    )


def _is_harmful(remaining: Sequence[RecordedStep]) -> bool | None:
    """Whether these steps changed anything; `None`: unknown."""
    if any(each.changed for each in remaining):
        return True
    return None if any(each.changed is None for each in remaining) else False


def _shown_step(number: int, each: RecordedStep) -> Shown:
    text = each.error or (each.result or "")[:1000]
    return Shown(
        number,
        one_line(each.tool, 60),
        one_line(each.args, 200),
        each.ok,
        one_line(text, 200),
        one_line(each.thought or "", 200),
    )
