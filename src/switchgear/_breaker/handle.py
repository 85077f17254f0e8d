"""The breaker: one circuit with its policy, store, clock and sinks, in one process.

Most calls are admitted or refused according to the last known state, without a lock and without I/O;
their successes and refusals are counted and recorded later. Everything else is a message to the store.
"""

import math
from collections import deque
from collections.abc import Iterator
from itertools import repeat
from operator import length_hint
from time import sleep
from typing import Any, NamedTuple, Self

from switchgear._breaker.nesting import probe_around
from switchgear._breaker.signals import (
    check_message,
    check_probes,
    checked_permit,
    redacted,
)
from switchgear._breaker.tickets import (
    FOLD_EVERY_S,
    MOST_TIMES,
    NO_MARK,
    UNLIMITED,
    WARM_S,
    SharedEvidence,
    SuccessRun,
    dates,
    isolation_reason,
    this_process,
)
from switchgear._core import values
from switchgear._core.errors import Refusal, Rejected, StoreError
from switchgear._core.evidence import (
    FLOWING,
    HOLD_S,
    LIVE_S,
    is_final,
    is_pending,
    is_summary,
    others,
)
from switchgear._core.machine import count_only, refuses_until_s, standing, step
from switchgear._core.policy import Policy, counts_calls, needs_successes
from switchgear._core.types import (
    Acquire,
    Circuit,
    DatedRecord,
    EventKind,
    Message,
    Mode,
    Override,
    Permit,
    Phase,
    Reading,
    Record,
    ReportSource,
    Signal,
    Step,
    Totals,
    Verdict,
)
from switchgear._sinks.dispatch import (
    Call,
    CallHook,
    CallOutcome,
    Sink,
    checked_sinks,
    emit,
    log_warning,
    report,
)
from switchgear._sinks.log import log_events
from switchgear._stores.base import Remembers, was_committed
from switchgear._stores.fallback import EVERY_S
from switchgear._stores.memory import MemoryCell
from switchgear._system.clock import Clock, Shifted, monotonic
from switchgear._system.threads import ForkSafeLock

TIME_PASSES = Record(Signal(count=0))
NO_REFUSALS = repeat(None, 0)
_FIRST_PERMIT = Permit(1)
"""The permit of every circuit that has never opened; shared to save memory."""
_deferred: "deque[tuple[Breaker, Message]]" = deque()
"""Messages of finalizers and signal handlers that arrived while a message was being applied."""


class Times(NamedTuple):
    """Times that were computed before the lock was acquired, because clocks are user code."""

    due_s: float
    """When, on the breaker's clock, the run must be folded and the snapshot read again."""
    ahead_s: float
    """Seconds by which the breaker's clock is ahead of the circuit's."""
    reread_s: float
    """When, on the breaker's clock, the snapshot must be read again because changes are not pushed."""


