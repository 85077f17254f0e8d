"""Checks sessions between their events, because a silent agent calls no hooks.

`check_watched_session` is one check, in one transaction. The resident process checks the sessions whose agent
process is known (`WatchedSession`, `check_and_act`) every few seconds, in a process for each project.
`switchgear serve` and `switchgear watch` check the others, and interrupt no agent.
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
from switchgear._hooks.after_reply import RecordingStore, emit_in_background
from switchgear._hooks.interrupt import began_at
from switchgear._hooks.process import open_store
from switchgear._hooks.recompile import clear_recorded_tampering
from switchgear._hooks.session import Notes, folder_id
from switchgear._stores.base import Store, Transaction
from switchgear._stuck.escalation import Interventions, StepTaken
from switchgear._stuck.messages import tampering_text
from switchgear._stuck.score import evidence_score
from switchgear._text.redact import redact

MIN_SILENCE_S = 15.0
"""Seconds of silence from which it is recorded; each response of a model takes a shorter time."""

ENDED_AFTER_S = 3600.0
"""Seconds without events after which a session counts as ended, if its process is unknown."""


def min_silence_s(policy: Policy) -> float:
    """Seconds of silence from which it is recorded: well below the limit of the policy."""
    return min([MIN_SILENCE_S, *(limit_s / 4 for limit_s in _silence_limits_s(policy))])


def ended_after_s(policy: Policy) -> float:
    """Seconds without events after which a session counts as ended: well above the limit of the policy."""
    return max([ENDED_AFTER_S, *(limit_s * 2 for limit_s in _silence_limits_s(policy))])


def _silence_limits_s(policy: Policy) -> list[float]:
    return [each.limit_s for each in policy.detectors if isinstance(each, Silence)]


class CheckResult(NamedTuple):
    notes: Notes
    is_responsible: bool = True
    """Whether this process must check the session; false if it has no notes, or another process watches it."""
    taken: StepTaken | None = None
    interrupts: bool = False
    """Whether the agent must be interrupted now, because it may not call a hook for a long time."""
    next_check_s: float = MIN_SILENCE_S / 3
    """Seconds until the next check."""

    @property
    def ends(self) -> bool:
        """Whether this process need not check the session again."""
        return not self.is_responsible or self.notes.ended


class TransactingStore(Protocol):
    """The part of a store that a check needs."""

    def transact(self, name: str, work: Callable[[Transaction], CheckResult], /) -> CheckResult: ...


def active_sessions(store: Store) -> list[str]:
    """The sessions whose circuits were used recently."""
    prefix, now_s = sessions.note_name(""), store.now_s()
    recent = (
        found.circuit.key.removeprefix(prefix)
        for found in store.find(f"{prefix}*")
        if found.circuit.seen_s >= now_s - ended_after_s(found.policy)
    )
    return [name for name in recent if "/" not in name]


def check_watched_session(
    store: Store, session: str, policy: Policy, plan: Interventions
) -> CheckResult:
    """Record the silence of a session, escalate if it is too long, and stop the session if its time is over."""

    def work(tx: Transaction, notes: Notes) -> CheckResult:
        found = _record_silence(tx, notes, session, policy, plan)
        after = sessions.stopped_if_over(found.notes, tx.now_s) if notes.works else found.notes
        circuit = sessions.SessionCircuit(tx.apply, sessions.note_name(session), policy)
        sessions.open_if_stopped(circuit, after)
        stopped = notes.stop is None and after.stop is not None
        return found._replace(notes=after, interrupts=stopped)

    return _check_in_transaction(store, session, policy, work)


def stop_for_tampering(
    store: Store, session: str, policy: Policy, rules: Policy, changes: Sequence[str]
) -> CheckResult:
    """Stop a session after its project's guard was changed without an operator, and record the changes."""
    name = sessions.note_name(session)
    seen = redact(f"{'; '.join(changes)}; seen by the watcher of {name}")

    def work(tx: Transaction, notes: Notes) -> CheckResult:
        tx.apply("rules", rules, Override("switchgear", seen, kind=EventKind.GUARD_CHANGED))
        after = notes._replace(stop=tampering_text(changes))
        sessions.open_if_stopped(sessions.SessionCircuit(tx.apply, name, policy), after)
        return CheckResult(after, interrupts=notes.works and notes.stop is None)

    return _check_in_transaction(store, session, policy, work)


