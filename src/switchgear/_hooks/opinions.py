"""The second opinion in guarded sessions: requested in the background, applied before an escalation step.

A hook must respond within seconds, and a model may take longer. So a separate process requests the opinion as
soon as the session is hot enough. Meanwhile the circuit may open; the next tool call then takes the escalation
step, with the opinion if it has arrived. This module is imported only if a second opinion is configured.
"""

import json
import os
import sys
import time
from typing import TYPE_CHECKING

from switchgear._core.types import EventKind, Override, Signal, Step
from switchgear._hooks.detached import start_detached
from switchgear._hooks.session import Notes
from switchgear._opinion import opinion
from switchgear._opinion.opinion import HINT, Opinion, SecondOpinion, StuckEvidence
from switchgear._stores.base import Store, Transaction
from switchgear._stores.url import default_file, keep_out_of_git
from switchgear._stuck.escalation import NUDGE, Interventions, next_step_name
from switchgear._system.files import make_private_folder, read_private, write_private

if TYPE_CHECKING:
    from switchgear._hooks.decide import EventDecision

FOLDER = "opinions"
OPERATOR = "second opinion"
"""The operator named in events."""
WAIT_S = 1.5
"""Seconds that a tool call waits for a requested opinion; a hook has 5 s for its circuits."""
_POLL_S = 0.05
PROCESS_LIMIT_S = 150
"""Seconds after which the requesting process is killed; the longest time limit of an opinion is 120 s."""


def folder_of(root: str) -> str:
    return os.path.join(os.path.dirname(default_file(root)), FOLDER)


def settings_of(decision: "EventDecision") -> SecondOpinion:
    return SecondOpinion(**(decision.config.second_opinion or {}))


def remember(decision: "EventDecision", signal: Signal) -> None:
    """Keep a step as evidence; a step that changed files ends a delay."""
    notes = decision.notes
    left = 0 if signal.files_changed else notes.delay_left
    decision.notes = notes._replace(recent=opinion.with_step(notes.recent, signal), delay_left=left)


def ends_delay(decision: "EventDecision") -> bool:
    """Count one step of a delay. Returns whether the delayed stop is due now."""
    left = decision.notes.delay_left
    if left <= 0:
        return False
    decision.notes = decision.notes._replace(delay_left=left - 1)
    return left == 1


def request_opinion_if_hot(decision: "EventDecision", step: Step) -> None:
    """Request an opinion after this reply, once per incident, if the session is hot enough."""
    settings = settings_of(decision)
    heat = step.verdict.heat
    if heat <= settings.ask_at / 2:  # the incident is over: the next one gets another opinion
        decision.notes = decision.notes._replace(opinion="")
    if decision.notes.opinion or decision.lane_name or heat < settings.ask_at:
        return
    policy = decision.policy(step.circuit.key)
    readings = policy.readings(step.circuit.memories, decision.tx.now_s)
    pairs = list(zip(policy.detectors, readings, strict=True))
    if any(detector.kind == "violation" and each.heat >= 1 for detector, each in pairs):
        return  # a definite reason, such as a time limit or an operator: an opinion would not change it
    warm = sorted((each for each in readings if each.heat > 0), key=lambda each: -each.heat)
    notes, reasons = decision.notes, tuple(each.reason for each in warm)
    evidence = StuckEvidence(notes.agent, notes.task, heat, reasons, notes.tried, notes.recent)
    name = f"{decision.tx.now_s:.3f}-{os.urandom(8).hex()}"
    decision.notes = notes._replace(opinion=name)
    decision.opinion_request = json.dumps(
        {"name": name, "settings": settings._asdict(), "request": evidence.request(settings)}
    )


def wait_for(store: Store, name: str, root: str) -> None:
    """Wait briefly for a requested opinion, if an escalation step is due."""

    def due_opinion(tx: Transaction) -> str:
        notes = Notes.load(tx.note)
        return notes.opinion if notes.untended else ""

    request = store.transact(name, due_opinion)
    if not _is_name(request):
        return
    due_s = time.monotonic() + WAIT_S
    path = _answer_file(root, request)
    while not os.path.exists(path) and time.monotonic() < due_s:
        time.sleep(_POLL_S)


def plan_with_opinion(decision: "EventDecision", plan: Interventions) -> Interventions | None:
    """The plan for the next escalation step; `None`: the opinion delays the stop, and no step is taken."""
    notes, settings = decision.notes, settings_of(decision)
    if not notes.opinion:
        return plan
    decision.notes = notes._replace(opinion="")
    opinion_found = received_opinion(decision.config.root, notes.opinion, settings)
    if opinion_found is None:
        late = opinion.no_opinion("no answer before the next tool call", settings.source)
        decision.remark(decision.session, EventKind.SECOND_OPINION, late.sentence())
        return plan
    delayed, sentence = opinion_found.decide_delay(notes.delays, settings)
    decision.session_circuit().send(
        Override(OPERATOR, sentence, reset=delayed, kind=EventKind.SECOND_OPINION)
    )
    if delayed:
        decision.notes = decision.notes._replace(
            untended=False, stop=None, delays=notes.delays + 1, delay_left=opinion_found.steps
        )
        return None
    is_nudge = next_step_name(plan.step_names, notes.tried) == NUDGE
    if opinion_found.verdict == HINT and is_nudge:
        return plan._replace(hint=opinion.for_agent(opinion_found.hint))
    return plan


def received_opinion(root: str, name: str, settings: SecondOpinion) -> Opinion | None:
    """The opinion that was requested under a name; `None`: it has not arrived yet."""
    if not _is_name(name):
        return None
    answer = read_private(_answer_file(root, name), opinion.MAX_ANSWER_BYTES)
    return opinion.loaded(answer, settings)


def start_request(request: str, root: str) -> None:
    """Request an opinion in a separate process, in the folder of the project. Raises OSError.

    The agent's working directory could contain another file with the name of the command.
    """
    keep_out_of_git(os.path.dirname(folder_of(root)))
    make_private_folder(folder_of(root))
    start_detached("opinions", root, stdin=request.encode())


def request_opinion(request: bytes, root: str) -> None:
    """Request an opinion, and save it for the session's next hook. Runs in the separate process."""
    from switchgear._opinion.consult import consult_in_thread  # noqa: PLC0415  no hook imports it

    data = json.loads(request)
    settings = SecondOpinion(**data["settings"])
    if not _is_name(data["name"]):
        return
    opinion_found = consult_in_thread(settings, data["request"], folder_of(root), root)
    write_private(_answer_file(root, data["name"]), opinion.dumped(opinion_found).encode())


def main(words: list[str]) -> int:
    """The separate process: `detached.py …/opinions.py ROOT`, with the request on its standard input."""
    import signal  # noqa: PLC0415  not needed in a hook

    signal.alarm(PROCESS_LIMIT_S)
    try:
        request_opinion(sys.stdin.buffer.read(), root=words[1])
    except (OSError, ValueError, KeyError, TypeError):
        return 1
    return 0


def _answer_file(root: str, name: str) -> str:
    return os.path.join(folder_of(root), f"answer-{name}.json")


def _is_name(name: str) -> bool:
    return bool(name) and len(name) <= 60 and all(each.isalnum() or each in ".-" for each in name)
