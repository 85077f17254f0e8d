"""Checks of sessions between hooks: a silent agent calls no hook, so its silence is found by looking.

`look` is one check, in one transaction. The resident process checks the sessions whose agent process is
known (`WatchedSession`, `visit`): every few seconds, in a process for each project. `switchgear serve` and
`watch` check the others, and interrupt no agent.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from switchgear._core.policy import Policy
from switchgear._core.types import Event, EventKind, Override, Record, Signal
from switchgear._detectors import Silence
from switchgear._hooks import after_reply, hook_config
from switchgear._hooks import session as sessions
from switchgear._hooks.after_reply import Recorder, hand_over
from switchgear._hooks.interrupt import began_at
from switchgear._hooks.process import open_store
from switchgear._hooks.recompile import take_tampering
from switchgear._hooks.session import Notes, folder_mark
from switchgear._stores.base import Store, Transaction
from switchgear._stuck.escalation import Interventions, StepTaken
from switchgear._stuck.messages import tampering_text
from switchgear._stuck.score import grounds_of
from switchgear._text.redact import redact

LEAST_S = 15.0
"""Shorter silences are not recorded: every response of a model is one."""

GONE_S = 3600.0
"""A session without events for this long counts as ended, if its process is unknown."""


def least_s(policy: Policy) -> float:
    """Silence in seconds from which it is recorded: well below the limit of the policy."""
    return min([LEAST_S, *(limit_s / 4 for limit_s in _limits(policy))])


def gone_after_s(policy: Policy) -> float:
    """Silence in seconds after which a session counts as ended: well above the limit of the policy."""
    return max([GONE_S, *(limit_s * 2 for limit_s in _limits(policy))])


def _limits(policy: Policy) -> list[float]:
    return [each.limit_s for each in policy.detectors if isinstance(each, Silence)]


class Look(NamedTuple):
    notes: Notes
    known: bool = True
    """Whether this process is responsible; false if there are no notes, or another process watches it."""
    taken: StepTaken | None = None
    interrupts: bool = False
    """Whether the agent must be stopped now: no hook of it may come for a long time."""
    every_s: float = LEAST_S / 3
    """Seconds until the next check."""

    @property
    def ends(self) -> bool:
        return not self.known or self.notes.ended


class Transacts(Protocol):
    """The part of a store that a check needs."""

    def transact(self, name: str, work: Callable[[Transaction], Look], /) -> Look: ...


def at_work(store: Store) -> list[str]:
    """The sessions that may be silent: those whose circuits have recent records."""
    prefix, now_s = sessions.note_name(""), store.now_s()
    lately = (
        found.circuit.key.removeprefix(prefix)
        for found in store.find(f"{prefix}*")
        if found.circuit.seen_s >= now_s - gone_after_s(found.policy)
    )
    return [name for name in lately if "/" not in name]


def look(store: Store, session: str, policy: Policy, plan: Interventions) -> Look:
    """Check a session: record its silence, escalate if it is too long, stop it when its time is over."""

    def work(tx: Transaction, notes: Notes) -> Look:
        found = _record_silence(tx, notes, session, policy, plan)
        after = sessions.over(found.notes, tx.now_s) if notes.works else found.notes
        circuit = sessions.SessionCircuit(tx.apply, sessions.note_name(session), policy)
        sessions.open_if_stopped(circuit, after)
        stopped = notes.stop is None and after.stop is not None
        return found._replace(notes=after, interrupts=stopped)

    return _check_session(store, session, policy, work)


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

    return _check_session(store, session, policy, work)


def check_unwatched_session(
    store: Transacts,
    session: str,
    policy: Policy,
    plan: Interventions | None = None,
    root: str | None = None,
    *,
    watcher: int | None = None,
) -> Look:
    """Check a session that has no watcher, unless it has ended.

    Without a `plan` its silence is only recorded, and the step is left to its next hook. With a
    `root` only a session of that project is checked. Its time limit is left to its hooks: no
    agent is interrupted from here. `watcher` is the process that looks, if the session's note names it.
    """

    def work(tx: Transaction, notes: Notes) -> Look:
        unheard_s = 0.0 if notes.heard_s is None else tx.now_s - notes.heard_s
        is_watched = notes.watcher != watcher and sessions.is_watched(notes)
        others = is_watched or root not in {None, notes.root}
        if others or unheard_s >= gone_after_s(policy):
            return Look(notes, known=False)
        return _record_silence(tx, notes, session, policy, plan)

    return _check_session(store, session, policy, work)


def _check_session(
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


def _record_silence(
    tx: Transaction, notes: Notes, session: str, policy: Policy, plan: Interventions | None
) -> Look:
    subject, idle_s = sessions.note_name(session), sessions.silent_s(notes, tx.now_s)
    if idle_s < least_s(policy):
        return Look(notes)
    step = tx.apply(subject, policy, Record(Signal(idle_s=idle_s)))
    if not sessions.has_opened(step):
        return Look(notes)
    score = grounds_of(policy, policy.readings(step.circuit.memories, tx.now_s))
    notes = sessions.left_to_hooks(notes, score)
    if plan is None:
        return Look(notes)
    circuit = sessions.SessionCircuit(tx.apply, subject, policy)
    notes, taken = sessions.take_escalation_step(circuit, notes, plan)
    return Look(notes, taken=taken)


FIND_S = 30.0
LONGEST = 1000
"""Maximum number of watched sessions; the oldest are dropped."""


class Rounds:
    """Looks at sessions, one after the other, in a separate thread. Thread-safe.

    `look` looks at one; `help_` is called with a session and the evidence where help is wanted;
    `find` finds active sessions.
    """

    def __init__(
        self,
        look: Callable[[str], Look],
        help_: Callable[[str, str], object] = lambda _, __: None,
        find: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._look = look
        self._help = help_
        self._find = find
        self._find_due_s = 0.0
        self._lock = threading.Lock()
        self._due_s: dict[str, float] = {}
        self._under_way: threading.Thread | None = None

    def add(self, session: str) -> None:
        with self._lock:
            self._due_s.setdefault(session, 0.0)
            while len(self._due_s) > LONGEST:
                del self._due_s[next(iter(self._due_s))]

    def tick(self, now_s: float) -> None:
        """Start a round in a thread if one is due and none is running."""
        with self._lock:
            due = now_s >= self._find_due_s or any(at_s <= now_s for at_s in self._due_s.values())
            if not due or (self._under_way is not None and self._under_way.is_alive()):
                return
            self._under_way = threading.Thread(target=self.make, args=(now_s,), daemon=True)
            self._under_way.start()

    def make(self, now_s: float) -> None:
        if now_s >= self._find_due_s:
            self._find_due_s = now_s + FIND_S
            with suppress(Exception):  # the store may be gone for a while
                for session in self._find():
                    self.add(session)
        with self._lock:
            due = [name for name, due_s in self._due_s.items() if due_s <= now_s]
        for session in due:
            self._visit(session, now_s)

    def _visit(self, session: str, now_s: float) -> None:
        every_s = LEAST_S
        try:
            looked = self._look(session)
            if looked.taken is not None and looked.taken.step_name == "escalate":
                self._help(session, looked.notes.stop or "")
            every_s = looked.every_s
        except Exception:  # noqa: BLE001  the store may be gone for a while
            looked = None
        with self._lock:
            if looked is not None and looked.ends:
                self._due_s.pop(session, None)
            elif session in self._due_s:
                self._due_s[session] = now_s + every_s


EVERY_S = 5.0
"""Seconds until the next look after one that failed."""
RESTING_S = 30.0
"""Seconds between looks at a session whose agent waits for its user."""
LONGEST_S = 86_400.0
"""Seconds for which a session is watched."""
GRACE_S = 15.0
"""Seconds that an interrupted agent has to react before it is ended."""
MOST_FAILURES = 60
"""Failed looks in a row after which a session is no longer watched."""


class WatchedProcess(NamedTuple):
    """The process of an agent, distinguished from a later one with the same id by its start time."""

    pid: int
    began: str

    @classmethod
    def of(cls, pid: int) -> "WatchedProcess":
        return cls(pid, began_at(pid))

    @property
    def lives(self) -> bool:
        return sessions.lives(self.pid) and began_at(self.pid) == self.began

    def send(self, number: signal.Signals) -> None:
        if self.lives:
            with suppress(OSError):
                os.kill(self.pid, number)


class WatchedSession(NamedTuple):
    """A session that is watched. Times are seconds on the monotonic clock."""

    agent: WatchedProcess | None
    """Its process; `None`: not known, so the agent is never interrupted."""
    root: str
    session: str
    environ: Mapping[str, str]
    since_s: float
    due_s: float
    failures: int = 0
    interrupted_s: float | None = None
    heard_s: float | None = None
    """When a hook of it was last called before it was interrupted, on the store's clock."""
    is_noted: bool = False
    """Whether its note names the process that watches it."""
    rests: bool = False
    """Whether its agent waits for its user."""
    posted: bool = False
    """Whether its events come over HTTP."""

    @property
    def needs_checks(self) -> bool:
        """Whether it is watched. Without a process, only while its events come over HTTP."""
        return self.agent is not None or self.posted


