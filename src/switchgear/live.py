"""A circuit as one process holds it: what the fast paths read, and what the circuit has yet to hear.

A closed circuit is passed and an open one refused by a snapshot, without a lock; successes and
refusals are counted meanwhile and folded in later. Everything else is a message to the store.
"""

import math
from collections import deque
from collections.abc import Iterator
from itertools import repeat
from operator import length_hint
from typing import NamedTuple

from switchgear.clock import Clock
from switchgear.core.policy import Policy
from switchgear.core.standing import refuses_until_s, standing
from switchgear.core.types import (
    Ask,
    Circuit,
    Message,
    Mode,
    Permit,
    Phase,
    Signal,
    Step,
    Tell,
    Verdict,
)
from switchgear.errors import Refusal, Rejected
from switchgear.listeners import Sink, emit
from switchgear.locks import ForkSafeLock
from switchgear.runs import FOLD_EVERY_S, MANY, Run
from switchgear.stores.base import Remembers
from switchgear.stores.memory import MemoryCell

NO_REFUSALS = repeat(None, 0)
TIME_PASSES = Tell(Signal(count=0))

_FLOWING = (Phase.CLOSED, Phase.TRIPPING)
_deferred: "deque[tuple[LiveCircuit, Message]]" = deque()
"""What finalizers and signal handlers said in the middle of a section of the breaker itself."""


class Times(NamedTuple):
    """What the clocks said before the lock was taken."""

    due_s: float
    """When, on our own clock, a run must be folded and a snapshot read again."""
    ahead_s: float
    """How far our own clock is ahead of the circuit's."""


