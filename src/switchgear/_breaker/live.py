"""A circuit as one process lives with it: asking, telling, and what the circuit has yet to hear.

Most calls are passed or refused by the snapshot; successes and refusals are counted meanwhile and
folded in later. Everything else is a message to the store.
"""

import math
from collections import deque
from collections.abc import Iterator
from operator import length_hint
from time import sleep

from switchgear._breaker.snapshot import (
    MOST_TIMES,
    NO_REFUSALS,
    WARM_S,
    SharedEvidence,
    Snapshot,
    dates,
    isolation_reason,
    this_process,
)
from switchgear._breaker.tickets import FOLD_EVERY_S, UNLIMITED, Run
from switchgear._core.errors import Refusal, Rejected
from switchgear._core.evidence import HOLD_S, is_final, is_pending, others
from switchgear._core.machine import step
from switchgear._core.types import (
    Acquire,
    Circuit,
    EventKind,
    Message,
    Mode,
    Override,
    Permit,
    Phase,
    Record,
    Signal,
    Source,
    Step,
    Verdict,
)
from switchgear._core.verdicts import standing
from switchgear._sinks.dispatch import emit
from switchgear._sinks.log import log_events
from switchgear._stores.base import was_committed
from switchgear._stores.submitter import EVERY_S

TIME_PASSES = Record(Signal(count=0))

_FLOWING = (Phase.CLOSED, Phase.TRIPPING)
_deferred: "deque[tuple[LiveCircuit, Message]]" = deque()
"""What finalizers and signal handlers said in the middle of a section of the breaker itself."""


