"""The escalation for stuck agents: each step is tried once per incident.

An incident begins when an agent is found to be stuck and ends with measured progress. The steps taken are recorded
on a separate circuit: a step is a failure and progress is a success, so that the consecutive failures are the steps
since the last progress. The circuit opens with the last step, until a manual reset. So the steps are stored,
displayed and reset like any circuit, and survive a crash.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from switchgear._core import values
from switchgear._core.policy import Latched, Policy
from switchgear._core.types import Circuit, Message, Phase, Record, Signal, Step
from switchgear._detectors import ConsecutiveFailures

NUDGE, RESET, ESCALATE, SKIP = "nudge", "reset", "escalate", "skip"
STEP_NAMES = (NUDGE, RESET, ESCALATE, SKIP)
"""All steps in order: a hint, a fresh start, a handover to the escalation agent, giving up the task."""

HINT = "Try a different approach"
HELPER = "the escalation agent"
"""The default name of the escalation agent in texts."""

Apply = Callable[[str, Policy, Message], Step]
"""Applies a message to a circuit in a transaction: `Transaction.apply` of a store."""

_NO_CHANGE = Record(Signal(count=0))


class Interventions(NamedTuple):
    """The escalation plan for stuck agents: the section `interventions` of the configuration. Immutable."""

    when_alone: tuple[str, ...] = STEP_NAMES
    """The steps to take, in order, if no user chooses one."""
    hint: str = HINT
    """The text of a nudge."""
    extend_s: float = 300.0
    """Seconds by which "extend timeout" extends the time limit."""
    escalate: str | None = None
    """The escalation agent: the name of an agent, or a command; `None`: the step is left out."""
    helper: str = HELPER
    """The name of the escalation agent in texts."""
    ask_s: float = 60.0
    """Seconds to wait for an answer at the terminal before the next step is taken automatically."""

    in_runs: bool = False
    """Whether `switchgear run` detects stuck agents by default."""

    progress: bool = True
    """Whether the progress detectors are used in addition to the stuck score."""

    @property
    def step_names(self) -> tuple[str, ...]:
        """The steps that can be taken: `escalate` only if an escalation agent is configured, and `skip` last."""
        left_out = {SKIP} if self.escalate else {SKIP, ESCALATE}
        return (*dict.fromkeys(name for name in self.when_alone if name not in left_out), SKIP)


def checked(plan: Interventions) -> Interventions:
    """The plan, if it is valid. Raises ValueError with the field, the value and the rule."""
    for step_name in plan.when_alone:
        values.check_one_of("Interventions.when_alone", step_name, STEP_NAMES)
    values.check_text("Interventions.hint", plan.hint)
    values.check_text("Interventions.helper", plan.helper)
    values.check_seconds("Interventions.extend_s", plan.extend_s)
    values.check_seconds("Interventions.ask_s", plan.ask_s)
    if plan.escalate is not None:
        values.check_text("Interventions.escalate", plan.escalate)
    for name in ("in_runs", "progress"):
        values.check_bool(f"Interventions.{name}", getattr(plan, name))
    return plan


class StepTaken(NamedTuple):
    step_name: str
    tried: tuple[str, ...]
    """The earlier steps of the same incident."""


def escalation_key(subject: str) -> str:
    """The name of the escalation's circuit for the circuit of a session, a loop or a task.

    >>> escalation_key("session/7f3a")
    'ladder/session/7f3a'
    """
    return f"ladder/{subject}"


def escalation_policy(step_names: Sequence[str]) -> Policy:
    """The policy of the escalation's circuit: it opens with the last step, until a manual reset."""
    return Policy([ConsecutiveFailures(len(step_names))], Latched())


def tried(circuit: Circuit) -> tuple[str, ...]:
    """The steps taken in the current incident; empty: there is no incident."""
    count: int = circuit.memories[0]
    texts = [failure.error or "" for failure in circuit.failures[-count:]] if count else []
    return tuple(text.partition(":")[0] for text in texts)


def next_step_name(step_names: Sequence[str], before: Sequence[str]) -> str:
    """The first step that was not taken yet; the last one if all were.

    >>> next_step_name(STEP_NAMES, ["nudge"]), next_step_name(STEP_NAMES, STEP_NAMES)
    ('reset', 'skip')
    """
    return next((step_name for step_name in step_names if step_name not in before), step_names[-1])


def take_step(
    apply: Apply,
    subject: str,
    step_names: Sequence[str],
    why: str,
    step_name: str | None = None,
) -> StepTaken:
    """Take a step, and record it with the evidence `why`. Call it in a transaction, once per trip.

    `step_name`: the step that an operator chose, whatever was taken before; default: the next step. A step that
    was taken already is not recorded again.
    """
    key, policy = escalation_key(subject), escalation_policy(step_names)
    before = tried(apply(key, policy, _NO_CHANGE).circuit)
    step_name = step_name or next_step_name(step_names, before)
    if step_name == SKIP:  # the last step, skipping those between
        missing = [each for each in step_names if each not in before]
    else:
        missing = [step_name] if step_name not in before else []
    for each in missing:
        apply(key, policy, Record(Signal(ok=False, error=f"{each}: {why}")))
    return StepTaken(step_name, before)


def progressed(apply: Apply, subject: str, step_names: Sequence[str]) -> bool:
    """Record measured progress, which ends an incident. Returns whether there was one.

    Call it when files changed, more tests passed or the score fell, not when the agent claims progress. An
    escalation that has taken all steps stays open until a manual reset.
    """
    key, policy = escalation_key(subject), escalation_policy(step_names)
    circuit = apply(key, policy, _NO_CHANGE).circuit
    if not tried(circuit) or circuit.phase is Phase.OPEN:
        return False
    apply(key, policy, Record(Signal(ok=True)))
    return True


def exhausted_steps(apply: Apply, subject: str, step_names: Sequence[str]) -> str | None:
    """The steps taken, as a text, if none is left; `None`: some are left."""
    step = apply(escalation_key(subject), escalation_policy(step_names), _NO_CHANGE)
    return None if step.verdict.admitted else f"tried {', '.join(tried(step.circuit))}"
