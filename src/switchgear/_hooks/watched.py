"""The sessions that the resident process watches while no hook of them is called.

A silent agent calls no hook, so its silence, its time limit and changes of the files that guard it are
found by looking at its session every few seconds. `visit` is one look; the resident forks a process for
the sessions of one project, and keeps only when each is due.
"""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from switchgear._core.types import Event
from switchgear._hooks import after_reply, compiled, session_check
from switchgear._hooks import session as sessions
from switchgear._hooks.committed import Recorder, hand_over
from switchgear._hooks.host_id import folder_mark
from switchgear._hooks.interrupt import began_at
from switchgear._hooks.process import open_store
from switchgear._hooks.recompile import take_tampering
from switchgear._stores.base import Transaction

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
    """The process of an agent, told from a later one with the same number by when it began."""

    pid: int
    began: str

    @classmethod
    def of(cls, pid: int) -> "WatchedProcess":
        """The process that has this number now."""
        return cls(pid, began_at(pid))

    @property
    def lives(self) -> bool:
        """Whether it still runs."""
        try:
            os.kill(self.pid, 0)
        except (OSError, OverflowError):
            return False
        return began_at(self.pid) == self.began

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self.lives:
            try:
                os.kill(self.pid, number)
            except OSError:
                return


class WatchedSession(NamedTuple):
    """A session that is watched. Times are seconds on the monotonic clock."""

    agent: WatchedProcess | None
    """Its process; `None`: not known, so the agent is never interrupted."""
    root: str
    session: str
    environ: Mapping[str, str]
    """The environment of its hooks."""
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
    def is_looked_at(self) -> bool:
        """Whether it is watched. Without a process, only while its events come over HTTP."""
        return self.agent is not None or self.posted


class Visit(NamedTuple):
    """What came of one look."""

    session: WatchedSession
    ends: str = ""
    """Why the session is no longer watched; empty: it is."""


Look = Callable[[WatchedSession], session_check.Look]


def visit(
    watched: WatchedSession,
    now_s: float,
    look: Look,
    help_: Callable[[WatchedSession, str], object],
) -> Visit:
    """Look at a session once, and act on what is found.

    `help_` starts the escalation agent with the evidence.
    """
    if not watched.is_looked_at or now_s - watched.since_s >= LONGEST_S:
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
    return Visit(
        after if watched.agent is None else _interrupted(after, watched.agent, found, now_s)
    )


def _interrupted(
    after: WatchedSession, agent: WatchedProcess, found: session_check.Look, now_s: float
) -> WatchedSession:
    """Interrupt the agent if the look says so; end one that has not reacted to that."""
    if found.interrupts:
        agent.send(signal.SIGINT)
        return after._replace(interrupted_s=now_s, heard_s=found.notes.heard_s)
    if after.interrupted_s is not None and now_s - after.interrupted_s >= GRACE_S:
        # An agent that works on without calling a hook has not reacted to the interrupt.
        if found.notes.works and found.notes.heard_s == after.heard_s:
            agent.send(signal.SIGTERM)
        return after._replace(interrupted_s=None)
    return after


AGENT_GONE = "the agent is gone"


def look_at(watched: WatchedSession, watcher: int) -> session_check.Look:
    """One look at a session, with the configuration and the store of its project.

    `watcher` is the process that watches it, for its note. Raises what the store raises.
    """
    # Changed files hold from now on, and changes that no operator made are reverted.
    known = compiled.compiled(watched.root, during_call=None)
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
        found = session_check.stop_for_tampering(
            store, watched.session, policy, rules, known.tampered
        )
        take_tampering(watched.root, known.tampered)
    elif agent is None:
        plan, mark = known.interventions, folder_mark(watched.root)
        found = session_check.look_for_a_watcher(
            store, watched.session, policy, plan, mark, watcher=watcher
        )
    else:
        found = session_check.look(store, watched.session, policy, known.interventions)
    if committed and known.listens:
        hand_over(watched.root, committed)
    return found


def start_help(watched: WatchedSession, evidence: str) -> None:
    """Start the escalation agent, where one is configured."""
    escalate = compiled.compiled(watched.root).interventions.escalate
    if escalate:
        after_reply.start_help(escalate, evidence, watched.session, root=watched.root)


def mark_ended(watched: WatchedSession, watcher: int) -> None:
    """Note that the session of an agent that is gone is over, so that its silence is no sign.

    Not if another process watches by now: then the session goes on there.
    """
    store = open_store(compiled.compiled(watched.root))
    store.transact(sessions.note_name(watched.session), lambda inside: end(inside, watcher))


def end(inside: Transaction, watcher: int) -> None:
    """Mark the session of a transaction as over, unless another process watches it."""
    notes = sessions.Notes.load(inside.note)
    if notes.watcher == watcher:
        inside.note = notes._replace(ended=True, watcher=None).dump()
