"""Interventions in a guarded session or a run, for `switchgear intervene` and the console.

Each is one transaction. A session reads its note at the agent's next step, a run within a second.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from switchgear._breaker.circuit_breaker import classic
from switchgear._breaker.views import View
from switchgear._core.policy import Policy
from switchgear._core.types import EventKind, Mode, Override
from switchgear._hooks import interrupt
from switchgear._hooks import session as sessions
from switchgear._hooks.after_reply import start_escalation_agent
from switchgear._hooks.interrupt import began_at
from switchgear._hooks.session import Notes, SessionCircuit, host_id
from switchgear._run.circuits import policy_of
from switchgear._run.inbox import (
    Extension,
    announce,
    inbox_name,
    with_extension,
    with_hand_over,
)
from switchgear._run.loop import MONEY, TIME
from switchgear._run.options import RunOptions
from switchgear._run.record import RunFolder, is_alive
from switchgear._stores.base import Transaction
from switchgear._stuck import escalation
from switchgear._stuck.escalation import Interventions, StepTaken
from switchgear._stuck.messages import TEXT_PREFIX, Option, stuck_options
from switchgear._stuck.score import session_policy
from switchgear._text.formats import dollars, duration, plural

Transact = Callable[[str, Callable[[Transaction], Any]], Any]
"""`Store.transact`, or a function that also calls the sinks."""
PREFIX = "session/"

INTERVENTIONS = ("resume", "nudge", "extend", "escalate", "pause", "continue", "abort")
"""The actions for a session."""
IMPOSSIBLE = {
    "resume": "the session is not stopped",
    "extend": "the session has no time limit",
    "escalate": "the configuration names no agent under interventions.escalate",
    "pause": "no running process of the agent is known on this machine, or it is paused",
    "continue": "the agent is not paused, or its process has ended",
}
"""Why an action is not offered for a session."""


class NotPossible(ValueError):
    """An intervention that is not possible now, with the reason."""


class Author(NamedTuple):
    by: str
    why: str = ""
    """The reason; saved with the action if `audited`, otherwise only with a resumption."""
    audited: bool = False
    """Whether an event with author and reason is saved for every action."""


def options_of(plan: Interventions, notes: Notes, *, stopped: bool) -> tuple[Option, ...]:
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
    if notes.pid is None or not notes.pid_began or notes.host not in {"", host_id()}:
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
    """Take an action in one transaction, then start the hand-over if it is one; returns a sentence.

    `key` is the action; `None` takes the next configured step. Raises `NotPossible`.
    """
    if key in {"pause", "continue"}:
        return _signal_agent(transact, view, evidence, author, pause=key == "pause")

    def work(tx: Transaction) -> tuple[str, StepTaken | None, Notes]:
        notes = Notes.load(tx.note)
        notes = notes._replace(points=evidence.points, indicators=evidence.indicators)
        policy = session_policy(view.policy, None)  # one from an older version may lack a part
        circuit = SessionCircuit(tx.apply, view.name, policy)
        after, sentence, taken = _decide_action(
            circuit, notes, key, plan, author=author, now_s=tx.now_s
        )
        _audit(circuit, key, author)
        tx.note = after.dump()
        return sentence, taken, after

    sentence, taken, notes = transact(view.name, work)
    if taken is not None and taken.step_name == escalation.ESCALATE and plan.escalate is not None:
        log = start_escalation_agent(
            plan.escalate, notes.stop or "", view.name, root=notes.project or None
        )
        sentence += f"; see {log}"
    return str(sentence)


def _audit(circuit: SessionCircuit, key: str | None, author: Author) -> None:
    if author.audited:
        why = f"{key}: {author.why}"
        circuit.send(Override(author.by, why, kind=EventKind.INTERVENED))


def _signal_agent(
    transact: Transact, view: View, notes: Notes, author: Author, *, pause: bool
) -> str:
    """Suspend or continue the agent's process; while it is paused, its silence is no evidence."""
    send = interrupt.pause if pause else interrupt.resume
    count = send(notes.pid or 0, notes.pid_began)
    if not count:
        raise NotPossible("the agent's process has ended: nothing was done")

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


