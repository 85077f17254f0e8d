"""The deprecated progress detectors, and the memory that they share."""

from itertools import filterfalse
from typing import Any, ClassVar, NamedTuple, Self

from switchgear._core import values
from switchgear._core.detector import Detector, Measure
from switchgear._core.types import Signal
from switchgear._detectors.step_facts import (
    FEWEST_WORDS,
    MOST,
    ActFacts,
    excerpt,
    facts_of,
    failure_of,
    number_of,
    resemblance,
    words_of,
)

ROOM = 2 * MOST
"""Maximum number of entries of each kind: at least those of one step."""
BYTES = 3
"""Hexadecimal digits of a stored number."""

Numbers = tuple[int, ...]


def add_known(before: Numbers, more: Numbers, room: int = ROOM) -> Numbers:
    """Add entries to the known ones; beyond `room`, the oldest are dropped."""
    if before[-len(more) :] == more or not more:
        return before
    return (*filterfalse(frozenset(more).__contains__, before), *more)[-room:]


def count_new(more: Numbers, before: Numbers) -> int:
    """The number of new entries."""
    return len(frozenset(more).difference(before))


def dump(numbers: Numbers) -> str:
    """As one text.

    >>> dump((1, 255))
    '0000010000ff'
    """
    return b"".join([number.to_bytes(BYTES) for number in numbers]).hex()


def load(text: Any) -> Numbers:
    """The inverse of `dump`; raises ValueError for other data."""
    digits = text if isinstance(text, str) else "?"
    row = bytes.fromhex(digits)
    if 2 * len(row) != len(digits) or len(row) % BYTES:
        raise ValueError(f"{text!r} must be numbers of {2 * BYTES} hexadecimal digits")
    return tuple([int.from_bytes(row[at : at + BYTES]) for at in range(0, len(row), BYTES)])


STEP = 100
"""The cost of one wasted step."""
RING = 32
"""Number of remembered failures and states."""
EVIDENCE = 3
"""Number of wasted steps that are kept to explain the score."""


class ProgressMemory(NamedTuple):
    """The memory of a progress detector. Numbers stand for texts; the newest is the last."""

    points: int = 0
    """The score, in hundredths of a step."""
    evidence: tuple[tuple[int, str], ...] = ()
    """The last wasted steps: the points, and the beginning of the text."""
    recent: tuple[frozenset[int], ...] = ()
    """The words of the last thoughts, actions or replies."""
    words: Numbers = ()
    lines: Numbers = ()
    paths: Numbers = ()
    keys: Numbers = ()
    """Earlier actions, or the failed ones."""
    failures: Numbers = ()
    """Keys of failures: the action and its error."""
    states: Numbers = ()
    """Earlier states of the files."""
    tests: Numbers = ()
    """Earlier sets of failing tests."""
    tested: int = -1
    """The state in which the tests ran last; -1: unknown."""
    last: int = -1
    """The last failure; -1: the last step did not fail."""
    context: int = 0
    """The used share of the agent's context window, in percent."""

    def with_facts(self, facts: ActFacts) -> "ProgressMemory":
        """With the words, lines and files of a step."""
        return self._replace(
            words=add_known(self.words, facts.words),
            lines=add_known(self.lines, facts.lines),
            paths=add_known(self.paths, facts.paths),
        )

    def with_state(self, signal: Signal) -> "ProgressMemory":
        """Add the state and the tests of a signal; after a compaction of the context, drop earlier steps."""
        book = self
        if signal.context_used is not None:
            full = round(100 * max(0.0, min(signal.context_used, 1.0)))
            if 2 * full <= book.context:
                book = book._replace(recent=(), words=(), lines=(), paths=(), keys=())
            book = book._replace(context=full)
        if signal.state is not None:
            book = book._replace(states=add_known(book.states, (number_of(signal.state),), RING))
        if signal.failing_tests is not None:
            tests = add_known(book.tests, (number_of(signal.failing_tests),), RING)
            book = book._replace(tests=tests, tested=book.states[-1] if book.states else -1)
        return book

    def charge(self, charge: int, credit: int, text: str, most: int) -> "ProgressMemory":
        """The value after a step that adds `charge` and subtracts `credit`: from 0 to `most`."""
        points = max(0, min(self.points + charge - credit, most))
        if not points:
            return self._replace(points=0, evidence=())
        if charge <= credit:
            return self._replace(points=points)
        found = (*self.evidence, (charge - credit, excerpt(text)))[-EVIDENCE:]
        return self._replace(points=points, evidence=found)

    def dump(self) -> list[Any]:
        """The fields; numbers in hexadecimal, as one text for each field."""
        fields = [dump(numbers) for numbers in self[3:10]]
        recent = [dump(tuple(sorted(words))) for words in self.recent]
        evidence = [list(step) for step in self.evidence]
        return [self.points, evidence, recent, *fields, self.tested, self.last, self.context]

    @classmethod
    def load(cls, data: Any, *, most: int, remember: int) -> Self:
        """The inverse of `dump`; raises ValueError for other data."""
        points, evidence, recent, *fields, tested, last, context = values.check_list(
            "a score", data, 13
        )
        steps = []
        for step in values.check_list("the steps of a score", evidence)[-EVIDENCE:]:
            charge, text = values.check_list("a step of a score", step, 2)
            if not isinstance(text, str):
                raise ValueError(f"{text!r} must be the text of a step")
            steps.append((values.check_int("its points", charge), excerpt(text)))
        points = min(values.check_int("the points of a score", points, least=0), most)
        sets = values.check_list("the last words", recent)[-remember:] if remember else []
        words, lines, paths, keys, failures, states, tests = map(load, fields)
        return cls(
            points,
            tuple(steps) if points else (),
            tuple(frozenset(load(one)[-MOST:]) for one in sets),
            words[-ROOM:],
            lines[-ROOM:],
            paths[-ROOM:],
            keys[-ROOM:],
            failures[-RING:],
            states[-RING:],
            tests[-RING:],
            values.check_int("the state of the tests", tested, least=-1),
            values.check_int("the last failure", last, least=-1),
            values.check_int("the fullness of the context", context, least=0),
        )


