"""The one stateful object: it joins a circuit's policy, store, clock and sinks.

A `Breaker` knows asking, telling and orders, but nothing of functions, loops or hooks; the guards
do. How it gets by without a lock and without I/O is the business of `live.py`.
"""

from typing import Any, Self

from switchgear._breaker.live import TIME_PASSES, LiveCircuit
from switchgear._breaker.snapshot import isolation_reason
from switchgear._core import values
from switchgear._core.evidence import LIVE_S
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    AgentStep,
    Circuit,
    Message,
    Mode,
    Override,
    Permit,
    Phase,
    Reading,
    Record,
    Signal,
    Totals,
    Verdict,
)
from switchgear._sinks.dispatch import Sink, checked_sinks
from switchgear._stores.base import Remembers
from switchgear._stores.memory import MemoryCell
from switchgear._system.clock import Clock, Shifted, monotonic
from switchgear._text.redact import redact, redact_lines

MOST = 10**12
"""More than anybody counts or pays at once, and a thousand times that is still a sum we can keep."""

_LARGEST = 1e300
_NUMBERS = (int, float)
_OTHER_MESSAGES = (Acquire, Override)


class Breaker(LiveCircuit):
    """A circuit at work. Thread-safe, task-safe, fork-safe; no lock is held during user code.

    `name` names the circuit; `policy` judges it; `clock` gives seconds and never runs backwards;
    `sinks` are called with each `Event`, in order within a thread. `store` and `wall` come from a
    `Panel`, which shares circuits between processes.
    """

    __slots__ = ()

    def __init__(
        self,
        name: str,
        policy: Policy,
        *,
        clock: Clock = monotonic,
        sinks: tuple[Sink, ...] | list[Sink] = (),
        store: Remembers | None = None,
        wall: Clock | None = None,
    ) -> None:
        owner = type(self).__name__
        name = values.text(f"{owner}.name", name)
        if not isinstance(policy, Policy):
            raise ValueError(f"{owner}.policy is {policy!r}: it must be a Policy")
        if not callable(clock):
            raise ValueError(f"{owner}.clock is {clock!r}: it must be callable, giving seconds")
        values.number(f"{owner}.clock()", clock())
        if store is not None and not callable(getattr(store, "apply", None)):
            raise ValueError(
                f"{owner}.store is {store!r}: it must be a store; for a shared one use "
                "Panel(url).breaker(name)"
            )
        if wall is not None and not callable(wall):
            raise ValueError(f"{owner}.wall is {wall!r}: it must be callable, giving seconds")
        checked = checked_sinks(f"{owner}.sinks", sinks)
        super().__init__(name, policy, clock=clock, sinks=checked, store=store, wall=wall)

    def add_sink(self, sink: Sink) -> None:
        """Let one more sink hear the events from now on. Raises ValueError if it cannot be called."""
        self.sinks = (*self.sinks, *checked_sinks("sink", [sink]))

    # Reading

    @property
    def state(self) -> Phase:
        """The phase now: a cooldown that is over shows as half-open without anyone asking."""
        return self.snapshot().phase

    @property
    def last_known(self) -> Circuit:
        """The circuit as this process saw it last; asks nothing of the store."""
        return self._circuit

    @property
    def mode(self) -> Mode:
        """What the operator says: a hold whose time is over shows as auto."""
        order = self._circuit.order
        if order is not None and order.until_s is not None:
            return self.snapshot().mode
        return self._circuit.mode

    @property
    def heat(self) -> float:
        """How close to tripping the evidence is now: 0 calm, 1 trips."""
        return self.policy.heat(self.snapshot().memories, self._now_s())

    @property
    def totals(self) -> Totals:
        """Counts of everything that was asked and told."""
        return self.snapshot().totals

    def readings(self) -> dict[str, Reading]:
        """What each detector sees now, by its kind: `failure_rate`, and `failure_rate#2`."""
        # Who never reads does not pay for the names' home.
        from switchgear._core.wire import detector_names  # noqa: PLC0415

        readings = self.policy.readings(self.snapshot().memories, self._now_s())
        return dict(zip(detector_names(self.policy), readings, strict=True))

    def snapshot(self) -> Circuit:
        """The circuit as it is now, with every finished call folded in."""
        self._fold_pending()
        self._apply(TIME_PASSES)
        return self._circuit

    # Asking and telling

    def enter(self) -> Permit:
        """Ask for leave to do one thing; hand the permit back with `tell`. Raises `Rejected`."""
        run = self._fresh_run()
        return self._ask() if run is None else run.permit

    def record(self, signal: Signal, permit: Permit | None = None) -> Verdict:
        """Say what became of it; secrets in its error text are redacted.

        A signal with `ok=None` gives the permit back unused.
        """
        return self._send(Record(_redacted(signal), _checked_permit(permit)))

    def send(self, message: Message) -> Verdict:
        """Send any message to the circuit as it is, after what is still pending."""
        _check(message)
        return self._send(message)

    def _send(self, message: Message) -> Verdict:
        self._fold_pending()
        return self._apply(message)

    async def aenter(self) -> Permit:
        """What `enter` is, without blocking the event loop while a shared store is asked."""
        run = await self._afresh_run()
        return await self._aask() if run is None else run.permit

    async def arecord(self, signal: Signal, permit: Permit | None = None) -> Verdict:
        """What `tell` is, without blocking the event loop while a shared store is told."""
        return await self._asend(Record(_redacted(signal), _checked_permit(permit)))

    async def asend(self, message: Message) -> Verdict:
        """What `send` is, without blocking the event loop."""
        _check(message)
        return await self._asend(message)

    async def _asend(self, message: Message) -> Verdict:
        await self._afold_pending()
        return await self._aapply(message)

    def flush(self) -> None:
        """Fold what was counted and not yet told."""
        self._fold_pending()

    @property
    def is_unknown_to_others(self) -> bool:
        """Whether this process has counted something, and has not reported for long."""
        shared, run = self._shared, self._run
        if shared is None or run is None or not run.is_pending:
            return False
        return self._clock() - shared.submitted_s >= LIVE_S

    @property
    def isolation(self) -> str | None:
        """Why this process stays away although the shared circuit is closed; `None`: it does not.

        Its own calls fail while those of other processes succeed.
        """
        shared = self._shared
        if shared is None or shared.own is None or not shared.is_isolated(self._circuit):
            return None
        return isolation_reason(shared.own.outage.reason)

    def adopt(self, circuit: Circuit) -> None:
        """Take note of a newer state that a shared store pushed."""
        late = self._adopt(circuit)
        if late is not None:
            self._apply(late)

    def refresh(self) -> None:
        """Fold what is pending and, where others share the circuit, see what they did."""
        self._fold_pending()
        if self._wall is not None:
            self._apply(TIME_PASSES)

    def advance(self) -> None:
        """Let time pass, if a wait, a hold or a probe's lease is over; costs nothing otherwise."""
        circuit = self._circuit
        order = circuit.order
        moments = [circuit.outage.retry_at_s, None if order is None else order.until_s]
        moments += [permit.lease_until_s for permit in circuit.probing.permits]
        now_s = self._now_s()
        if any(at_s is not None and at_s <= now_s for at_s in moments):
            self.snapshot()

    def set_policy(self, policy: Policy) -> None:
        """Judge by another policy from now on; what both know stays, and so does the phase.

        For circuits of a panel, whose store fits what is remembered to the policy. Raises
        ValueError for a breaker that keeps its circuit itself.
        """
        if self._wall is None:
            raise ValueError(f"circuit {self.name!r} is of no panel: make a new breaker instead")
        self._fold_pending()
        self.policy = policy
        self._slow_from_s = policy.slow_from_s
        self._apply(TIME_PASSES)

    # Orders

    def hold_open(self, *, by: str, why: str, for_s: float | None = None) -> None:
        """Refuse everything, whatever the evidence says.

        `for_s`: for so many seconds, after which the evidence decides again; default: until
        `release`.
        """
        self._order(by, why, Mode.HELD_OPEN, for_s=for_s)

    def hold_closed(self, *, by: str, why: str, for_s: float | None = None) -> None:
        """Admit everything, whatever the evidence says; `for_s` as for `hold_open`."""
        self._order(by, why, Mode.HELD_CLOSED, for_s=for_s)

    def shadow(self, *, by: str, why: str, for_s: float | None = None) -> None:
        """Admit everything, and count what would have been refused; `for_s` as for `hold_open`."""
        self._order(by, why, Mode.SHADOW, for_s=for_s)

    def release(self, *, by: str, why: str) -> None:
        """Let the evidence decide again."""
        self._order(by, why, Mode.AUTO)

    def reset(self, *, by: str, why: str) -> None:
        """Forget all evidence and close; a hold stays until it is released."""
        self._order(by, why, None, reset=True)

    def probe_now(self, *, by: str, why: str) -> None:
        """Let an open circuit probe at once, before its wait is over; otherwise do nothing.

        Raises ValueError where the policy recovers without probes.
        """
        check_probes(self.name, self.policy)
        self._order(by, why, None, probe=True)

    def _order(
        self,
        by: str,
        why: str,
        mode: Mode | None,
        *,
        reset: bool = False,
        for_s: float | None = None,
        probe: bool = False,
    ) -> None:
        until_s = None if for_s is None else self._now_s() + values.seconds("for_s", for_s)
        by, why = values.text("by", by), values.text("why", why)
        self.send(Override(by, why, mode, reset, until_s=until_s, probe=probe))

    # Pickling

    def _config(self) -> dict[str, Any]:
        """The arguments that make a breaker like this one."""
        config: dict[str, Any] = {
            "name": self.name,
            "policy": self.policy,
            "clock": self._clock.clock if isinstance(self._clock, Shifted) else self._clock,
            "sinks": self.sinks,
        }
        return config if self._wall is None else {**config, "store": self._store}

    @classmethod
    def _restore(cls, config: dict[str, Any], circuit: Circuit, now_s: float) -> Self:
        """A breaker in the state it was pickled in; its time goes on from there."""
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