def check_unwatched_session(
    store: TransactingStore,
    session: str,
    policy: Policy,
    plan: Interventions | None = None,
    root: str | None = None,
    *,
    watcher: int | None = None,
) -> CheckResult:
    """Check the silence of a session that has no watcher, unless it has ended.

    The agent is not interrupted, and its time limit is left to its hooks.

    - `plan`: the escalation plan; default: silence is only recorded, and the next hook escalates.
    - `root`: check only a session of the project with this `folder_id`.
    - `watcher`: the id of this process, if the note may name it as the watcher.
    """

    def work(tx: Transaction, notes: Notes) -> CheckResult:
        silent_s = 0.0 if notes.heard_s is None else tx.now_s - notes.heard_s
        is_watched = notes.watcher != watcher and sessions.is_watched(notes)
        is_other = is_watched or root not in {None, notes.root}
        if is_other or silent_s >= ended_after_s(policy):
            return CheckResult(notes, is_responsible=False)
        return _record_silence(tx, notes, session, policy, plan)

    return _check_in_transaction(store, session, policy, work)


def _check_in_transaction(
    store: TransactingStore,
    session: str,
    policy: Policy,
    work: Callable[[Transaction, Notes], CheckResult],
) -> CheckResult:
    def inside(tx: Transaction) -> CheckResult:
        if tx.note is None:
            return CheckResult(Notes(), is_responsible=False)
        notes = Notes.load(tx.note)
        found = CheckResult(notes) if notes.ended else work(tx, notes)
        if found.notes != notes:
            tx.note = found.notes.dump()
        return found._replace(next_check_s=min_silence_s(policy) / 3)

    return store.transact(sessions.note_name(session), inside)


def _record_silence(
    tx: Transaction, notes: Notes, session: str, policy: Policy, plan: Interventions | None
) -> CheckResult:
    subject, idle_s = sessions.note_name(session), sessions.silence_s(notes, tx.now_s)
    if idle_s < min_silence_s(policy):
        return CheckResult(notes)
    step = tx.apply(subject, policy, Record(Signal(idle_s=idle_s)))
    if not sessions.has_opened(step):
        return CheckResult(notes)
    score = evidence_score(policy, policy.readings(step.circuit.memories, tx.now_s))
    notes = sessions.after_trip(notes, score)
    if plan is None:
        return CheckResult(notes)
    circuit = sessions.SessionCircuit(tx.apply, subject, policy)
    notes, taken = sessions.take_escalation_step(circuit, notes, plan)
    return CheckResult(notes, taken=taken)


SEARCH_EVERY_S = 30.0
MAX_SESSIONS = 1000
"""Maximum number of watched sessions; the oldest are dropped."""


