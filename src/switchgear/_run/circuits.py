"""The circuits of a run: its loop, and the provider behind its agent.

The loop's circuit is named by folder, task, agent and validation, so that starting the same thing
again meets the trip that the last run ended with.
"""

import math
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._agents.events import LIMITED, AgentError
from switchgear._agents.registry import AGENTS
from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._breaker.handle import Breaker
from switchgear._breaker.loop_breaker import LoopBreaker, policy_of_limits
from switchgear._breaker.permits import Acquired, AcquiredPermits
from switchgear._core.errors import Rejected, StoreError
from switchgear._core.policy import Policy
from switchgear._core.types import Mode, Permit, Phase, Reading, Signal
from switchgear._core.wire import detector_names
from switchgear._fleet.run_notes import run_note, save_run_note
from switchgear._panel.panel import Panel
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.judge import Judgement
from switchgear._run.options import AUTO, RunOptions, limits_of
from switchgear._run.state import RunState
from switchgear._run.validation import detect
from switchgear._sinks.dispatch import Sink
from switchgear._text.formats import duration, plural
from switchgear._text.redact import redact

WARM = 0.6
"""The heat from which the prompt contains the evidence: 2 of 3 failures, 3 of 5 errors."""
FRESH_S = 5.0
"""Seconds for which the provider's last known state is used without reading it again."""
MAX_TITLE = 32
"""Maximum characters of the task in a circuit's name."""


class Measured(NamedTuple):
    """The numbers of an iteration that the loop's circuit records."""

    seconds: float
    cost_micros: int | None = None
    files_changed: int | None = None
    tests_passing: int | None = None
    output_chars: int | None = None
    repeats: int = 1
    """How often the error occurred within the iteration, if the agent was stopped for it."""


RunPermits = AcquiredPermits[Breaker]
"""The permits of both circuits for one iteration."""


