"""What `Stagnation` is documented to do, recomputed from the full history, text by text."""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from property.naive_debts import History, long_words, looked, resemblance
from switchgear import _detectors
from switchgear._core.types import AgentStep, Reading, Signal

NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
KINDS = {
    "the same again": "stop repeating it: read what it already returned, or change the approach",
    "failed in the same way": "find the cause before the next try, or do without what keeps failing",
    "returned nothing": "check the question: nothing comes back from there",
    "the same thought": "write down what has been ruled out, and take a route not yet tried",
    "no tool call, the same reply": "act with a tool, or say that the task is done or what is missing",
    "undone": "decide between the two versions, and check the decision",
}
"""What the evidence is called, and the advice; the later one wins a tie."""


class Stood(NamedTuple):
    """One step."""

    tool: str
    failed: bool
    is_new: bool
    said: frozenset[str]
    result: list[str] | None
    call: list[str]

    @property
    def shape(self) -> list[str]:
        return [NUMBER.sub("#", line) for line in self.result or []]

    @property
    def numbers(self) -> list[float]:
        rows = [NUMBER.findall(line) for line in self.result or []]
        return [float(each) for each in ([row for row in rows if row] or [[]])[-1]][-4:]


class Told:
    """What happened so far, and the debt that came of it."""

    def __init__(self) -> None:
        self.debt = 0
        self.evidence: list[tuple[int, int, str]] = []
        self.steps: list[Stood] = []
        self.thoughts: list[frozenset[str]] = []
        self.words: set[str] = set()
        self.paths: set[str] = set()
        self.calls: list[tuple[list[str], frozenset[str]]] = []
        self.states: list[str] = []
        self.tests: list[str] = []
        self.tested: str | None = None
        self.context = 0

    def copy(self) -> "Told":
        other = Told()
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if hasattr(value, "copy") else value)
        return other


def same_result(one: Stood, other: Stood) -> int:
    if one.result is None or other.result is None:
        return 0
    lines = frozenset(one.result), frozenset(other.result)
    return resemblance(lines[0], [lines[1]]) if any(lines) else 100


def is_equal(one: Stood, other: Stood) -> bool:
    """Whether two steps are the same call with the same result."""
    rows = [(each.call, each.failed, each.shape, each.numbers) for each in (one, other)]
    return rows[0] == rows[1] and same_result(one, other) == 100


def facts(told: Told, signal: Signal) -> tuple[dict[str, int], int]:
    """What the files and the tests cost and pay back, noted as seen."""
    costs = {}
    state, tests = signal.state, signal.failing_tests
    is_new = bool(told.states) and state is not None and state not in told.states
    credit = 125 * (is_new and not any(step.failed for step in told.steps[-8:]))
    if state in told.states and state != told.states[-1]:
        costs["undone"] = 100
    if signal.context_used is not None:
        full = round(100 * signal.context_used)
        if 2 * full <= told.context:
            told.steps, told.thoughts, told.words, told.paths = [], [], set(), set()
            told.calls = []
        told.context = full
    told.states += [state] if state is not None and state not in told.states[-1:] else []
    here = told.states[-1] if told.states else None
    if tests is not None:
        credit += 125 * (bool(told.tests) and tests not in told.tests)
        same = told.tests[-1:] == [tests] and told.tested not in (None, here)
        if same and signal.ok is False:
            costs["undone"] = costs.get("undone", 0) + 100
        told.tests.append(tests)
        told.tested = here
    return costs, credit


def names_of(act: AgentStep) -> set[str]:
    """The words of an action without their numbers."""
    return set(re.findall(r"\w+", re.sub(r"\d+", "#", f"{act.tool} {act.args}".lower())))


def step_of(told: Told, signal: Signal, act: AgentStep) -> Stood:
    names = names_of(act)
    lines = None
    if act.result is not None:
        text = re.sub(r"\d\d:\d\d:\d\d|\d+(\.\d+)? ?s\b", "#", act.result)
        lines = [line.strip() for line in text.split("\n") if line.strip()]
    failed = signal.ok is False
    said = frozenset(names) if act.tool else long_words(act.thought or act.args)
    call = [act.call_key] if act.call_key else re.findall(r"\w+", f"{act.tool} {act.args}".lower())
    return Stood(act.tool, failed, not failed and bool(names - told.words), said, lines, call)


def same_shape(before: list[Stood], step: Stood) -> list[list[float]]:
    return [each.numbers for each in before if each.result is not None and each.shape == step.shape]


def is_inside(before: list[Stood], step: Stood) -> bool:
    """Whether the numbers of a result are within those of two or more earlier ones."""
    alike = same_shape(before, step)
    columns = list(zip(*alike, step.numbers, strict=True)) if alike else []
    ranges = [min(column[:-1]) <= column[-1] <= max(column[:-1]) for column in columns]
    return len(alike) > 1 and bool(step.numbers) and all(ranges)