def _decide_action(
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
        more = sessions.with_more_time(notes, plan.extend_s, now_s)
        if notes.stop is not None and more.stop is None:
            circuit.send(Override(by, "more time", reset=True, kind=EventKind.INTERVENED))
        return more, f"the session may take {plan.extend_s:g} s longer", None
    if key == "resume":
        after = circuit.send(Override(by, why, reset=True, kind=EventKind.INTERVENED))
        if after.circuit.mode is Mode.HELD_OPEN:
            circuit.send(Override(by, why, Mode.AUTO))
        over = "; its time is over: add time with --do extend" if notes.warned_over else ""
        return notes._replace(stop=None, untended=False), f"the agent may continue{over}", None
    if key is None:
        notes, taken = sessions.take_escalation_step(circuit, notes, plan)
        step = f"the configured escalation takes the step {taken.step_name!r}"
        return notes, f"no terminal: {step}", taken
    step_name = escalation.SKIP if key == "abort" else key
    notes, taken = sessions.take_step(circuit, notes, plan, step_name, by=by, reason_given=why)
    done = {
        "nudge": "the agent receives the hint at its next step",
        "escalate": f"{plan.helper} takes over; the agent is stopped at its next step",
        "abort": "the agent is stopped at its next step, and the task is given up",
    }
    return notes, done[key], taken


# A run

RUN_ACTIONS = INTERVENTIONS[1:]
"""The actions for an active run."""


def run_objection(
    run: Mapping[str, Any], action: str, plan: Interventions, *, is_paused: bool
) -> str:
    """Why an action is not possible for a run now; empty if it is possible."""
    if not is_alive(dict(run)):
        return "the run has ended; switchgear resume continues it"
    if action == "escalate" and plan.escalate is None:
        return IMPOSSIBLE["escalate"]
    if action == "escalate" and (run.get("state") or {}).get("helped"):
        return "the escalation agent is already running"
    if action == "pause" and is_paused:
        return "the run is paused"
    if action == "continue" and not is_paused:
        return "the run is not paused"
    return ""


def run_options_of(
    transact: Transact, record: RunFolder, plan: Interventions
) -> tuple[Option, ...]:
    """The actions that are possible for a run now. Raises `RunUnreadable`."""
    run = record.read()
    notes = transact(inbox_name(record.id), lambda tx: Notes.load(tx.note))
    shown = stuck_options(plan, pausable=True, paused=notes.paused, in_batch=False)
    return tuple(
        option
        for option in shown
        if option.key in RUN_ACTIONS
        and not run_objection(run, option.key, plan, is_paused=notes.paused)
    )


def _extension_objection(run: Mapping[str, Any], more: Extension) -> str:
    limits = run.get("may_extend") or ()
    if not any(more):
        return "name what to extend: time, iterations or money"
    if more.seconds and TIME not in limits:
        return "the run has no time limit"
    if more.micros and MONEY not in limits:
        return "the run has no budget of its own; raise the one it is reserved from"
    return ""


def intervene_in_run(
    transact: Transact,
    record: RunFolder,
    action: str,
    *,
    plan: Interventions,
    author: Author,
    more: Extension = Extension(),  # noqa: B008  immutable
) -> str:
    """Send a message to a run, with an audit event on its circuit; returns a sentence.

    Raises `NotPossible`, `RunUnreadable`.
    """
    run = record.read()
    circuit, policy = str(run["circuit"]), _loop_policy(run)
    by, why = author.by, author.why

    def work(tx: Transaction) -> None:
        notes = Notes.load(tx.note)
        if tx.note is None or notes.ended:  # the note of an earlier process
            notes = Notes(str(run.get("agent") or ""), began_s=tx.now_s, works=True)
        problem = run_objection(run, action, plan, is_paused=notes.paused)
        if not problem and action == "extend":
            problem = _extension_objection(run, more)
        if problem:
            raise NotPossible(f"{action} is not possible now: {problem}")
        changes: dict[str, Callable[[], Notes]] = {
            "nudge": lambda: sessions.with_message(
                notes, f"{TEXT_PREFIX}a hint from {by}: {plan.hint}"
            ),
            "extend": lambda: with_extension(notes, more),
            "escalate": lambda: with_hand_over(notes, f"{by}: {why}"),
            "pause": lambda: notes._replace(paused=True),
            "continue": lambda: notes._replace(paused=False),
            "abort": lambda: notes._replace(stop=f"stopped by {by}: {why}"),
        }
        after = changes[action]()
        tx.apply(circuit, policy, Override(by, f"{action}: {why}", kind=EventKind.INTERVENED))
        tx.note = after.dump()

    transact(inbox_name(record.id), work)
    announce(record.path)
    return _run_sentence(record.id, action, plan, more)


def _run_sentence(run: str, action: str, plan: Interventions, more: Extension) -> str:
    granted = [
        *([duration(more.seconds)] if more.seconds else []),
        *([plural(more.iterations, "iteration")] if more.iterations else []),
        *([dollars(more.micros)] if more.micros else []),
    ]
    return {
        "nudge": "the next prompt of the run has the hint",
        "extend": f"the run gets {' and '.join(granted)} more",
        "escalate": f"the agent is stopped, and {plan.helper} takes over",
        "pause": f"the agent is paused; to continue: switchgear intervene {run} --do continue",
        "continue": "the agent continues",
        "abort": "the agent is stopped, and the run ends; its work is kept",
    }[action]


def _loop_policy(run: Mapping[str, Any]) -> Policy:
    """The policy of a run's circuit, for a run that has not used the circuit yet."""
    try:
        return policy_of(RunOptions.load(run["options"]))
    except (ValueError, TypeError, KeyError):
        return classic()
