"""The loop breaker: guards the iterations of an autonomous agent with one circuit.

It has two interfaces to one mechanism. With the first, the loop records progress metrics and errors
and checks a decision; with the second, it records successes and failures, and a bool is the result.
"""

from collections.abc import Callable, Collection
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypedDict, Unpack

from switchgear._breaker.handle import TIME_PASSES, Breaker
from switchgear._core import values
from switchgear._core.detector import LAST_CHANCE, Detector
from switchgear._core.policy import Cooldown, Latched, Policy, Recovery
from switchgear._core.types import Circuit, Mode, Permit, Phase, Record, Signal, Verdict
from switchgear._detectors import ConsecutiveFailures, NoProgress, OutputDecline, SameError
from switchgear._sinks.dispatch import Sink
from switchgear._stores.base import Remembers
from switchgear._system.clock import Clock, monotonic
from switchgear._text.fingerprint import DOCUMENTED_LENGTH, gist
from switchgear._text.formats import plural
from switchgear._text.redact import redact

if TYPE_CHECKING:
    from datetime import datetime  # the import takes a millisecond or more, and is rarely needed


class LoopLimits(TypedDict, total=False):
    """The limits of a `LoopBreaker`, each as its constructor documents it."""

    consecutive_failures: int | None
    same_error: int | None
    no_progress: int | None
    output_decline_percent: float | None
    cooldown_s: float | None
    scope: str
    fingerprint: str


class LoopBreakerOptions(TypedDict, total=False):
    """The options of `LoopBreaker` other than its limits."""

    clock: Clock
    sinks: tuple[Sink, ...] | list[Sink]
    store: Remembers | None
    wall: Clock | None


CIRCUIT_OPEN = "circuit_open"
"""The exit signal of a loop that its circuit ends."""


class Dated(Protocol):
    """A `datetime`, or any object with `timestamp()`."""

    def timestamp(self) -> float:
        """Seconds since the epoch."""


class IterationMetrics(NamedTuple):
    """The measurements of one iteration; `None` means "not measured": detectors that need it abstain.

    >>> IterationMetrics(files_changed=2, tests_passing=14, output_length=1800).files_changed
    2
    """

    files_changed: int | None = None
    """Number of files changed since the start of the iteration, committed or not."""
    tests_passing: int | None = None
    output_length: int | None = None
    """Length of the output in characters."""
    timestamp: Dated | float | None = None
    """When it was measured: a `datetime`, or seconds since the epoch. Default: now."""

    def signal(self) -> Signal:
        """The metrics as a signal that is neither success nor failure."""
        at_s = self.timestamp
        return Signal(
            files_changed=self.files_changed,
            tests_passing=self.tests_passing,
            output_chars=self.output_length,
            at_s=at_s if at_s is None or isinstance(at_s, int | float) else at_s.timestamp(),
        )


class LoopDecision(NamedTuple):
    """Whether the loop may continue, with the reason for a stop or a warning."""

    allow_continue: bool
    state: Phase
    """CLOSED, HALF_OPEN (a warning: one more iteration is allowed) or OPEN."""
    reason: str | None
    """`None` if there is neither a stop nor a warning."""

    @property
    def exit_signal(self) -> str | None:
        """`"circuit_open"` when the loop must end, for its coordinator; else `None`."""
        return None if self.allow_continue else CIRCUIT_OPEN


class LoopStatus(NamedTuple):
    """Progress, errors and outputs of a loop."""

    state: Phase
    consecutive_no_progress: int | None
    """Iterations in a row without progress; `None`: no detector counts them."""
    error_counts: dict[str, int]
    """Number of occurrences of each error, by its first text."""
    output_trend: list[int]
    """The lengths of the latest outputs, oldest first."""
    last_progress: "datetime | None"
    """When the last progress was measured, in UTC; `None`: unknown."""


class LoopStats(NamedTuple):
    """Counts of failures in a loop. A field is `None` if no detector counts it."""

    consecutive_failures: int | None
    total_failures: int
    unique_errors: int | None
    """Number of different errors; `LoopBreaker.unique_errors_exact` is true if all are counted."""


_FAILURE_LIMITS = frozenset({"consecutive_failures", "same_error"})