class Visit(NamedTuple):
    session: WatchedSession
    ends: str = ""
    """Why the session is no longer watched; empty: it is."""


def visit(
    watched: WatchedSession,
    now_s: float,
    look: Callable[[WatchedSession], Look],
    help_: Callable[[WatchedSession, str], object],
) -> Visit:
    """Look at a session once, and act on what is found.

    `help_` starts the escalation agent with the evidence.
    """
    if not watched.needs_checks or now_s - watched.since_s >= LONGEST_S:
        return Visit(watched, "it was watched for a day")
    if watched.agent is not None and not watched.agent.lives:
        return Visit(watched, AGENT_GONE)
    try:
        found = look(watched)
    except Exception:  # noqa: BLE001  the store may be gone for a while
        failures = watched.failures + 1
        ends = "the store cannot be reached" if failures >= MOST_FAILURES else ""
        return Visit(watched._replace(failures=failures, due_s=now_s + EVERY_S), ends)
    if found.ends:
        return Visit(watched, "the session is over")
    if found.taken is not None and found.taken.step_name == "escalate":
        help_(watched, found.notes.stop or "")
    rests = not found.notes.works
    every_s = max(found.every_s, RESTING_S) if rests else found.every_s
    after = watched._replace(failures=0, is_noted=True, rests=rests, due_s=now_s + every_s)
    return Visit(after if watched.agent is None else _interrupt(after, watched.agent, found, now_s))