class Debt(Detector):
    """Base of the progress detectors: heat is the score relative to `limit`, in wasted steps."""

    __slots__ = ()
    name: ClassVar[str]
    """The name of the score in its reason."""
    remember: int = 0
    limit: float

    def start(self) -> ProgressMemory:
        return ProgressMemory()

    def fold(self, memory: ProgressMemory, signal: Signal, now_s: float) -> ProgressMemory:
        """Fold equal steps one by one, until a further one changes nothing."""
        if signal.step is None and signal.state is None and signal.failing_tests is None:
            return memory
        for _ in range(signal.count):
            after = self.one(memory, signal)
            if after == memory:
                break
            memory = after
        return memory

    def one(self, memory: ProgressMemory, signal: Signal) -> ProgressMemory:
        """The memory after one step."""
        raise NotImplementedError

    @property
    def most(self) -> int:
        """The highest score, so that later credits can matter."""
        return round(2 * STEP * self.limit)

    def heat(self, memory: ProgressMemory, now_s: float) -> float:
        return memory.points / STEP / self.limit

    def reason(self, memory: ProgressMemory, now_s: float) -> str:
        """The score in words, the steps behind it, and what to do differently."""
        debt = f"{self.name}: {memory.points / STEP:.2f} steps (threshold {self.limit:g})"
        if not memory.evidence:
            return debt
        steps = ", ".join(f'"{text}" (+{points / STEP:.2f})' for points, text in memory.evidence)
        return f"{debt}: {steps}; {self.advice}"

    def measure(self, memory: ProgressMemory, now_s: float) -> Measure:
        return Measure(memory.points / STEP, self.limit, "steps")

    def dump(self, memory: ProgressMemory) -> list[Any]:
        return memory.dump()

    def load(self, data: Any) -> ProgressMemory:
        return ProgressMemory.load(data, most=self.most, remember=self.remember)


def compare_state(before: Numbers, text: str | None) -> tuple[bool, bool]:
    """Whether a state is new, and whether it is an earlier one again. The first state is neither."""
    if text is None or not before:
        return False, False
    number = number_of(text)
    return number not in before, number in before[:-1]


RECENT = 8
"""Number of last actions with which an action is compared."""
RESEMBLES = 0.5
"""The cost of a failing action that resembles an earlier one."""
SILENT = STEP // 2
"""The cost of a step with an empty result."""


