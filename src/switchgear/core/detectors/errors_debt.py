"""Failures without learning: error after error, or the same command failing after every edit."""

from typing import ClassVar

from switchgear.core import record
from switchgear.core.act_facts import FEWEST_WORDS, ActFacts, alike, facts_of, failure_of
from switchgear.core.detectors.debt import RING, STEP, Book, Debt, moved
from switchgear.core.detectors.numbers import new_of
from switchgear.core.types import Signal

CALM = STEP // 5
"""What a step pays back that does not fail."""
AGAIN = STEP // 2
"""What a failure costs more for each time that it was seen before."""
TIMES = 4
"""The times that count."""
FEW = STEP // 2
"""The most that new words, or a new file, pay back."""
NEW_THOUGHT = 40
"""What a failure costs, in percent, if no earlier thought resembles the one before it."""
RECENT = 8
"""The last thoughts, against which one is new."""


class ErrorsDebt(Debt):
    """Trips at a debt of `limit` steps (default 6) that failed.

    A failure costs one step, less half the share of new lines it brought, and half a step more
    when it is the last failure again, or for each time (up to 4) that the same action failed so
    before. Of that, an agent that tells its thoughts owes 40 %, and as much more as its thought
    resembles the most similar of the last 8. One step more when the files have changed and the
    same tests fail. Paid back: a fifth of a step by a step that does not fail, a whole one if its
    action failed before; half a step for a new file or address, `credit` (0.1) for each new word
    up to half a step, two steps for a new set of failing tests.
    """

    __slots__ = ("limit", "credit")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "errors_debt"
    name: ClassVar[str] = "errors without learning"
    advice: ClassVar[str] = "find the cause before the next try, or do without what keeps failing"
    remember: int = RECENT
    limit: float
    credit: float

    def __init__(self, limit: float = 6.0, credit: float = 0.1) -> None:
        self._set(
            limit=record.positive("ErrorsDebt.limit", limit),
            credit=record.fraction("ErrorsDebt.credit", credit, whole_too=True),
        )

    def one(self, memory: Book, signal: Signal) -> Book:
        """What a failure costs, less what is new."""
        charge = STEP * _did_not_help(memory, signal)
        credit = 2 * STEP * moved(memory.tests, signal.failing_tests)[0]
        book, text = memory.seen(signal), "the files changed and the same tests fail"
        if (act := signal.act) is not None and act.tool and signal.ok is not None:
            facts = facts_of(act)
            credit += FEW * bool(new_of(facts.paths, book.paths))
            credit += min(FEW, round(STEP * self.credit * new_of(facts.words, book.words)))
            if signal.ok:
                credit += STEP if facts.key in book.keys else CALM
                keys = tuple([key for key in book.keys if key != facts.key])
                book = book._replace(keys=keys, last=-1)
            else:
                text = signal.error or f"{act.tool} {act.args}"
                cost, book = _failed(book, facts, failure_of(signal))
                charge += cost
            if len(facts.thought) >= FEWEST_WORDS:
                book = book._replace(recent=(*book.recent, facts.thought)[-RECENT:])
            book = book.learnt(facts)
        return book.charged(charge, credit, text, self.most)


def _failed(book: Book, facts: ActFacts, failure: int) -> tuple[int, Book]:
    """What a failure costs, and the book that knows it."""
    which = facts.key ^ failure
    cost = STEP
    if facts.lines:
        cost -= FEW * new_of(facts.lines, book.lines) // len(facts.lines)
    cost += max(AGAIN * (failure == book.last), AGAIN * min(TIMES, book.failures.count(which)))
    if book.recent and len(facts.thought) >= FEWEST_WORDS:
        most = max([alike(facts.thought, other) for other in book.recent])
        cost = cost * min(100, NEW_THOUGHT + most) // 100
    return cost, book._replace(
        failures=(*book.failures, which)[-RING:],
        keys=(*[key for key in book.keys if key != facts.key], facts.key)[-RING:],
        last=failure,
    )


def _did_not_help(memory: Book, signal: Signal) -> bool:
    """Whether the files have changed since the tests ran, and the same tests fail."""
    if signal.ok is not False or signal.failing_tests is None or memory.tested == -1:
        return False
    after = memory.seen(signal)
    return after.tests == memory.tests and after.tested != memory.tested
