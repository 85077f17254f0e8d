"""What a run does about a stuck agent: a person chooses, or the ladder does when nobody is there.

The ladder is that of the loop's circuit, so the rungs are remembered whatever becomes of the run.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from switchgear._core.errors import StoreError
from switchgear._stores.base import Store, Transaction
from switchgear._stuck import escalation, messages
from switchgear._stuck.escalation import ESCALATE, NUDGE, RESET, SKIP, Climb, Interventions
from switchgear._stuck.messages import Option, Stuck
from switchgear._stuck.score import Score

T = TypeVar("T")

Choose = Callable[[str, tuple[Option, ...]], str | None]
"""Shows a text and asks which option; `None`: nobody answered."""
EXTEND = "extend"
_RUNG_OF = {"nudge": NUDGE, "escalate": ESCALATE, "abort": SKIP}


class Help(NamedTuple):
    """What is done, and what the next agent is told."""

    what: str
    """A rung, or `extend`."""
    by: str
    """`you` or `the ladder`."""
    advice: str | None
    """For the next prompt."""
    block: str
    """What was seen, for people."""
    evidence: tuple[str, ...]


class Helper:
    """Steps in for one run. Used by one thread.

    `subject` is the loop's circuit; `choose` asks a person, where there is one; `in_batch`: the run
    is a task of a batch, which continues without it.
    """

    def __init__(
        self,
        store: Store,
        subject: str,
        plan: Interventions,
        *,
        agent: str,
        choose: Choose | None = None,
        in_batch: bool = False,
    ) -> None:
        self._in_batch = in_batch
        self._store = store
        self._subject = subject
        self._plan = plan
        self._agent = agent
        self._choose = choose

    @property
    def plan(self) -> Interventions:
        """How stuck agents are helped."""
        return self._plan

    def intervene(self, score: Score, task: str, *, limited: bool) -> Help:
        """Decide what to do about an agent that this score says is stuck, and remember it.

        `limited`: whether the run has a timeout that could be extended.
        """
        seen = Stuck(self._agent, task, score.points, score.evidence)
        idle = {ESCALATE} if self._plan.escalate is None else set[str]()
        idle |= set() if limited else {EXTEND}
        shown = messages.stuck_options(self._plan, in_batch=self._in_batch)
        options = tuple(option for option in shown if option.key not in idle)
        block = messages.agent_stuck(seen, options)
        chosen = None if self._choose is None else self._choose(block, options)
        if chosen == EXTEND:
            advice = messages.nudge(seen, "You have more time now")
            return Help(EXTEND, "you", advice, block, score.evidence)
        taken = self._taken(chosen, "; ".join(score.evidence))
        advice = messages.nudge(seen, self._plan.hint)
        if taken.rung in {RESET, ESCALATE}:
            advice = messages.fresh_start(seen, (*taken.tried, taken.rung))
        by = "the ladder" if chosen is None else "you"
        return Help(taken.rung, by, advice, block, score.evidence)

    def progressed(self) -> None:
        """Progress was measured: the next incident begins at the bottom."""
        with suppress(StoreError):
            self._in_turn(
                lambda tx: escalation.progressed(tx.apply, self._subject, self._plan.rungs)
            )

    def given_up(self) -> str | None:
        """What was tried, where the ladder is at its end; `None`: it is not, or nobody knows."""
        with suppress(StoreError):
            return self._in_turn(
                lambda tx: escalation.given_up(tx.apply, self._subject, self._plan.rungs)
            )
        return None

    def _taken(self, chosen: str | None, why: str) -> Climb:
        rungs = self._plan.rungs

        def work(tx: Transaction) -> Climb:
            if chosen is None:
                return escalation.climb(tx.apply, self._subject, rungs, why)
            return escalation.take(tx.apply, self._subject, rungs, _RUNG_OF[chosen], why)

        try:
            return self._in_turn(work)
        except StoreError:  # a store that is gone stops nobody: what is chosen holds, unremembered
            return Climb(_RUNG_OF[chosen] if chosen else rungs[0], ())

    def _in_turn(self, work: Callable[[Transaction], T]) -> T:
        return self._store.transact(escalation.ladder_key(self._subject), work)


def write_evidence(folder: Path, help_: Help) -> Path:
    """What is known of a stuck agent, as a file for whoever takes over."""
    path = folder / "evidence.txt"
    path.write_text(f"{help_.block}\n\n{help_.advice or ''}\n", encoding="utf-8")
    return path