class RepeatedActions(Debt):
    """Trips at `limit` steps (default 7) that were seen before and brought nothing new.

    Deprecated: use `Stagnation`.

    An earlier action, regardless of its numbers, costs one step; another, if it fails, half
    of how much it resembles the most similar of the last 8; an empty result half a step; a return
    to an earlier state of the files one step. Paid back: one step for an action that is new and
    does not fail, the share of new lines in the result, one step for a new file or address,
    `credit` (0.1) for each new word up to one step, and one step for a new state of the files or a
    new set of failing tests.
    """

    __slots__ = ("limit", "credit")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "actions_debt"
    name: ClassVar[str] = "actions that bring nothing new"
    advice: ClassVar[str] = "stop repeating it: read what it already said, or change the approach"
    remember: int = RECENT
    limit: float
    credit: float

    def __init__(self, limit: float = 7.0, credit: float = 0.1) -> None:
        self._set(
            limit=values.check_positive("RepeatedActions.limit", limit),
            credit=values.check_fraction("RepeatedActions.credit", credit, whole_too=True),
        )

    def one(self, memory: ProgressMemory, signal: Signal) -> ProgressMemory:
        """The memory after one step: the cost of a repeated action, minus credits."""
        is_new, is_undone = compare_state(memory.states, signal.state)
        charge, text = STEP * is_undone, "went back to an earlier state of the files"
        credit = STEP * (is_new + compare_state(memory.tests, signal.failing_tests)[0])
        book = memory.with_state(signal)
        if (act := signal.step) is not None and act.tool:
            facts, words = facts_of(act), frozenset(facts_of(act).words)
            if facts.key in book.keys:
                charge += STEP
            elif signal.ok is not False:
                credit += STEP
            elif book.recent:
                charge += round(
                    RESEMBLES * max([resemblance(words, other) for other in book.recent])
                )
            if facts.is_silent and act.result is not None:
                charge += SILENT
            if facts.lines:
                credit += STEP * count_new(facts.lines, book.lines) // len(facts.lines)
            credit += STEP * bool(count_new(facts.paths, book.paths))
            credit += min(STEP, round(STEP * self.credit * count_new(facts.words, book.words)))
            text = f"{act.tool} {act.args}"
            book = book.with_facts(facts)._replace(
                keys=add_known(book.keys, (facts.key,)), recent=(*book.recent, words)[-RECENT:]
            )
        return book.charge(charge, credit, text, self.most)


NEW_FILE = 3 * STEP // 4
"""The credit for a new file or address, if the step does not fail."""


class RepeatedThoughts(Debt):
    """Trips at `limit` steps (default 3) whose thoughts resemble the last `remember` (8).

    Deprecated: use `Stagnation`.

    A thought costs how much it resembles the most similar of these, as sets of words, beyond
    `usual` (0.25). Each new word of its action pays back `credit` (0.05), up to one step in all; a
    new file or address of a step that does not fail, three quarters of one; a new state of the
    files and a new set of failing tests, where they are known, a whole one.
    """

    __slots__ = ("limit", "usual", "credit", "remember")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "words_debt"
    name: ClassVar[str] = "the same thoughts again"
    advice: ClassVar[str] = "write down what has been ruled out, and take a route not yet tried"
    limit: float
    usual: float
    credit: float
    remember: int

    def __init__(
        self, limit: float = 3.0, usual: float = 0.25, credit: float = 0.05, remember: int = 8
    ) -> None:
        self._set(
            limit=values.check_positive("RepeatedThoughts.limit", limit),
            usual=values.check_fraction("RepeatedThoughts.usual", usual),
            credit=values.check_fraction("RepeatedThoughts.credit", credit, whole_too=True),
            remember=values.check_int("RepeatedThoughts.remember", remember),
        )

    def one(self, memory: ProgressMemory, signal: Signal) -> ProgressMemory:
        """The memory after one step: the cost of a repeated thought, minus credits."""
        charge, text = 0, ""
        credit = STEP * (
            compare_state(memory.states, signal.state)[0]
            + compare_state(memory.tests, signal.failing_tests)[0]
        )
        book = memory.with_state(signal)
        if (act := signal.step) is not None and act.tool:
            facts = facts_of(act)
            if len(facts.thought) >= FEWEST_WORDS:
                text = act.thought or ""
                credit += min(STEP, round(STEP * self.credit * count_new(facts.words, book.words)))
                if book.recent:
                    most = max([resemblance(facts.thought, other) for other in book.recent])
                    charge = most - round(STEP * self.usual)
                book = book._replace(recent=(*book.recent, facts.thought)[-self.remember :])
            if signal.ok is not False and count_new(facts.paths, book.paths):
                credit += NEW_FILE
            book = book._replace(
                words=add_known(book.words, facts.words), paths=add_known(book.paths, facts.paths)
            )
        return book.charge(charge, credit, text, self.most)


CALM = STEP // 5
"""The credit for a step that does not fail."""
AGAIN = STEP // 2
"""The additional cost of a failure for each earlier occurrence."""
TIMES = 4
"""The maximum number of earlier occurrences that count."""
FEW = STEP // 2
"""The maximum credit for new words or a new file."""
NEW_THOUGHT = 40
"""The share of the cost of a failure, in percent, if its thought is new."""
RECENT_THOUGHTS = 8
"""Number of last thoughts with which a thought is compared."""