class SessionChecks:
    """Checks sessions, one after the other, in a separate thread. Thread-safe.

    - `check`: checks one session.
    - `escalate`: called with a session and the evidence if the escalation agent is to take over.
    - `find`: returns the active sessions.
    """

    def __init__(
        self,
        check: Callable[[str], CheckResult],
        escalate: Callable[[str, str], object] = lambda _, __: None,
        find: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._check = check
        self._escalate = escalate
        self._find = find
        self._find_due_s = 0.0
        self._lock = threading.Lock()
        self._due_s: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def add(self, session: str) -> None:
        with self._lock:
            self._due_s.setdefault(session, 0.0)
            while len(self._due_s) > MAX_SESSIONS:
                del self._due_s[next(iter(self._due_s))]

    def start_due(self, now_s: float) -> None:
        """Start a thread that runs the due checks, unless none is due or the last one is still running."""
        with self._lock:
            due = now_s >= self._find_due_s or any(at_s <= now_s for at_s in self._due_s.values())
            if not due or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self.run_due, args=(now_s,), daemon=True)
            self._thread.start()

    def run_due(self, now_s: float) -> None:
        if now_s >= self._find_due_s:
            self._find_due_s = now_s + SEARCH_EVERY_S
            with suppress(Exception):  # the store may be unavailable
                for session in self._find():
                    self.add(session)
        with self._lock:
            due = [name for name, due_s in self._due_s.items() if due_s <= now_s]
        for session in due:
            self._run_check(session, now_s)

    def _run_check(self, session: str, now_s: float) -> None:
        next_check_s = MIN_SILENCE_S
        try:
            result = self._check(session)
            if result.taken is not None and result.taken.step_name == "escalate":
                self._escalate(session, result.notes.stop or "")
            next_check_s = result.next_check_s
        except Exception:  # noqa: BLE001  the store may be unavailable
            result = None
        with self._lock:
            if result is not None and result.ends:
                self._due_s.pop(session, None)
            elif session in self._due_s:
                self._due_s[session] = now_s + next_check_s


RETRY_S = 5.0
"""Seconds until the next check after one that failed."""
IDLE_CHECK_S = 30.0
"""Seconds between checks of a session whose agent waits for its user."""
MAX_WATCH_S = 86_400.0
"""Maximum time in seconds for which a session is watched."""
GRACE_S = 15.0
"""Seconds that an interrupted agent has to react before it is terminated."""
MAX_FAILURES = 60
"""Failed checks in a row after which a session is no longer watched."""


class WatchedProcess(NamedTuple):
    """The process of an agent; its start time distinguishes it from a later process with the same id."""

    pid: int
    began: str

    @classmethod
    def of(cls, pid: int) -> "WatchedProcess":
        return cls(pid, began_at(pid))

    @property
    def is_running(self) -> bool:
        return sessions.process_exists(self.pid) and began_at(self.pid) == self.began

    def send(self, number: signal.Signals) -> None:
        if self.is_running:
            with suppress(OSError):
                os.kill(self.pid, number)


class WatchedSession(NamedTuple):
    """A session that is watched. Times are seconds on the monotonic clock."""

    agent: WatchedProcess | None
    """The agent's process; `None`: unknown, so the agent is never interrupted."""
    root: str
    session: str
    environ: Mapping[str, str]
    since_s: float
    due_s: float
    failures: int = 0
    interrupted_s: float | None = None
    heard_s: float | None = None
    """When its last event before the interrupt arrived, on the store's clock."""
    is_noted: bool = False
    """Whether its note names the watcher."""
    is_idle: bool = False
    """Whether its agent waits for the user."""
    over_http: bool = False
    """Whether its events come over HTTP."""

    @property
    def needs_checks(self) -> bool:
        """Whether it must be checked: its process is known, or its events come over HTTP."""
        return self.agent is not None or self.over_http


class CheckedSession(NamedTuple):
    session: WatchedSession
    ends: str = ""
    """Why the session is no longer watched; empty: it is still watched."""


