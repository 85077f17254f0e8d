"""The loop breaker: iterations of an autonomous agent, guarded by one circuit (seeds 000, 001).

Both documented front ends are here, over the one mechanism: metrics of progress and errors in,
decisions out (000), and successes and failures in, tripped or not out (001).
"""

from time import time
from typing import TYPE_CHECKING, Any, Self

from switchgear.breaker import Breaker
from switchgear.clock import Clock, monotonic
from switchgear.core.detectors import (
    ConsecutiveFailures,
    Detector,
    NoProgress,
    OutputDecline,
    SameError,
)
from switchgear.core.fingerprint import DOCUMENTED_LENGTH, gist
from switchgear.core.policy import Policy
from switchgear.core.types import Circuit, Mode, Permit, Phase, Signal, Tell, Verdict
from switchgear.guards.loop_facts import Decision, IterationMetrics, LoopStats, LoopStatus
from switchgear.guards.loop_policy import failures_policy, loop_policy, stagnation_policy
from switchgear.guards.loop_words import decision_words, failures_in_a_row, trip_words
from switchgear.listeners import Sink
from switchgear.live import TIME_PASSES
from switchgear.redact import redact
from switchgear.stores.base import Remembers

if TYPE_CHECKING:
    from datetime import datetime

LONGEST_GIST = 600
"""Characters kept of an error: forty words, unless they are long ones."""


