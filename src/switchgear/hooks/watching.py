"""One look at a session while its agent may be silent: tells the silence, and keeps its time.

A silent agent calls no hook, so nobody would hear that it is. The watcher (see `watcher.py`) looks
every few seconds; one look is one transaction, and everything it decides is decided in there.
"""

from typing import NamedTuple

from switchgear.core.detectors import Silence
from switchgear.core.policy import Policy
from switchgear.core.score import score_of
from switchgear.core.types import Signal, Tell
from switchgear.hooks import sessions
from switchgear.hooks.sessions import Notes
from switchgear.ladder import Climb, Interventions
from switchgear.stores.base import Store, Transaction

LEAST_S = 15.0
"""Shorter silences are not told: every answer of a model is one."""


def least_s(policy: Policy) -> float:
    """From how long on a silence is told: well before the policy minds it."""
    limits = [each.limit_s for each in policy.detectors if isinstance(each, Silence)]
    return min([LEAST_S, *(limit_s / 4 for limit_s in limits)])


class Look(NamedTuple):
    """What one look found."""

    notes: Notes
    known: bool = True
    """Whether the session is there at all; else its note was removed, or never written."""
    taken: Climb | None = None
    """The rung that was taken just now."""
    interrupts: bool = False
    """Whether the agent must be stopped now: no hook of it may come for a long time."""
    every_s: float = LEAST_S / 3
    """How soon to look again."""

    @property
    def ends(self) -> bool:
        """Whether there is nothing left to watch."""
        return not self.known or self.notes.ended


def look(store: Store, session: str, policy: Policy, plan: Interventions) -> Look:
    """Look at a session: tell its silence, climb when that is too much, end it in time."""
    subject = sessions.note_name(session)

    def work(tx: Transaction) -> Look:
        if tx.note is None:
            return Look(Notes(), known=False)
        notes = Notes.load(tx.note)
        found = _told(tx, notes, subject, policy, plan)
        after = sessions.over(found.notes, tx.now_s) if notes.works else found.notes
        if after != notes:
            tx.note = after.dump()
        stopped = notes.stop is None and after.stop is not None
        return found._replace(notes=after, interrupts=stopped, every_s=least_s(policy) / 3)

    return store.transact(subject, work)


def _told(tx: Transaction, notes: Notes, subject: str, policy: Policy, plan: Interventions) -> Look:
    idle_s = sessions.silent_s(notes, tx.now_s)
    if idle_s < least_s(policy):
        return Look(notes)
    step = tx.apply(subject, policy, Tell(Signal(idle_s=idle_s)))
    score = score_of(policy, policy.readings(step.circuit.memories, tx.now_s))
    if score is None or not sessions.has_opened(step):
        return Look(notes)
    notes, taken = sessions.stuck(tx.apply, notes, subject, score, plan)
    return Look(notes, taken=taken)
