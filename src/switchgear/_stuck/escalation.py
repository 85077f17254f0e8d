"""The ladder of interventions, with a memory: each rung is tried once per incident (seed 002).

An incident begins when an agent is found stuck and ends with progress that was measured. What was
tried is remembered by a circuit of its own: a rung is a failure told to it, progress a success,
so `failures in a row` are the rungs since the last progress. It opens, latched, with the last
one. So the memory is folded, kept, shown and reset like everything else, and survives a crash.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from switchgear._core import values
from switchgear._core.policy import Policy
from switchgear._core.recovery import Latched
from switchgear._core.types import Circuit, Message, Phase, Record, Signal, Step
from switchgear._detectors import ConsecutiveFailures

NUDGE, RESET, ESCALATE, SKIP = "nudge", "reset", "escalate", "skip"
RUNGS = (NUDGE, RESET, ESCALATE, SKIP)
"""All rungs there are, from the bottom: a hint, a fresh start, stronger help, giving the task up."""

HINT = "Try a different approach"
HELPER = "the escalation agent"
"""What the agent or command that takes over is called in texts."""

Apply = Callable[[str, Policy, Message], Step]
"""Folds a message into a circuit, in a transaction: `Transaction.apply` of a store."""

_LOOK = Record(Signal(count=0))


class Interventions(NamedTuple):
    """What is done about a stuck agent: the `interventions` of the configuration. Immutable."""

    when_alone: tuple[str, ...] = RUNGS
    """The rungs that are climbed when nobody is there to choose, from the bottom."""
    hint: str = HINT
    """What a nudge tells the agent."""
    extend_s: float = 300.0
    """How much time "extend timeout" grants."""
    escalate: str | None = None
    """Who takes over: the name of an agent, or a command; `None`: nobody, and the rung is left out."""
    helper: str = HELPER
    """What they are called in the texts."""
    ask_s: float = 60.0
    """How long a person at the terminal is waited for, before the ladder decides."""

    in_runs: bool = False
    """Whether `switchgear run` watches its agents by the stuck score unless told otherwise."""

    progress: bool = True
    """Whether agents are judged by the progress ledger, too, beside their stuck score."""

    @property
    def rungs(self) -> tuple[str, ...]:
        """The ladder that can be climbed: help only where there is some, and `skip` at its end."""
        known = (rung for rung in self.when_alone if self.escalate or rung != ESCALATE)
        return (*dict.fromkeys(rung for rung in known if rung != SKIP), SKIP)


def checked(plan: Interventions) -> Interventions:
    """The plan, if it can be followed. Raises ValueError with the field, the value and the rule."""
    for rung in plan.when_alone:
        values.one_of("Interventions.when_alone", rung, RUNGS)
    values.text("Interventions.hint", plan.hint)
    values.text("Interventions.helper", plan.helper)
    values.seconds("Interventions.extend_s", plan.extend_s)
    values.seconds("Interventions.ask_s", plan.ask_s)
    if plan.escalate is not None:
        values.text("Interventions.escalate", plan.escalate)
    for name in ("in_runs", "progress"):
        value = getattr(plan, name)
        if not isinstance(value, bool):
            raise ValueError(f"Interventions.{name} is {value!r}: it must be true or false")
    return plan


class StepTaken(NamedTuple):
    """One rung that is taken."""

    rung: str
    tried: tuple[str, ...]
    """Those of the same incident before it."""


def ladder_key(subject: str) -> str:
    """The name of the ladder of a session, a loop or a task, which is named by its circuit.

    >>> ladder_key("session/7f3a")
    'ladder/session/7f3a'
    """
    return f"ladder/{subject}"


def ladder_policy(rungs: Sequence[str]) -> Policy:
    """How a ladder is judged: it opens with its last rung, until an operator resets it."""
    return Policy([ConsecutiveFailures(len(rungs))], Latched())


def tried(circuit: Circuit) -> tuple[str, ...]:
    """The rungs of the incident that goes on; none: there is no incident."""
    row: int = circuit.memories[0]
    texts = [failure.error or "" for failure in circuit.failures[-row:]] if row else []
    return tuple(text.partition(":")[0] for text in texts)


def next_rung(rungs: Sequence[str], before: Sequence[str]) -> str:
    """The lowest rung that was not tried; after the last one, the last one.

    >>> next_rung(RUNGS, ["nudge"]), next_rung(RUNGS, RUNGS)
    ('reset', 'skip')
    """
    return next((rung for rung in rungs if rung not in before), rungs[-1])


def climb(apply: Apply, subject: str, rungs: Sequence[str], why: str) -> StepTaken:
    """Take the next rung, and remember it with the evidence. In one transaction.

    To be called for each trip of the subject's circuit, by whoever was told of the trip.
    """
    key, policy = ladder_key(subject), ladder_policy(rungs)
    before = tried(apply(key, policy, _LOOK).circuit)
    rung = next_rung(rungs, before)
    if rung in before:
        return StepTaken(rung, before)  # the escalation is open: nothing is left to try
    apply(key, policy, Record(Signal(ok=False, error=f"{rung}: {why}")))
    return StepTaken(rung, before)


def take(apply: Apply, subject: str, rungs: Sequence[str], rung: str, why: str) -> StepTaken:
    """Take the rung that an operator chose, whatever was tried; the ladder does not try it again."""
    key, policy = ladder_key(subject), ladder_policy(rungs)
    before = tried(apply(key, policy, _LOOK).circuit)
    if rung == SKIP:  # the end of the ladder, whatever lies between
        left = [each for each in rungs if each not in before]
    else:
        left = [rung] if rung not in before else []
    for each in left:
        apply(key, policy, Record(Signal(ok=False, error=f"{each}: {why}")))
    return StepTaken(rung, before)


def progressed(apply: Apply, subject: str, rungs: Sequence[str]) -> bool:
    """Progress was measured: back to the bottom. Returns whether that ended an incident.

    To be called after what changed files, made more tests pass or earned credit; never for what
    an agent says. A ladder at its end stays there: an operator gave the word, or must.
    """
    key, policy = ladder_key(subject), ladder_policy(rungs)
    circuit = apply(key, policy, _LOOK).circuit
    if not tried(circuit) or circuit.phase is Phase.OPEN:
        return False
    apply(key, policy, Record(Signal(ok=True)))
    return True


def given_up(apply: Apply, subject: str, rungs: Sequence[str]) -> str | None:
    """What was tried, where the ladder has come to its end; `None`: it has not."""
    step = apply(ladder_key(subject), ladder_policy(rungs), _LOOK)
    return None if step.verdict.admitted else f"tried {', '.join(tried(step.circuit))}"