class RepeatedErrors(Debt):
    """Trips at `limit` steps (default 6) that failed.

    Deprecated: use `Stagnation`.

    A failure costs one step, less half the share of new lines it brought, and half a step more
    when it is the last failure again, or for each time (up to 4) that the same action failed so
    before. For an agent that reports its thoughts 40 % of that count, and as much more as its thought
    resembles the most similar of the last 8. One step more when the files have changed and the
    same tests fail. Paid back: a fifth of a step by a step that does not fail, a whole one if its
    action failed before; half a step for a new file or address, `credit` (0.1) for each new word
    up to half a step, two steps for a new set of failing tests.
    """

    __slots__ = ("limit", "credit")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "errors_debt"
    name: ClassVar[str] = "errors without learning"
    advice: ClassVar[str] = "find the cause before the next try, or do without what keeps failing"
    remember: int = RECENT_THOUGHTS
    limit: float
    credit: float

    def __init__(self, limit: float = 6.0, credit: float = 0.1) -> None:
        self._set(
            limit=values.check_positive("RepeatedErrors.limit", limit),
            credit=values.check_fraction("RepeatedErrors.credit", credit, whole_too=True),
        )

    def one(self, memory: ProgressMemory, signal: Signal) -> ProgressMemory:
        """The memory after one step: the cost of a failure, minus credits."""
        charge = STEP * _did_not_help(memory, signal)
        credit = 2 * STEP * compare_state(memory.tests, signal.failing_tests)[0]
        book, text = memory.with_state(signal), "the files changed and the same tests fail"
        if (act := signal.step) is not None and act.tool and signal.ok is not None:
            facts = facts_of(act)
            credit += FEW * bool(count_new(facts.paths, book.paths))
            credit += min(FEW, round(STEP * self.credit * count_new(facts.words, book.words)))
            if signal.ok:
                credit += STEP if facts.key in book.keys else CALM
                keys = tuple([key for key in book.keys if key != facts.key])
                book = book._replace(keys=keys, last=-1)
            else:
                text = signal.error or f"{act.tool} {act.args}"
                cost, book = _charge_failure(book, facts, failure_of(signal))
                charge += cost
            if len(facts.thought) >= FEWEST_WORDS:
                book = book._replace(recent=(*book.recent, facts.thought)[-RECENT_THOUGHTS:])
            book = book.with_facts(facts)
        return book.charge(charge, credit, text, self.most)


def _charge_failure(
    book: ProgressMemory, facts: ActFacts, failure: int
) -> tuple[int, ProgressMemory]:
    """The cost of a failure, and the memory with it."""
    which = facts.key ^ failure
    cost = STEP
    if facts.lines:
        cost -= FEW * count_new(facts.lines, book.lines) // len(facts.lines)
    cost += max(AGAIN * (failure == book.last), AGAIN * min(TIMES, book.failures.count(which)))
    if book.recent and len(facts.thought) >= FEWEST_WORDS:
        most = max([resemblance(facts.thought, other) for other in book.recent])
        cost = cost * min(100, NEW_THOUGHT + most) // 100
    return cost, book._replace(
        failures=(*book.failures, which)[-RING:],
        keys=(*[key for key in book.keys if key != facts.key], facts.key)[-RING:],
        last=failure,
    )


def _did_not_help(memory: ProgressMemory, signal: Signal) -> bool:
    """Whether the files have changed since the tests ran, and the same tests fail."""
    if signal.ok is not False or signal.failing_tests is None or memory.tested == -1:
        return False
    after = memory.with_state(signal)
    return after.tests == memory.tests and after.tested != memory.tested


class IdleTalk(Debt):
    """Trips at `limit` steps (default 2) that only repeated an earlier reply.

    Deprecated: use `Stagnation`.

    A reply without a tool call costs how much it resembles the most similar of the last
    `remember` (8) replies, as sets of words, beyond `usual` (0.3). A tool call pays back one step.
    """

    __slots__ = ("limit", "usual", "remember")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "talk_debt"
    name: ClassVar[str] = "the same reply without acting"
    advice: ClassVar[str] = "act with a tool, or say that the task is done or what is missing"
    limit: float
    usual: float
    remember: int

    def __init__(self, limit: float = 2.0, usual: float = 0.3, remember: int = 8) -> None:
        self._set(
            limit=values.check_positive("IdleTalk.limit", limit),
            usual=values.check_fraction("IdleTalk.usual", usual),
            remember=values.check_int("IdleTalk.remember", remember),
        )

    def one(self, memory: ProgressMemory, signal: Signal) -> ProgressMemory:
        """The cost of a reply; an action is a credit."""
        act = signal.step
        if act is None:
            return memory
        if act.tool:
            return memory.charge(0, STEP, "", self.most)
        text = act.thought or act.args
        words, charge = words_of(text), 0
        if memory.recent:
            charge = max([resemblance(words, other) for other in memory.recent])
            charge -= round(STEP * self.usual)
        book = memory._replace(recent=(*memory.recent, words)[-self.remember :])
        return book.charge(charge, 0, text, self.most)