class LimitsInEffect(NamedTuple):
    """The limits of a loop that are in effect if only some of them were set; `None`: not checked.

    A limit that was set takes precedence over the defaults of the others: with
    `consecutive_failures=8`, failing iterations do not stop the loop after four of them because they
    change no file.
    """

    consecutive_failures: int | None = 3
    same_error: int | None = 5
    no_progress: int | None = 3
    output_decline_percent: float | None = 70.0
    standstill_ignores_failures: bool = False
    output_ignores_failures: bool = False
    output_ignores_standstill: bool = False

    def signal(self, signal: Signal, *, failed: bool) -> Signal:
        """The signal without the facts that must not count for detectors with default limits."""
        progress = bool(signal.files_changed)
        if failed and not progress and self.standstill_ignores_failures:
            signal = signal._replace(files_changed=None, tests_passing=None)
        if (failed and self.output_ignores_failures) or (
            signal.files_changed == 0 and self.output_ignores_standstill
        ):
            signal = signal._replace(output_chars=None)
        return signal

    @classmethod
    def of(cls, *limits: float | None) -> "LimitsInEffect":
        """The limits in effect if those that differ from their defaults were set.

        >>> LimitsInEffect.of(8, 5, 3, 70.0)[:3]
        (8, 8, 3)
        """
        given = cls(*limits)  # type: ignore[arg-type]
        usual = cls._field_defaults
        off = {name for name in (*_FAILURE_LIMITS, "no_progress") if getattr(given, name) is None}
        differing = [name for name in cls._fields if getattr(given, name) != usual[name]]
        return given.with_set([name for name in differing if name not in off])

    def with_set(self, chosen: Collection[str]) -> "LimitsInEffect":
        """The limits in effect if those in `chosen` were set and the others are defaults.

        >>> LimitsInEffect(consecutive_failures=8).with_set({"consecutive_failures"})[:3]
        (8, 8, 3)
        """
        failures_set, standstill_set = bool(_FAILURE_LIMITS & set(chosen)), "no_progress" in chosen
        return self._replace(
            consecutive_failures=self._raise_limit("consecutive_failures", chosen),
            same_error=self._raise_limit("same_error", chosen),
            standstill_ignores_failures=failures_set and not standstill_set,
            output_ignores_failures=failures_set and "output_decline_percent" not in chosen,
            output_ignores_standstill=standstill_set and "output_decline_percent" not in chosen,
        )

    def _raise_limit(self, name: str, chosen: Collection[str]) -> int | None:
        """The limit called `name`; a default is raised to the highest limit that was set."""
        value: int | None = getattr(self, name)
        if value is None or name in chosen:
            return value
        set_limits: list[int | None] = [
            getattr(self, other) for other in _FAILURE_LIMITS & set(chosen)
        ]
        if "no_progress" in chosen and self.no_progress is not None:
            set_limits.append(self.no_progress + 1)  # it warns first, and stops after one more
        return max([value, *(limit for limit in set_limits if limit is not None)])


def loop_policy(
    *,
    consecutive_failures: int | None = 3,
    same_error: int | None = 5,
    no_progress: int | None = 3,
    output_decline_percent: float | None = 70.0,
    cooldown_s: float | None = 30.0,
    scope: str = "total",
    fingerprint: str = "default",
) -> Policy:
    """The policy of `LoopBreaker` with these arguments: `None` leaves a detector out.

    A limit that has its default value is raised to the highest limit that was set. `cooldown_s` is the
    wait in seconds before one retry, the same after each failed retry; `None`: the circuit stays open
    until it is reset. The circuit is TRIPPING when one more iteration like the last would open it
    because of missing progress or declining output. Failures and errors open it without this warning.
    """
    limits = LimitsInEffect.of(
        consecutive_failures, same_error, no_progress, output_decline_percent
    )
    return policy_of_limits(limits, cooldown_s, scope, fingerprint)


def policy_of_limits(
    limits: LimitsInEffect,
    cooldown_s: float | None = 30.0,
    scope: str = "total",
    fingerprint: str = "default",
) -> Policy:
    """The policy of a loop with exactly these limits."""
    consecutive_failures, same_error, no_progress, output_decline_percent = limits[:4]
    share = 0.7
    if output_decline_percent is not None:
        percent = values.check_positive(
            "LoopBreaker.output_decline_percent", output_decline_percent
        )
        if percent > 100:
            raise ValueError(
                f"LoopBreaker.output_decline_percent is {output_decline_percent!r}: "
                "it must not be above 100"
            )
        share = percent / 100
    detectors: list[Detector] = []
    if consecutive_failures is not None:
        detectors.append(ConsecutiveFailures(consecutive_failures))
    if same_error is not None:
        detectors.append(SameError(same_error, scope, fingerprint))
    if no_progress is not None:
        detectors.append(NoProgress(no_progress, share))
    if output_decline_percent is not None:
        detectors.append(OutputDecline(share))
    watches = no_progress is not None or output_decline_percent is not None
    return Policy(
        detectors,
        Latched() if cooldown_s is None else _one_retry(cooldown_s),
        tripping_at=LAST_CHANCE if watches else None,
    )


