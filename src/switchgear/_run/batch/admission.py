"""Admission of attempts by the circuit `op/agent_spawn`: acquired before each, recorded after it."""

from contextlib import suppress
from typing import NamedTuple

from switchgear._breaker.handle import Breaker
from switchgear._config.sections import preset_policy
from switchgear._core.errors import OverrideRefused, Rejected, StoreError
from switchgear._core.policy import Policy
from switchgear._core.types import Permit, Phase, Signal
from switchgear._panel.panel import Panel
from switchgear._run.batch.attempt import AttemptOutcome
from switchgear._run.batch.view import BatchView, GuardedBatchView
from switchgear._run.dependencies import Choose
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.interrupt import Time
from switchgear._run.result import RunResult
from switchgear._stuck import messages
from switchgear._stuck.messages import trip_options
from switchgear._text.redact import redact

SPAWN = "op/agent_spawn"
BY = "switchgear batch"
_NO_EVIDENCE = frozenset({ExitReason.INTERRUPTED, ExitReason.BUDGET, ExitReason.BLOCKED})
"""Exit reasons that are no evidence about starting agents: they depend on the user."""


class SpawnCircuit:
    """The circuit `op/agent_spawn` of one batch. Used by one thread."""

    def __init__(self, panel: Panel, policy: Policy | None = None) -> None:
        self._panel = panel
        policy = policy or preset_policy("operation")
        self._breaker: Breaker = panel.breaker(SPAWN, policy)

    def acquire(self) -> Permit | Rejected:
        """A permit to start one agent, or the refusal."""
        self._breaker.refresh()
        try:
            return self._breaker.enter()
        except Rejected as refused:
            return refused

    def give_back(self, permit: Permit) -> None:
        """Return an unused permit."""
        self._breaker.record(Signal(), permit)

    def record(
        self, permit: Permit, result: RunResult | None, problem: str, *, worked: bool
    ) -> str | None:
        """Record the result of an attempt. Returns the message about a probe, if it was one.

        `worked`: whether an agent was started; a loop that was open from the start is no evidence.
        """
        ok: bool | None = False
        if result is not None:
            ok = result.success
            refused = not worked and result.exit_reason is ExitReason.CIRCUIT_BREAKER
            if refused or result.exit_reason in _NO_EVIDENCE:
                ok = None
        error = problem if result is None else f"{result.exit_reason}: {result.reason}"
        verdict = self._breaker.record(Signal(ok=ok, error=None if ok else redact(error)), permit)
        if not permit.probe or ok is None:
            return None
        return messages.recovery_ends(verdict.phase, ok=ok)

    def block(self) -> str:
        """The message CIRCUIT BREAKER TRIPPED."""
        circuit = self._breaker.snapshot()
        with suppress(StoreError):  # then what this process knows must do
            view = self._panel.view(SPAWN)
            circuit = circuit if view is None else view.circuit
        return messages.circuit_tripped(circuit, self._panel.store.now_s())

    def probing(self) -> str:
        """The message when the next agent is the probe."""
        opened_s = self._panel.store.now_s() - self._breaker.snapshot().outage.opened_at_s
        return f"{messages.recovery_begins(SPAWN, opened_s, 0.0)}\n\n{messages.PROBING}"

    @property
    def is_half_open(self) -> bool:
        """Whether a test is under way."""
        return self._breaker.snapshot().phase is Phase.HALF_OPEN

    @property
    def outage(self) -> float:
        """Tells one outage from the next: when it began."""
        return self._breaker.snapshot().outage.opened_at_s

    def force(self, by: str, why: str) -> str | None:
        """Close it by force. Returns why that was refused, if it was."""
        try:
            self._panel.order(SPAWN, by=by, why=why, reset=True)
        except (OverrideRefused, StoreError) as refused:
            return str(refused)
        return None


MOST_FORCES = 3
"""How often a policy closes the circuit by force in one batch; then it waits."""
PROBE_LOOK_S = 1.0
"""Seconds between checks while a probe is running."""


class AdmissionResult(NamedTuple):
    """A permit for one attempt; or none now, or the reason to skip the task."""

    permit: Permit | None = None
    skip: str | None = None


