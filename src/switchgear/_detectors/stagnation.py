"""No progress: steps that resemble earlier steps and return what those returned.

One score for all evidence. Each step is compared with the last eight: its action, its result, its
thought. What resembles them costs, what is new pays back, and every step pays back a little.
"""

from typing import Any, ClassVar, NamedTuple

from switchgear._core import values
from switchgear._core.detector import Detector, Measure
from switchgear._core.types import AgentStep, Signal
from switchgear._detectors.progress import (
    EVIDENCE,
    RING,
    ROOM,
    STEP,
    Numbers,
    dump,
    known,
    load,
    moved,
    new_of,
)
from switchgear._detectors.step_facts import (
    MOST,
    NUMBERS,
    ActFacts,
    alike,
    excerpt,
    facts_of,
    number_of,
    words_of,
)

REMEMBER = 8
"""The last steps, and the last thoughts, that a step is compared with."""
ROOM_FOR_ONE = 64
"""Words or lines kept of each of them: the first and the last half."""
REPEATED = STEP
"""Cost of a step with the action and the result of an earlier one."""
KNOWN = 50
"""Resemblance, in percent, of a call that was made before with the same result, however long ago."""
FAILED = STEP
"""Cost of a failure with the result of an earlier failure, whatever the action."""
SILENT = STEP
"""Cost of an empty result."""
THOUGHT = 2
"""Times the resemblance of a thought beyond `USUAL`: its cost."""
USUAL = 25
"""Resemblance of two thoughts that is normal, in percent."""
FEWEST = 8
"""Words of a thought that can be compared: a shorter one is a formula."""
TALK = 5 * STEP // 2
"""Cost of a turn without a tool call that gets the reply of an earlier one."""
NEW = 5 * STEP // 4
"""Credit for a new file or address, and for a new set of failing tests."""
PACE = 3 * STEP // 10
"""Credit for every step."""

BOTH = (False, True)
AGAIN, FAILS, EMPTY, THINKS, TALKS, UNDONE = range(6)
LABELS = (
    "the same again",
    "failed in the same way",
    "returned nothing",
    "the same thought",
    "no tool call, the same reply",
    "undone",
)
"""What the evidence of each kind is called."""
ADVICE = (
    "stop repeating it: read what it already returned, or change the approach",
    "find the cause before the next try, or do without what keeps failing",
    "check the question: nothing comes back from there",
    "write down what has been ruled out, and take a route not yet tried",
    "act with a tool, or say that the task is done or what is missing",
    "decide between the two versions, and check the decision",
)
"""What to do differently, for each kind."""


class Earlier(NamedTuple):
    """What is kept of an earlier step. Numbers stand for texts."""

    tool: int
    failed: bool
    shape: int
    """The result, but for its numbers."""
    numbers: tuple[float, ...]
    """The last numbers of the result."""
    is_new: bool
    """Whether it did not fail, and its action has a word that no earlier one had."""
    words: frozenset[int]
    """Of the action, or of a reply without a tool call."""
    lines: frozenset[int] | None
    """Of the result; `None`: the result is not known."""
    call: int = -1
    """The whole action; -1: not known."""


class StepTrail(NamedTuple):
    """What is remembered: the score, its latest evidence, and recent steps; the newest last."""

    points: int = 0
    """In hundredths of a step."""
    evidence: tuple[tuple[int, int, str], ...] = ()
    """Points, kind, and the beginning of the text."""
    steps: tuple[Earlier, ...] = ()
    thoughts: tuple[frozenset[int], ...] = ()
    words: Numbers = ()
    paths: Numbers = ()
    states: Numbers = ()
    tests: Numbers = ()
    tested: int = -1
    """The state in which the tests ran last; -1: not known."""
    context: int = 0
    """How full the agent's context was, in percent."""
    calls: Numbers = ()
    """Earlier calls, each with its result: a cycle may be longer than `REMEMBER` steps."""


