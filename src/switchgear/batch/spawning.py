"""The circuit of spawning agents, `op/agent_spawn`: asked before each attempt, told after it."""

from contextlib import suppress

from switchgear.breaker import Breaker
from switchgear.config.policies import preset_policy
from switchgear.core.policy import Policy
from switchgear.core.types import Permit, Phase, Signal
from switchgear.errors import OrderRefused, Rejected, StoreError
from switchgear.hooks import texts
from switchgear.panel import Panel
from switchgear.redact import redact
from switchgear.runner.ends import ExitReason
from switchgear.runner.result import RunResult

SPAWN = "op/agent_spawn"
BY = "switchgear batch"
_NO_EVIDENCE = frozenset({ExitReason.INTERRUPTED, ExitReason.BUDGET, ExitReason.BLOCKED})
"""Ends that say nothing of whether agents can be started: your doing, your limit, your answer."""


class Spawning:
    """Asks and tells the circuit for one batch. Used by one thread."""

    def __init__(self, panel: Panel, policy: Policy | None = None) -> None:
        self._panel = panel
        policy = policy or preset_policy("operation")
        self._breaker: Breaker = panel.breaker(SPAWN, policy)

    def ask(self) -> Permit | Rejected:
        """Leave to start one agent, or the refusal."""
        self._breaker.refresh()
        try:
            return self._breaker.enter()
        except Rejected as refused:
            return refused

    def give_back(self, permit: Permit) -> None:
        """No agent was started with it."""
        self._breaker.tell(Signal(), permit)

    def tell(
        self, permit: Permit, result: RunResult | None, problem: str, *, worked: bool
    ) -> str | None:
        """How the attempt went. Returns what is to be said of a half-open test, if it was one.

        `worked`: whether an agent was started; a loop that was open from the start is no evidence.
        """
        ok: bool | None = False
        if result is not None:
            ok = result.success
            refused = not worked and result.exit_reason is ExitReason.CIRCUIT_BREAKER
            if refused or result.exit_reason in _NO_EVIDENCE:
                ok = None
        error = problem if result is None else f"{result.exit_reason}: {result.reason}"
        verdict = self._breaker.tell(Signal(ok, error=None if ok else redact(error)), permit)
        if not permit.probe or ok is None:
            return None
        return texts.recovery_ends(verdict.phase, ok=ok)

    def block(self) -> str:
        """CIRCUIT BREAKER TRIPPED, as it stands now."""
        circuit = self._breaker.snapshot()
        with suppress(StoreError):  # then what this process knows must do
            view = self._panel.view(SPAWN)
            circuit = circuit if view is None else view.circuit
        return texts.circuit_tripped(circuit, self._panel.store.now_s())

    def probing(self) -> str:
        """What is said when the next agent is the test."""
        opened_s = self._panel.store.now_s() - self._breaker.snapshot().outage.opened_at_s
        return f"{texts.recovery_begins(SPAWN, opened_s, 0.0)}\n\n{texts.PROBING}"

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
        except (OrderRefused, StoreError) as refused:
            return str(refused)
        return None
