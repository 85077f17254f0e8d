"""Actions that were taken before and bring nothing new: loops of any length, drifting arguments."""

from typing import ClassVar

from switchgear.core import record
from switchgear.core.act_facts import alike, facts_of
from switchgear.core.detectors.debt import STEP, Book, Debt, moved
from switchgear.core.detectors.numbers import known, new_of
from switchgear.core.types import Signal

RECENT = 8
"""The last actions, for those that only resemble an earlier one."""
RESEMBLES = 0.5
"""What an action costs that fails and is as good as an earlier one, but not it."""
SILENT = STEP // 2
"""What a step costs that nothing came back from."""


class ActionsDebt(Debt):
    """Trips at a debt of `limit` steps (default 7) that were seen before and brought nothing new.

    An action that was seen before, but for its numbers, costs one step; another, if it fails, half
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
            limit=record.positive("ActionsDebt.limit", limit),
            credit=record.fraction("ActionsDebt.credit", credit, whole_too=True),
        )

    def one(self, memory: Book, signal: Signal) -> Book:
        """What a repeated action costs, less what is new."""
        is_new, is_undone = moved(memory.states, signal.state)
        charge, text = STEP * is_undone, "went back to an earlier state of the files"
        credit = STEP * (is_new + moved(memory.tests, signal.failing_tests)[0])
        book = memory.seen(signal)
        if (act := signal.act) is not None and act.tool:
            facts, words = facts_of(act), frozenset(facts_of(act).words)
            if facts.key in book.keys:
                charge += STEP
            elif signal.ok is not False:
                credit += STEP
            elif book.recent:
                charge += round(RESEMBLES * max([alike(words, other) for other in book.recent]))
            if facts.is_silent and act.result is not None:
                charge += SILENT
            if facts.lines:
                credit += STEP * new_of(facts.lines, book.lines) // len(facts.lines)
            credit += STEP * bool(new_of(facts.paths, book.paths))
            credit += min(STEP, round(STEP * self.credit * new_of(facts.words, book.words)))
            text = f"{act.tool} {act.args}"
            book = book.learnt(facts)._replace(
                keys=known(book.keys, (facts.key,)), recent=(*book.recent, words)[-RECENT:]
            )
        return book.charged(charge, credit, text, self.most)