def goes_up_and_down(before: list[Stood], step: Stood) -> bool:
    """Whether the numbers of a result are inside a range that is wider than one number."""
    rows = same_shape(before, step)
    return is_inside(before, step) and any(row != rows[0] for row in rows)


def is_flat(steps: list[Stood]) -> bool:
    """Whether the numbers of a result that did not fail go up and down."""
    return any(
        not step.failed and step.result is not None and goes_up_and_down(steps[:at], step)
        for at, step in enumerate(steps)
    )


def acted(
    told: Told, step: Stood, thought: frozenset[str], names: set[str], *, is_known: bool
) -> dict[str, int]:
    costs, before = dict[str, int](), told.steps[-8:]
    if len(thought) >= 8 and told.thoughts:
        costs["the same thought"] = 2 * (resemblance(thought, told.thoughts[-8:]) - 25)
    if step.result is None:
        return costs
    if not step.result:
        costs["returned nothing"] = 50 if step.is_new else 100
    inside = is_inside(before, step)
    again, fails = 5_000 * is_known, 0
    for each in before:
        result = 100 if inside and each.shape == step.shape else same_result(step, each)
        if each.tool == step.tool:
            again = max(again, resemblance(step.said, [each.said]) * result)
        if step.failed and each.failed:
            fails = max(fails, result)
    if step.is_new:
        again = 0
    elif before and before[-1].is_new and not step.failed and not goes_up_and_down(before, step):
        again //= 2
    costs["the same again"] = again // 100
    is_new_try = bool(names - told.words) and costs.get("the same thought", 1) <= 0
    costs["failed in the same way"] = fails // 2 if is_new_try else fails
    return costs


def talked(told: Told, step: Stood) -> dict[str, int]:
    before = [each for each in told.steps[-8:] if not each.tool]
    if not before:
        return {}
    if step.result:
        most = max(same_result(step, each) for each in before)
    else:
        most = resemblance(step.said, [each.said for each in before]) - 25
    return {"no tool call, the same reply": 250 * most // 100}


def tell(detector: _detectors.Stagnation, told: Told, signal: Signal) -> None:
    if signal.step is None and signal.state is None and signal.failing_tests is None:
        return
    for _ in range(signal.count):
        is_changed = bool(told.states) and signal.state not in {None, *told.states}
        costs, credit = facts(told, signal)
        texts = ["the files", ""]
        if (act := signal.step) is not None:
            if act.result is None and signal.error:
                act = act._replace(result=signal.error)
            step, one = step_of(told, signal, act), looked(act)
            texts = [f"{act.tool} {act.args}".strip() or act.thought or "", act.thought or ""]
            if act.tool:
                call = (step.call, frozenset(step.result or ()))
                is_known = call in told.calls and not is_changed
                costs |= acted(told, step, one.thought, names_of(act), is_known=is_known)
                if step.result:
                    told.calls.append(call)
            else:
                costs |= talked(told, step)
            last = told.steps[-2:]
            if act.tool and len(last) == 2 and all(is_equal(step, each) for each in last):
                kind = "failed in the same way" if step.failed else "the same again"
                costs[kind] += 0 if is_changed else 100
            credit += 30
            if act.tool and not step.failed and one.paths - told.paths:
                credit += 0 if is_flat(told.steps[-8:]) else 125
            told.steps.append(step)
            told.words |= names_of(act)
            told.paths |= one.paths
            told.thoughts += [one.thought] if len(one.thought) >= 8 else []
        settle(detector, told, costs, credit, texts)


def settle(detector: Any, told: Told, costs: dict[str, int], credit: int, texts: list[str]) -> None:
    points = sum(cost for cost in costs.values() if cost > 0) - credit
    told.debt = max(0, min(told.debt + points, round(200 * detector.limit)))
    if points > 0:
        names = list(KINDS)
        _, kind = max((cost, names.index(name)) for name, cost in costs.items())
        text = texts[names[kind] == "the same thought"]
        told.evidence = [*told.evidence, (points, kind, " ".join(text.split())[:60])][-3:]
    if not told.debt:
        told.evidence = []


@lru_cache(maxsize=64)
def told_by(detector: Any, signals: tuple[Signal, ...]) -> Told:
    """The story of these signals, by that of all but the last."""
    if not signals:
        return Told()
    told = told_by(detector, signals[:-1]).copy()
    tell(detector, told, signals[-1])
    return told


def reading_of(detector: Any, told: Told) -> Reading:
    why = f"no progress for {told.debt / 100:.2f} steps (threshold {detector.limit:g})"
    if told.evidence:
        names, advice = list(KINDS), list(KINDS.values())
        steps = [f'{names[kind]}: "{text}" (+{p / 100:.2f})' for p, kind, text in told.evidence]
        why += f": {', '.join(steps)}; {advice[max(told.evidence)[1]]}"
    return Reading(told.debt / 100 / detector.limit, why)


def reading(detector: Any, history: History, now_s: float) -> Reading:
    del now_s
    return reading_of(detector, told_by(detector, tuple(signal for _, signal in history)))
