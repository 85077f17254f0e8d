"""Thoughts that resemble earlier ones: standing still in new words."""

from typing import ClassVar

from switchgear.core import record
from switchgear.core.act_facts import FEWEST_WORDS, alike, facts_of
from switchgear.core.detectors.debt import STEP, Book, Debt, moved
from switchgear.core.detectors.numbers import known, new_of
from switchgear.core.types import Signal

NEW_FILE = 3 * STEP // 4
"""What a new file or address pays back, if the step does not fail: all that the same words cost."""


class WordsDebt(Debt):
    """Trips at a debt of `limit` steps (default 3) whose thoughts resemble the last `remember` (8).

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
            limit=record.positive("WordsDebt.limit", limit),
            usual=record.fraction("WordsDebt.usual", usual),
            credit=record.fraction("WordsDebt.credit", credit, whole_too=True),
            remember=record.whole("WordsDebt.remember", remember),
        )

    def one(self, memory: Book, signal: Signal) -> Book:
        """What a thought costs, less what is new."""
        charge, text = 0, ""
        credit = STEP * (
            moved(memory.states, signal.state)[0] + moved(memory.tests, signal.failing_tests)[0]
        )
        book = memory.seen(signal)
        if (act := signal.act) is not None and act.tool:
            facts = facts_of(act)
            if len(facts.thought) >= FEWEST_WORDS:
                text = act.thought or ""
                credit += min(STEP, round(STEP * self.credit * new_of(facts.words, book.words)))
                if book.recent:
                    most = max([alike(facts.thought, other) for other in book.recent])
                    charge = most - round(STEP * self.usual)
                book = book._replace(recent=(*book.recent, facts.thought)[-self.remember :])
            if signal.ok is not False and new_of(facts.paths, book.paths):
                credit += NEW_FILE
            book = book._replace(
                words=known(book.words, facts.words), paths=known(book.paths, facts.paths)
            )
        return book.charged(charge, credit, text, self.most)
