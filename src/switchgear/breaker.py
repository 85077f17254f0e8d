"""The one stateful object: it joins a circuit's policy, store, clock and sinks.

A `Breaker` knows asking and telling, but nothing of functions, loops or hooks; the guards do.
It keeps a snapshot of the circuit, so that a closed circuit is passed and an open one refused
without a lock, and it owns the run of successes that the snapshot has not seen yet.
"""

import math
from collections.abc import Callable, Iterator
from itertools import repeat
from operator import length_hint
from typing import Any, Self

from switchgear.clock import Clock, monotonic
from switchgear.core import record
from switchgear.core.policy import Policy
from switchgear.core.standing import refuses_until_s, standing
from switchgear.core.types import (
    Ask,
    Circuit,
    Event,
    Message,
    Mode,
    Order,
    Permit,
    Phase,
    Reading,
    Signal,
    Tell,
    Totals,
    Verdict,
)
from switchgear.errors import Rejected
from switchgear.runs import FOLD_EVERY_S, Run
from switchgear.stores import Store
from switchgear.stores.locks import ForkSafeLock
from switchgear.stores.memory import MemoryCell

Sink = Callable[[Event], object]
"""Hears every event after it is committed. What it raises is logged and dropped."""

MANY = 2**62
_TIME_PASSES = Tell(Signal(count=0))


