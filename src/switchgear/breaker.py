"""The one stateful object: it joins a circuit's policy, store, clock and sinks.

A `Breaker` knows asking and telling, but nothing of functions, loops or hooks; the guards do.
It keeps a snapshot of the circuit, so that a closed circuit is passed and an open one refused
without a lock, and it owns the run of successes that the snapshot has not seen yet.
"""

import math
from collections import deque
from collections.abc import Iterator
from itertools import repeat
from operator import length_hint
from typing import Any, Self

from switchgear.clock import Clock, Shifted, monotonic
from switchgear.core import record
from switchgear.core.policy import Policy
from switchgear.core.standing import refuses_until_s, standing
from switchgear.core.types import (
    Ask,
    Circuit,
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
from switchgear.errors import Refusal, Rejected
from switchgear.listeners import Sink, checked_sinks, emit
from switchgear.locks import ForkSafeLock
from switchgear.runs import FOLD_EVERY_S, TICKETS, Run
from switchgear.stores import Store
from switchgear.stores.memory import MemoryCell

MANY = 2**62
NO_REFUSALS = repeat(None, 0)
_TIME_PASSES = Tell(Signal(count=0))

_FLOWING = (Phase.CLOSED, Phase.TRIPPING)
_deferred: "deque[tuple[Breaker, Message]]" = deque()
"""What finalizers and signal handlers said in the middle of a section of the breaker itself."""


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
        self.policy = policy
        self._clock = clock
        self._sinks = checked_sinks(f"{owner}.sinks", sinks)
        self._slow_from_s = policy.slow_from_s
        self._lock = ForkSafeLock()
        self._store: Store = MemoryCell(self._lock)
        self._run: Run | None = None
        """Where successes are counted while the circuit is closed; `None` while it is not."""
        self._refusal: Refusal | None = None
        """What everybody is told until its time, while the circuit refuses everybody."""
        self._refusals: Iterator[None] = NO_REFUSALS
        """Counts refusals by what is left of it: taking one is atomic and needs no lock."""
        self._refusals_folded = 0
        self._circuit = policy.start(self.name, clock())
        self._look_at(self._circuit, self._due_s())

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
        return self.policy.heat(self.snapshot().memories, self._clock())

    @property
    def totals(self) -> Totals:
        """Counts of everything that was asked and told."""
        return self.snapshot().totals

    def readings(self) -> dict[str, Reading]:
        """What each detector sees now, by its kind."""
        readings = self.policy.readings(self.snapshot().memories, self._clock())
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
        if signal.count < 0 or signal.refused < 0:
            raise ValueError(f"signal is {signal!r}: its count and refused must not be below 0")
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

    def _ask(self) -> Permit:
        """Ask a circuit that is not simply closed."""
        refused = self._refused()
        if refused is not None:
            raise Rejected(*refused)
        self._fold_pending()
        verdict = self._apply(Ask())
        if verdict.permit is None:
            wait_s = math.inf if verdict.retry_after_s is None else verdict.retry_after_s
            now_s = self._clock()
            refusal = self._refusal_of(self._circuit, verdict, now_s + wait_s)
            raise Rejected(self.name, refusal, now_s)
        return verdict.permit

    def _refused(self) -> tuple[str, Refusal, float] | None:
        """What to raise `Rejected` with while the snapshot refuses everybody, counted; else `None`.

        The exception is not made here: who raises what is in a local variable of theirs keeps
        their own frame alive.
        """
        refusal = self._refusal
        if refusal is None:
            return None
        now_s = self._clock()
        if now_s >= refusal.until_s:
            return None
        for _ in self._refusals:
            break
        return self.name, refusal, now_s

    def _apply(self, message: Message) -> Verdict:
        now_s = self._clock()
        if self._lock.is_mine():
            return self._defer(message, now_s)
        done = self._store.apply(self.name, self.policy, message, now_s)
        if done.circuit is not self._circuit:
            self._adopt(done.circuit)
        for event in done.events:
            emit(event, self._sinks)
        if _deferred:
            _hear_deferred()
        return done.verdict

    def _defer(self, message: Message, now_s: float) -> Verdict:
        """Answer a finalizer or signal handler that interrupted this thread at its bookkeeping.

        What it tells is heard right after; what it asks is answered by the snapshot, and no
        probe is given away.
        """
        circuit = self._circuit
        verdict = standing(self.policy, circuit, max(now_s, circuit.seen_s))
        if not isinstance(message, Ask):
            _deferred.append((self, message))
        elif verdict.admitted and (verdict.phase in _FLOWING or circuit.mode is not Mode.AUTO):
            return verdict._replace(permit=Permit(circuit.generation))
        else:
            _deferred.append((self, Tell(Signal(count=0, refused=1))))
        return verdict

    def _adopt(self, circuit: Circuit) -> None:
        """Make this the snapshot, unless another thread has already seen a newer one."""
        due_s = self._due_s()
        with self._lock.taken():
            if circuit.version < self._circuit.version:
                return
            ended = self._look_at(circuit, due_s)
            late = 0 if ended is None else ended.end()
            # Last: a fork or an interrupt before this leaves a snapshot that the next message mends.
            self._circuit = circuit
        if ended is not None and late:
            self._apply(Tell(self._success(late), ended.permit))

    def _look_at(self, circuit: Circuit, due_s: float) -> Run | None:
        """Set what the fast paths read; returns the run that this ends, if it ends one."""
        run = self._run
        if circuit.phase is Phase.CLOSED and circuit.mode is not Mode.HELD_OPEN:
            if run is not None and run.permit.generation == circuit.generation:
                return None
            self._refusal = None
            self._set_run(Run(Permit(circuit.generation), due_s))
            return run
        self._set_run(None)
        if self._refusals is NO_REFUSALS:
            self._refusals = repeat(None, MANY)  # before the refusal, or somebody is not counted
        self._refusal = self._what_to_refuse_with(circuit)
        return run

    def _what_to_refuse_with(self, circuit: Circuit) -> Refusal | None:
        until_s = refuses_until_s(self.policy, circuit)
        if until_s == -math.inf:
            return None
        return self._refusal_of(circuit, standing(self.policy, circuit, circuit.seen_s), until_s)

    def _refusal_of(self, circuit: Circuit, verdict: Verdict, until_s: float) -> Refusal:
        last_error = circuit.failures[-1].error if circuit.failures else None
        held = circuit.mode is Mode.HELD_OPEN
        return Refusal(verdict.phase, verdict.reason, until_s, last_error, held)

    def _set_run(self, run: Run | None) -> None:
        self._run = run

    def _due_s(self) -> float:
        if self._slow_from_s is None:
            return math.inf
        return self._clock() + min(FOLD_EVERY_S, self._slow_from_s)

    def _success(self, count: int) -> Signal:
        # Nothing in a run was slow, and to the detectors all durations that are not are alike.
        return Signal(ok=True, seconds=None if self._slow_from_s is None else 0.0, count=count)

    def _fold_run(self, run: Run, *, more: int) -> None:
        """Fold what a run has counted, and `more` that found no ticket."""
        due_s, taken = self._due_s(), 0
        if not self._lock.is_mine():
            with self._lock.taken():
                taken = run.count() if run is self._run else 0
                run.due_s = due_s
        if taken + more:
            self._apply(Tell(self._success(taken + more), run.permit))

    def _fold_pending(self) -> None:
        """Fold the successes and refusals that the circuit has not heard of yet."""
        run = self._run
        if run is not None and length_hint(run.tickets) + run.counted < TICKETS:
            self._fold_run(run, more=0)
        if self._refusals is NO_REFUSALS or not self._new_refusals() or self._lock.is_mine():
            return
        with self._lock.taken():
            refused = self._new_refusals()
            self._refusals_folded += refused
        if refused:
            self._apply(Tell(Signal(count=0, refused=refused)))

    def _new_refusals(self) -> int:
        return MANY - length_hint(self._refusals) - self._refusals_folded

    # Pickling

    def _config(self) -> dict[str, Any]:
        """The arguments that make a breaker like this one."""
        return {
            "name": self.name,
            "policy": self.policy,
            "clock": self._clock.clock if isinstance(self._clock, Shifted) else self._clock,
            "sinks": self._sinks,
        }

    @classmethod
    def _restore(cls, config: dict[str, Any], circuit: Circuit, now_s: float) -> Self:
        """A breaker in the state it was pickled in; its time goes on from there."""
        breaker = cls(**config)
        by_s = now_s - breaker._clock()
        if by_s:
            breaker._clock = Shifted(breaker._clock, by_s)
        breaker._store.restore(circuit)
        breaker._adopt(circuit)
        return breaker

    def __reduce__(self) -> tuple[Any, ...]:
        return self._restore, (self._config(), self.snapshot(), self._clock())

    def __repr__(self) -> str:
        circuit = self._circuit
        return f"<{type(self).__name__} {self.name!r} {circuit.phase} mode={circuit.mode}>"


def _hear_deferred() -> None:
    """Fold what was put off, once: what cannot be folded yet is put off again."""
    for _ in range(len(_deferred)):
        try:
            breaker, message = _deferred.popleft()
        except IndexError:
            return  # another thread hears it
        breaker._apply(message)  # noqa: SLF001