class Breaker:
    """A circuit that guards calls.

    Thread-safe, task-safe, fork-safe; no lock is held during user code. `name` is the name of the
    circuit; `policy` decides when it trips; `clock` returns seconds and never runs backwards;
    `sinks` are called with each `Event`, in order within a thread. `store` and `wall` come from a
    `Panel`, which shares circuits between processes.
    """

    __slots__ = (
        "__weakref__",
        "_checks_results",
        "_circuit",
        "_clock",
        "_counts_calls",
        "_fast",
        "_lock",
        "_on_call",
        "_probe_refusal",
        "_refusal",
        "_refusals",
        "_refusals_folded",
        "_refuse_until_s",
        "_run",
        "_shared",
        "_slow_from_s",
        "_store",
        "_timed",
        "_wall",
        "name",
        "policy",
        "sinks",
    )

    def __init__(
        self,
        name: str,
        policy: Policy,
        *,
        clock: Clock = monotonic,
        sinks: tuple[Sink, ...] | list[Sink] = (),
        store: Remembers | None = None,
        wall: Clock | None = None,
        checks_results: bool = False,
    ) -> None:
        owner = type(self).__name__
        name = values.check_text(f"{owner}.name", name)
        if not isinstance(policy, Policy):
            raise ValueError(f"{owner}.policy is {policy!r}: it must be a Policy")
        if not callable(clock):
            raise ValueError(
                f"{owner}.clock is {clock!r}: it must be a callable that returns seconds"
            )
        values.check_number(f"{owner}.clock()", clock())
        if store is not None and not callable(getattr(store, "apply", None)):
            raise ValueError(
                f"{owner}.store is {store!r}: it must be a store; for a shared one use "
                "Panel(url).breaker(name)"
            )
        if wall is not None and not callable(wall):
            raise ValueError(
                f"{owner}.wall is {wall!r}: it must be a callable that returns seconds"
            )
        self.name: str = name
        self._clock = clock
        self._wall = wall
        self.sinks: tuple[Sink, ...] = checked_sinks(f"{owner}.sinks", sinks)
        self._on_call: tuple[CallHook, ...] = ()
        self._checks_results = checks_results
        self._lock: ForkSafeLock
        if store is None:
            store = self._lock = MemoryCell()
        else:
            self._lock = ForkSafeLock()
        self._store: Remembers = store
        self._fast: SuccessRun | None = None
        """The run, if a call needs neither clock nor predicate; else `None`."""
        self._timed: SuccessRun | None = None
        """The run, if a call needs only the clock; else `None`."""
        self._run: SuccessRun | None = None
        """Counts the successes while the circuit is closed; `None` while it is not."""
        self._refusal: Refusal | None = None
        """The refusal of every call until `_refuse_until_s`; `None`: a call may be admitted."""
        self._probe_refusal: Refusal | None = None
        """The refusal because of running probes: for all callers except those inside a probe."""
        self._refuse_until_s = 0.0
        self._refusals: Iterator[None] = NO_REFUSALS
        """Each refusal takes an item, which is atomic and needs no lock; the missing items are the count."""
        self._refusals_folded = 0
        self._shared: SharedEvidence | None = None
        """Evidence that this process has not reported yet, if other processes share the circuit."""
        self._apply_policy(policy)
        self._circuit = policy.start(self.name, self._now_s())
        self._set_snapshot(self._circuit, self._times())

    def _apply_policy(self, policy: Policy) -> None:
        self.policy: Policy = policy
        self._slow_from_s = policy.slow_from_s
        self._counts_calls = counts_calls(policy)
        is_shared = self._wall is not None and getattr(self._store, "process", None) is not None
        if not is_shared or not needs_successes(policy):
            self._shared = None
        elif self._shared is None:
            self._shared = SharedEvidence(self._store)

    def add_sink(self, sink: Sink) -> None:
        """Send events to one more sink from now on. Raises ValueError if it cannot be called."""
        self.sinks = (*self.sinks, *checked_sinks("sink", [sink]))

    # Reading

    @property
    def state(self) -> Phase:
        """The last known phase; a cooldown that is over shows as half-open.

        No I/O: call `refresh()` or `arefresh()` first to include what other processes did.
        """
        return self._current_circuit().phase

    @property
    def last_known(self) -> Circuit:
        """The circuit as this process last received it, without unreported calls. No I/O."""
        return self._circuit

    @property
    def mode(self) -> Mode:
        """The operator's override; a hold whose time is over shows as auto. No I/O."""
        order = self._circuit.order
        if order is not None and order.until_s is not None:
            return self._current_circuit().mode
        return self._circuit.mode

    @property
    def heat(self) -> float:
        """The heat of the known evidence: 0 is calm, 1 trips. No I/O."""
        return self.policy.heat(self._current_circuit().memories, self._now_s())

    @property
    def totals(self) -> Totals:
        """Counts of everything recorded, including the unreported calls of this process. No I/O."""
        return self._current_circuit().totals

    def readings(self) -> dict[str, Reading]:
        """The reading of each detector, by its kind: `failure_rate`, and `failure_rate#2`. No I/O."""
        # Imported late: most programs never read them.
        from switchgear._core.wire import detector_names  # noqa: PLC0415

        readings = self.policy.readings(self._current_circuit().memories, self._now_s())
        return dict(zip(detector_names(self.policy), readings, strict=True))

    def snapshot(self) -> Circuit:
        """Refresh, and return the circuit; every finished call is recorded and stored."""
        self.refresh()
        return self._circuit

    async def asnapshot(self) -> Circuit:
        """`snapshot` without blocking the event loop."""
        await self.arefresh()
        return self._circuit

    def _current_circuit(self) -> Circuit:
        """The circuit now, including unreported counts of this process and the time that has passed.

        A circuit of this process alone changes its phase immediately. For a shared circuit the
        result is computed from the last known state, without I/O and without a transition.
        """
        if self._wall is None:
            return self.snapshot()
        circuit, now_s, run = self._circuit, self._now_s(), self._run
        try:
            if run is not None and (count := run.pending):
                circuit = step(
                    self.policy, circuit, Record(self._success(count), run.permit), now_s
                )[0]
            if self._refusals is not NO_REFUSALS and (refused := self._new_refusals()):
                unreported = Record(Signal(count=0, refused=refused))
                circuit = step(self.policy, circuit, unreported, now_s)[0]
            return step(self.policy, circuit, TIME_PASSES, now_s)[0]
        except (AttributeError, TypeError, ValueError):
            # Pushed by a process whose policy has other detectors; the next message converts it.
            return self._circuit

    # Acquire and record

    def enter(self) -> Permit:
        """Acquire a permit for one call; pass it to `record` with the result. Raises `Rejected`."""
        run, shared = self._run, self._shared
        failed = shared is not None and shared.failure_mark() > shared.failed_s
        if self._wall is not None and run is not None and (failed or self._clock() >= run.due_s):
            run = self._fresh_run()
        return self._acquire_permit() if run is None else run.permit

    def known_permit(self) -> Permit | None:
        """A permit according to the last known state, without I/O; `None`: acquire one with `enter`.

        For callers that pass changes of the store to `adopt` themselves.
        """
        run = self._run
        if run is not None and self._polls:
            self._notice_failures()
            run = self._run
        return None if run is None else run.permit

    def record(self, signal: Signal, permit: Permit | None = None) -> Verdict:
        """Record a result; secrets in its error text are redacted.

        A signal with `ok=None` returns the permit unused.
        """
        message = Record(redacted(signal), checked_permit(permit))
        if self._shared is not None:
            return self._send_shared(self._shared, message)
        self._fold_pending()
        return self._apply(message)

    def send(self, message: Message) -> Verdict:
        """Send a message to the circuit unchanged, after the unreported counts. Returns the verdict."""
        check_message(message)
        if self._shared is not None:
            return self._send_shared(self._shared, message)
        self._fold_pending()
        return self._apply(message)

    async def aenter(self) -> Permit:
        """`enter` without blocking the event loop."""
        run = await self._afresh_run()
        return await self._aacquire_permit() if run is None else run.permit

    async def arecord(self, signal: Signal, permit: Permit | None = None) -> Verdict:
        """`record` without blocking the event loop."""
        return await self._areport(Record(redacted(signal), checked_permit(permit)))

    async def asend(self, message: Message) -> Verdict:
        """`send` without blocking the event loop."""
        check_message(message)
        return await self._areport(message)

    def flush(self) -> None:
        """Report the counts that were not reported yet."""
        self._fold_pending()

    @property
    def is_unknown_to_others(self) -> bool:
        """Whether this process has counts that are overdue for a report."""
        shared, run = self._shared, self._run
        if shared is None or run is None or not run.is_pending:
            return False
        return self._clock() - shared.submitted_s >= LIVE_S

    @property
    def isolation(self) -> str | None:
        """Why this process is isolated, in words; `None`: it is not.

        A process is isolated while its own calls fail and those of other processes succeed: it refuses
        its calls although the shared circuit is closed.
        """
        shared = self._shared
        if shared is None or shared.own is None or not shared.is_isolated(self._circuit):
            return None
        return isolation_reason(shared.own.outage.reason)

    def adopt(self, circuit: Circuit) -> None:
        """Use a newer state that a shared store pushed."""
        unreported = self._adopt(circuit)
        if unreported is not None:
            self._apply(unreported)

    def refresh(self) -> None:
        """Report the unreported counts, and read from the store what other processes did."""
        self._fold_pending()
        self._apply(TIME_PASSES)

    async def arefresh(self) -> None:
        """`refresh` without blocking the event loop."""
        await self._afold_pending()
        await self._aapply(TIME_PASSES)

    def advance(self) -> None:
        """Advance the time if a cooldown, a hold or a probe's lease is over; costs nothing otherwise."""
        circuit = self._circuit
        order = circuit.order
        moments = [circuit.outage.retry_at_s, None if order is None else order.until_s]
        moments += [permit.lease_until_s for permit in circuit.probing.permits]
        now_s = self._now_s()
        if any(at_s is not None and at_s <= now_s for at_s in moments):
            self.snapshot()

    def set_policy(self, policy: Policy) -> None:
        """Use another policy from now on; the phase and the evidence of common detectors are kept.

        For breakers of a panel, whose store adapts the evidence to the policy. Raises ValueError for
        a breaker without a panel.
        """
        if self._wall is None:
            raise ValueError(
                f"circuit {self.name!r} belongs to no panel: create a new breaker instead"
            )
        self._fold_pending()
        self._apply_policy(policy)
        self._apply(TIME_PASSES)

    # Overrides

    def hold_open(self, *, by: str, why: str, for_s: float | None = None) -> None:
        """Refuse every call, regardless of the evidence.

        The hold ends after `for_s` seconds, when the evidence decides again; default: with `release`.
        """
        self.send(self._override(by, why, Mode.HELD_OPEN, for_s))

    async def ahold_open(self, *, by: str, why: str, for_s: float | None = None) -> None:
        """`hold_open` without blocking the event loop."""
        await self.asend(self._override(by, why, Mode.HELD_OPEN, for_s))

    def hold_closed(self, *, by: str, why: str, for_s: float | None = None) -> None:
        """Admit every call, regardless of the evidence; `for_s` as for `hold_open`."""
        self.send(self._override(by, why, Mode.HELD_CLOSED, for_s))

    async def ahold_closed(self, *, by: str, why: str, for_s: float | None = None) -> None:
        """`hold_closed` without blocking the event loop."""
        await self.asend(self._override(by, why, Mode.HELD_CLOSED, for_s))

    def shadow(self, *, by: str, why: str, for_s: float | None = None) -> None:
        """Admit everything, and count what would have been refused; `for_s` as for `hold_open`."""
        self.send(self._override(by, why, Mode.SHADOW, for_s))

    async def ashadow(self, *, by: str, why: str, for_s: float | None = None) -> None:
        """`shadow` without blocking the event loop."""
        await self.asend(self._override(by, why, Mode.SHADOW, for_s))

    def release(self, *, by: str, why: str) -> None:
        """Let the evidence decide again."""
        self.send(self._override(by, why, Mode.AUTO))

    async def arelease(self, *, by: str, why: str) -> None:
        """`release` without blocking the event loop."""
        await self.asend(self._override(by, why, Mode.AUTO))

    def reset(self, *, by: str, why: str) -> None:
        """Discard all evidence and close; a hold stays until it is released."""
        self.send(self._override(by, why, reset=True))

    async def areset(self, *, by: str, why: str) -> None:
        """`reset` without blocking the event loop."""
        await self.asend(self._override(by, why, reset=True))

    def probe_now(self, *, by: str, why: str) -> None:
        """Admit a probe on an open circuit now, before its cooldown ends; otherwise do nothing.

        Raises ValueError if the policy recovers without probes.
        """
        check_probes(self.name, self.policy)
        self.send(self._override(by, why, probe=True))

    async def aprobe_now(self, *, by: str, why: str) -> None:
        """`probe_now` without blocking the event loop."""
        check_probes(self.name, self.policy)
        await self.asend(self._override(by, why, probe=True))

    def _override(
        self,
        by: str,
        why: str,
        mode: Mode | None = None,
        for_s: float | None = None,
        *,
        reset: bool = False,
        probe: bool = False,
    ) -> Override:
        until_s = None if for_s is None else self._now_s() + values.check_seconds("for_s", for_s)
        by, why = values.check_text("by", by), values.check_text("why", why)
        return Override(by, why, mode, reset, until_s=until_s, probe=probe)

    # Pickling

    def _config(self) -> dict[str, Any]:
        """The arguments that create a breaker like this one."""
        config: dict[str, Any] = {
            "name": self.name,
            "policy": self.policy,
            "clock": self._clock.clock if isinstance(self._clock, Shifted) else self._clock,
            "sinks": self.sinks,
        }
        return config if self._wall is None else {**config, "store": self._store}

    @classmethod
    def _restore(cls, config: dict[str, Any], circuit: Circuit, now_s: float) -> Self:
        """A breaker in the state in which it was pickled; its clock continues from there."""
        store: Any = config.get("store")
        if store is not None:
            shared = cls(**config, wall=store.now_s)
            shared.refresh()
            return shared
        breaker = cls(**config)
        by_s = now_s - breaker._clock()
        if by_s:
            breaker._clock = Shifted(breaker._clock, by_s)
        if isinstance(breaker._store, MemoryCell):
            breaker._store.restore(circuit)
        breaker._adopt(circuit)
        return breaker

    def __reduce__(self) -> tuple[Any, ...]:
        return self._restore, (self._config(), self.snapshot(), self._now_s())

    def __repr__(self) -> str:
        circuit = self._circuit
        return f"<{type(self).__name__} {self.name!r} {circuit.phase} mode={circuit.mode}>"

    # Time

    def _now_s(self) -> float:
        """The time now, on the circuit's clock."""
        return self._clock() if self._wall is None else self._wall()

    def _times(self) -> Times:
        """The clock readings for a snapshot; read first, because clocks are user code."""
        now_s, refresh_s = self._clock(), self._store.refresh_s
        limits = [] if self._slow_from_s is None else [FOLD_EVERY_S, self._slow_from_s]
        if refresh_s is not None or self._store.pushes:
            limits.append(FOLD_EVERY_S if refresh_s is None else refresh_s)
        due_s = now_s + min(limits) if limits else math.inf
        if self._wall is None:
            return Times(due_s, 0.0, math.inf)
        return Times(due_s, now_s - self._wall(), math.inf if refresh_s is None else due_s)

    @property
    def _polls(self) -> bool:
        """Whether the snapshot must be read periodically, because changes are not pushed."""
        return self._wall is not None and self._store.refresh_s is not None

    # The snapshot

    def _set_snapshot(self, circuit: Circuit, times: Times) -> SuccessRun | None:
        """Set the fields that the fast paths read; return the run that this replaces, if any."""
        run, shared = self._run, self._shared
        closed = circuit.phase is Phase.CLOSED and circuit.mode is not Mode.HELD_OPEN
        if shared is not None and shared.isolated and shared.is_isolated(circuit):
            self._set_run(None)
            if self._refusals is NO_REFUSALS:
                self._refusals = repeat(None, UNLIMITED)
            self._probe_refusal, self._refusal = None, self._isolation(times)
            return run
        # A strict policy reads a shared store before it admits or refuses a call.
        always_reads = self.policy.strict and self._wall is not None
        if closed and not always_reads:
            most = self._ticket_limit(circuit)
            if run is not None and run.permit.generation == circuit.generation:
                if run.fits(most):
                    self._set_run(run, times)  # again: pushes may have started or stopped
                    return None
                # The new run takes over the counts of this one.
                self._set_run(SuccessRun(run.permit, run.due_s, 0))
                return run
            self._refusal = self._probe_refusal = None
            first = circuit.generation == _FIRST_PERMIT.generation
            permit = _FIRST_PERMIT if first else Permit(circuit.generation)
            self._set_run(SuccessRun(permit, times.due_s, most))
            return run
        self._set_run(None)
        if self._refusals is NO_REFUSALS:
            self._refusals = repeat(None, UNLIMITED)  # set first: a refusal must find it to count
        refusal = None if always_reads else self._standing_refusal(circuit, times)
        probing = circuit.phase is Phase.HALF_OPEN and circuit.mode is Mode.AUTO
        self._probe_refusal, self._refusal = (refusal, None) if probing else (None, refusal)
        return run

    def _ticket_limit(self, circuit: Circuit) -> int:
        """Number of successes that may take tickets; 0 on a warm circuit, where each success is dated."""
        shared = self._shared
        if shared is not None and self._clock() < shared.warm_until_s:
            return 0
        return self._limit(circuit) if self._counts_calls else UNLIMITED

    def _limit(self, circuit: Circuit) -> int:
        """Number of successes that may stay unreported before a detector could begin to evaluate."""
        try:
            before = self.policy.judges_after(circuit.memories, self._success(1), circuit.seen_s)
        except (AttributeError, TypeError, ValueError):
            # Pushed by a process whose policy has other detectors; the next message converts it.
            return UNLIMITED
        return before - 1 if before else UNLIMITED

    def _standing_refusal(self, circuit: Circuit, times: Times) -> Refusal | None:
        """The refusal of every call, and set until when it applies; `None`: a call may be admitted."""
        until_s = refuses_until_s(self.policy, circuit)
        if until_s == -math.inf:
            return None
        until_s += times.ahead_s
        self._refuse_until_s = min(until_s, times.reread_s)
        return self._refusal_of(circuit, standing(self.policy, circuit, circuit.seen_s), until_s)

    def _refusal_of(self, circuit: Circuit, verdict: Verdict, until_s: float) -> Refusal:
        last_error = circuit.failures[-1].error if circuit.failures else None
        held = circuit.mode is Mode.HELD_OPEN
        return Refusal(verdict.phase, verdict.reason, until_s, last_error, held)

    def _isolation(self, times: Times) -> Refusal | None:
        """The refusal of every call while this process is isolated."""
        own = None if self._shared is None else self._shared.own
        refusal = None if own is None else self._standing_refusal(own, times)
        return refusal and refusal._replace(reason=isolation_reason(refusal.reason))

    def _set_run(self, run: SuccessRun | None, times: Times | None = None) -> None:
        polls = self._polls if times is None else times.reread_s < math.inf
        bare = not self._checks_results and self._slow_from_s is None and not polls
        self._fast = run if bare and not self._on_call else None
        self._timed = None if self._on_call else run
        self._run = run  # last: after an interrupt before it, the next message sets all again

    def _success(self, count: int) -> Signal:
        # No call of a run was slow, and detectors treat all shorter durations the same.
        return Signal(ok=True, seconds=None if self._slow_from_s is None else 0.0, count=count)

    def _fresh_run(self) -> SuccessRun | None:
        """The run that counts a call, after a due read of the store; `None`: the circuit is not closed."""
        run = self._run
        if run is None or self._wall is None:
            return run
        shared = self._shared
        if shared is not None and shared.failure_mark() > shared.failed_s:
            self._notice_failures()
        if self._clock() >= run.due_s and self._store.refresh_s is not None:
            self._fold_pending()
            self._apply(TIME_PASSES)
            run.due_s = self._times().due_s
        return self._run

    async def _afresh_run(self) -> SuccessRun | None:
        run = self._run
        if run is not None and self._polls:
            self._notice_failures()
            if self._clock() >= run.due_s:
                await self._afold_pending()
                await self._aapply(TIME_PASSES)
                run.due_s = self._times().due_s
            return self._run
        return run

    # Evidence that several processes share

    def _notice_failures(self) -> None:
        """Warm the circuit if the store has pushed a failure of another process."""
        shared = self._shared
        if shared is None:
            return
        if shared.failure_mark is NO_MARK:
            shared.failure_mark = self._store.failure_mark(self.name)  # type: ignore[attr-defined]
        failed_s = shared.failure_mark()
        if failed_s > shared.failed_s:
            shared.failed_s = failed_s
            self.warm()

    def _notice_failure(self, circuit: Circuit) -> None:
        """Warm the circuit if the state that was just read has a recent failure."""
        shared, failures = self._shared, circuit.failures
        if shared is None or not failures or circuit.phase not in FLOWING:
            return
        failed_s = failures[-1].at_s
        if failed_s > shared.failed_s and self._now_s() - failed_s < WARM_S:
            shared.failed_s = failed_s
            self.warm()

    def warm(self) -> None:
        """Warm the circuit after a failure of any process: report successes soon, each with its time."""
        shared = self._shared
        if shared is None or self._lock.is_mine():
            return
        shared.warm_until_s = self._clock() + WARM_S
        with self._lock:
            run = self._run
            if run is not None and run.issued:
                dated_run = SuccessRun(run.permit, run.due_s, 0)
                self._set_run(dated_run)
                dated_run.take_over(run, 0)
                run = dated_run
        if run is not None and run.is_pending:
            self._submit_soon(shared)

    def _submit_soon(self, shared: SharedEvidence) -> None:
        wait_s = shared.submitted_s + EVERY_S - self._clock()
        self._store.submitter.add(self, self._tick, wait_s)  # type: ignore[attr-defined]

    def _tick(self) -> float:
        """Submit the reports that are due; return the seconds until more may be due."""
        shared = self._shared
        if shared is None:
            return math.inf
        now_s, run = self._clock(), self._run
        if run is not None and run.is_pending and now_s - shared.submitted_s >= EVERY_S:
            self._fold_pending()
        if now_s >= shared.settle_at_s:
            shared.settle_at_s = math.inf
            if is_pending(self._circuit):
                self._apply(TIME_PASSES)
        now_s, run, due_s = self._clock(), self._run, shared.settle_at_s
        if run is not None and run.is_pending and now_s < shared.warm_until_s:
            due_s = min(due_s, shared.submitted_s + EVERY_S)
        return max(0.001, due_s - now_s)

    def settle(self) -> None:
        """Wait until the evidence that this process has just sent is final and evaluated.

        For a process that ends, so that its last reports still count; takes at most `HOLD_S` seconds.
        """
        shared = self._shared
        if shared is not None and shared.is_isolated(self._circuit):
            shared.isolated = False
            self._remark(EventKind.REJOINED, f"{this_process()} was isolated and has ended")
        if shared is None or shared.settle_at_s == math.inf:
            return
        sleep(max(0.0, min(HOLD_S, shared.settle_at_s - self._clock())))
        shared.settle_at_s = math.inf
        self._apply(TIME_PASSES)

    def _with_source(self, shared: SharedEvidence, message: Message, now_s: float) -> Message:
        """The message; a report with this process as its source, and the time of its results."""
        if not isinstance(message, Record) or not message.signal.count:
            return message
        if message.source is None:
            times = ((now_s, message.signal.count),)
            source = ReportSource(shared.process(), now_s, times)
            message = Record(message.signal, message.permit, source)
        shared.since_s, shared.submitted_s = now_s, self._clock()
        if message.signal.ok is False:
            shared.failed_s = max(shared.failed_s, now_s)
            self.warm()
        return message

    def _judge_own(
        self, shared: SharedEvidence, message: Message, circuit: Circuit, now_s: float
    ) -> None:
        """Evaluate the calls of this process alone, and schedule a check of evidence that is not final."""
        if is_pending(circuit):
            # The process that folded the evidence checks first; the others then receive its result.
            wait_s = HOLD_S
            if is_summary(circuit):
                wait_s *= 1.5 + (hash(shared.process()) & 0xFF) / 0x100
            shared.settle_at_s = self._clock() + wait_s
            self._store.submitter.add(self, self._tick, wait_s)  # type: ignore[attr-defined]
        is_moot = circuit.phase not in FLOWING or circuit.mode is not Mode.AUTO
        if is_moot or (shared.isolated and not shared.is_isolated(circuit)):
            shared.own, shared.isolated = None, False
            return
        own = shared.own
        if isinstance(message, Record) and message.signal.count and message.source is not None:
            own = self.policy.start(self.name, now_s) if own is None else own
            record = Record(message.signal)
            is_calm = own.phase is Phase.CLOSED and not shared.isolated
            if is_calm and not others(circuit, shared.process(), now_s):
                # Alone: the shared circuit evaluates the same evidence.
                own = count_only(self.policy, own, (DatedRecord(now_s, record),))
                shared.own = own if own.heat < 1.0 else None
                return
            shared.own = own = step(self.policy, own, record, now_s).circuit
        if own is None:
            return
        was_isolated, is_open = shared.isolated, own.phase not in FLOWING
        if is_open and not was_isolated and is_final(circuit, own.outage.opened_at_s):
            if others(circuit, shared.process(), now_s) and own.outage.retry_at_s is not None:
                shared.isolated, shared.generation = True, circuit.generation
            else:
                shared.own = None
        elif was_isolated and not is_open:
            shared.isolated = False
        if was_isolated or shared.isolated:
            self._refresh_snapshot(circuit)
            self._remark_isolation(shared, own, was_isolated=was_isolated)

    def _refresh_snapshot(self, circuit: Circuit) -> None:
        """Set the snapshot again, because this process is now isolated or no longer."""
        unreported = self._adopt(circuit)
        if unreported is not None:
            self._fold(unreported)

    def _remark_isolation(
        self, shared: SharedEvidence, own: Circuit, *, was_isolated: bool
    ) -> None:
        """Record in the shared circuit that this process is isolated, and until when, or no longer."""
        place, retry_at_s = this_process(), own.outage.retry_at_s
        if shared.isolated and own.phase is Phase.OPEN and retry_at_s != shared.remarked_s:
            shared.remarked_s = retry_at_s
            why = f"{place} is isolated: {own.outage.reason}; other processes succeed"
            self._remark(EventKind.ISOLATED, why, retry_at_s)
        elif was_isolated and not shared.isolated:
            shared.remarked_s = None
            self._remark(EventKind.REJOINED, f"{place} is no longer isolated: its probe succeeded")

    def _remark(self, kind: EventKind, why: str, until_s: float | None = None) -> None:
        remark = Override("switchgear", why, kind=kind, until_s=until_s, process=this_process())
        try:
            done = self._store.apply(self.name, self.policy, remark, self._now_s())
        except StoreError as error:  # remarks are for operators only: nothing depends on them
            log_warning("circuit %r: %s; not recorded: %s", self.name, why, error)
        else:
            self._adopt_result(done)

    @property
    def _is_isolated(self) -> bool:
        return self._shared is not None and self._shared.is_isolated(self._circuit)

    def _check_isolation(self) -> None:
        """Raise `Rejected` while this process is isolated, unless it may probe."""
        shared = self._shared
        if shared is None or shared.own is None or not shared.is_isolated(self._circuit):
            return
        now_s = self._now_s()
        with self._lock:
            done = step(self.policy, shared.own, Acquire(), now_s)
            shared.own = done.circuit
        self._refresh_snapshot(self._circuit)
        if done.verdict.permit is None:
            wait_s = done.verdict.retry_after_s or 0.0
            clock_s, reason = self._clock(), isolation_reason(done.verdict.reason)
            refusal = Refusal(done.verdict.phase, reason, clock_s + wait_s, None, False)
            raise Rejected(self.name, refusal, clock_s)

    # Acquiring permits

    def _acquire_permit(self) -> Permit:
        """Acquire a permit of a circuit that is not simply closed."""
        refused = self._count_refusal()
        if refused is not None:
            raise Rejected(*refused)
        nested = self._nested_permit()
        if nested is not None:
            return nested
        if self._is_isolated:
            self._apply(TIME_PASSES)  # an operator may have reset the shared circuit
            self._check_isolation()
        self._fold_pending()
        return self._permit(self._apply(Acquire()))

    async def _aacquire_permit(self) -> Permit:
        refused = self._count_refusal()
        if refused is not None:
            raise Rejected(*refused)
        nested = self._nested_permit()
        if nested is not None:
            return nested
        if self._is_isolated:
            await self._aapply(TIME_PASSES)
            self._check_isolation()
        await self._afold_pending()
        return self._permit(await self._aapply(Acquire()))

    def _permit(self, verdict: Verdict) -> Permit:
        if verdict.permit is None:
            wait_s = math.inf if verdict.retry_after_s is None else verdict.retry_after_s
            now_s = self._clock()
            refusal = self._refusal_of(self._circuit, verdict, now_s + wait_s)
            if self._on_call:
                self._report_refusal((self.name, refusal, now_s))
            raise Rejected(self.name, refusal, now_s)
        return verdict.permit

    def _count_refusal(self) -> tuple[str, Refusal, float] | None:
        """Count a refusal and return the arguments of `Rejected`; `None`: the call may be admitted.

        The exception is not created here, because an exception in a local variable keeps the
        caller's frame alive.
        """
        refusal = self._refusal
        if refusal is None:
            refusal = self._probe_refusal
            if refusal is None or self._nested_permit() is not None:
                return None
        now_s = self._clock()
        if now_s >= self._refuse_until_s:
            return None
        for _ in self._refusals:
            break
        if self._on_call:
            self._report_refusal((self.name, refusal, now_s))
        return self.name, refusal, now_s

    def _report_refusal(self, refused: tuple[str, Refusal, float]) -> None:
        rejected = Rejected(*refused)
        report(Call(self.name, CallOutcome.REJECTED, None, rejected), self._on_call)

    def _nested_permit(self) -> Permit | None:
        circuit = self._circuit
        if circuit.phase is not Phase.HALF_OPEN or circuit.mode is not Mode.AUTO:
            return None
        probe = probe_around(self)
        if probe is None or (probe.lease_until_s or 0.0) <= self._now_s():
            return None
        return Permit(circuit.generation)

    # Messages

    def _apply(self, message: Message, ago_s: float = 0.0) -> Verdict:
        now_s = self._now_s() - ago_s
        if self._lock.is_mine() or self._store.is_mine():
            return self._defer(message, now_s)
        shared = self._shared
        if shared is not None:
            message = self._with_source(shared, message, now_s)
        done = self._store.apply(self.name, self.policy, message, now_s)
        if shared is not None:
            self._judge_own(shared, message, done.circuit, now_s)
        unreported = self._adopt_result(done)
        if unreported is not None:
            self._fold(unreported)
        return done.verdict

    def _send_shared(self, shared: SharedEvidence, message: Message) -> Verdict:
        """Apply a message after the unreported counts, in the same round trip if the store supports it."""
        report = self._report_to_send_along()
        if report is not None:
            return self._apply_both(shared, report, message)
        self._fold_pending()
        return self._apply(message)

    def _report_to_send_along(self) -> Record | None:
        """The unreported successes, if the store accepts them together with a message; else `None`."""
        run = self._run
        if run is None or not run.is_pending or not self._store.pushes:
            return None
        if self._lock.is_mine() or self._store.is_mine():
            return None
        if self._refusals is not NO_REFUSALS and self._new_refusals():
            return None
        return next((report for report, _ in self._count_messages(run, 0)), None)

    def _apply_both(self, shared: SharedEvidence, report: Record, message: Message) -> Verdict:
        """`_fold` the report and `_apply` the message together."""
        store: Any = self._store  # one that pushes
        before = DatedRecord(self._now_s(), report)
        self._with_source(shared, report, before.at_s)
        now_s = self._now_s()
        message = self._with_source(shared, message, now_s)
        try:
            done: Step = store.apply(self.name, self.policy, message, now_s, before=before)
        except BaseException:
            if not was_committed(report) and not was_committed(message):
                self._put_back(report)
            raise
        for each in (report, message):
            self._judge_own(shared, each, done.circuit, now_s)
        unreported = self._adopt_result(done)
        if unreported is not None:
            self._fold(unreported)
        return done.verdict

    def _fold(self, message: Record, ago_s: float = 0.0) -> None:
        """Report the counts. If an interrupt prevents the commit, they stay unreported."""
        now_s = self._now_s() - ago_s
        if self._lock.is_mine() or self._store.is_mine():
            self._defer(message, now_s)
            return
        shared = self._shared
        report = message if shared is None else self._with_source(shared, message, now_s)
        try:
            done = self._store.apply(self.name, self.policy, report, now_s)
        except BaseException:
            if not was_committed(report):
                self._put_back(message)
            raise
        if shared is not None:
            self._judge_own(shared, report, done.circuit, now_s)
        unreported = self._adopt_result(done)
        if unreported is not None:
            self._fold(unreported)

    def _put_back(self, message: Record) -> None:
        signal, permit = message.signal, message.permit
        with self._lock:
            self._refusals_folded -= signal.refused
            run = self._run
            if run is not None and run.permit == permit:
                run.owed += signal.count
                return
        if signal.count:  # the run has ended in the meantime, so these successes are stale
            _deferred.append((self, message))

    async def _aapply(self, message: Message, ago_s: float = 0.0) -> Verdict:
        if self._wall is None:
            return self._apply(message, ago_s)  # in memory: nothing to wait for
        now_s = self._now_s() - ago_s
        shared = self._shared
        if shared is not None:
            message = self._with_source(shared, message, now_s)
        done = await self._store.aapply(self.name, self.policy, message, now_s)
        if shared is not None:
            self._judge_own(shared, message, done.circuit, now_s)
        unreported = self._adopt_result(done)
        if unreported is not None:
            await self._aapply(unreported)
        return done.verdict

    async def _areport(self, message: Message) -> Verdict:
        """Send a message after the unreported counts, even if the task is cancelled in between."""
        cancelled: BaseException | None = None
        try:
            await self._afold_pending()
        except (Exception, GeneratorExit):  # a coroutine that is being closed cannot await
            raise
        except BaseException as error:
            if not isinstance(message, Record):
                raise
            cancelled = error
        try:
            verdict = await self._aapply(message)
        except Exception as error:
            if cancelled is None:
                raise
            raise cancelled from error
        if cancelled is not None:
            raise cancelled
        return verdict

    async def _afold(self, message: Record, ago_s: float) -> None:
        if self._wall is None:
            self._fold(message, ago_s)
        else:  # also counted exactly once if the task is cancelled
            await self._aapply(message, ago_s)

    def _adopt_result(self, done: Step) -> Record | None:
        """Adopt the result of a message and send its events; return a record that must still be reported."""
        unreported = self._adopt(done.circuit) if done.circuit is not self._circuit else None
        if done.events:
            log_events(done.events, self.sinks)
            if self.sinks:
                emit(done.events, self.sinks)
        if _deferred:
            _fold_deferred()
        return unreported

    def _defer(self, message: Message, now_s: float) -> Verdict:
        """The verdict for a finalizer or signal handler that interrupted this thread inside a message.

        Its message is recorded right after that one; a permit is granted according to the snapshot,
        and is never a probe.
        """
        circuit = self._circuit
        verdict = standing(self.policy, circuit, max(now_s, circuit.seen_s))
        if not isinstance(message, Acquire):
            _deferred.append((self, message))
        elif verdict.admitted and (verdict.phase in FLOWING or circuit.mode is not Mode.AUTO):
            return verdict._replace(permit=Permit(circuit.generation))
        else:
            _deferred.append((self, Record(Signal(count=0, refused=1))))
        return verdict

    def _adopt(self, circuit: Circuit) -> Record | None:
        """Make this the snapshot unless that is newer; return the unreported successes of an ended run."""
        times, ended_count = self._times(), 0
        with self._lock:
            if circuit.version < self._circuit.version:
                return None
            ended, run = self._set_snapshot(circuit, times), self._run
            if ended is not None and run is not None and run.permit == ended.permit:
                run.take_over(ended, self._ticket_limit(circuit))
            elif ended is not None:
                ended_count = ended.end()
            # Last: after a fork or an interrupt before this line, the next message corrects the snapshot.
            self._circuit = circuit
        if self._shared is not None:
            self._notice_failure(circuit)
        if ended is None or not ended_count:
            return None
        return Record(self._success(ended_count), ended.permit)

    def _leave_to_thread(self, run: SuccessRun, more: int) -> bool:
        """Leave the counts to the panel's thread, which folds them within a second; false: impossible.

        If changes are pushed, calls of a closed circuit send nothing, unless a detector begins to
        evaluate with one of them. Otherwise there is no background thread, and all deferred calls
        would appear to be as old as the first of them.
        """
        if self._leave_to_submitter(run, more):
            return True
        if not self._store.pushes or self._polls or self._lock.is_mine():
            return False
        with self._lock:
            if run is self._run and self._ticket_limit(self._circuit) == UNLIMITED:
                run.put_off(more)
                return True
        return False

    def _leave_to_submitter(self, run: SuccessRun, more: int) -> bool:
        """Leave the successes of a warm circuit to the submitter, with their time; false: impossible."""
        shared = self._shared
        if shared is None or self._clock() >= shared.warm_until_s or self._lock.is_mine():
            return False
        now_s = self._now_s()
        with self._lock:
            now = self._run
            if now is None or now.permit != run.permit:
                return False
            pending = len(now.times) + now.owed + more
            if pending >= min(MOST_TIMES, self._limit(self._circuit)):
                return False
            now.times += (now_s,) * more
        self._submit_soon(shared)
        return True

    def _count_messages(self, run: SuccessRun, more: int) -> Iterator[tuple[Record, float]]:
        """The counts of a run as a message, and their age in seconds.

        Tickets are taken only before a run is due, so the successes of an overdue run are at least as
        old as the time since then: a pause does not make them new.
        """
        now_s, due_s, taken, was_due_s = self._clock(), self._times().due_s, 0, run.due_s
        times: tuple[float, ...] = ()
        if not self._lock.is_mine():
            with self._lock:
                if run is self._run:
                    taken = run.count(self._ticket_limit(self._circuit) - more)
                    times = run.taken_times()
                run.due_s = due_s
        shared = self._shared
        if shared is not None:
            if taken + more + len(times):
                yield self._dated_report(shared, run, times, before=taken, after=more), 0.0
            return
        overdue_s = max(0.0, now_s - was_due_s)
        if taken and more and overdue_s:
            yield Record(self._success(taken), run.permit), overdue_s
            yield Record(self._success(more), run.permit), 0.0
        elif taken + more:
            yield Record(self._success(taken + more), run.permit), 0.0 if more else overdue_s

    def _dated_report(
        self,
        shared: SharedEvidence,
        run: SuccessRun,
        times: tuple[float, ...],
        *,
        before: int,
        after: int,
    ) -> Record:
        """A report of the successes of this process with their times.

        Successes that took tickets have no time of their own. They occurred before any known failure
        of another process, so they get the time of the previous report.
        """
        now_s = self._now_s()
        since_s = min(
            now_s, times[0] if times else now_s, max(shared.since_s, now_s - FOLD_EVERY_S)
        )
        when = ((since_s, before), *dates(times), (now_s, after))
        source = ReportSource(shared.process(), now_s, tuple(part for part in when if part[1]))
        return Record(self._success(before + len(times) + after), run.permit, source)

    def _fold_pending(self) -> None:
        """Fold the successes and refusals that are not recorded yet."""
        run = self._run
        if self._refusals is NO_REFUSALS and (run is None or not run.is_pending):
            return
        for message, ago_s in self._pending():
            self._fold(message, ago_s)

    async def _afold_pending(self) -> None:
        for message, ago_s in self._pending():
            await self._afold(message, ago_s)

    def _pending(self) -> Iterator[tuple[Record, float]]:
        run = self._run
        if run is not None and run.is_pending:
            yield from self._count_messages(run, 0)
        if self._refusals is NO_REFUSALS or not self._new_refusals() or self._lock.is_mine():
            return
        with self._lock:
            refused = self._new_refusals()
            self._refusals_folded += refused
        if refused:
            yield Record(Signal(count=0, refused=refused)), 0.0

    def _new_refusals(self) -> int:
        return UNLIMITED - length_hint(self._refusals) - self._refusals_folded


def _fold_deferred() -> None:
    """Apply each deferred message once; those that cannot be applied yet are deferred again."""
    for _ in range(len(_deferred)):
        try:
            breaker, message = _deferred.popleft()
        except IndexError:
            return  # another thread applies it
        breaker._apply(message)  # noqa: SLF001