class Stagnation(Detector):
    """Trips when the agent has made no progress for `limit` steps (default 9).

    Costs: the resemblance of the action times that of the result, to the most similar of the last 8
    steps with the same tool (up to 1 step); 0.5 for one of the last 128 calls again with its result,
    if the files are the same; 1 more for the third equal call in a row with an equal result, and
    for every further one; a failure whose result resembles that of an earlier failure (up to 1; half if the action has a new word and the thought is a new one); an empty
    result (1); twice the resemblance of the thought to the last 8 thoughts, beyond 25 %; a turn
    without a tool call that gets the reply of an earlier such turn, whatever its numbers (2.5); a
    return to an earlier state of the files (1); the same tests fail although the files have changed
    (1). Credits: 0.3 for every step; 1.25 for a new file or address in a step that does not fail,
    unless a number of the last results goes up and down; 1.25 for a new set of failing tests. A
    result that differs in its numbers only is the same result if the last number is within the
    range of at least two earlier ones.
    """

    __slots__ = ("limit",)
    kind: ClassVar[str] = "stagnation"
    advice: ClassVar[str] = ADVICE[AGAIN]
    limit: float

    def __init__(self, limit: float = 9.0) -> None:
        self._set(limit=values.check_positive("Stagnation.limit", limit))

    @property
    def most(self) -> int:
        """The highest score, so that later credits can matter."""
        return round(2 * STEP * self.limit)

    def start(self) -> StepTrail:
        """An empty memory."""
        return StepTrail()

    def fold(self, memory: StepTrail, signal: Signal, now_s: float) -> StepTrail:
        """Each step by itself, until one more of the same changes nothing."""
        del now_s
        if signal.step is None and signal.state is None and signal.failing_tests is None:
            return memory
        for _ in range(signal.count):
            after = self._one(memory, signal)
            if after == memory:
                break
            memory = after
        return memory

    def _one(self, memory: StepTrail, signal: Signal) -> StepTrail:
        costs, credit = _files_and_tests(memory, signal)
        trail, texts = _seen(memory, signal), ("the files", "")
        if (act := signal.step) is not None:
            if act.result is None and signal.error:
                act = act._replace(result=signal.error)
            thought = act.thought or ""
            texts = (f"{act.tool} {act.args}".strip() or thought, thought)
            credit += PACE
            facts = facts_of(act)
            failed = signal.ok is False
            has_new_word = bool(new_of(facts.names, trail.words))
            step = _kept(act, facts, is_new=not failed and has_new_word, failed=failed)
            call = number_of(f"{step.call} {sorted(step.lines)}") if act.tool and step.lines else -1
            is_known = call in trail.calls and not moved(memory.states, signal.state)[0]
            if act.tool:
                costs |= _acted(trail, step, facts, has_new_word=has_new_word, is_known=is_known)
            else:
                costs |= _talked(trail, step)
            if (
                act.tool
                and _is_third(trail.steps, step)
                and not moved(memory.states, signal.state)[0]
            ):
                costs[FAILS if failed else AGAIN] += REPEATED
            if act.tool and not failed and new_of(facts.paths, trail.paths):
                credit += 0 if _is_flat(trail.steps) else NEW
            trail = trail._replace(
                steps=(*trail.steps, step)[-REMEMBER:],
                words=known(trail.words, facts.names),
                paths=known(trail.paths, facts.paths),
                calls=known(trail.calls, (call,) if call >= 0 else (), MOST),
            )
            if len(facts.thought) >= FEWEST:
                kept = (*trail.thoughts, facts.thought)[-REMEMBER:]
                trail = trail._replace(thoughts=kept)
        return _charged(trail, costs, credit, texts, self.most)

    def heat(self, memory: StepTrail, now_s: float) -> float:
        """The score relative to the limit."""
        del now_s
        return memory.points / STEP / self.limit

    def reason(self, memory: StepTrail, now_s: float) -> str:
        """The score in words, the steps behind it, and what to do differently."""
        del now_s
        debt = f"no progress for {memory.points / STEP:.2f} steps (threshold {self.limit:g})"
        if not memory.evidence:
            return debt
        steps = ", ".join(
            f'{LABELS[kind]}: "{text}" (+{points / STEP:.2f})'
            for points, kind, text in memory.evidence
        )
        most = max(memory.evidence)[1]
        return f"{debt}: {steps}; {ADVICE[most]}"

    def measure(self, memory: StepTrail, now_s: float) -> Measure:
        """The score, in steps."""
        del now_s
        return Measure(memory.points / STEP, self.limit, "steps")

    def dump(self, memory: StepTrail) -> list[Any]:
        """The fields; numbers in hexadecimal, one text for each field."""
        steps = [
            [
                dump((each.tool, each.shape, *((each.call,) if each.call >= 0 else ()))),
                each.failed,
                each.is_new,
                list(each.numbers),
                dump(tuple(sorted(each.words))),
                None if each.lines is None else dump(tuple(sorted(each.lines))),
            ]
            for each in memory.steps
        ]
        return [
            memory.points,
            [list(each) for each in memory.evidence],
            steps,
            [dump(tuple(sorted(words))) for words in memory.thoughts],
            *map(dump, memory[4:8]),
            memory.tested,
            memory.context,
            dump(memory.calls),
        ]

    def load(self, data: Any) -> StepTrail:
        """The inverse of `dump`; raises ValueError on anything else."""
        row = values.check_list("no progress", data)
        if len(row) == 10:  # written before calls were remembered
            row = [*row, ""]
        row = values.check_list("no progress", row, 11)
        points, evidence, steps, thoughts, words, paths, states, tests, tested, context, calls = row
        points = min(values.check_int("the points of no progress", points, least=0), self.most)
        shown = [
            _evidence(each) for each in values.check_list("the evidence", evidence)[-EVIDENCE:]
        ]
        return StepTrail(
            points,
            tuple(shown) if points else (),
            tuple(
                _earlier(each) for each in values.check_list("the last steps", steps)[-REMEMBER:]
            ),
            tuple(
                frozenset(load(each))
                for each in values.check_list("the last thoughts", thoughts)[-REMEMBER:]
            ),
            load(words)[-ROOM:],
            load(paths)[-ROOM:],
            load(states)[-RING:],
            load(tests)[-RING:],
            values.check_int("the state of the tests", tested, least=-1),
            values.check_int("the fullness of the context", context, least=0),
            load(calls)[-MOST:],
        )