class Circuits:
    """Acquires permits of both circuits and records results. Used by one thread."""

    def __init__(
        self,
        panel: Panel,
        name: str,
        options: RunOptions,
        *,
        policy: Policy | None = None,
        sinks: tuple[Sink, ...] = (),
    ) -> None:
        self.loop = loop_breaker(panel, name, policy or policy_of(options), sinks)
        # A policy of the configuration is the user's own, so every detector in it counts.
        self._limits = limits_of(options) if policy is None else None
        self._panel = panel
        self.provider: Breaker = provider_breaker(panel, options)
        self._provider_seen_s = -math.inf
        """When the state of the provider's circuit was last received, on the clock of the store."""
        self._repeats = 1  # of the error, within the latest iteration
        self._is_new_run = self._was_retry = False

    def forget_earlier_runs(self, *, by: str) -> None:
        """Reset the counts of earlier runs, unless the circuit is open or an operator holds it.

        A trip is not reset: an open circuit refuses the run, and a half-open one lets one retry decide.
        """
        self._is_new_run = True
        circuit = self.loop.snapshot()
        if circuit.phase not in {Phase.CLOSED, Phase.TRIPPING} or circuit.mode is not Mode.AUTO:
            return
        fresh = self.loop.policy.start(self.loop.name, 0.0)
        if circuit.memories != fresh.memories or circuit.totals != fresh.totals:
            self.loop.reset(by=by, why="a new run starts with its own counts")

    def save_owner(self, owner: str) -> None:
        """Save the person to notify if the loop's circuit opens."""
        with suppress(StoreError):  # the circuits report an unavailable store
            note = run_note(self._panel, self.loop.name)
            save_run_note(self._panel, self.loop.name, note._replace(owner=owner))

    def refresh(self) -> None:
        """Read both circuits. The other methods use what the latest message returned."""
        self.loop.refresh()
        self.provider.refresh()
        self._provider_seen_s = self._store_s()

    def acquire(self) -> RunPermits:
        """Acquire a permit of each circuit for one iteration. Raises `Rejected` if one of them refuses.

        The loop's circuit is always read again, because an operator may hold it; the provider's only
        if its state is older than `FRESH_S`.
        """
        permits: RunPermits = AcquiredPermits()
        self.loop.refresh()
        permits.append(Acquired(self.loop, _enter(self.loop)))
        try:
            if self._store_s() - self._provider_seen_s > FRESH_S:
                self.provider.refresh()
                self._provider_seen_s = self._store_s()
            permits.append(Acquired(self.provider, _enter(self.provider)))
        except Rejected:
            self.give_back(permits)
            raise
        return permits

    def give_back(self, permits: RunPermits) -> None:
        for breaker, permit, _ in permits.pop_all():
            breaker.record(Signal(), self._usable(permit) if breaker is self.loop else permit)

    def record_loop(self, permits: RunPermits, judged: Judgement, measured: Measured) -> bool:
        """Record the iteration. Returns whether the loop may continue, by the evidence and mode."""
        verdict = None
        self._repeats = measured.repeats
        acquired = permits.of(self.loop)
        self._was_retry = bool(acquired.probe)
        permit = self._usable(acquired)
        for signal in _signals(judged, measured, probing=bool(acquired.probe)):
            error = None if signal.error is None else self.loop.kept(signal.error)
            if self._limits is not None:
                signal = self._limits.signal(signal, failed=judged.ok is False)  # noqa: PLW2901
            verdict = self.loop.record(signal._replace(error=error), permit)
            permit = None
        return verdict is None or verdict.admitted

    def record_provider(self, permits: RunPermits, judged: Judgement, seconds: float) -> None:
        """Record whether the provider worked; unknown results count as neither."""
        signal = Signal(ok=None if judged.outcome == "stopped" else True)
        if (trouble := judged.provider) is not None:
            error, wait_s = redact(trouble.text), trouble.retry_after_s
            signal = Signal(ok=False, seconds=seconds, error=error, retry_after_s=wait_s)
        self.provider.record(signal, permits.of(self.provider))
        self._provider_seen_s = self._store_s()

    def would_stop(self) -> bool:
        """Whether the loop continues only because its circuit is in shadow mode or held closed."""
        circuit = self.loop.last_known
        return circuit.phase is Phase.OPEN and circuit.mode in {Mode.SHADOW, Mode.HELD_CLOSED}

    def nudge(self) -> str | None:
        """The evidence for the next prompt, when the loop is close to being stopped."""
        if self._heat() < WARM:
            return None
        return "\n".join(f"- {reason}" for reason in self.evidence()) or None

    def reason(self) -> str:
        circuit = self.loop.snapshot()
        if circuit.mode is Mode.HELD_OPEN:  # by an operator: nothing tripped
            return self.loop.check().reason or "held open"
        tripped = self.loop.trip_reason()
        if tripped and self._is_new_run and self._was_retry:
            # An earlier run caused the trip: the counts in its reason are not those of this run.
            return "Circuit breaker tripped: the one retry after an earlier run's trip failed"
        if tripped and self._repeats > 1:  # counted as several failures, within one iteration
            times = f"{self._repeats} times within one iteration"
            return f"Circuit breaker tripped: Same error repeated {times}"
        return tripped or f"Circuit breaker tripped: {circuit.outage.reason}"

    def held(self) -> str | None:
        """The circuit that an operator holds open; no evidence lets the run continue."""
        both = (self.loop, self.provider)
        return next((each.name for each in both if each.mode is Mode.HELD_OPEN), None)

    def evidence(self) -> tuple[str, ...]:
        """The reasons of the hot detectors, the hottest first."""
        readings = sorted(self._readings(), key=lambda reading: -reading.heat)
        return tuple(reading.reason for reading in readings if reading.heat >= WARM)

    def facts(self) -> dict[str, Any]:
        """The state of the loop's circuit, for the record."""
        readings = zip(detector_names(self.loop.policy), self._readings(), strict=True)
        return {
            "phase": str(self.loop.last_known.phase),
            "heat": round(min(self._heat(), 1.0), 4),
            "readings": [
                {"kind": kind, "heat": round(min(each.heat, 1.0), 4), "reason": each.reason}
                for kind, each in readings
            ],
        }

    def _heat(self) -> float:
        return self.loop.policy.heat(self.loop.last_known.memories, self._store_s())

    def _readings(self) -> tuple[Reading, ...]:
        return tuple(self.loop.policy.readings(self.loop.last_known.memories, self._store_s()))

    def _store_s(self) -> float:
        return self._panel.store.now_s()

    def _usable(self, permit: Permit) -> Permit | None:
        """The permit to record with; `None` for a late probe, which still decides if the circuit has not changed."""
        lease_s = permit.lease_until_s
        if lease_s is None or self.loop._now_s() < lease_s:  # noqa: SLF001  its clock is the judge
            return permit
        return None if permit.generation == self.loop.snapshot().generation else permit


def _enter(breaker: Breaker) -> Permit:
    """Acquire a permit of a circuit that was just read: a closed one needs no further message."""
    circuit = breaker.last_known
    closed = circuit.phase in {Phase.CLOSED, Phase.TRIPPING} and circuit.mode is not Mode.HELD_OPEN
    if closed and breaker.isolation is None:
        return Permit(circuit.generation)
    return breaker.enter()


UNKNOWN_PROVIDER = "the agent's provider"
"""The name of the provider of a command, which may call any provider."""


def provider_breaker(panel: Panel, options: RunOptions) -> Breaker:
    """The circuit of the provider behind the agent, `provider/<agent>`.

    The provider of a plain command is unknown. Its circuit has the same policy, but is kept in memory:
    it is neither stored nor shared with other commands.
    """
    label = options.agent_label.partition(":")[0]
    if options.agent is not None or label in AGENTS:
        return panel.breaker(f"provider/{label}")
    policy = panel.policy_of("provider/command")
    return CircuitBreaker(UNKNOWN_PROVIDER, policy=policy, clock=panel.store.now_s)


