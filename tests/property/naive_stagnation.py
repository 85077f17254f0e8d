"""What `Stagnation` is documented to do, recomputed from the full history, text by text."""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from property.naive_debts import History, long_words, looked, resemblance, without_variables
from switchgear import _detectors
from switchgear._core.types import AgentStep, Reading, Signal

NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
COUNT_OR_DIGITS = re.compile(
    r"(?<!attempt )(\b[A-Za-z]*\d+(?:\.\d+)?(?: ?[A-Za-z]+)?(?: ?%| of \d+|/\d+\b))|\w*[\d#][\w.#]*"
)
KINDS = {
    "the same again": "stop repeating it: read what it already returned, or change the approach",
    "failed in the same way": "find the cause before the next try, or do without what keeps failing",
    "returned nothing": "check the question: nothing comes back from there",
    "the same thought": "write down what has been ruled out, and take a route not yet tried",
    "no tool call, the same reply": "act with a tool, or say that the task is done or what is missing",
    "undone": "decide between the two versions, and check the decision",
}
"""What the evidence is called, and the advice; the later one wins a tie."""


def marked(found: re.Match[str]) -> str:
    return found[1] or "#"


class Stood(NamedTuple):
    """One step."""

    tool: str
    failed: bool
    is_new: bool
    said: frozenset[str]
    result: list[str] | None
    call: list[str]
    action: str
    """The action without its numbers."""

    @property
    def shape(self) -> list[str]:
        return [NUMBER.sub("#", line) for line in self.result or []]

    @property
    def without_digits(self) -> list[str]:
        """The result, with a mark for each word that has a digit or is variable, except counts."""
        return [COUNT_OR_DIGITS.sub(marked, line) for line in self.result or []]

    @property
    def numbers(self) -> list[float]:
        rows = [NUMBER.findall(line) for line in self.result or []]
        return [float(each) for each in ([row for row in rows if row] or [[]])[-1]][-4:]


class Told:
    """The history so far, and the value that results from it."""

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
        self.in_a_row = 0

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
    """The costs and credits of files and tests; adds them to the history."""
    costs = {}
    state, tests = signal.state, signal.failing_tests
    is_new = bool(told.states) and state is not None and state not in told.states
    credit = 200 * (is_new and not any(step.failed for step in told.steps[-8:]))
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
        credit += 200 * (bool(told.tests) and tests not in told.tests)
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
        text = without_variables(act.result)
        lines = [line.strip() for line in text.split("\n") if line.strip()]
    failed = signal.ok is False
    words = re.findall(r"\w+", f"{act.tool} {act.args}".lower())
    said = frozenset(words) if act.tool else long_words(act.thought or act.args)
    said |= {f"uncut: {act.call_key}"} if act.tool and act.call_key else set()
    call = [act.call_key] if act.call_key else re.findall(r"\w+", f"{act.tool} {act.args}".lower())
    action = " ".join(re.sub(r"\d+", "#", f"{act.tool} {act.args}").split())
    is_new = not failed and bool(names - told.words)
    return Stood(act.tool, failed, is_new, said, lines, call, action)


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


def is_acknowledgement(before: list[Stood], step: Stood) -> bool:
    """Whether four different actions that succeeded returned this one line, or nothing."""
    if step.failed or len(set(step.result or ())) > 1:
        return False
    alike = [
        each
        for each in before
        if not each.failed
        and each.result is not None
        and set(each.result) == set(step.result or ())
    ]
    return len({each.action for each in [*alike, step]}) >= 4


