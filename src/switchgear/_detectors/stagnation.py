"""No progress: steps that resemble earlier steps and return the same results.

One score for all evidence. Each step is compared with the last eight: its action, its result, its
thought. A step adds to the score once for its result and once for its thought, more if wasted steps
follow each other. Something new lowers the score, and so does the part of a step that is not wasted.
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
    add_known,
    compare_state,
    count_new,
    dump,
    load,
)
from switchgear._detectors.step_facts import (
    MOST,
    NUMBERS,
    ActFacts,
    excerpt,
    facts_of,
    failure_shape,
    number_of,
    resemblance,
    words_of,
)

REMEMBER = 8
"""Number of last steps, and of last thoughts, with which a step is compared."""
ROOM_FOR_ONE = 64
"""Number of words or lines kept of each of them: the first and the last half."""
REPEATED = STEP
"""Cost of a wasted step: an earlier action and result, an earlier failure, or an empty result."""
KNOWN = STEP // 2
"""Cost of a call that was made before with the same result, however long ago; more if it fails."""
THOUGHT = 3 * STEP // 2
"""Cost of an earlier thought again; of a similar one, by the square of its resemblance."""
FEWEST = 8
"""Minimum number of words of a thought that is compared: shorter ones are phrases."""
NO_THOUGHT = 70
"""Percentage of its cost that a repeated failure by a call with a new word has if there is no thought to compare."""
TALK = 2 * STEP
"""Cost of a turn without a tool call that gets the reply of an earlier one."""
AT_ONCE = 27 * STEP // 10
"""Maximum that one step adds: 30 % of the limit 9. There, and above, no step goes from below the warning
(70 %) to the limit; at a lower limit, such as that of the preset `eager`, a step can."""
LONGEST = 4
"""Number of wasted steps in a row after which a further one costs double; each adds the same share."""
NEW = 2 * STEP
"""Credit for a new file or address, and for a new set of failing tests."""
ALIKE = 4
"""Number of different actions from which on a line that all of them return is an acknowledgement."""
PACE = STEP // 2
"""Credit for a step without a cost; a wasted step gets none, a half wasted one half of it."""

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
"""The name of each kind of evidence in the reason."""
ADVICE = (
    "stop repeating it: read what it already returned, or change the approach",
    "find the cause before the next try, or do without what keeps failing",
    "check the question: nothing comes back from there",
    "write down what has been ruled out, and take a route not yet tried",
    "act with a tool, or say that the task is done or what is missing",
    "decide between the two versions, and check the decision",
)
"""The advice for each kind of evidence."""


class Earlier(NamedTuple):
    """The memory of an earlier step. Numbers represent texts."""

    tool: int
    failed: bool
    shape: int
    """The result without its numbers."""
    numbers: tuple[float, ...]
    """The last numbers of the result."""
    is_new: bool
    """Whether it succeeded, and its action has a word that no earlier action had."""
    words: frozenset[int]
    """The words of the action, or of a reply without a tool call. The uncut arguments count as one word."""
    lines: frozenset[int] | None
    """The lines of the result; `None`: the result is unknown."""
    call: int = -1
    """The whole action; -1: unknown."""
    bare: int = -1
    """A failed step: its result without its words with a digit, except counts. Any other: its action
    without its numbers. -1: unknown."""


class StepTrail(NamedTuple):
    """The memory of the detector: the score, its latest evidence, and recent steps; the newest last."""

    points: int = 0
    """The score, in hundredths of a step."""
    evidence: tuple[tuple[int, int, str], ...] = ()
    """Points, kind, and the beginning of the text."""
    steps: tuple[Earlier, ...] = ()
    thoughts: tuple[frozenset[int], ...] = ()
    words: Numbers = ()
    paths: Numbers = ()
    states: Numbers = ()
    tests: Numbers = ()
    tested: int = -1
    """The state in which the tests ran last; -1: unknown."""
    context: int = 0
    """The used share of the agent's context window, in percent."""
    calls: Numbers = ()
    """Earlier calls, each with its result: a cycle may be longer than `REMEMBER` steps."""
    wasted: int = 0
    """Wasted steps in a row, up to `LONGEST`; every other step subtracts one."""


