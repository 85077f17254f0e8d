"""What the debts of the progress ledger have in common.

A debt grows on evidence of going nowhere, is paid back by new information, and never falls under
zero. It is counted in hundredths of a step, in whole numbers, so that n equal steps are exactly
one with count n. A step that is told again brings nothing new: so under equal steps a debt only
grows, and a loop always trips in the end.
"""

from typing import Any, ClassVar, NamedTuple, Self

from switchgear.core import record
from switchgear.core.act_facts import MOST, ActFacts, excerpt, number_of
from switchgear.core.detectors import numbers as packed
from switchgear.core.detectors.base import Detector, Measure
from switchgear.core.detectors.numbers import ROOM, Numbers, known
from switchgear.core.types import Signal

STEP = 100
"""A whole step that went nowhere."""
RING = 32
"""How many failures and states are remembered."""
EVIDENCE = 3
"""How many of the steps that made a debt are kept to explain it."""


class Book(NamedTuple):
    """What a debt remembers. Numbers stand for texts; the newest is the last."""

    points: int = 0
    """The debt, in hundredths of a step."""
    evidence: tuple[tuple[int, str], ...] = ()
    """The last steps that made it: how many points, and how each began."""
    recent: tuple[frozenset[int], ...] = ()
    """The words of the last thoughts, actions or replies."""
    words: Numbers = ()
    lines: Numbers = ()
    paths: Numbers = ()
    keys: Numbers = ()
    """The actions that were seen, or those that failed."""
    failures: Numbers = ()
    """Which action failed how, in a row."""
    states: Numbers = ()
    """The states in which the work has been."""
    tests: Numbers = ()
    """The sets of tests that have failed."""
    tested: int = -1
    """The state in which the tests ran last; -1: not known."""
    last: int = -1
    """The last failure; -1: the last step did not fail."""
    context: int = 0
    """How full the agent's context was, in percent."""

    def learnt(self, facts: ActFacts) -> "Book":
        """With the words, lines and files of a step."""
        return self._replace(
            words=known(self.words, facts.words),
            lines=known(self.lines, facts.lines),
            paths=known(self.paths, facts.paths),
        )

    def seen(self, signal: Signal) -> "Book":
        """With the state and the tests of a signal, and without what the agent itself forgot."""
        book = self
        if signal.context_used is not None:
            full = round(100 * max(0.0, min(signal.context_used, 1.0)))
            if 2 * full <= book.context:
                book = book._replace(recent=(), words=(), lines=(), paths=(), keys=())
            book = book._replace(context=full)
        if signal.state is not None:
            book = book._replace(states=known(book.states, (number_of(signal.state),), RING))
        if signal.failing_tests is not None:
            tests = known(book.tests, (number_of(signal.failing_tests),), RING)
            book = book._replace(tests=tests, tested=book.states[-1] if book.states else -1)
        return book

    def charged(self, charge: int, credit: int, text: str, most: int) -> "Book":
        """After a step that costs `charge` and pays back `credit`: from 0 up to `most`."""
        points = max(0, min(self.points + charge - credit, most))
        if not points:
            return self._replace(points=0, evidence=())
        if charge <= credit:
            return self._replace(points=points)
        found = (*self.evidence, (charge - credit, excerpt(text)))[-EVIDENCE:]
        return self._replace(points=points, evidence=found)

    def dump(self) -> list[Any]:
        """The fields; numbers in hexadecimal, as one text for each field."""
        fields = [packed.dump(numbers) for numbers in self[3:10]]
        recent = [packed.dump(tuple(sorted(words))) for words in self.recent]
        evidence = [list(step) for step in self.evidence]
        return [self.points, evidence, recent, *fields, self.tested, self.last, self.context]

    @classmethod
    def load(cls, data: Any, *, most: int, remember: int) -> Self:
        """The inverse of `dump`; raises ValueError on anything else."""
        points, evidence, recent, *fields, tested, last, context = record.row("a debt", data, 13)
        steps = []
        for step in record.row("the steps of a debt", evidence)[-EVIDENCE:]:
            charge, text = record.row("a step of a debt", step, 2)
            if not isinstance(text, str):
                raise ValueError(f"{text!r} must be the text of a step")
            steps.append((record.whole("its points", charge), excerpt(text)))
        points = min(record.whole("the points of a debt", points, least=0), most)
        sets = record.row("the last words", recent)[-remember:] if remember else []
        words, lines, paths, keys, failures, states, tests = map(packed.load, fields)
        return cls(
            points,
            tuple(steps) if points else (),
            tuple(frozenset(packed.load(one)[-MOST:]) for one in sets),
            words[-ROOM:],
            lines[-ROOM:],
            paths[-ROOM:],
            keys[-ROOM:],
            failures[-RING:],
            states[-RING:],
            tests[-RING:],
            record.whole("the state of the tests", tested, least=-1),
            record.whole("the last failure", last, least=-1),
            record.whole("the fullness of the context", context, least=0),
        )


class Debt(Detector):
    """Base of the debts: heat is the debt against `limit`, in steps that went nowhere."""

    __slots__ = ()
    name: ClassVar[str]
    """What it is called in its reason."""
    remember: int = 0
    limit: float

    def start(self) -> Book:
        """No debt, and nothing is known."""
        return Book()

    def fold(self, memory: Book, signal: Signal, now_s: float) -> Book:
        """Each step by itself, until one more of the same changes nothing."""
        del now_s
        if signal.act is None and signal.state is None and signal.failing_tests is None:
            return memory
        for _ in range(signal.count):
            after = self.one(memory, signal)
            if after == memory:
                break
            memory = after
        return memory

    def one(self, memory: Book, signal: Signal) -> Book:
        """The debt after one step."""
        raise NotImplementedError

    @property
    def most(self) -> int:
        """The highest debt: what is paid back later must be able to matter."""
        return round(2 * STEP * self.limit)

    def heat(self, memory: Book, now_s: float) -> float:
        """The debt against the limit."""
        del now_s
        return memory.points / STEP / self.limit

    def reason(self, memory: Book, now_s: float) -> str:
        """The debt in words, the steps that made it, and what to do differently."""
        del now_s
        debt = f"{self.name}: a debt of {memory.points / STEP:.2f} steps (threshold {self.limit:g})"
        if not memory.evidence:
            return debt
        steps = ", ".join(f'"{text}" (+{points / STEP:.2f})' for points, text in memory.evidence)
        return f"{debt}: {steps}; {self.advice}"

    def measure(self, memory: Book, now_s: float) -> Measure:
        """The debt."""
        del now_s
        return Measure(memory.points / STEP, self.limit, "steps")

    def dump(self, memory: Book) -> list[Any]:
        """The fields."""
        return memory.dump()

    def load(self, data: Any) -> Book:
        """The inverse of `dump`."""
        return Book.load(data, most=self.most, remember=self.remember)


def moved(before: Numbers, text: str | None) -> tuple[bool, bool]:
    """Whether a state is new, and whether it is an earlier one come back. The first is neither."""
    if text is None or not before:
        return False, False
    number = number_of(text)
    return number not in before, number in before[:-1]
