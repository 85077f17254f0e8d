"""A circuit as one process lives with it: asking, telling, and what the circuit has yet to hear.

Most calls are passed or refused by the snapshot; successes and refusals are counted meanwhile and
folded in later. Everything else is a message to the store.
"""

import math
from collections import deque
from collections.abc import Iterator
from operator import length_hint

from switchgear.core.standing import standing
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
from switchgear.event_log import log_events
from switchgear.listeners import emit
from switchgear.runs import MANY, Run
from switchgear.snapshot import NO_REFUSALS, Snapshot

TIME_PASSES = Tell(Signal(count=0))

_FLOWING = (Phase.CLOSED, Phase.TRIPPING)
_deferred: "deque[tuple[LiveCircuit, Message]]" = deque()
"""What finalizers and signal handlers said in the middle of a section of the breaker itself."""


class LiveCircuit(Snapshot):
    """The inside of a breaker. Thread-safe, task-safe, fork-safe; user code runs under no lock."""

    __slots__ = ()

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
            if self._on_call:
                self._report_refusal((self.name, refusal, now_s))
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
        if self._on_call:
            self._report_refusal((self.name, refusal, now_s))
        return self.name, refusal, now_s

    def _report_refusal(self, refused: tuple[str, Refusal, float]) -> None:
        """Let the hooks of calls see a refusal: the guards do."""

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
        if done.events:
            log_events(done.events, self.sinks)
            if self.sinks:
                emit(done.events, self.sinks)
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

    # What the circuit has yet to hear

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
        one of them a detector begins to judge. Elsewhere nobody keeps: put off, they would all look
        as old as the first of them.
        """
        if not self._store.pushes or self._polls or self._lock.is_mine():
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