def _evidence(data: Any) -> tuple[int, int, str]:
    points, kind, text = values.check_list("a piece of evidence", data, 3)
    kind = values.check_int("its kind", kind, least=0)
    if kind >= len(LABELS) or not isinstance(text, str):
        raise ValueError(f"{data!r} must be the text of a step")
    return values.check_int("its points", points), kind, excerpt(text)


def _earlier(data: Any) -> Earlier:
    pair, failed, is_new, numbers, words, lines = values.check_list("an earlier step", data, 6)
    ids = load(pair)
    if len(ids) not in {2, 3} or not (failed in BOTH and is_new in BOTH):
        raise ValueError(f"{data!r} must be the text of a step")
    few = values.check_list("the numbers of a result", numbers)[-NUMBERS:]
    return Earlier(
        ids[0],
        failed,
        ids[1],
        tuple([values.check_number("the number of a result", each) for each in few]),
        is_new,
        frozenset(load(words)[-ROOM_FOR_ONE:]),
        None if lines is None else frozenset(load(lines)[-ROOM_FOR_ONE:]),
        *ids[2:],
    )


def _few(numbers: Numbers) -> frozenset[int]:
    """The first and the last numbers of a text."""
    if len(numbers) <= ROOM_FOR_ONE:
        return frozenset(numbers)
    return frozenset(numbers[: ROOM_FOR_ONE // 2] + numbers[-ROOM_FOR_ONE // 2 :])


def _kept(act: AgentStep, facts: ActFacts, *, is_new: bool, failed: bool) -> Earlier:
    return Earlier(
        number_of(act.tool),
        failed,
        facts.shape,
        facts.numbers,
        is_new,
        _few(facts.names) if act.tool else words_of(act.thought or act.args),
        None if act.result is None else _few(facts.lines),
        facts.call,
    )


def _same_lines(one: frozenset[int], other: frozenset[int] | None) -> int:
    """How much two results resemble each other, in percent; two empty results are the same."""
    if other is None:
        return 0
    return alike(one, other) if one or other else 100


def _acted(
    trail: StepTrail, step: Earlier, facts: ActFacts, *, has_new_word: bool, is_known: bool
) -> dict[int, int]:
    """What a tool call costs, by kind. `is_known`: it was made before, with the same result."""
    costs = {}
    if len(facts.thought) >= FEWEST and trail.thoughts:
        most = max([alike(facts.thought, other) for other in trail.thoughts])
        costs[THINKS] = THOUGHT * (most - USUAL)
    if step.lines is None:
        return costs
    if not step.lines:
        costs[EMPTY] = SILENT // 2 if step.is_new else SILENT
    within = _within(trail.steps, step)
    again, fails = KNOWN * 100 * is_known, 0
    for other in trail.steps:
        result = (
            100 if within and other.shape == step.shape else _same_lines(step.lines, other.lines)
        )
        if not result:
            continue
        if other.tool == step.tool:
            again = max(again, alike(step.words, other.words) * result)
        if step.failed and other.failed:
            fails = max(fails, result)
    if step.is_new:
        again = 0
    elif trail.steps and trail.steps[-1].is_new and not (step.failed or _varies(trail.steps, step)):
        again //= 2
    costs[AGAIN] = REPEATED * again // (100 * 100)
    costs[FAILS] = FAILED * fails // 100
    if has_new_word and costs.get(THINKS, 1) <= 0:
        costs[FAILS] //= 2
    return costs


def _is_third(steps: tuple[Earlier, ...], step: Earlier) -> bool:
    """Whether the last two steps were the same call with the same result, too."""
    last = steps[-2:]
    return len(last) > 1 and step.lines is not None and all(_is_equal(step, each) for each in last)


def _is_equal(one: Earlier, other: Earlier) -> bool:
    """Whether two steps are the same call with the same result."""
    return one._replace(is_new=False) == other._replace(is_new=False)


def _within(steps: tuple[Earlier, ...], step: Earlier) -> bool:
    """Whether a result differs from earlier ones in numbers only, and is within their range."""
    same = [each.numbers for each in steps if each.shape == step.shape]
    return (
        len(same) > 1
        and bool(step.numbers)
        and all(
            min(row[:-1]) <= row[-1] <= max(row[:-1])
            for row in zip(*same, step.numbers, strict=False)
        )
    )


def _varies(steps: tuple[Earlier, ...], step: Earlier) -> bool:
    """Whether the numbers of a result go up and down, within the range of earlier ones."""
    numbers = {each.numbers for each in steps if each.shape == step.shape}
    return len(numbers) > 1 and _within(steps, step)


def _is_flat(steps: tuple[Earlier, ...]) -> bool:
    """Whether a result that did not fail went up and down."""
    return any(not step.failed and _varies(steps[:at], step) for at, step in enumerate(steps))


def _talked(trail: StepTrail, step: Earlier) -> dict[int, int]:
    """What a turn without a tool call costs: by its reply, or by its words if there was none."""
    earlier = [each for each in trail.steps if each.tool == step.tool]
    if not earlier:
        return {}
    if step.lines:
        most = max(
            [
                100
                if each.lines and each.shape == step.shape
                else _same_lines(step.lines, each.lines)
                for each in earlier
            ]
        )
    else:
        most = max([alike(step.words, each.words) for each in earlier]) - USUAL
    return {TALKS: TALK * most // 100}


def _files_and_tests(memory: StepTrail, signal: Signal) -> tuple[dict[int, int], int]:
    """What the state of the files and the failing tests cost and pay back."""
    costs: dict[int, int] = {}
    is_new, is_undone = moved(memory.states, signal.state)
    if is_undone:
        costs[UNDONE] = REPEATED
    pays = int(is_new and not any(step.failed for step in memory.steps))
    pays += moved(memory.tests, signal.failing_tests)[0]
    if signal.ok is False and signal.failing_tests is not None and memory.tested != -1:
        after = _seen(memory, signal)
        if after.tests == memory.tests and after.tested != memory.tested:
            costs[UNDONE] = costs.get(UNDONE, 0) + FAILED
    return costs, NEW * pays


def _seen(memory: StepTrail, signal: Signal) -> StepTrail:
    """With the state and the tests of a signal, and without what the agent itself forgot."""
    trail = memory
    if signal.context_used is not None:
        full = round(100 * max(0.0, min(signal.context_used, 1.0)))
        if 2 * full <= trail.context:
            trail = trail._replace(steps=(), thoughts=(), words=(), paths=(), calls=())
        trail = trail._replace(context=full)
    if signal.state is not None:
        trail = trail._replace(states=known(trail.states, (number_of(signal.state),), RING))
    if signal.failing_tests is not None:
        tests = known(trail.tests, (number_of(signal.failing_tests),), RING)
        trail = trail._replace(tests=tests, tested=trail.states[-1] if trail.states else -1)
    return trail


def _charged(
    trail: StepTrail, costs: dict[int, int], credit: int, texts: tuple[str, str], most: int
) -> StepTrail:
    """The score after a step with this action and thought: from 0 up to `most`."""
    charge = sum(cost for cost in costs.values() if cost > 0) - credit
    points = max(0, min(trail.points + charge, most))
    if not points:
        return trail._replace(points=0, evidence=())
    if charge <= 0:
        return trail._replace(points=points)
    kind = max(costs, key=lambda each: (costs[each], each))
    found = (*trail.evidence, (charge, kind, excerpt(texts[kind == THINKS])))[-EVIDENCE:]
    return trail._replace(points=points, evidence=found)