class Stagnation(Detector):
    """Trips when the agent has made no progress for `limit` steps (default 9).

    The result of a step counts once, by its strongest sign (up to 1 step): the resemblance of the
    action times that of the result, to the most similar of the last 8 steps with the same tool
    (half if it follows a step with a new word); one of the last 128 calls again with its result, if
    the files are the same (0.5); a failure whose result resembles that of an earlier failure; an
    empty result (half if the action has a new word). A line that 4 of the last 9 actions return,
    apart from those that differ in their numbers only, makes only equal actions resemble each
    other. A failure of another call counts times the resemblance of its thought; without a thought,
    0.7 if the action has a new word; a check without a new word that fails with the same text after
    a step with a new word, at least times the resemblance of its action. The third equal call with
    an equal result, and every further one, costs 1 more: in a row, or among the last 8 steps if it
    fails. Also: 1.5 times the square of the thought's resemblance to one of the last 8 thoughts,
    unless it is the thought of the same turn; a turn without a tool call that gets the reply of an
    earlier such turn, whatever its numbers (2); a return to an earlier state of the files (1); the
    same tests fail although the files have changed (1). Wasted steps in a row cost a quarter more
    each, up to double; one step adds at most 2.7. Credits: 0.5 for a step without a cost, in
    proportion less for one that is partly wasted; 2 for a new file or address in a step that does
    not fail, unless a number of the last results goes up and down; 2 for a check that fails with a
    number beyond its earlier ones; 2 for a new set of failing tests. A result that differs in its
    numbers only is the same result if the last number is within the range of at least two earlier
    ones. Clocks, durations and identifiers do not count; if a call fails again directly after
    itself, neither do numbers and words with a digit, except counts such as `3 of 25` or `12 %`.
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
        """Fold equal steps one by one, until a further one changes nothing."""
        del now_s
        if signal.step is None and signal.state is None and signal.failing_tests is None:
            return memory
        for _ in range(signal.count):
            after = self._fold_step(memory, signal)
            if after == memory:
                break
            memory = after
        return memory

    def _fold_step(self, memory: StepTrail, signal: Signal) -> StepTrail:
        costs, credit = _files_and_tests(memory, signal)
        trail, texts = _note_state(memory, signal), ("the files", "")
        if (act := signal.step) is not None:
            if act.result is None and signal.error:
                act = act._replace(result=signal.error)
            thought = act.thought or ""
            texts = (f"{act.tool} {act.args}".strip() or thought, thought)
            facts = facts_of(act)
            failed = signal.ok is False
            has_new_word = bool(count_new(facts.names, trail.words))
            step = _step_to_remember(act, facts, is_new=not failed and has_new_word, failed=failed)
            thinks = _is_compared(trail, step, facts.thought)
            call = number_of(f"{step.call} {sorted(step.lines)}") if act.tool and step.lines else -1
            if act.tool:
                costs |= _tool_call_costs(
                    trail,
                    step,
                    facts.thought if thinks else frozenset(),
                    has_new_word=has_new_word,
                    is_known=call in trail.calls,
                    is_changed=compare_state(memory.states, signal.state)[0],
                )
                credit += NEW * _has_left_range(trail.steps, step)
            else:
                costs |= _reply_costs(trail, step)
            credit += PACE * (STEP - sum(costs.values())) // STEP
            if act.tool and not failed and count_new(facts.paths, trail.paths):
                credit += 0 if _is_flat(trail.steps) else NEW
            trail = trail._replace(
                steps=(*trail.steps, step)[-REMEMBER:],
                words=add_known(trail.words, facts.names),
                paths=add_known(trail.paths, facts.paths),
                calls=add_known(trail.calls, (call,) if call >= 0 else (), MOST),
            )
            if thinks:
                kept = (*trail.thoughts, facts.thought)[-REMEMBER:]
                trail = trail._replace(thoughts=kept)
        return _charge(trail, costs, credit, texts, self.most)

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
                dump(tuple([n for n in (each.tool, each.shape, each.call, each.bare) if n >= 0])),
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
            memory.wasted,
        ]

    def load(self, data: Any) -> StepTrail:
        """The inverse of `dump`; raises ValueError for other data."""
        row = values.check_list("no progress", data)
        if len(row) == 10:  # written before calls were remembered
            row = [*row, ""]
        if len(row) == 11:  # written before wasted steps in a row were counted
            row = [*row, 0]
        row = values.check_list("no progress", row, 12)
        points, evidence, steps, thoughts, words, paths, states, tests, *rest = row
        tested, context, calls, wasted = rest
        points = min(values.check_int("the points of no progress", points, least=0), self.most)
        shown = [
            _load_evidence(each) for each in values.check_list("the evidence", evidence)[-EVIDENCE:]
        ]
        return StepTrail(
            points,
            tuple(shown) if points else (),
            tuple(
                _load_earlier(each)
                for each in values.check_list("the last steps", steps)[-REMEMBER:]
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
            min(values.check_int("the wasted steps in a row", wasted, least=0), LONGEST),
        )


def _load_evidence(data: Any) -> tuple[int, int, str]:
    points, kind, text = values.check_list("a piece of evidence", data, 3)
    kind = values.check_int("its kind", kind, least=0)
    if kind >= len(LABELS) or not isinstance(text, str):
        raise ValueError(f"{data!r} must be the text of a step")
    return values.check_int("its points", points), kind, excerpt(text)


def _load_earlier(data: Any) -> Earlier:
    pair, failed, is_new, numbers, words, lines = values.check_list("an earlier step", data, 6)
    ids = load(pair)
    if len(ids) not in {2, 3, 4} or not (failed in BOTH and is_new in BOTH):
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


def _first_and_last(numbers: Numbers) -> frozenset[int]:
    """The first and the last numbers of a text, at most `ROOM_FOR_ONE`."""
    if len(numbers) <= ROOM_FOR_ONE:
        return frozenset(numbers)
    return frozenset(numbers[: ROOM_FOR_ONE // 2] + numbers[-ROOM_FOR_ONE // 2 :])


def _step_to_remember(act: AgentStep, facts: ActFacts, *, is_new: bool, failed: bool) -> Earlier:
    words = (*facts.words, facts.call) if act.call_key else facts.words
    return Earlier(
        number_of(act.tool),
        failed,
        facts.shape,
        facts.numbers,
        is_new,
        _first_and_last(words) if act.tool else words_of(act.thought or act.args),
        None if act.result is None else _first_and_last(facts.lines),
        facts.call,
        failure_shape(act.result or "") if failed else facts.key,
    )


def _is_compared(trail: StepTrail, step: Earlier, thought: frozenset[int]) -> bool:
    """Whether the thought of a step counts: it is no phrase, and not that of the same turn.

    Calls of one turn have one thought. Parallel searches are no repetition.
    """
    if len(thought) < FEWEST:
        return False
    is_same_turn = (
        trail.thoughts[-1:] == (thought,)
        and bool(trail.steps)
        and step.call != trail.steps[-1].call
        and not step.failed
    )
    return not is_same_turn


def _result_resemblance(one: frozenset[int] | None, other: frozenset[int] | None) -> int:
    """The resemblance of two results in percent; two empty results are the same."""
    if one is None or other is None:
        return 0
    return resemblance(one, other) if one or other else 100


def _tool_call_costs(
    trail: StepTrail,
    step: Earlier,
    thought: frozenset[int],
    *,
    has_new_word: bool,
    is_known: bool,
    is_changed: bool,
) -> dict[int, int]:
    """The costs of a tool call, by kind.

    `is_known`: it was made before, with the same result. `is_changed`: it changed the files.
    """
    costs, resembles = {}, NO_THOUGHT if has_new_word else 100
    if thought and trail.thoughts:
        resembles = max([resemblance(thought, other) for other in trail.thoughts])
        costs[THINKS] = THOUGHT * resembles**2 // (100 * 100)
    if step.lines is None:
        return costs
    kind, cost = _result_cost(trail.steps, step, resembles, has_new_word=has_new_word)
    if not is_changed and _is_third(trail.steps, step):
        cost += REPEATED
    elif not is_changed and is_known and cost < KNOWN:
        kind, cost = kind if cost else AGAIN, KNOWN
    costs[kind] = cost
    return costs


def _result_cost(
    steps: tuple[Earlier, ...], step: Earlier, attempt: int, *, has_new_word: bool
) -> tuple[int, int]:
    """The kind of the strongest sign in the result of a tool call, and its cost.

    `attempt`: the cost of a failure that another call repeats, in percent.
    """
    within, repeats = _is_within_range(steps, step), step.failed and _repeats_last_call(steps, step)
    is_acknowledgement = _is_acknowledgement(steps, step)
    again = fails = 0
    for at, other in enumerate(steps):
        is_same = within and other.shape == step.shape
        is_same = is_same or (repeats and other.failed and other.bare == step.bare)
        result = 100 if is_same else _result_resemblance(step.lines, other.lines)
        if not result or (is_acknowledgement and other.bare != step.bare):
            continue
        action = resemblance(step.words, other.words) if other.tool == step.tool else 0
        if step.failed and other.call != step.call:
            is_check = result == 100 and any(each.is_new for each in steps[at + 1 :])
            checks = action if is_check and not has_new_word else 0
            result = result * max(attempt, checks) // 100
        again = max(again, action * result)
        if step.failed and other.failed:
            fails = max(fails, 100 * result)
    if step.is_new:
        again = 0
    elif steps and steps[-1].is_new and not (step.failed or _goes_up_and_down(steps, step)):
        again //= 2
    empty = 0 if step.lines else 100 * (50 if step.is_new else 100)
    signs = {AGAIN: again, FAILS: fails, EMPTY: empty}
    kind = max(signs, key=lambda each: (signs[each], each))
    return kind, REPEATED * signs[kind] // (100 * 100)


def _is_acknowledgement(steps: tuple[Earlier, ...], step: Earlier) -> bool:
    """Whether a step that succeeds returns one line that does not depend on the action.

    Actions that differ in their numbers only count as one.
    """
    if step.failed or step.lines is None or len(step.lines) > 1:
        return False
    alike = {each.bare for each in steps if not each.failed and each.lines == step.lines}
    return len(alike | {step.bare}) >= ALIKE


def _repeats_last_call(steps: tuple[Earlier, ...], step: Earlier) -> bool:
    """Whether it is the same call as the step before, so nothing was done in between."""
    return bool(steps) and steps[-1].call == step.call


def _has_left_range(steps: tuple[Earlier, ...], step: Earlier) -> bool:
    """Whether a check fails with a number that is lower or higher than in its earlier results.

    Not if it is the same call as the step before: the number is a clock, a process id or a count of
    attempts.
    """
    if not step.failed or not steps or _repeats_last_call(steps, step):
        return False
    same = [each for each in steps if each.call == step.call and each.shape == step.shape]
    return any(
        not min(row[1:]) <= row[0] <= max(row[1:])
        for row in zip(step.numbers, *[each.numbers for each in same], strict=False)
        if same
    )


def _is_third(steps: tuple[Earlier, ...], step: Earlier) -> bool:
    """Whether it is the third equal call with an equal result: in a row, unless it fails."""
    recent = steps if step.failed else steps[-2:]
    return step.lines is not None and sum(_is_equal(step, each) for each in recent) > 1


def _is_equal(one: Earlier, other: Earlier) -> bool:
    """Whether two steps are the same call with the same result."""
    return one._replace(is_new=False, bare=-1) == other._replace(is_new=False, bare=-1)


def _is_within_range(steps: tuple[Earlier, ...], step: Earlier) -> bool:
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


def _goes_up_and_down(steps: tuple[Earlier, ...], step: Earlier) -> bool:
    """Whether the numbers of a result go up and down, within the range of earlier ones."""
    numbers = {each.numbers for each in steps if each.shape == step.shape}
    return len(numbers) > 1 and _is_within_range(steps, step)


def _is_flat(steps: tuple[Earlier, ...]) -> bool:
    """Whether a result that did not fail went up and down."""
    return any(
        not step.failed and _goes_up_and_down(steps[:at], step) for at, step in enumerate(steps)
    )


def _reply_costs(trail: StepTrail, step: Earlier) -> dict[int, int]:
    """The costs of a turn without a tool call: by its reply or, without a reply, by its words."""
    earlier = [each for each in trail.steps if each.tool == step.tool]
    if not earlier:
        return {}
    if step.lines:
        most = max(
            [
                100
                if each.lines and each.shape == step.shape
                else _result_resemblance(step.lines, each.lines)
                for each in earlier
            ]
        )
    else:
        most = max([resemblance(step.words, each.words) for each in earlier]) ** 2 // 100
    return {TALKS: TALK * most // 100}


def _files_and_tests(memory: StepTrail, signal: Signal) -> tuple[dict[int, int], int]:
    """The costs and the credit of the state of the files and of the failing tests."""
    costs: dict[int, int] = {}
    is_new, is_undone = compare_state(memory.states, signal.state)
    if is_undone:
        costs[UNDONE] = REPEATED
    pays = int(is_new and not any(step.failed for step in memory.steps))
    pays += compare_state(memory.tests, signal.failing_tests)[0]
    if signal.ok is False and signal.failing_tests is not None and memory.tested != -1:
        after = _note_state(memory, signal)
        if after.tests == memory.tests and after.tested != memory.tested:
            costs[UNDONE] = costs.get(UNDONE, 0) + REPEATED
    return costs, NEW * pays


def _note_state(memory: StepTrail, signal: Signal) -> StepTrail:
    """Add the state and the tests of a signal; after a compaction of the context, drop earlier steps."""
    trail = memory
    if signal.context_used is not None:
        full = round(100 * max(0.0, min(signal.context_used, 1.0)))
        if 2 * full <= trail.context:
            trail = trail._replace(steps=(), thoughts=(), words=(), paths=(), calls=())
        trail = trail._replace(context=full)
    if signal.state is not None:
        trail = trail._replace(states=add_known(trail.states, (number_of(signal.state),), RING))
    if signal.failing_tests is not None:
        tests = add_known(trail.tests, (number_of(signal.failing_tests),), RING)
        trail = trail._replace(tests=tests, tested=trail.states[-1] if trail.states else -1)
    return trail


def _charge(
    trail: StepTrail, costs: dict[int, int], credit: int, texts: tuple[str, str], most: int
) -> StepTrail:
    """The score after a step with this action and thought: from 0 up to `most`."""
    charge = sum(costs.values()) - credit
    if charge > 0:
        charge = min(charge + charge * trail.wasted // LONGEST, AT_ONCE)
    trail = trail._replace(wasted=max(0, min(trail.wasted + (1 if charge > 0 else -1), LONGEST)))
    points = max(0, min(trail.points + charge, most))
    if not points:
        return trail._replace(points=0, evidence=())
    if charge <= 0:
        return trail._replace(points=points)
    kind = max(costs, key=lambda each: (costs[each], each))
    found = (*trail.evidence, (charge, kind, excerpt(texts[kind == THINKS])))[-EVIDENCE:]
    return trail._replace(points=points, evidence=found)
