"""One look at a session while its agent may be silent: tells the silence, and keeps its time.

A silent agent calls no hook, so nobody would hear that it is. The watcher (see `watcher.py`) looks
every few seconds; one look is one transaction, and everything it decides is decided in there. Where
the agent's process is not known there is no watcher: then whoever runs anyway looks (`rounds.py`).
"""

from collections.abc import Callable
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

GONE_S = 3600.0
"""Who was not heard of for so long is gone, as far as can be told without knowing its process."""


def least_s(policy: Policy) -> float:
    """From how long on a silence is told: well before the policy minds it."""
    limits = [each.limit_s for each in policy.detectors if isinstance(each, Silence)]
    return min([LEAST_S, *(limit_s / 4 for limit_s in limits)])


class Look(NamedTuple):
    """What one look found."""

    notes: Notes
    known: bool = True
    """Whether it is ours to look at; else its note is not there, or others look at it."""
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


def at_work(store: Store) -> list[str]:
    """The sessions that may be silent, as far as their circuits tell: told of something lately."""
    prefix, since_s = sessions.note_name(""), store.now_s() - GONE_S
    circuits = (found.circuit for found in store.find(f"{prefix}*"))
    names = (one.key.removeprefix(prefix) for one in circuits if one.seen_s >= since_s)
    return [name for name in names if "/" not in name]


def look_for_a_watcher(store: Store, session: str, policy: Policy, plan: Interventions) -> Look:
    """The same as `look`, for a session that has no watcher of its own, as long as it is not gone."""

    def concerns_us(notes: Notes, now_s: float) -> bool:
        silent_s = now_s - (now_s if notes.heard_s is None else notes.heard_s)
        return silent_s < GONE_S and not sessions.is_watched(notes)

    return look(store, session, policy, plan, concerns_us)


def look(
    store: Store,
    session: str,
    policy: Policy,
    plan: Interventions,
    concerns_us: Callable[[Notes, float], bool] = lambda _, __: True,
) -> Look:
    """Look at a session: tell its silence, climb when that is too much, end it in time."""
    subject = sessions.note_name(session)

    def work(tx: Transaction) -> Look:
        if tx.note is None:
            return Look(Notes(), known=False)
        notes = Notes.load(tx.note)
        if not concerns_us(notes, tx.now_s):
            return Look(notes, known=False)
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