def acted(
    told: Told,
    step: Stood,
    thought: frozenset[str],
    names: set[str],
    *,
    is_known: bool,
    is_changed: bool,
) -> dict[str, int]:
    is_new_try = bool(names - told.words)
    costs, before, attempt = dict[str, int](), told.steps[-8:], 70 if is_new_try else 100
    if len(thought) >= 8 and told.thoughts:
        attempt = resemblance(thought, told.thoughts[-8:])
        costs["the same thought"] = 150 * attempt * attempt // 10_000
    if step.result is None:
        return costs
    inside = is_inside(before, step)
    again = fails = 0
    says_nothing = is_acknowledgement(before, step)
    for at, each in enumerate(before):
        result = same_result(step, each)
        if (inside and each.shape == step.shape) or fails_again(before[-1], each, step):
            result = 100
        if says_nothing and each.action != step.action:
            result = 0
        alike = resemblance(step.said, [each.said]) if each.tool == step.tool else 0
        if step.failed and each.call != step.call:
            is_check = result == 100 and any(later.is_new for later in before[at + 1 :])
            result = result * max(attempt, alike if is_check and not is_new_try else 0) // 100
        again = max(again, alike * result)
        if step.failed and each.failed:
            fails = max(fails, result)
    if step.is_new:
        again = 0
    elif before and before[-1].is_new and not step.failed and not goes_up_and_down(before, step):
        again //= 2
    signs = [
        (again // 100, "the same again"),
        (fails, "failed in the same way"),
        (0 if step.result else 50 if step.is_new else 100, "returned nothing"),
    ]
    cost, _, kind = max((sign[0], at, sign[1]) for at, sign in enumerate(signs))
    if is_third(told, step) and not is_changed:
        costs[kind] = cost + 100
    else:
        if is_known and not is_changed:
            kind, cost = kind if cost else "the same again", max(cost, 50)
        costs[kind] = cost
    return costs


def is_one_turn(told: Told, step: Stood, thought: frozenset[str]) -> bool:
    """Whether another call that succeeds has the last thought: both are of one turn."""
    if step.failed or not told.steps or not told.thoughts:
        return False
    return thought == told.thoughts[-1] and step.call != told.steps[-1].call


def fails_again(last: Stood, each: Stood, step: Stood) -> bool:
    """Whether a call fails directly after itself as an earlier one did, but for words with digits."""
    both = step.failed and each.failed and each.result is not None
    return both and last.call == step.call and each.without_digits == step.without_digits


def is_third(told: Told, step: Stood) -> bool:
    """Whether two of the last two steps, or of the last eight for a failure, are equal to it."""
    recent = told.steps[-8:] if step.failed else told.steps[-2:]
    return step.result is not None and sum(is_equal(step, each) for each in recent) >= 2


def is_beyond(before: list[Stood], step: Stood) -> bool:
    """Whether a check fails with a number outside the range of its earlier results, after another call."""
    if not before or before[-1].call == step.call:
        return False
    rows = [each for each in before if each.call == step.call and each.result is not None]
    alike = same_shape(rows, step)
    columns = list(zip(*alike, step.numbers, strict=True)) if alike else []
    return step.failed and any(
        not min(column[:-1]) <= column[-1] <= max(column[:-1]) for column in columns
    )


def talked(told: Told, step: Stood) -> dict[str, int]:
    before = [each for each in told.steps[-8:] if not each.tool]
    if not before:
        return {}
    if step.result:
        most = max(
            100 if each.result and each.shape == step.shape else same_result(step, each)
            for each in before
        )
    else:
        most = resemblance(step.said, [each.said for each in before]) ** 2 // 100
    return {"no tool call, the same reply": 200 * most // 100}


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
            thought = frozenset() if is_one_turn(told, step, one.thought) else one.thought
            if act.tool:
                call = (step.call, frozenset(step.result or ()))
                costs |= acted(
                    told,
                    step,
                    thought,
                    names_of(act),
                    is_known=call in told.calls,
                    is_changed=is_changed,
                )
                if step.result:
                    told.calls.append(call)
            else:
                costs |= talked(told, step)
            if act.tool and is_beyond(told.steps[-8:], step):
                credit += 200
            credit += 50 * (100 - sum(costs.values())) // 100
            if act.tool and not step.failed and one.paths - told.paths:
                credit += 0 if is_flat(told.steps[-8:]) else 200
            told.steps.append(step)
            told.words |= names_of(act)
            told.paths |= one.paths
            told.thoughts += [thought] if len(thought) >= 8 else []
        settle(detector, told, costs, credit, texts)


def settle(detector: Any, told: Told, costs: dict[str, int], credit: int, texts: list[str]) -> None:
    points = sum(costs.values()) - credit
    if points > 0:
        points = min(points * (4 + told.in_a_row) // 4, 270)
    told.in_a_row = max(0, min(told.in_a_row + (1 if points > 0 else -1), 4))
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
    """The history of these signals, from that of all but the last."""
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