class Admission:
    """Acquires a permit before each attempt and records its result. Used by one thread."""

    def __init__(
        self,
        spawn_circuit: SpawnCircuit,
        view: BatchView,
        *,
        policy: str,
        choose: Choose | None = None,
        by: str = "switchgear batch",
        forces: int = 0,
        time: Time | None = None,
    ) -> None:
        self._spawn_circuit, self._view = spawn_circuit, GuardedBatchView(view)
        self._policy, self._choose, self._by = policy, choose, by
        self._time = time or Time()
        self._closed_until_s = 0.0
        self._why = ""
        self._shown_s: int | None = None
        self._told_of: float | None = None
        """The outage that was reported last."""
        self._waits = False
        """Whether the batch waits for its end."""
        self.forces = forces
        self.aborted: str | None = None
        """Why the batch is to be aborted; `None`: it is not."""

    def acquire(self, name: str, *, running: bool) -> AdmissionResult:
        """A permit to start this task; `running`: whether others are running."""
        if self._time.clock() < self._closed_until_s:
            return AdmissionResult()
        acquired = self._spawn_circuit.acquire()
        if isinstance(acquired, Rejected):
            return self._refused(name, acquired, running=running)
        self._closed_until_s = 0.0
        if acquired.probe:
            self._view.said(self._spawn_circuit.probing())
        return AdmissionResult(acquired)

    def give_back(self, permit: Permit) -> None:
        """No agent was started."""
        self._spawn_circuit.give_back(permit)

    def record(self, permit: Permit, outcome: AttemptOutcome, *, worked: bool) -> None:
        """How the attempt went; `worked`: whether its agent was started at all."""
        said = self._spawn_circuit.record(permit, outcome.result, outcome.problem, worked=worked)
        if said is not None:
            self._view.said(said)
            self._closed_until_s = 0.0

    def count_down(self) -> None:
        """Show the remaining wait, once a second."""
        left_s = self._closed_until_s - self._time.clock()
        if left_s > 0 and int(left_s) != self._shown_s:
            self._shown_s = int(left_s)
            self._view.waiting(self._why, left_s)

    def _refused(self, name: str, refused: Rejected, *, running: bool) -> AdmissionResult:
        wait_s = refused.retry_after_s
        if running and wait_s is not None and self._spawn_circuit.is_half_open:
            return self._wait(f"for the half-open test of {SPAWN}", min(wait_s, PROBE_LOOK_S))
        choice = self._chosen(wait_s)
        if choice == "wait" and wait_s is None:
            choice = "abort"  # it does not come back by itself
        if choice == "wait":
            return self._wait(f"for {SPAWN} ({refused.reason})", wait_s or 0.0)
        if choice == "skip":
            return AdmissionResult(skip=str(refused))
        if choice == "abort":
            self.aborted = str(refused)
            return AdmissionResult()
        why = f"batch: {name} is to be started"
        objection = self._spawn_circuit.force(self._by, why)
        if objection is not None:
            self._view.said(objection)
            self.aborted = objection
            return AdmissionResult()
        self._view.said(f"{SPAWN} was closed by force")
        return self.acquire(name, running=running)

    def _chosen(self, wait_s: float | None) -> str:
        """The user's choice, else the policy's. Each outage is reported once."""
        outage = self._spawn_circuit.outage
        told, self._told_of = self._told_of == outage, outage
        if told and self._waits:
            return "wait"
        block, chosen = self._spawn_circuit.block(), None
        if self._choose is not None:
            chosen = self._choose(block, trip_options(wait_s))
        elif not told:
            self._view.said(block)
        if chosen is None:
            chosen = self._policy
            if chosen == "force":
                self.forces += 1
                chosen = "force" if self.forces <= MOST_FORCES else "wait"
        self._waits = chosen == "wait"
        return chosen

    def _wait(self, why: str, seconds: float) -> AdmissionResult:
        self._why, self._closed_until_s = why, self._time.clock() + seconds
        self._shown_s = None
        self.count_down()
        return AdmissionResult()