def loop_name(folder: Path, options: RunOptions) -> str:
    """The name of a loop's circuit, `loop/<task>-<digest>`, which does not depend on its limits.

    Runs share it when folder, task, plan, agent and validation are the same: another agent or another
    validation may succeed where this one failed, so it has separate evidence.
    """
    validate = detect(folder) if options.validate == AUTO else options.validate
    agent = options.agent if options.agent_cmd is None else options.agent_cmd
    return f"loop/{_loop_identity(folder, options, agent or '', validate or '')}"


def task_name(folder: Path, options: RunOptions) -> str:
    """The name of a task in a folder, for any agent: only one process at a time may run it.

    White space makes no difference.
    """
    words = " ".join(options.task.split())
    return f"task/{_loop_identity(folder, options._replace(task=words))}"


SHARED = "the same folder, task, plan, agent command and validation command"
"""What runs that share a circuit have in common."""


def _loop_identity(folder: Path, options: RunOptions, *more: str) -> str:
    """The first words of the task, and a digest of everything that identifies it."""
    whole = "\0".join((str(folder.resolve()), options.task, options.plan or "", *more))
    digest = blake2b(whole.encode(errors="surrogateescape"), digest_size=4).hexdigest()
    words = redact(options.task, 200).replace("[redacted]", "")
    parts = "".join(sign if sign.isascii() and sign.isalnum() else " " for sign in words.lower())
    title = "-".join(parts.split())
    if len(title) > MAX_TITLE:
        title = title[: MAX_TITLE + 1].rpartition("-")[0] or title[:MAX_TITLE]
    return f"{title}-{digest}" if title else digest


def policy_of(options: RunOptions) -> Policy:
    return policy_of_limits(limits_of(options))


def loop_breaker(
    panel: Panel, name: str, policy: Policy, sinks: tuple[Sink, ...] = ()
) -> LoopBreaker:
    store = panel.store
    return LoopBreaker(name, policy=policy, sinks=sinks, store=store, wall=store.now_s)


def _signals(judged: Judgement, measured: Measured, *, probing: bool) -> list[Signal]:
    """The iteration as signals. If the loop did not cause its end, only cost and progress count."""
    signal = Signal(seconds=measured.seconds, cost_micros=measured.cost_micros)
    if judged.outcome in {"stopped", "stuck", "blocked", "provider"}:
        return [signal._replace(files_changed=measured.files_changed or None)]
    signal = signal._replace(
        files_changed=measured.files_changed,
        tests_passing=measured.tests_passing,
        output_chars=measured.output_chars,
    )
    if judged.ok is None:
        # A probe with an unknown result would decide nothing, but one without progress must.
        return [signal._replace(ok=True if probing else None)]
    if judged.ok or measured.repeats <= 1:
        return [signal._replace(ok=judged.ok, error=judged.error)]
    # Each repetition within the iteration is one more of the same error, but one iteration.
    again = Signal(ok=False, error=judged.error, count=measured.repeats)
    return [signal, again]


FIRST_PAUSE_S = 5.0
PROVIDER_PATIENCE_S = 3600.0
"""Total seconds to wait for a provider before it works again."""


class Pause(NamedTuple):
    seconds: float
    why: str
    ends: ExitReason | None = None
    """End the run instead, for that reason; `why` is the sentence."""
    too_long: ExitReason = ExitReason.RATE_LIMIT
    """The exit reason if less time is left than the pause takes."""


def pause_for(trouble: AgentError, state: RunState, provider: Breaker) -> Pause:
    """What to do after an iteration that the provider failed."""
    backoff_s = FIRST_PAUSE_S * 2.0 ** min(max(state.provider_failures - 1, 0), 16)
    requested_s = trouble.retry_after_s
    if trouble.kind in LIMITED:
        if trouble.kind == "quota" and requested_s is None:
            sentence = f"the quota at {provider.name} is used up"
            return Pause(0.0, f"{sentence}: {trouble.text}", ExitReason.RATE_LIMIT)
        wait_s = backoff_s if requested_s is None else requested_s
        pause = Pause(wait_s, f"for the rate limit of {provider.name}")
    else:
        if provider.last_known.phase is Phase.OPEN:
            failed = plural(state.provider_failures, "iteration")
            sentence = f"{provider.name} is down, {failed} in a row"
            return Pause(0.0, f"{sentence}: {trouble.text}", ExitReason.AGENT_ERROR)
        why = f"for {provider.name} to come back ({trouble.kind})"
        pause = Pause(max(requested_s or 0.0, backoff_s), why, None, ExitReason.AGENT_ERROR)
    waited_s = state.provider_waited_s + pause.seconds
    if waited_s <= PROVIDER_PATIENCE_S:
        return pause
    sentence = f"waiting {duration(pause.seconds)} {pause.why} would bring the total wait to {duration(waited_s)}"
    limit = f"more than the limit of {duration(PROVIDER_PATIENCE_S)}"
    return Pause(0.0, f"{sentence}, {limit}: {trouble.text}", pause.too_long)