class LiveCircuit(Snapshot):
    """The inside of a breaker. Thread-safe, task-safe, fork-safe; user code runs under no lock."""

    __slots__ = ()

    def _fresh_run(self) -> Run | None:
        """The run to count a call in, if the circuit is closed: as far as is known, and we look."""
        run = self._run
        if run is not None and self._polls:
            self._notice_failures()
            if self._clock() >= run.due_s:
                self._fold_pending()
                self._apply(TIME_PASSES)
                run.due_s = self._due_s()
            return self._run
        return run

    async def _afresh_run(self) -> Run | None:
        run = self._run
        if run is not None and self._polls:
            self._notice_failures()
            if self._clock() >= run.due_s:
                await self._afold_pending()
                await self._aapply(TIME_PASSES)
                run.due_s = self._due_s()
            return self._run
        return run

    # Evidence that several processes share

    def _notice_failures(self) -> None:
        """Become warm if the store says, without being asked, that the circuit failed elsewhere."""
        shared = self._shared
        if shared is None:
            return
        failed_s = self._store.failed_s(self.name)  # type: ignore[attr-defined]
        if failed_s > shared.failed_s:
            shared.failed_s = failed_s
            self.warm()

    def _notice_failure(self, circuit: Circuit) -> None:
        """Become warm if the circuit that was just read has failed a moment ago."""
        shared, failures = self._shared, circuit.failures
        if shared is None or not failures or circuit.phase not in _FLOWING:
            return
        failed_s = failures[-1].at_s
        if failed_s > shared.failed_s and self._now_s() - failed_s < WARM_S:
            shared.failed_s = failed_s
            self.warm()

    def warm(self) -> None:
        """Report successes soon, each with its time: the circuit has just failed somewhere."""
        shared = self._shared
        if shared is None or self._lock.is_mine():
            return
        shared.warm_until_s = self._clock() + WARM_S
        with self._lock.taken():
            run = self._run
            if run is not None and run.issued:
                warm = Run(run.permit, run.due_s, 0)
                self._set_run(warm)
                warm.take_over(run, 0)
        self._store.submitter.add(self, self._tick)  # type: ignore[attr-defined]

    def _tick(self) -> bool:
        """Submit what is due; whether there may be more."""
        shared = self._shared
        if shared is None:
            return False
        now_s, run = self._clock(), self._run
        if run is not None and run.is_pending and now_s - shared.submitted_s >= EVERY_S:
            self._fold_pending()
        if now_s >= shared.settle_at_s:
            shared.settle_at_s = math.inf
            self._apply(TIME_PASSES)
        return now_s < shared.warm_until_s or shared.settle_at_s < math.inf

    def settle(self) -> None:
        """Wait until evidence is final that this process sent a moment ago, and have it judged.

        For a process that ends: what it reported last is judged before that, within `HOLD_S`.
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

    def _with_source(self, message: Message, now_s: float) -> Message:
        """A report with who reports it and when it happened, where others share the circuit."""
        shared = self._shared
        if shared is None or not isinstance(message, Record) or not message.signal.count:
            return message
        if message.source is None:
            times = ((now_s, message.signal.count),)
            message = message._replace(source=Source(shared.process(), now_s, times))
        shared.since_s, shared.submitted_s = now_s, self._clock()
        if message.signal.ok is False:
            shared.failed_s = max(shared.failed_s, now_s)
            self.warm()
        return message

    def _judge_own(self, message: Message, circuit: Circuit, now_s: float) -> None:
        """Judge this process by its own calls, and look again at evidence that is not final."""
        shared = self._shared
        if shared is None:
            return
        if is_pending(circuit):
            shared.settle_at_s = self._clock() + HOLD_S
            self._store.submitter.add(self, self._tick)  # type: ignore[attr-defined]
        is_moot = circuit.phase not in _FLOWING or circuit.mode is not Mode.AUTO
        if is_moot or (shared.isolated and not shared.is_isolated(circuit)):
            shared.own, shared.isolated = None, False
            return
        own = shared.own
        if isinstance(message, Record) and message.signal.count and message.source is not None:
            own = self.policy.start(self.name, now_s) if own is None else own
            shared.own = own = step(self.policy, own, Record(message.signal), now_s).circuit
        if own is None:
            return
        was, is_cut = shared.isolated, own.phase not in _FLOWING
        if is_cut and not was and is_final(circuit, own.outage.opened_at_s):
            if others(circuit, shared.process(), now_s) and own.outage.retry_at_s is not None:
                shared.isolated, shared.generation = True, circuit.generation
            else:
                shared.own = None  # alone: the shared circuit has heard all that there is
        elif was and not is_cut:
            shared.isolated = False
        if was or shared.isolated:
            self._look_again(circuit)
            self._remark_isolation(shared, own, was=was)

    def _look_again(self, circuit: Circuit) -> None:
        """Set the snapshot anew, because this process has been isolated or is no longer."""
        late = self._adopt(circuit)
        if late is not None:
            self._fold(late)

    def _remark_isolation(self, shared: SharedEvidence, own: Circuit, *, was: bool) -> None:
        """Record in the shared circuit that this process is isolated, until when, or no longer."""
        place, retry_at_s = this_process(), own.outage.retry_at_s
        if shared.isolated and own.phase is Phase.OPEN and retry_at_s != shared.remarked_s:
            shared.remarked_s = retry_at_s
            why = f"{place} is isolated: {own.outage.reason}; other processes succeed"
            self._remark(EventKind.ISOLATED, why, retry_at_s)
        elif was and not shared.isolated:
            shared.remarked_s = None
            self._remark(EventKind.REJOINED, f"{place} is no longer isolated: its probe succeeded")

    def _remark(self, kind: EventKind, why: str, until_s: float | None = None) -> None:
        remark = Override("switchgear", why, kind=kind, until_s=until_s, process=this_process())
        self._take(self._store.apply(self.name, self.policy, remark, self._now_s()))

    @property
    def _is_isolated(self) -> bool:
        return self._shared is not None and self._shared.is_isolated(self._circuit)

    def _ask_own(self) -> None:
        """Raise `Rejected` while this process is isolated, unless it may probe."""
        shared = self._shared
        if shared is None or shared.own is None or not shared.is_isolated(self._circuit):
            return
        now_s = self._now_s()
        with self._lock.taken():
            done = step(self.policy, shared.own, Acquire(), now_s)
            shared.own = done.circuit
        self._look_again(self._circuit)
        if done.verdict.permit is None:
            wait_s = done.verdict.retry_after_s or 0.0
            clock_s, reason = self._clock(), isolation_reason(done.verdict.reason)
            refusal = Refusal(done.verdict.phase, reason, clock_s + wait_s, None, False)
            raise Rejected(self.name, refusal, clock_s)

    # Asking

    def _ask(self) -> Permit:
        """Ask a circuit that is not simply closed."""
        refused = self._refused()
        if refused is not None:
            raise Rejected(*refused)
        nested = self._nested_permit()
        if nested is not None:
            return nested
        if self._is_isolated:
            self._apply(TIME_PASSES)  # an operator may have reset the shared circuit
            self._ask_own()
        self._fold_pending()
        return self._permit(self._apply(Acquire()))

    async def _aask(self) -> Permit:
        refused = self._refused()
        if refused is not None:
            raise Rejected(*refused)
        nested = self._nested_permit()
        if nested is not None:
            return nested
        if self._is_isolated:
            await self._aapply(TIME_PASSES)
            self._ask_own()
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
        message = self._with_source(message, now_s)
        done = self._store.apply(self.name, self.policy, message, now_s)
        self._judge_own(message, done.circuit, now_s)
        return self._follow(done)

    def _fold(self, message: Record, ago_s: float = 0.0) -> None:
        """Tell what was counted. An interrupt before it is committed leaves it to be told."""
        now_s = self._now_s() - ago_s
        if self._lock.is_mine() or self._store.is_mine():
            self._defer(message, now_s)
            return
        report = self._with_source(message, now_s)
        try:
            done = self._store.apply(self.name, self.policy, report, now_s)
        except BaseException:
            if not was_committed(report):
                self._put_back(message)
            raise
        self._judge_own(report, done.circuit, now_s)
        self._follow(done)

    def _put_back(self, message: Record) -> None:
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
        message = self._with_source(message, now_s)
        done = await self._store.aapply(self.name, self.policy, message, now_s)
        self._judge_own(message, done.circuit, now_s)
        late = self._take(done)
        if late is not None:
            await self._aapply(late)
        return done.verdict

    async def _afold(self, message: Record, ago_s: float) -> None:
        if self._wall is None:
            self._fold(message, ago_s)
        else:  # if it is cancelled, the store may have it: rather lost than counted twice
            await self._aapply(message, ago_s)

    def _take(self, done: Step) -> Record | None:
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
        if not isinstance(message, Acquire):
            _deferred.append((self, message))
        elif verdict.admitted and (verdict.phase in _FLOWING or circuit.mode is not Mode.AUTO):
            return verdict._replace(permit=Permit(circuit.generation))
        else:
            _deferred.append((self, Record(Signal(count=0, refused=1))))
        return verdict

    def _adopt(self, circuit: Circuit) -> Record | None:
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
        if self._shared is not None:
            self._notice_failure(circuit)
        return Record(self._success(late), ended.permit) if ended is not None and late else None

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
        if self._put_off_dated(run, more):
            return True
        if not self._store.pushes or self._polls or self._lock.is_mine():
            return False
        with self._lock.taken():
            if run is self._run and self._most(self._circuit) == UNLIMITED:
                run.put_off(more)
                return True
        return False

    def _put_off_dated(self, run: Run, more: int) -> bool:
        """Whether a success on a warm circuit could be left to the submitter, with its time."""
        shared = self._shared
        if shared is None or self._clock() >= shared.warm_until_s or self._lock.is_mine():
            return False
        now_s = self._now_s()
        with self._lock.taken():
            now = self._run
            if now is None or now.permit != run.permit:
                return False
            pending = len(now.times) + now.owed + more
            if pending >= min(MOST_TIMES, self._limit(self._circuit)):
                return False
            now.times += (now_s,) * more
        self._store.submitter.add(self, self._tick)  # type: ignore[attr-defined]
        return True

    def _counted(self, run: Run, more: int) -> Iterator[tuple[Record, float]]:
        """What a run has counted as a message, and how long ago that was.

        Tickets are taken only before a run is due, so an overdue run is as old as that: a pause
        does not make its successes new.
        """
        now_s, due_s, taken, was_due_s = self._clock(), self._due_s(), 0, run.due_s
        times: tuple[float, ...] = ()
        if not self._lock.is_mine():
            with self._lock.taken():
                if run is self._run:
                    taken = run.count(self._most(self._circuit) - more)
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
        self, shared: SharedEvidence, run: Run, times: tuple[float, ...], *, before: int, after: int
    ) -> Record:
        """The successes of this process with their times.

        Those that took tickets have none. They happened before anything failed elsewhere, as far as
        is known, so they are as old as the report before this one.
        """
        now_s = self._now_s()
        since_s = min(
            now_s, times[0] if times else now_s, max(shared.since_s, now_s - FOLD_EVERY_S)
        )
        when = ((since_s, before), *dates(times), (now_s, after))
        source = Source(shared.process(), now_s, tuple(part for part in when if part[1]))
        return Record(self._success(before + len(times) + after), run.permit, source)

    def _fold_pending(self) -> None:
        """Fold the successes and refusals that the circuit has not heard of yet."""
        for message, ago_s in self._pending():
            self._fold(message, ago_s)

    async def _afold_pending(self) -> None:
        for message, ago_s in self._pending():
            await self._afold(message, ago_s)

    def _pending(self) -> Iterator[tuple[Record, float]]:
        run = self._run
        if run is not None and run.is_pending:
            yield from self._counted(run, 0)
        if self._refusals is NO_REFUSALS or not self._new_refusals() or self._lock.is_mine():
            return
        with self._lock.taken():
            refused = self._new_refusals()
            self._refusals_folded += refused
        if refused:
            yield Record(Signal(count=0, refused=refused)), 0.0

    def _new_refusals(self) -> int:
        return UNLIMITED - length_hint(self._refusals) - self._refusals_folded


def _hear_deferred() -> None:
    """Fold what was put off, once: what cannot be folded yet is put off again."""
    for _ in range(len(_deferred)):
        try:
            live, message = _deferred.popleft()
        except IndexError:
            return  # another thread hears it
        live._apply(message)  # noqa: SLF001