class Breaker:
    """A circuit at work. Thread-safe, task-safe, fork-safe; no lock is held during user code.

    `name` names the circuit; `policy` judges it; `clock` gives seconds and never runs backwards;
    `sinks` are called with each `Event`, in order within a thread.
    """

    __slots__ = (
        "__weakref__",
        "_circuit",
        "_clock",
        "_lock",
        "_offset_s",
        "_refusal",
        "_refusals",
        "_refusals_folded",
        "_run",
        "_sinks",
        "_slow_from_s",
        "_store",
        "name",
        "policy",
    )

    def __init__(
        self,
        name: str,
        policy: Policy,
        *,
        clock: Clock = monotonic,
        sinks: tuple[Sink, ...] | list[Sink] = (),
    ) -> None:
        owner = type(self).__name__
        self.name = record.text(f"{owner}.name", name)
        if not isinstance(policy, Policy):
            raise ValueError(f"{owner}.policy is {policy!r}: it must be a Policy")
        if not callable(clock):
            raise ValueError(f"{owner}.clock is {clock!r}: it must be callable, giving seconds")
        for sink in sinks:
            if not callable(sink):
                raise ValueError(f"{owner}.sinks holds {sink!r}: a sink must be callable")
        self.policy = policy
        self._clock = clock
        self._offset_s = 0.0
        self._sinks = tuple(sinks)
        self._slow_from_s = policy.slow_from_s
        self._store: Store = MemoryCell()
        self._lock = ForkSafeLock()
        self._refusals: Iterator[None] = repeat(None, MANY)
        self._refusals_folded = 0
        self._refusal: tuple[float, Phase, str, str | None]
        self._run: Run | None = None
        self._circuit = policy.start(self.name, self._now_s())
        self._look_at(self._circuit)

    # Reading

    @property
    def state(self) -> Phase:
        """The phase now: a cooldown that is over shows as half-open without anyone asking."""
        return self.snapshot().phase

    @property
    def mode(self) -> Mode:
        """What the operator says."""
        return self._circuit.mode

    @property
    def heat(self) -> float:
        """How close to tripping the evidence is now: 0 calm, 1 trips."""
        return self.policy.assess(self.snapshot().memories, self._now_s()).heat

    @property
    def totals(self) -> Totals:
        """Counts of everything that was asked and told."""
        return self.snapshot().totals

    def readings(self) -> dict[str, Reading]:
        """What each detector sees now, by its kind."""
        readings = self.policy.readings(self.snapshot().memories, self._now_s())
        return {
            detector.kind: reading
            for detector, reading in zip(self.policy.detectors, readings, strict=True)
        }

    def snapshot(self) -> Circuit:
        """The circuit as it is now, with every finished call folded in."""
        self._fold_pending()
        self._apply(_TIME_PASSES)
        return self._circuit

    # Asking and telling

    def enter(self) -> Permit:
        """Ask for leave to do one thing; hand the permit back with `tell`. Raises `Rejected`."""
        run = self._run
        return self._ask() if run is None else run.permit

    def tell(self, signal: Signal, permit: Permit | None = None) -> Verdict:
        """Say what became of it. A signal with `ok=None` gives the permit back unused."""
        self._fold_pending()
        return self._apply(Tell(signal, permit))

    # Orders

    def hold_open(self, *, by: str, why: str) -> None:
        """Refuse everything until released, whatever the evidence says."""
        self._order(by, why, Mode.HELD_OPEN)

    def hold_closed(self, *, by: str, why: str) -> None:
        """Admit everything until released, whatever the evidence says."""
        self._order(by, why, Mode.HELD_CLOSED)

    def shadow(self, *, by: str, why: str) -> None:
        """Admit everything, and count what would have been refused."""
        self._order(by, why, Mode.SHADOW)

    def release(self, *, by: str, why: str) -> None:
        """Let the evidence decide again."""
        self._order(by, why, Mode.AUTO)

    def reset(self, *, by: str, why: str) -> None:
        """Forget all evidence and close; a hold stays until it is released."""
        self._order(by, why, None, reset=True)

    def _order(self, by: str, why: str, mode: Mode | None, *, reset: bool = False) -> None:
        order = Order(record.text("by", by), record.text("why", why), mode, reset)
        self._fold_pending()
        self._apply(order)

    # The inside

    def _now_s(self) -> float:
        return self._clock() + self._offset_s

    def _ask(self) -> Permit:
        """Ask a circuit that is not simply closed."""
        now_s = self._clock() + self._offset_s
        until_s, phase, reason, last_error = self._refusal
        if now_s < until_s:
            for _ in self._refusals:
                break
            wait_s = None if until_s == math.inf else until_s - now_s
            raise Rejected(self.name, phase, reason, wait_s, last_error)
        self._fold_pending()
        verdict = self._apply(Ask())
        if verdict.permit is None:
            last_error = self._refusal[3]
            raise Rejected(
                self.name, verdict.phase, verdict.reason, verdict.retry_after_s, last_error
            )
        return verdict.permit

    def _apply(self, message: Message) -> Verdict:
        done = self._store.apply(self.name, self.policy, message, self._now_s())
        self._adopt(done.circuit)
        for event in done.events:
            self._emit(event)
        return done.verdict

    def _adopt(self, circuit: Circuit) -> None:
        """Make this the snapshot, unless another thread has already seen a newer one."""
        with self._lock:
            if circuit.version < self._circuit.version:
                return
            self._circuit = circuit
            left = self._look_at(circuit)
            late = 0 if left is None else left.drain()
        if left is not None and late:
            self._apply(Tell(self._success(late), left.permit))

    def _look_at(self, circuit: Circuit) -> Run | None:
        """Set what the fast paths read; returns the run that this ends, if it ends one."""
        flows = circuit.phase is Phase.CLOSED and circuit.mode is not Mode.HELD_OPEN
        last_error = circuit.failures[-1].error if circuit.failures else None
        reason = standing(self.policy, circuit, circuit.seen_s).reason
        self._refusal = (refuses_until_s(self.policy, circuit), circuit.phase, reason, last_error)
        run = self._run
        if flows and run is not None and run.permit.generation == circuit.generation:
            return None
        self._set_run(self._new_run(circuit) if flows else None)
        return run

    def _new_run(self, circuit: Circuit) -> Run:
        run = Run(Permit(circuit.generation))
        run.due_s = self._due_s()
        return run

    def _set_run(self, run: Run | None) -> None:
        self._run = run

    def _due_s(self) -> float:
        return math.inf if self._slow_from_s is None else self._clock() + FOLD_EVERY_S

    def _success(self, count: int) -> Signal:
        # Nothing in a run was slow, and to the detectors all durations that are not are alike.
        return Signal(ok=True, seconds=None if self._slow_from_s is None else 0.0, count=count)

    def _fold_run(self, run: Run, *, more: int) -> None:
        """Fold what a run has counted, and `more` that found no ticket."""
        with self._lock:
            taken = 0
            if run is self._run:
                taken = run.drain()
                run.refill(self._due_s())
        if taken + more:
            self._apply(Tell(self._success(taken + more), run.permit))

    def _fold_pending(self) -> None:
        """Fold the successes and refusals that the circuit has not heard of yet."""
        run = self._run
        if run is not None:
            self._fold_run(run, more=0)
        with self._lock:
            refused = MANY - length_hint(self._refusals) - self._refusals_folded
            self._refusals_folded += refused
        if refused:
            self._apply(Tell(Signal(count=0, refused=refused)))

    def _emit(self, event: Event) -> None:
        for sink in self._sinks:
            try:
                sink(event)
            except Exception:  # noqa: BLE001  observers cannot hurt the observed
                log_exception("a sink of circuit %r failed on %r", self.name, event)

    # Pickling

    def _config(self) -> dict[str, Any]:
        """The arguments that make a breaker like this one."""
        return {
            "name": self.name,
            "policy": self.policy,
            "clock": self._clock,
            "sinks": self._sinks,
        }

    @classmethod
    def _restore(cls, config: dict[str, Any], circuit: Circuit, now_s: float) -> Self:
        """A breaker in the state it was pickled in; its time goes on from there."""
        breaker = cls(**config)
        breaker._offset_s = now_s - breaker._clock()
        breaker._store.restore(circuit)
        breaker._circuit = circuit
        breaker._look_at(circuit)
        return breaker

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._restore, (self._config(), self.snapshot(), self._now_s())

    def __repr__(self) -> str:
        circuit = self._circuit
        return f"<{type(self).__name__} {self.name!r} {circuit.phase} mode={circuit.mode}>"


def log_exception(message: str, *args: object) -> None:
    """Log the exception being handled. Imported late: a hook that never logs must not pay."""
    import logging  # noqa: PLC0415

    logging.getLogger("switchgear").exception(message, *args)
