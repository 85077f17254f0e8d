"""The same reply again and again, without any tool call."""

from typing import ClassVar

from switchgear.core import record
from switchgear.core.act_facts import alike, words_of
from switchgear.core.detectors.debt import STEP, Book, Debt
from switchgear.core.types import Signal


class TalkDebt(Debt):
    """Trips at a debt of `limit` steps (default 2) that only repeated an earlier reply.

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
            limit=record.positive("TalkDebt.limit", limit),
            usual=record.fraction("TalkDebt.usual", usual),
            remember=record.whole("TalkDebt.remember", remember),
        )

    def one(self, memory: Book, signal: Signal) -> Book:
        """What a reply costs; an action pays back."""
        act = signal.act
        if act is None:
            return memory
        if act.tool:
            return memory.charged(0, STEP, "", self.most)
        text = act.thought or act.args
        words, charge = words_of(text), 0
        if memory.recent:
            charge = max([alike(words, other) for other in memory.recent])
            charge -= round(STEP * self.usual)
        book = memory._replace(recent=(*memory.recent, words)[-self.remember :])
        return book.charged(charge, 0, text, self.most)