class LoopBreaker(Breaker):
    """Stops a loop that fails, repeats an error, stands still or dries up, and says why.

    - `consecutive_failures` (3): iterations that failed in a row.
    - `same_error` (5): times that one error came, by its `fingerprint` (`"default"` or
      `"documented"`), in total or, with `scope="consecutive"`, in a row.
    - `no_progress` (3): iterations in a row without measured progress; then one more chance.
    - `output_decline_percent` (70): output under this share of its baseline, twice in a row.
    - `cooldown_s` (30.0): seconds before one retry; `None`: open until `reset()`.
    - `policy`: instead of all these, any policy. Each of the first four may be `None`: left out.
    - `clock`, `sinks`, `store`, `wall`: as for every breaker.

    `LoopBreaker.stagnation(name)` is seed 000, `LoopBreaker.failures(name)` is seed 001. Errors
    are redacted before they are kept. Raises ValueError when an argument is out of range.
    Thread-safe, task-safe, fork-safe; pickles with its state.

    >>> breaker = LoopBreaker("loop/7f3a")
    >>> [breaker.record_failure("no such table: users") for _ in range(3)]
    [False, False, True]
    >>> breaker.trip_reason()
    'Circuit breaker tripped: 3 consecutive failures (threshold: 3)'
    """

    __slots__ = ()

    def __init__(
        self,
        name: str,
        *,
        consecutive_failures: int | None = 3,
        same_error: int | None = 5,
        no_progress: int | None = 3,
        output_decline_percent: float | None = 70.0,
        cooldown_s: float | None = 30.0,
        scope: str = "total",
        fingerprint: str = "default",
        policy: Policy | None = None,
        clock: Clock = monotonic,
        sinks: tuple[Sink, ...] | list[Sink] = (),
        store: Remembers | None = None,
        wall: Clock | None = None,
    ) -> None:
        given = loop_policy(
            consecutive_failures=consecutive_failures,
            same_error=same_error,
            no_progress=no_progress,
            output_decline_percent=output_decline_percent,
            cooldown_s=cooldown_s,
            scope=scope,
            fingerprint=fingerprint,
        )
        if policy is None:
            policy = given
        elif given != loop_policy():
            raise ValueError(
                "LoopBreaker.policy is given, and limits of its own too: they belong into the "
                "policy then"
            )
        super().__init__(name, policy, clock=clock, sinks=sinks, store=store, wall=wall)

    @classmethod
    def stagnation(
        cls,
        name: str,
        no_progress: int = 3,
        same_error: int = 5,
        output_decline_percent: float = 70.0,
        **options: Any,
    ) -> Self:
        """Seed 000: one more chance after standing still; open until `reset()`."""
        policy = stagnation_policy(no_progress, same_error, output_decline_percent)
        return cls(name, policy=policy, **options)

    @classmethod
    def failures(
        cls,
        name: str,
        consecutive_failures: int = 3,
        same_error: int = 5,
        cooldown_s: float = 30.0,
        **options: Any,
    ) -> Self:
        """Seed 001: after the cooldown one retry decides, whatever its error."""
        return cls(
            name, policy=failures_policy(consecutive_failures, same_error, cooldown_s), **options
        )

    # Telling

    def record_progress(self, metrics: IterationMetrics) -> None:
        """Say what was measured of an iteration; whether it is progress is not for you to say."""
        self.tell(metrics.signal())

    def record_error(self, error: str) -> None:
        """Say which error an iteration ended with; it counts as one that failed."""
        self.record_failure(error)

    def record_success(self) -> None:
        """An iteration succeeded: ends a row of failures, clears no history of errors."""
        self.tell(Signal(ok=True))

    def record_failure(self, error: str) -> bool:
        """An iteration failed. Returns whether the circuit is tripped now."""
        return not self.tell(Signal(ok=False, error=error)).admitted

    def tell(self, signal: Signal, permit: Permit | None = None) -> Verdict:
        """Say everything about one iteration at once; of its error, what `kept` makes of it."""
        if signal.at_s is None and signal.count:
            signal = signal._replace(at_s=time())
        if signal.error is not None:
            signal = signal._replace(error=self.kept(signal.error))
        return self.send(Tell(signal, permit))

    def kept(self, error: str) -> str:
        """What is kept of an error: the lines that tell, on one line, without secrets."""
        same_error = self._same_error()
        if same_error is not None and same_error.fingerprint == "documented":
            return redact(error, DOCUMENTED_LENGTH)
        return redact(gist(error), LONGEST_GIST)

    # Asking

    @property
    def state(self) -> Phase:
        """CLOSED, HALF_OPEN or OPEN: a circuit that is TRIPPING is shown as HALF_OPEN."""
        return _shown(self.snapshot().phase)

    def check(self) -> Decision:
        """Whether the loop may go on. Changes nothing: ask as often as you like."""
        verdict, circuit = self._look()
        state = _shown(verdict.phase)
        if circuit.mode is Mode.HELD_OPEN:
            return Decision(False, state, verdict.reason)
        if state is Phase.CLOSED:
            return Decision(True, state, None)
        reason = decision_words(self.policy, circuit, self._now_s()) or verdict.reason
        if verdict.phase is Phase.TRIPPING:
            reason = f"{reason}: one more such iteration opens the circuit"
        elif verdict.phase is Phase.HALF_OPEN:
            reason = f"one retry after: {reason}"
        return Decision(verdict.admitted, state, reason)

    def is_tripped(self) -> bool:
        """Whether the loop must stop now; not any more when the cooldown is over."""
        return not self._look()[0].admitted

    def trip_reason(self) -> str | None:
        """Why the loop must stop, to be shown; `None` while it need not."""
        verdict, circuit = self._look()
        if verdict.admitted:
            return None
        held = circuit.mode is Mode.HELD_OPEN
        reason = None if held else trip_words(self.policy, circuit, self._now_s())
        return f"Circuit breaker tripped: {reason or verdict.reason}"

    def status(self) -> LoopStatus:
        """How the loop stands: seed 000's numbers."""
        circuit = self.snapshot()
        memories = self._memories(circuit)
        standstill, outputs = memories.get(NoProgress), memories.get(OutputDecline)
        if outputs is None and standstill is not None:
            outputs = standstill.outputs
        errors = memories.get(SameError)
        return LoopStatus(
            state=_shown(circuit.phase),
            consecutive_no_progress=None if standstill is None else standstill.iterations,
            error_counts={}
            if errors is None
            else {e.text: e.times for e in errors.seen if e.times},
            output_trend=[] if outputs is None else list(outputs.latest),
            last_progress=_date(None if standstill is None else standstill.progress_at_s),
        )

    def stats(self) -> LoopStats:
        """How the loop failed: seed 001's numbers."""
        circuit = self.snapshot()
        memories = self._memories(circuit)
        row, errors = memories.get(ConsecutiveFailures), memories.get(SameError)
        return LoopStats(
            consecutive_failures=None if row is None else failures_in_a_row(row, circuit),
            total_failures=circuit.totals.failed,
            unique_errors=None if errors is None else errors.different,
        )

    @property
    def unique_errors_exact(self) -> bool:
        """Whether `stats().unique_errors` is exact; else more came, and it is a lower bound."""
        errors = self._memories(self.snapshot()).get(SameError)
        return errors is None or not errors.forgotten

    # Steering

    def reset(self, *, by: str = "the loop", why: str = "started from scratch") -> None:
        """Forget everything and close, as when a loop is started from scratch."""
        super().reset(by=by, why=why)

    # Inside

    def _look(self) -> tuple[Verdict, Circuit]:
        verdict = self.send(TIME_PASSES)
        return verdict, self._circuit

    def _memories(self, circuit: Circuit) -> dict[type[Detector], Any]:
        pairs = zip(self.policy.detectors, circuit.memories, strict=True)
        return {type(detector): memory for detector, memory in pairs}

    def _same_error(self) -> SameError | None:
        return next((d for d in self.policy.detectors if isinstance(d, SameError)), None)


def _shown(phase: Phase) -> Phase:
    return Phase.HALF_OPEN if phase is Phase.TRIPPING else phase


def _date(at_s: float | None) -> "datetime | None":
    if at_s is None:
        return None
    from datetime import UTC, datetime  # noqa: PLC0415  a millisecond or more, and few ask

    return datetime.fromtimestamp(at_s, UTC)