def _interrupt(
    after: WatchedSession, agent: WatchedProcess, found: Look, now_s: float
) -> WatchedSession:
    """Interrupt the agent if the check requires it; end one that has not reacted."""
    if found.interrupts:
        agent.send(signal.SIGINT)
        return after._replace(interrupted_s=now_s, heard_s=found.notes.heard_s)
    if after.interrupted_s is not None and now_s - after.interrupted_s >= GRACE_S:
        # An agent that works on without calling a hook has not reacted to the interrupt.
        if found.notes.works and found.notes.heard_s == after.heard_s:
            agent.send(signal.SIGTERM)
        return after._replace(interrupted_s=None)
    return after


AGENT_GONE = "the agent has ended"


def look_at(watched: WatchedSession, watcher: int) -> Look:
    """One look at a session, with the configuration and the store of its project.

    `watcher` is the process that watches it, for its note. Raises what the store raises.
    """
    # Changed files hold from now on, and changes that no operator made are reverted.
    known = hook_config.config_of(watched.root, during_call=None)
    committed: list[Event] = []
    store: Any = Recorder(open_store(known), committed)
    agent = watched.agent
    if not watched.is_noted:

        def note(inside: Transaction) -> None:
            if inside.note is not None:
                notes = sessions.Notes.load(inside.note)._replace(watcher=watcher)
                if agent is not None:
                    notes = notes._replace(pid=agent.pid, pid_began=agent.began)
                inside.note = notes.dump()

        store.transact(sessions.note_name(watched.session), note)
    policy = known.policy_for(sessions.note_name(watched.session))
    if known.tampered:
        rules = known.policy_for("rules")
        found = stop_for_tampering(store, watched.session, policy, rules, known.tampered)
        take_tampering(watched.root, known.tampered)
    elif agent is None:
        plan, mark = known.interventions, folder_mark(watched.root)
        found = check_unwatched_session(store, watched.session, policy, plan, mark, watcher=watcher)
    else:
        found = look(store, watched.session, policy, known.interventions)
    if committed and known.listens:
        hand_over(watched.root, committed)
    return found


def start_help(watched: WatchedSession, evidence: str) -> None:
    escalate = hook_config.config_of(watched.root).interventions.escalate
    if escalate:
        after_reply.start_help(escalate, evidence, watched.session, root=watched.root)


def mark_ended(watched: WatchedSession, watcher: int) -> None:
    """Note that the session of an agent that is gone is over, so that its silence is no sign.

    Not if another process watches by now: then the session continues there.
    """
    store = open_store(hook_config.config_of(watched.root))
    store.transact(sessions.note_name(watched.session), lambda inside: end(inside, watcher))


def end(inside: Transaction, watcher: int) -> None:
    """Mark the session of a transaction as over, unless another process watches it."""
    notes = Notes.load(inside.note)
    if notes.watcher == watcher:
        inside.note = notes._replace(ended=True, watcher=None).dump()