def check_probes(name: str, policy: Policy) -> None:
    """Raise ValueError unless the circuit recovers by probes."""
    if not policy.recovery.probes:
        kind = policy.recovery.kind.replace("_", " ")
        raise ValueError(f"circuit {name!r} recovers without probes ({kind}): reset it instead")


# What is told is kept, by detectors and stores: nothing gets that far that they cannot keep.


def _redacted(signal: Any) -> Signal:
    checked = _checked_signal(signal)
    if checked.error is None and checked.step is None and checked.violation is None:
        return checked
    return checked._replace(
        error=None if checked.error is None else redact(checked.error),
        step=None if checked.step is None else _redacted_act(checked.step),
        violation=None if checked.violation is None else redact(checked.violation),
    )


def _redacted_act(act: AgentStep) -> AgentStep:
    return AgentStep(
        redact(act.tool),
        redact_lines(act.args),
        None if act.result is None else redact_lines(act.result),
        None if act.thought is None else redact_lines(act.thought),
    )


def _check(message: Any) -> None:
    """Raise ValueError unless it is a message that every store can load again."""
    if isinstance(message, Record):
        _checked_signal(message.signal)
        _checked_permit(message.permit)
    elif not isinstance(message, _OTHER_MESSAGES):
        raise ValueError(f"message is {message!r}: it must be an Ask, a Tell or an Order")
    elif isinstance(message, Override) and not _is_measure(message.until_s):
        raise ValueError(f"message is {message!r}: its until_s must be a finite number or None")