class LiveCircuit:
    """The inside of a breaker. Thread-safe, task-safe, fork-safe; user code runs under no lock.

    Without a `store` it remembers the circuit itself. A store that others share comes with its
    `wall`, the clock of those who share it; `clock` then only measures how long things take.
    """

    __slots__ = (
        "__weakref__",
        "_circuit",
        "_clock",
        "_lock",
        "_probe_refusal",
        "_refusal",
        "_refusals",
        "_refusals_folded",
        "_refuse_until_s",
        "_run",
        "_sinks",
        "_slow_from_s",
        "_store",
        "_wall",
        "name",
        "policy",
    )

    def __init__(
        self,
        name: str,
        policy: Policy,
        *,
        clock: Clock,
        sinks: tuple[Sink, ...],
        store: Remembers | None,
        wall: Clock | None,
    ) -> None:
        self.name = name
        self.policy = policy
        self._clock = clock
        self._wall = wall
        self._sinks = sinks
        self._slow_from_s = policy.slow_from_s
        self._lock = ForkSafeLock()
        self._store: Remembers = MemoryCell(self._lock) if store is None else store
        self._run: Run | None = None
        """Where successes are counted while the circuit is closed; `None` while it is not."""
        self._refusal: Refusal | None = None
        """What everybody is told until its time, while the circuit refuses everybody."""
        self._probe_refusal: Refusal | None = None
        """The same while it refuses because of its probes: all but those who are inside of one."""
        self._refuse_until_s = -math.inf
        self._refusals: Iterator[None] = NO_REFUSALS
        """Counts refusals by what is left of it: taking one is atomic and needs no lock."""
        self._refusals_folded = 0
        self._circuit = policy.start(self.name, self._now_s())
        self._look_at(self._circuit, self._times())

    # Time

    def _now_s(self) -> float:
        """Now, as the circuit counts time."""
        return self._clock() if self._wall is None else self._wall()

    def _due_s(self) -> float:
        """When, on our own clock, a run must be folded and a snapshot read again."""
        limits = [] if self._slow_from_s is None else [FOLD_EVERY_S, self._slow_from_s]
        if self._wall is not None:
            refresh_s = self._store.refresh_s
            limits.append(FOLD_EVERY_S if refresh_s is None else refresh_s)
        return self._clock() + min(limits) if limits else math.inf

    def _times(self) -> Times:
        """What clocks have to say of a snapshot; asked for first, because they are user code."""
        ahead_s = 0.0 if self._wall is None else self._clock() - self._wall()
        return Times(self._due_s(), ahead_s)

    @property
    def _polls(self) -> bool:
        """Whether a snapshot must be read again now and then, because nobody pushes changes."""
        return self._wall is not None and self._store.refresh_s is not None

    @property
    def _asks_always(self) -> bool:
        """Whether nothing passes or is refused unasked: a strict policy over a shared store."""
        return self.policy.strict and self._wall is not None

    def _fresh_run(self) -> Run | None:
        """The run to count a call in, if the circuit is closed: as far as is known, and we look."""
        run = self._run
        if run is not None and self._polls and self._clock() >= run.due_s:
            self._fold_pending()
            self._apply(TIME_PASSES)
            run.due_s = self._due_s()
            return self._run
        return run

    async def _afresh_run(self) -> Run | None:
        run = self._run
        if run is not None and self._polls and self._clock() >= run.due_s:
            await self._afold_pending()
            await self._aapply(TIME_PASSES)
            run.due_s = self._due_s()
            return self._run
        return run

    # Asking

    def _ask(self) -> Permit:
        """Ask a circuit that is not simply closed."""
        refused = self._refused()
        if refused is not None:
            raise Rejected(*refused)
        nested = self._nested_permit()
        if nested is not None:
            return nested
        self._fold_pending()
        return self._permit(self._apply(Ask()))

    async def _aask(self) -> Permit:
        refused = self._refused()
        if refused is not None:
            raise Rejected(*refused)
        nested = self._nested_permit()
        if nested is not None:
            return nested
        await self._afold_pending()
        return self._permit(await self._aapply(Ask()))

    def _permit(self, verdict: Verdict) -> Permit:
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
            refusal = self._probe_refusal
            if refusal is None or self._nested_permit() is not None:
                return None
        now_s = self._clock()
        if now_s >= self._refuse_until_s:
            return None
        for _ in self._refusals:
            break
        return self.name, refusal, now_s

    def _nested_permit(self) -> Permit | None:
        """Leave for what runs inside a probe of this very circuit: the guards know of such."""
        return None

    # Messages

    def _apply(self, message: Message, ago_s: float = 0.0) -> Verdict:
        now_s = self._now_s() - ago_s
        if self._lock.is_mine() or self._store.is_mine():
            return self._defer(message, now_s)
        return self._follow(self._store.apply(self.name, self.policy, message, now_s))

    def _fold(self, message: Tell, ago_s: float = 0.0) -> None:
        """Tell what was counted. An interrupt before it is committed leaves it to be told."""
        now_s = self._now_s() - ago_s
        if self._lock.is_mine() or self._store.is_mine():
            self._defer(message, now_s)
            return
        try:
            done = self._store.apply(self.name, self.policy, message, now_s)
        except BaseException:
            self._put_back(message)
            raise
        self._follow(done)

    def _put_back(self, message: Tell) -> None:
        signal, permit = message.signal, message.permit
        with self._lock.taken():
            self._refusals_folded -= signal.refused
            run = self._run
            if run is not None and run.permit == permit:
                run.owed += signal.count
                return
        if signal.count:  # the run has ended meanwhile, and these are late
            _deferred.append((self, message))

    def _follow(self, done: Step) -> Verdict:
        late = self._take(done)
        if late is not None:
            self._fold(late)
        return done.verdict

    async def _aapply(self, message: Message, ago_s: float = 0.0) -> Verdict:
        if self._wall is None:
            return self._apply(message, ago_s)  # in memory: nothing to wait for
        now_s = self._now_s() - ago_s
        done = await self._store.aapply(self.name, self.policy, message, now_s)
        late = self._take(done)
        if late is not None:
            await self._aapply(late)
        return done.verdict

    async def _afold(self, message: Tell, ago_s: float) -> None:
        if self._wall is None:
            self._fold(message, ago_s)
        else:  # if it is cancelled, the store may have it: rather lost than counted twice
            await self._aapply(message, ago_s)

    def _take(self, done: Step) -> Tell | None:
        """Adopt what a message did; returns what is still to be told because of it."""
        late = self._adopt(done.circuit) if done.circuit is not self._circuit else None
        if done.events and self._sinks:
            emit(done.events, self._sinks)
        if _deferred:
            _hear_deferred()
        return late

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

    def _adopt(self, circuit: Circuit) -> Tell | None:
        """Make this the snapshot, unless another thread has already seen a newer one."""
        times, late = self._times(), 0
        with self._lock.taken():
            if circuit.version < self._circuit.version:
                return None
            ended, run = self._look_at(circuit, times), self._run
            if ended is not None and run is not None and run.permit == ended.permit:
                run.take_over(ended, self._most(circuit))
            elif ended is not None:
                late = ended.end()
            # Last: a fork or an interrupt before this leaves a snapshot that the next message mends.
            self._circuit = circuit
        return Tell(self._success(late), ended.permit) if ended is not None and late else None

    # The snapshot

    def _look_at(self, circuit: Circuit, times: Times) -> Run | None:
        """Set what the fast paths read; returns the run that this ends, if it ends one."""
        run = self._run
        closed = circuit.phase is Phase.CLOSED and circuit.mode is not Mode.HELD_OPEN
        if closed and not self._asks_always:
            most = self._most(circuit)
            if run is not None and run.permit.generation == circuit.generation:
                if run.fits(most):
                    self._set_run(run)  # again: pushes may have begun or ceased to arrive
                    return None
                self._set_run(Run(run.permit, run.due_s, 0))  # which takes over from this one
                return run
            self._refusal = self._probe_refusal = None
            self._set_run(Run(Permit(circuit.generation), times.due_s, most))
            return run
        self._set_run(None)
        if self._refusals is NO_REFUSALS:
            self._refusals = repeat(None, MANY)  # before the refusal, or somebody is not counted
        refusal = None if self._asks_always else self._what_to_refuse_with(circuit, times)
        probing = circuit.phase is Phase.HALF_OPEN and circuit.mode is Mode.AUTO
        self._probe_refusal, self._refusal = (refusal, None) if probing else (None, refusal)
        return run

    def _most(self, circuit: Circuit) -> int:
        """How many successes may go untold: the next one could make a detector begin to judge."""
        try:
            before = self.policy.judges_after(circuit.memories, self._success(1), circuit.seen_s)
        except (AttributeError, TypeError, ValueError):
            # Pushed by one whose policy has other detectors; the next message brings our own.
            return MANY
        return before - 1 if before else MANY

    def _what_to_refuse_with(self, circuit: Circuit, times: Times) -> Refusal | None:
        until_s = refuses_until_s(self.policy, circuit)
        if until_s == -math.inf:
            return None
        until_s += times.ahead_s
        self._refuse_until_s = min(until_s, times.due_s) if self._polls else until_s
        return self._refusal_of(circuit, standing(self.policy, circuit, circuit.seen_s), until_s)

    def _refusal_of(self, circuit: Circuit, verdict: Verdict, until_s: float) -> Refusal:
        last_error = circuit.failures[-1].error if circuit.failures else None
        held = circuit.mode is Mode.HELD_OPEN
        return Refusal(verdict.phase, verdict.reason, until_s, last_error, held)

    def _set_run(self, run: Run | None) -> None:
        self._run = run

    # What the circuit has yet to hear

    def _success(self, count: int) -> Signal:
        # Nothing in a run was slow, and to the detectors all durations that are not are alike.
        return Signal(ok=True, seconds=None if self._slow_from_s is None else 0.0, count=count)

    def _fold_run(self, run: Run, *, more: int) -> None:
        """Fold what a run has counted, and `more` that found no ticket; or leave it to the keeper."""
        if not self._put_off(run, more):
            for message, ago_s in self._counted(run, more):
                self._fold(message, ago_s)

    async def _afold_run(self, run: Run, *, more: int) -> None:
        if not self._put_off(run, more):
            for message, ago_s in self._counted(run, more):
                await self._afold(message, ago_s)

    def _put_off(self, run: Run, more: int) -> bool:
        """Whether it could be left to the keeper of the panel, who folds it within the second.

        Where changes are pushed a closed call sends nothing, however many there are, unless with
        one of them a detector begins to judge.
        """
        if self._wall is None or self._polls or self._lock.is_mine():
            return False
        with self._lock.taken():
            if run is self._run and self._most(self._circuit) == MANY:
                run.put_off(more)
                return True
        return False

    def _counted(self, run: Run, more: int) -> Iterator[tuple[Tell, float]]:
        """What a run has counted as a message, and how long ago that was.

        Tickets are taken only before a run is due, so an overdue run is as old as that: a pause
        does not make its successes new.
        """
        now_s, due_s, taken, was_due_s = self._clock(), self._due_s(), 0, run.due_s
        if not self._lock.is_mine():
            with self._lock.taken():
                if run is self._run:
                    taken = run.count(self._most(self._circuit) - more)
                run.due_s = due_s
        overdue_s = max(0.0, now_s - was_due_s)
        if taken and more and overdue_s:
            yield Tell(self._success(taken), run.permit), overdue_s
            yield Tell(self._success(more), run.permit), 0.0
        elif taken + more:
            yield Tell(self._success(taken + more), run.permit), 0.0 if more else overdue_s

    def _fold_pending(self) -> None:
        """Fold the successes and refusals that the circuit has not heard of yet."""
        for message, ago_s in self._pending():
            self._fold(message, ago_s)

    async def _afold_pending(self) -> None:
        for message, ago_s in self._pending():
            await self._afold(message, ago_s)

    def _pending(self) -> Iterator[tuple[Tell, float]]:
        run = self._run
        if run is not None and run.is_pending:
            yield from self._counted(run, 0)
        if self._refusals is NO_REFUSALS or not self._new_refusals() or self._lock.is_mine():
            return
        with self._lock.taken():
            refused = self._new_refusals()
            self._refusals_folded += refused
        if refused:
            yield Tell(Signal(count=0, refused=refused)), 0.0

    def _new_refusals(self) -> int:
        return MANY - length_hint(self._refusals) - self._refusals_folded


def _hear_deferred() -> None:
    """Fold what was put off, once: what cannot be folded yet is put off again."""
    for _ in range(len(_deferred)):
        try:
            live, message = _deferred.popleft()
        except IndexError:
            return  # another thread hears it
        live._apply(message)  # noqa: SLF001
