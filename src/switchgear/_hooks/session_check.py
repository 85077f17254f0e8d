"""One look at a session while its agent may be silent: tells the silence, and keeps its time.

A silent agent calls no hook, so nobody would hear that it is. The watcher (see `watcher.py`) looks
every few seconds; one look is one transaction, and everything it decides is decided in there. Where
the agent's process is not known there is no watcher: then whoever runs anyway looks (`rounds.py`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from switchgear._core.policy import Policy
from switchgear._core.types import EventKind, Override, Record, Signal
from switchgear._detectors import Silence
from switchgear._hooks import session as sessions
from switchgear._hooks.session import Notes
from switchgear._stores.base import Store, Transaction
from switchgear._stuck.escalation import Interventions, StepTaken
from switchgear._stuck.messages import tampering_text
from switchgear._stuck.score import grounds_of
from switchgear._text.redact import redact

LEAST_S = 15.0
"""Shorter silences are not told: every answer of a model is one."""

GONE_S = 3600.0
"""Who was not heard of for so long is gone, as far as can be told without knowing its process."""


def least_s(policy: Policy) -> float:
    """From how long on a silence is told: well before the policy minds it."""
    return min([LEAST_S, *(limit_s / 4 for limit_s in _limits(policy))])


def gone_after_s(policy: Policy) -> float:
    """After how long a silence is taken for an end: well after the policy minds it."""
    return max([GONE_S, *(limit_s * 2 for limit_s in _limits(policy))])


def _limits(policy: Policy) -> list[float]:
    return [each.limit_s for each in policy.detectors if isinstance(each, Silence)]


class Look(NamedTuple):
    """What one look found."""

    notes: Notes
    known: bool = True
    """Whether it is ours to look at; else its note is not there, or others look at it."""
    taken: StepTaken | None = None
    """The rung that was taken just now."""
    interrupts: bool = False
    """Whether the agent must be stopped now: no hook of it may come for a long time."""
    every_s: float = LEAST_S / 3
    """How soon to look again."""

    @property
    def ends(self) -> bool:
        """Whether there is nothing left to watch."""
        return not self.known or self.notes.ended


class Transacts(Protocol):
    """A store, or what stands before one, as far as a look needs it."""

    def transact(self, name: str, work: Callable[[Transaction], Look], /) -> Look:
        """Do `work` on a circuit and its note at once."""
        ...


def at_work(store: Store) -> list[str]:
    """The sessions that may be silent, as far as their circuits tell: told of something lately."""
    prefix, now_s = sessions.note_name(""), store.now_s()
    lately = (
        found.circuit.key.removeprefix(prefix)
        for found in store.find(f"{prefix}*")
        if found.circuit.seen_s >= now_s - gone_after_s(found.policy)
    )
    return [name for name in lately if "/" not in name]


def look(store: Store, session: str, policy: Policy, plan: Interventions) -> Look:
    """The watcher's look: tell its silence, climb when that is too much, end it in time."""

    def work(tx: Transaction, notes: Notes) -> Look:
        found = _told(tx, notes, session, policy, plan)
        after = sessions.over(found.notes, tx.now_s) if notes.works else found.notes
        circuit = sessions.SessionCircuit(tx.apply, sessions.note_name(session), policy)
        sessions.open_if_stopped(circuit, after)
        stopped = notes.stop is None and after.stop is not None
        return found._replace(notes=after, interrupts=stopped)

    return _looked(store, session, policy, work)


def stop_for_tampering(
    store: Store, session: str, policy: Policy, rules: Policy, changes: Sequence[str]
) -> Look:
    """Stop a session in whose project the guard was changed without an operator, and record it."""
    name = sessions.note_name(session)
    seen = redact(f"{'; '.join(changes)}; seen by the watcher of {name}")

    def work(tx: Transaction, notes: Notes) -> Look:
        tx.apply("rules", rules, Override("switchgear", seen, kind=EventKind.GUARD_CHANGED))
        after = notes._replace(stop=tampering_text(changes))
        sessions.open_if_stopped(sessions.SessionCircuit(tx.apply, name, policy), after)
        return Look(after, interrupts=notes.works and notes.stop is None)

    return _looked(store, session, policy, work)


def look_for_a_watcher(
    store: Transacts,
    session: str,
    policy: Policy,
    plan: Interventions | None = None,
    root: str | None = None,
    *,
    watcher: int | None = None,
) -> Look:
    """A look at a session that has no watcher of its own, as long as it is not gone.

    Without a `plan` its silence is only recorded, and the step is left to its next hook. With a
    `root` only a session of that project is looked at. Its time limit is left to its hooks: no
    agent is interrupted from here. `watcher` is the process that looks, if the session's note names it.
    """

    def work(tx: Transaction, notes: Notes) -> Look:
        unheard_s = 0.0 if notes.heard_s is None else tx.now_s - notes.heard_s
        is_watched = notes.watcher != watcher and sessions.is_watched(notes)
        others = is_watched or root not in {None, notes.root}
        if others or unheard_s >= gone_after_s(policy):
            return Look(notes, known=False)
        return _told(tx, notes, session, policy, plan)

    return _looked(store, session, policy, work)


def _looked(
    store: Transacts, session: str, policy: Policy, work: Callable[[Transaction, Notes], Look]
) -> Look:
    def inside(tx: Transaction) -> Look:
        if tx.note is None:
            return Look(Notes(), known=False)
        notes = Notes.load(tx.note)
        found = Look(notes) if notes.ended else work(tx, notes)
        if found.notes != notes:
            tx.note = found.notes.dump()
        return found._replace(every_s=least_s(policy) / 3)

    return store.transact(sessions.note_name(session), inside)


def _told(
    tx: Transaction, notes: Notes, session: str, policy: Policy, plan: Interventions | None
) -> Look:
    subject, idle_s = sessions.note_name(session), sessions.silent_s(notes, tx.now_s)
    if idle_s < least_s(policy):
        return Look(notes)
    step = tx.apply(subject, policy, Record(Signal(idle_s=idle_s)))
    if not sessions.has_opened(step):
        return Look(notes)
    score = grounds_of(policy, policy.readings(step.circuit.memories, tx.now_s))
    if plan is None:
        return Look(sessions.left_to_hooks(notes, score))
    circuit = sessions.SessionCircuit(tx.apply, subject, policy)
    notes, taken = sessions.stuck(circuit, notes, score, plan)
    return Look(notes, taken=taken)