def _checked_permit(permit: Any) -> Permit | None:
    if permit is not None and not isinstance(permit, Permit):
        raise ValueError(f"permit is {permit!r}: it must be a Permit, of enter()")
    return permit


def _checked_signal(signal: Any) -> Signal:
    if not isinstance(signal, Signal):
        raise ValueError(f"signal is {signal!r}: it must be a Signal, as in Signal(ok=False)")
    ok, seconds, error, retry_after_s, count, refused, cost_micros, *others = signal
    *measured, at_s, act, state, failing_tests, context_used, idle_s, waited_s, violation = others
    if ok is not None and ok is not True and ok is not False:
        raise ValueError(f"signal is {signal!r}: its ok must be True, False or None")
    if not all(map(_is_text, (error, state, failing_tests, violation))):
        rule = "its error, state, failing_tests and violation must be texts or None"
        raise ValueError(f"signal is {signal!r}: {rule}")
    if act is not None and not _is_act(act):
        raise ValueError(f"signal is {signal!r}: its act must be an Act of texts, or None")
    times = (seconds, retry_after_s, at_s, context_used, idle_s, waited_s)
    if not all(map(_is_measure, times)):
        rule = "its times and its context_used must be finite numbers or None"
        raise ValueError(f"signal is {signal!r}: {rule}")
    counts = (count, refused, cost_micros or 0)
    if not all(_is_count(number) for number in counts) or count * (cost_micros or 0) >= MOST:
        raise ValueError(
            f"signal is {signal!r}: its count, refused and cost_micros must be whole numbers, "
            f"not below 0 and below {MOST:g}"
        )
    if not all(number is None or _is_count(number) for number in measured):
        rule = "its files_changed, tests_passing and output_chars must be whole numbers or None"
        raise ValueError(f"signal is {signal!r}: {rule}")
    return signal


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_act(value: Any) -> bool:
    if not isinstance(value, AgentStep):
        return False
    return None not in value[:2] and all(map(_is_text, value))


def _is_measure(value: Any) -> bool:
    # Compared and not asked `isfinite`, which an integer beyond all floats would break.
    return value is None or (
        isinstance(value, _NUMBERS) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < MOST