def _one_retry(cooldown_s: float) -> Recovery:
    wait_s = values.check_seconds("LoopBreaker.cooldown_s", cooldown_s)
    # The default lease would be the wait, and an iteration of an agent takes longer.
    return Cooldown(wait_s, max_s=wait_s, lease_s=max(wait_s, 3600.0))


def failures_in_a_row(row: int, circuit: Circuit) -> int:
    """Number of failures in a row, including failed retries, which are not in the detector's memory."""
    return row + circuit.outage.failed_probes


def _error_count(detector: SameError, memory: Any) -> str:
    worst = detector.worst(memory)
    times = plural(0 if worst is None else worst.times, "time")
    return f"Same error repeated {times} (threshold: {detector.threshold})"


def _error_text(detector: SameError, memory: Any) -> str:
    worst = detector.worst(memory)
    text = "" if worst is None else worst.text
    return f'Same error repeated {plural(detector.threshold, "time")}: "{text}"'


LONGEST_GIST = 600
"""Maximum characters kept of an error: about forty words."""


class LoopBreaker(Breaker):
    """Stops a loop that fails, repeats an error, makes no progress or produces less and less output.

    - `consecutive_failures` (3): iterations that failed in a row.
    - `same_error` (5): occurrences of one error, by its `fingerprint` (`"default"` or
      `"documented"`), in total or, with `scope="consecutive"`, in a row.
    - `no_progress` (3): iterations in a row without measured progress; one more trips.
    - `output_decline_percent` (70): output under this share of its baseline, twice in a row.
    - `cooldown_s` (30.0): seconds before one retry; `None`: open until `reset()`.
    - `policy`: any policy instead of all these.
    - `clock`, `sinks`, `store`, `wall`: as for `CircuitBreaker`.

    Each of the first four may be `None`, which leaves it out. A limit that differs from its default
    takes precedence over the defaults of the others: failed iterations then do not count as missing
    progress, and the other limits are at least as high. A measurement that is recorded without an
    outcome belongs to the outcome recorded before it.

    `LoopBreaker.for_stagnation(name)` detects missing progress, `LoopBreaker.for_failures(name)`
    detects failures. Errors are redacted before they are stored. Raises ValueError when an argument is
    out of range. Thread-safe, task-safe, fork-safe; pickles with its state.

    >>> breaker = LoopBreaker("loop/7f3a")
    >>> [breaker.record_failure("no such table: users") for _ in range(3)]
    [False, False, True]
    >>> breaker.trip_reason()
    'Circuit breaker tripped: 3 consecutive failures (threshold: 3)'
    """

    __slots__ = ("_failed", "_given_limits", "_limits")

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
        given_limits: LoopLimits = {
            "consecutive_failures": consecutive_failures,
            "same_error": same_error,
            "no_progress": no_progress,
            "output_decline_percent": output_decline_percent,
            "cooldown_s": cooldown_s,
            "scope": scope,
            "fingerprint": fingerprint,
        }
        given = loop_policy(**given_limits)
        self._given_limits: LoopLimits | None = None
        self._limits = LimitsInEffect.of()
        self._failed = False
        """Whether the last recorded outcome was a failure."""
        if policy is None:
            policy, self._given_limits = given, given_limits
            self._limits = LimitsInEffect.of(
                consecutive_failures, same_error, no_progress, output_decline_percent
            )
        elif given != loop_policy():
            raise ValueError(
                "LoopBreaker.policy is given, together with limits of its own: set them in the policy "
                "instead"
            )
        super().__init__(name, policy, clock=clock, sinks=sinks, store=store, wall=wall)

    @classmethod
    def for_stagnation(
        cls,
        name: str,
        no_progress: int = 3,
        same_error: int = 5,
        output_decline_percent: float = 70.0,
        **options: Unpack[LoopBreakerOptions],
    ) -> Self:
        """A breaker that stops a loop without progress, after a warning, and stays open until `reset()`."""
        policy = loop_policy(
            consecutive_failures=None,
            same_error=same_error,
            no_progress=no_progress,
            output_decline_percent=output_decline_percent,
            cooldown_s=None,
        )
        return cls(name, policy=policy, **options)

    @classmethod
    def for_failures(
        cls,
        name: str,
        consecutive_failures: int = 3,
        same_error: int = 5,
        cooldown_s: float = 30.0,
        **options: Unpack[LoopBreakerOptions],
    ) -> Self:
        """A breaker that stops a failing loop; after `cooldown_s` seconds, one retry decides."""
        policy = loop_policy(
            consecutive_failures=consecutive_failures,
            same_error=same_error,
            no_progress=None,
            output_decline_percent=None,
            cooldown_s=cooldown_s,
        )
        return cls(name, policy=policy, **options)

    # Recording

    def record_progress(self, metrics: IterationMetrics) -> None:
        """Record the measurements of an iteration; the detectors decide whether it made progress."""
        self.record(metrics.signal())

    async def arecord_progress(self, metrics: IterationMetrics) -> None:
        """`record_progress` without blocking the event loop."""
        await self.arecord(metrics.signal())

    def record_error(self, error: str) -> None:
        """Record the error that an iteration ended with; it counts as a failure."""
        self.record_failure(error)

    async def arecord_error(self, error: str) -> None:
        """`record_error` without blocking the event loop."""
        await self.arecord_failure(error)

    def record_success(self) -> None:
        """Record a success: ends a row of failures, keeps the history of errors."""
        self.record(Signal(ok=True))

    async def arecord_success(self) -> None:
        """`record_success` without blocking the event loop."""
        await self.arecord(Signal(ok=True))

    def record_failure(self, error: str) -> bool:
        """Record a failure. Returns whether the circuit is tripped now."""
        return not self.record(Signal(ok=False, error=error)).admitted

    async def arecord_failure(self, error: str) -> bool:
        """`record_failure` without blocking the event loop."""
        return not (await self.arecord(Signal(ok=False, error=error))).admitted

    def record(self, signal: Signal, permit: Permit | None = None) -> Verdict:
        """Record all facts of one iteration at once; its error is stored in the form of `kept`."""
        return self.send(Record(self._with_time(signal), permit))

    async def arecord(self, signal: Signal, permit: Permit | None = None) -> Verdict:
        """`record` without blocking the event loop."""
        return await self.asend(Record(self._with_time(signal), permit))

    def _with_time(self, signal: Signal) -> Signal:
        if signal.ok is not None:
            self._failed = not signal.ok
        failed = self._failed
        if (signal.files_changed, signal.tests_passing, signal.output_chars) != (None, None, None):
            self._failed = False  # a measurement belongs to the one outcome before it
        signal = self._limits.signal(signal, failed=failed)
        if signal.at_s is None and signal.count:
            signal = signal._replace(at_s=time())
        if signal.error is not None:
            signal = signal._replace(error=self.kept(signal.error))
        return signal

    def kept(self, error: str) -> str:
        """The form in which an error is stored: its significant lines as one line, redacted."""
        same_error = self._same_error()
        if same_error is not None and same_error.fingerprint == "documented":
            return redact(error, DOCUMENTED_LENGTH)
        return redact(gist(error), LONGEST_GIST)

    # Reading: all but `state` query the store

    @property
    def state(self) -> Phase:
        """CLOSED, HALF_OPEN or OPEN: a circuit that is TRIPPING is shown as HALF_OPEN. No I/O."""
        return _displayed_phase(self._current_circuit().phase)

    def check(self) -> LoopDecision:
        """Whether the loop may continue. Changes nothing."""
        return self._decision(self.send(TIME_PASSES))

    async def acheck(self) -> LoopDecision:
        """`check` without blocking the event loop."""
        return self._decision(await self.asend(TIME_PASSES))

    def is_tripped(self) -> bool:
        """Whether the loop must stop now; false once the cooldown is over."""
        return not self.send(TIME_PASSES).admitted

    async def ais_tripped(self) -> bool:
        """`is_tripped` without blocking the event loop."""
        return not (await self.asend(TIME_PASSES)).admitted

    def trip_reason(self) -> str | None:
        """Why the loop must stop, for display; `None` while it may continue."""
        return self._trip_reason(self.send(TIME_PASSES))

    async def atrip_reason(self) -> str | None:
        """`trip_reason` without blocking the event loop."""
        return self._trip_reason(await self.asend(TIME_PASSES))

    def status(self) -> LoopStatus:
        """Progress, errors and outputs so far."""
        return self._status(self.snapshot())

    async def astatus(self) -> LoopStatus:
        """`status` without blocking the event loop."""
        await self.arefresh()
        return self._status(self._circuit)

    def stats(self) -> LoopStats:
        """Failures so far."""
        return self._stats(self.snapshot())

    async def astats(self) -> LoopStats:
        """`stats` without blocking the event loop."""
        await self.arefresh()
        return self._stats(self._circuit)

    @property
    def unique_errors_exact(self) -> bool:
        """Whether `stats().unique_errors` is exact; else it is a lower bound. No I/O."""
        errors = self._memories(self._current_circuit()).get(SameError)
        return errors is None or not errors.forgotten

    # Overrides

    def reset(self, *, by: str = "the loop", why: str = "started from scratch") -> None:
        """Discard all evidence and close, as for a new loop."""
        super().reset(by=by, why=why)
        self._failed = False

    async def areset(self, *, by: str = "the loop", why: str = "started from scratch") -> None:
        """`reset` without blocking the event loop."""
        await super().areset(by=by, why=why)
        self._failed = False

    # Internals

    def _config(self) -> dict[str, Any]:
        config = super()._config()
        if self._given_limits is None:
            return config
        del config["policy"]
        return {**config, **self._given_limits}

    def _decision(self, verdict: Verdict) -> LoopDecision:
        circuit, state = self._circuit, _displayed_phase(verdict.phase)
        if circuit.mode is Mode.HELD_OPEN:
            return LoopDecision(False, state, verdict.reason)
        if state is Phase.CLOSED:
            return LoopDecision(True, state, None)
        reason = self._describe_cause(_error_text) or verdict.reason
        if verdict.phase is Phase.TRIPPING:
            reason = f"{reason}: one more such iteration opens the circuit"
        elif verdict.phase is Phase.HALF_OPEN:
            reason = f"one retry after: {reason}"
        return LoopDecision(verdict.admitted, state, reason)

    def _trip_reason(self, verdict: Verdict) -> str | None:
        if verdict.admitted:
            return None
        held = self._circuit.mode is Mode.HELD_OPEN
        reason = None if held else self._describe_cause(_error_count)
        return f"Circuit breaker tripped: {reason or verdict.reason}"

    def _describe_cause(self, same_error: Callable[[SameError, Any], str]) -> str | None:
        """The evidence of the first detector that trips or, while the circuit is TRIPPING, may trip next."""
        circuit, now_s = self._circuit, self._now_s()
        needed = LAST_CHANCE if circuit.phase is Phase.TRIPPING else 1.0
        for detector, memory in zip(self.policy.detectors, circuit.memories, strict=True):
            if detector.heat(memory, now_s) < needed:
                continue
            if isinstance(detector, SameError):
                return same_error(detector, memory)
            if isinstance(detector, ConsecutiveFailures):
                row = plural(failures_in_a_row(memory, circuit), "consecutive failure")
                return f"{row} (threshold: {detector.threshold})"
            if isinstance(detector, NoProgress):
                row = plural(memory.iterations, "iteration")
                return f"No progress in {row} (threshold: {detector.threshold})"
            reason = detector.reason(memory, now_s)
            return f"Output declined: {reason}" if isinstance(detector, OutputDecline) else reason
        return None

    def _status(self, circuit: Circuit) -> LoopStatus:
        memories = self._memories(circuit)
        standstill, outputs = memories.get(NoProgress), memories.get(OutputDecline)
        if outputs is None and standstill is not None:
            outputs = standstill.outputs
        errors = memories.get(SameError)
        return LoopStatus(
            state=_displayed_phase(circuit.phase),
            consecutive_no_progress=None if standstill is None else standstill.iterations,
            error_counts={}
            if errors is None
            else {e.text: e.times for e in errors.seen if e.times},
            output_trend=[] if outputs is None else list(outputs.latest),
            last_progress=_date(None if standstill is None else standstill.progress_at_s),
        )

    def _stats(self, circuit: Circuit) -> LoopStats:
        memories = self._memories(circuit)
        row, errors = memories.get(ConsecutiveFailures), memories.get(SameError)
        return LoopStats(
            consecutive_failures=None if row is None else failures_in_a_row(row, circuit),
            total_failures=circuit.totals.failed,
            unique_errors=None if errors is None else errors.different,
        )

    def _memories(self, circuit: Circuit) -> dict[type[Detector], Any]:
        pairs = zip(self.policy.detectors, circuit.memories, strict=True)
        return {type(detector): memory for detector, memory in pairs}

    def _same_error(self) -> SameError | None:
        return next((d for d in self.policy.detectors if isinstance(d, SameError)), None)


def _displayed_phase(phase: Phase) -> Phase:
    return Phase.HALF_OPEN if phase is Phase.TRIPPING else phase


def _date(at_s: float | None) -> "datetime | None":
    if at_s is None:
        return None
    from datetime import UTC, datetime  # noqa: PLC0415  the import takes a millisecond or more, and is rarely needed

    return datetime.fromtimestamp(at_s, UTC)
