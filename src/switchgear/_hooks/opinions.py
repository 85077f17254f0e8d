"""The second opinion in guarded sessions: requested in the background, applied before a step is taken.

A hook must answer within seconds and a model may take longer. So the opinion is asked by a process of
its own as soon as the session is hot enough; the circuit opens meanwhile if the evidence is sufficient, and
the next tool call takes the escalation step, with the opinion if it has come by then. Imported only where
a second opinion is configured.
"""

import json
import os
import time
from typing import TYPE_CHECKING

from switchgear._core.types import EventKind, Override, Signal, Step
from switchgear._hooks.session import Notes
from switchgear._opinion import opinion
from switchgear._opinion.opinion import DELAY, HINT, Opinion, SecondOpinion, StuckEvidence
from switchgear._stores.base import Store, Transaction
from switchgear._stores.url import default_file, keep_out_of_git
from switchgear._stuck.escalation import NUDGE, Interventions, next_step_name
from switchgear._system.files import make_private_folder, read_private, write_private

if TYPE_CHECKING:
    from switchgear._hooks.decide import GuardedAgent

FOLDER = "opinions"
BY = "second opinion"
WAIT_S = 1.5
"""How long a tool call waits for a requested opinion: a hook has 5 s for its circuits."""
_LOOK_S = 0.05


def folder_of(root: str) -> str:
    """The folder with requests and answers of a project."""
    return os.path.join(os.path.dirname(default_file(root)), FOLDER)


def settings_of(agent: "GuardedAgent") -> SecondOpinion:
    return SecondOpinion(**(agent.known.second_opinion or {}))


def remember(agent: "GuardedAgent", signal: Signal) -> None:
    """Keep a step for the evidence, and count down a delay that was granted."""
    act, notes = signal.step, agent.notes
    if act is not None:
        told = signal.error or act.result or act.thought or ""
        line = opinion.step_line(act.tool, act.args, told, ok=signal.ok)
        notes = notes._replace(recent=opinion.tail(notes.recent, line))
    if signal.files_changed:
        notes = notes._replace(delay_left=0)
    agent.notes = notes


def ends_delay(agent: "GuardedAgent") -> bool:
    """Count one step of a delay; returns whether the stop that was delayed is due now."""
    left = agent.notes.delay_left
    if left <= 0:
        return False
    agent.notes = agent.notes._replace(delay_left=left - 1)
    return left == 1


def ask_when_hot(agent: "GuardedAgent", step: Step) -> None:
    """Request an opinion after this reply, once per incident, if the session is hot enough."""
    settings = settings_of(agent)
    heat = step.verdict.heat
    if agent.notes.opinion or agent.lane_name or heat < settings.ask_at:
        return
    policy = agent.policy(step.circuit.key)
    readings = policy.readings(step.circuit.memories, agent.tx.now_s)
    pairs = list(zip(policy.detectors, readings, strict=True))
    if any(detector.kind == "violation" and each.heat >= 1 for detector, each in pairs):
        return  # a definite reason, such as the time or an operator: no opinion changes that
    warm = sorted((each for each in readings if each.heat > 0), key=lambda each: -each.heat)
    notes = agent.notes
    evidence = StuckEvidence(
        notes.agent,
        notes.task,
        heat,
        tuple(each.reason for each in warm),
        notes.tried,
        notes.recent,
    )
    name = f"{agent.tx.now_s:.3f}-{os.urandom(8).hex()}"
    agent.notes = notes._replace(opinion=name)
    agent.opinion_request = json.dumps(
        {"name": name, "settings": settings._asdict(), "request": evidence.request(settings)}
    )


def wait_for(store: Store, name: str, root: str) -> None:
    """Wait shortly for an opinion, if a session is stopped until it is applied."""

    def look(inside: Transaction) -> str:
        notes = Notes.load(inside.note)
        return notes.opinion if notes.untended else ""

    asked = store.transact(name, look)
    if not _is_name(asked):
        return
    due_s = time.monotonic() + WAIT_S
    path = _answer_file(root, asked)
    while not os.path.exists(path) and time.monotonic() < due_s:
        time.sleep(_LOOK_S)


def plan_with_opinion(agent: "GuardedAgent", plan: Interventions) -> Interventions | None:
    """The plan for the next escalation step; `None`: the stop is delayed, and no step is taken."""
    notes, settings = agent.notes, settings_of(agent)
    if not notes.opinion:
        return plan
    agent.notes = notes._replace(opinion="")
    found = answer(agent.known.root, notes.opinion, settings)
    if found is None:
        late = opinion.no_opinion("no answer before the next tool call", settings.source)
        agent.remark(agent.session, EventKind.SECOND_OPINION, late.sentence())
        return plan
    delayed = found.verdict == DELAY and notes.delays < settings.max_delays
    said = found.sentence()
    if found.verdict == DELAY and not delayed:
        said = f"{said}; not granted: {notes.delays} of {settings.max_delays} delays are used"
    agent.session_circuit().send(Override(BY, said, reset=delayed, kind=EventKind.SECOND_OPINION))
    if delayed:
        agent.notes = agent.notes._replace(
            untended=False, stop=None, delays=notes.delays + 1, delay_left=found.steps
        )
        return None
    is_nudge = next_step_name(plan.step_names, notes.tried) == NUDGE
    if found.verdict == HINT and is_nudge:
        return plan._replace(hint=opinion.for_agent(found.hint))
    return plan


def answer(root: str, name: str, settings: SecondOpinion) -> Opinion | None:
    """The opinion that was requested under a name; `None`: there is none yet."""
    if not _is_name(name):
        return None
    return opinion.loaded(read_private(_answer_file(root, name), opinion.LARGEST_ANSWER), settings)


def start(request: str, root: str, cwd: str) -> None:
    """Request an opinion in a separate process. Raises OSError."""
    from switchgear._hooks.after_reply import spawn  # noqa: PLC0415  it imports this

    keep_out_of_git(os.path.dirname(folder_of(root)))
    make_private_folder(folder_of(root))
    spawn("opinion_process.py", cwd or root, root, given=request.encode())


def ask(request: bytes, root: str, cwd: str) -> None:
    """Request an opinion, and save it for the session's next hook: the work of the process."""
    from switchgear._opinion.consult import consult  # noqa: PLC0415  no hook imports it

    asked = json.loads(request)
    settings = SecondOpinion(**asked["settings"])
    if not _is_name(asked["name"]):
        return
    found = consult(settings, asked["request"], folder_of(root), cwd)
    write_private(_answer_file(root, asked["name"]), opinion.dumped(found).encode())


def _answer_file(root: str, name: str) -> str:
    return os.path.join(folder_of(root), f"answer-{name}.json")


def _is_name(name: str) -> bool:
    return bool(name) and len(name) <= 60 and all(each.isalnum() or each in ".-" for each in name)