def check_and_act(
    watched: WatchedSession,
    now_s: float,
    check: Callable[[WatchedSession], CheckResult],
    escalate: Callable[[WatchedSession, str], object],
) -> CheckedSession:
    """Check a session once with `check`; interrupt its agent, or `escalate` with the evidence, if required."""
    if not watched.needs_checks or now_s - watched.since_s >= MAX_WATCH_S:
        return CheckedSession(watched, "it was watched for a day")
    if watched.agent is not None and not watched.agent.is_running:
        return CheckedSession(watched, AGENT_ENDED)
    try:
        found = check(watched)
    except Exception:  # noqa: BLE001  the store may be unavailable
        failures = watched.failures + 1
        ends = "the store cannot be reached" if failures >= MAX_FAILURES else ""
        return CheckedSession(watched._replace(failures=failures, due_s=now_s + RETRY_S), ends)
    if found.ends:
        return CheckedSession(watched, "the session is over")
    if found.taken is not None and found.taken.step_name == "escalate":
        escalate(watched, found.notes.stop or "")
    is_idle = not found.notes.works
    next_check_s = max(found.next_check_s, IDLE_CHECK_S) if is_idle else found.next_check_s
    after = watched._replace(failures=0, is_noted=True, is_idle=is_idle, due_s=now_s + next_check_s)
    if watched.agent is not None:
        after = _interrupt(after, watched.agent, found, now_s)
    return CheckedSession(after)


def _interrupt(
    after: WatchedSession, agent: WatchedProcess, found: CheckResult, now_s: float
) -> WatchedSession:
    """Interrupt the agent if the check requires it; terminate an agent that has not reacted."""
    if found.interrupts:
        agent.send(signal.SIGINT)
        return after._replace(interrupted_s=now_s, heard_s=found.notes.heard_s)
    if after.interrupted_s is not None and now_s - after.interrupted_s >= GRACE_S:
        # The agent is still in its turn and has called no hook: it has not reacted to the interrupt.
        if found.notes.works and found.notes.heard_s == after.heard_s:
            agent.send(signal.SIGTERM)
        return after._replace(interrupted_s=None)
    return after


AGENT_ENDED = "the agent has ended"


def check_session(watched: WatchedSession, watcher: int) -> CheckResult:
    """Check a session with the configuration and the store of its project.

    `watcher` is the process id for the session's note. Raises the errors of the configuration and the store.
    """
    # This also applies changed configuration files, and reverts changes that no operator made.
    config = hook_config.config_of(watched.root, during_call=None)
    committed: list[Event] = []
    store: Any = RecordingStore(open_store(config), committed)
    agent = watched.agent
    if not watched.is_noted:

        def note(tx: Transaction) -> None:
            if tx.note is not None:
                notes = Notes.load(tx.note)._replace(watcher=watcher)
                if agent is not None:
                    notes = notes._replace(pid=agent.pid, pid_began=agent.began)
                tx.note = notes.dump()

        store.transact(sessions.note_name(watched.session), note)
    policy = config.policy_for(sessions.note_name(watched.session))
    if config.tampered:
        rules = config.policy_for("rules")
        found = stop_for_tampering(store, watched.session, policy, rules, config.tampered)
        clear_recorded_tampering(watched.root, config.tampered)
    elif agent is None:
        plan, root = config.interventions, folder_id(watched.root)
        found = check_unwatched_session(store, watched.session, policy, plan, root, watcher=watcher)
    else:
        found = check_watched_session(store, watched.session, policy, config.interventions)
    if committed and config.listens:
        emit_in_background(watched.root, committed)
    return found


def start_escalation_agent(watched: WatchedSession, evidence: str) -> None:
    escalate = hook_config.config_of(watched.root).interventions.escalate
    if escalate:
        after_reply.start_escalation_agent(escalate, evidence, watched.session, root=watched.root)


def mark_ended(watched: WatchedSession, watcher: int) -> None:
    """Mark the session of an agent that has ended as over, so that its silence is not recorded.

    If the note names another watcher, the session continues, and nothing changes.
    """
    store = open_store(hook_config.config_of(watched.root))
    store.transact(sessions.note_name(watched.session), lambda tx: end_session(tx, watcher))


def end_session(tx: Transaction, watcher: int) -> None:
    """Mark the session of a transaction as over if `watcher` watches it."""
    notes = Notes.load(tx.note)
    if notes.watcher == watcher:
        tx.note = notes._replace(ended=True, watcher=None).dump()
