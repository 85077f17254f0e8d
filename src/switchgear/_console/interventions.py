"""Interventions in a guarded session, for `switchgear intervene` and the console: one transaction each."""

from collections.abc import Callable
from typing import Any, NamedTuple

from switchgear._breaker.views import View
from switchgear._core.types import EventKind, Mode, Override
from switchgear._hooks import interrupt
from switchgear._hooks import session as sessions
from switchgear._hooks.after_reply import start_help
from switchgear._hooks.interrupt import began_at
from switchgear._hooks.session import Notes, SessionCircuit, here
from switchgear._stores.base import Transaction
from switchgear._stuck import escalation
from switchgear._stuck.escalation import Interventions, StepTaken
from switchgear._stuck.messages import Option, stuck_options
from switchgear._stuck.score import session_policy

Transact = Callable[[str, Callable[[Transaction], Any]], Any]
"""`Store.transact`, or one that calls sinks after it."""
PREFIX = "session/"

IMPOSSIBLE = {
    "resume": "the session is not stopped",
    "extend": "the session has no time limit",
    "escalate": "the configuration names no agent under interventions.escalate",
    "pause": "no running process of the agent is known on this machine, or it is paused",
    "continue": "the agent is not paused, or its process has ended",
}
"""Why an action is not offered for a session."""


class NotPossible(ValueError):
    """An intervention that cannot be done now; the text says why."""


class Author(NamedTuple):
    """Who intervenes and why."""

    by: str
    why: str = ""
    """The reason; saved with the action where `audited`, else only with a resumption."""
    audited: bool = False
    """Whether an event with author and reason is saved for every action."""


def options_of(plan: Interventions, notes: Notes, *, stopped: bool) -> tuple[Option, ...]:
    """The actions that are possible for a session now."""
    return tuple(
        stuck_options(
            plan,
            limited=notes.limit_s is not None,
            stopped=stopped,
            pausable=pausable(notes),
            paused=notes.paused,
            in_batch=False,
        )
    )


def pausable(notes: Notes) -> bool:
    """Whether the agent's process is known, is on this machine, and still runs."""
    if notes.pid is None or not notes.pid_began or notes.host not in {"", here()}:
        return False
    return began_at(notes.pid) == notes.pid_began


def intervene(
    transact: Transact,
    view: View,
    key: str | None,
    *,
    evidence: Notes,
    plan: Interventions,
    author: Author,
) -> str:
    """Take the action in one transaction, start the hand-over after it; a sentence about it.

    `key`: the action; `None`: the next configured step. Raises `NotPossible`.
    """
    if key in {"pause", "continue"}:
        return _signalled(transact, view, evidence, author, pause=key == "pause")

    def work(tx: Transaction) -> tuple[str, StepTaken | None, Notes]:
        notes = Notes.load(tx.note)
        notes = notes._replace(points=evidence.points, indicators=evidence.indicators)
        policy = session_policy(view.policy, None)  # one from an older version may lack a part
        circuit = SessionCircuit(tx.apply, view.name, policy)
        after, sentence, taken = _decided(circuit, notes, key, plan, author=author, now_s=tx.now_s)
        _audit(circuit, key, author)
        tx.note = after.dump()
        return sentence, taken, after

    sentence, taken, notes = transact(view.name, work)
    if taken is not None and taken.step_name == escalation.ESCALATE and plan.escalate is not None:
        log = start_help(plan.escalate, notes.stop or "", view.name, root=notes.project or None)
        sentence += f"; see {log}"
    return str(sentence)


def _audit(circuit: SessionCircuit, key: str | None, author: Author) -> None:
    if author.audited:
        why = f"{key}: {author.why}"
        circuit.send(Override(author.by, why, kind=EventKind.INTERVENED))


def _signalled(transact: Transact, view: View, notes: Notes, author: Author, *, pause: bool) -> str:
    """Suspend or continue the agent's process; its silence is no sign while it is paused."""
    send = interrupt.pause if pause else interrupt.resume
    count = send(notes.pid or 0, notes.pid_began)
    if not count:
        raise NotPossible("the agent's process is gone: nothing was done")

    def work(tx: Transaction) -> None:
        now = Notes.load(tx.note)
        policy = session_policy(view.policy, None)
        _audit(
            SessionCircuit(tx.apply, view.name, policy), "pause" if pause else "continue", author
        )
        tx.note = now._replace(paused=pause, heard_s=tx.now_s).dump()

    transact(view.name, work)
    what = "paused" if pause else "continued"
    children = f" and {count - 1} started by it" if count > 1 else ""
    again = f"; to continue: switchgear intervene {view.name.removeprefix(PREFIX)} --do continue"
    return f"{what} process {notes.pid}{children}{again if pause else ''}"


def _decided(
    circuit: SessionCircuit,
    notes: Notes,
    key: str | None,
    plan: Interventions,
    *,
    author: Author,
    now_s: float,
) -> tuple[Notes, str, StepTaken | None]:
    by, why = author.by, author.why
    if key == "extend":
        more = sessions.extended(notes, plan.extend_s, now_s)
        if notes.stop is not None and more.stop is None:
            circuit.send(Override(by, "more time", reset=True, kind=EventKind.INTERVENED))
        return more, f"the session may take {plan.extend_s:g} s longer", None
    if key == "resume":
        after = circuit.send(Override(by, why, reset=True, kind=EventKind.INTERVENED))
        if after.circuit.mode is Mode.HELD_OPEN:
            circuit.send(Override(by, why, Mode.AUTO))
        over = "; its time is over: add time with --do extend" if notes.warned_over else ""
        return notes._replace(stop=None, untended=False), f"the agent may go on{over}", None
    if key is None:
        notes, taken = sessions.take_escalation_step(circuit, notes, plan)
        step = f"the configured escalation takes the step {taken.step_name!r}"
        return notes, f"no terminal: {step}", taken
    step_name = escalation.SKIP if key == "abort" else key
    notes, taken = sessions.step_in(circuit, notes, plan, step_name, by=by)
    done = {
        "nudge": "the agent receives the hint at its next step",
        "escalate": f"{plan.helper} takes over; the agent is stopped at its next step",
        "abort": "the agent is stopped at its next step, and the task is given up",
    }
    return notes, done[key], taken
