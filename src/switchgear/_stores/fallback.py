"""While a shared store cannot be reached, circuits continue and updates are saved later.

Circuits continue from their last known state in the memory of this process, with an event, and records
are queued. About once a second one caller tries the store again. When the store is back, a state
that it lost is restored (a Redis server that restarted empty), the queue is saved in order, and
another event contains the length of the outage. Circuits with a strict policy refuse instead, and
overrides fail, so that operators know that they had no effect.
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakMethod

from switchgear._core.errors import (
    OverrideRefused,
    StoreCorrupt,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
)
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    Circuit,
    DatedRecord,
    Event,
    EventKind,
    Message,
    Override,
    Record,
    ReportSource,
    Signal,
    Step,
    Verdict,
)
from switchgear._sinks.dispatch import log_exception, log_warning
from switchgear._stores.backlog import LISTED, Backlog
from switchgear._stores.base import (
    Entry,
    Store,
    StoredCircuit,
    Transaction,
    Vacuumed,
    checked_glob,
    checked_name,
    last_commit,
    was_committed,
)
from switchgear._stores.memory import MemoryStore
from switchgear._stores.operator import OperatorLock
from switchgear._system.clock import Clock
from switchgear._system.threads import ForkSafeLock
from switchgear._text.formats import duration

T = TypeVar("T")

EVERY_S = 0.05
"""Seconds that successes on a warm circuit wait to be reported together."""
SOON_S = 0.005
"""Seconds by which a scheduled call may be late: the thread is not woken for a smaller difference."""
LINGER_S = 2.0
"""Seconds that the thread waits for another warm circuit before it ends."""
Tick = Callable[[], float]
"""Submits what is due and returns the seconds until more is due; infinity: nothing more."""


class Submitter:
    """Reports the successes on warm circuits from one daemon thread. Thread-safe; `add` is cheap."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._ticks: dict[int, tuple[WeakMethod[Tick], float]] = {}
        """What to call and when, by owner. Weak references, so that a panel can drop unused breakers."""
        self._thread: threading.Thread | None = None
        self._stopped = False

    def add(self, owner: object, tick: Tick, wait_s: float = 0.0) -> None:
        """Call `tick` after `wait_s` seconds, and again whenever it returns that more is due."""
        if self._stopped:
            return
        due_s = monotonic() + wait_s
        known = self._ticks.get(id(owner))
        if known is not None and known[1] <= due_s + SOON_S and known[0]() is not None:
            return
        with self._lock:
            self._schedule(id(owner), WeakMethod(tick), due_s)
            thread = self._thread
            if thread is None or not thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="switchgear-submitter", daemon=True
                )
                self._thread.start()
        self._woken.set()

    def _schedule(self, owner: int, tick: WeakMethod[Tick], due_s: float) -> None:
        known = self._ticks.get(owner)
        if known is not None and known[0]() is not None:
            due_s = min(due_s, known[1])
        self._ticks[owner] = tick, due_s

    def forget_fork(self) -> None:
        """In a forked child: drop the thread and its work, which belong to the parent."""
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._ticks, self._thread = {}, None

    def stop(self) -> None:
        """End the thread, after one more tick of each circuit."""
        self._stopped = True
        self._woken.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def _run(self) -> None:
        idle_since_s = monotonic()
        while not self._stopped:
            due_s = min((due_s for _, due_s in [*self._ticks.values()]), default=math.inf)
            self._woken.wait(max(0.0, min(due_s - monotonic(), LINGER_S)))
            self._woken.clear()
            for owner, (method, due_s) in list(self._ticks.items()):
                if due_s <= monotonic():
                    self._call(owner, method)
                    idle_since_s = monotonic()
            if not self._ticks and monotonic() - idle_since_s >= LINGER_S:
                with self._lock:
                    if not self._ticks:
                        self._thread = None
                        return

    def _call(self, owner: int, method: WeakMethod[Tick]) -> None:
        with self._lock:
            self._ticks.pop(owner, None)  # before the call: it may schedule the owner again
        tick = method()
        wait_s = math.inf if tick is None else _attempt(tick)
        if wait_s < math.inf:
            with self._lock:
                self._schedule(owner, method, monotonic() + wait_s)


def _attempt(tick: Tick) -> float:
    try:
        return tick()
    except Exception:  # noqa: BLE001  an error of one circuit must not affect the others
        log_exception("successes of a warm circuit could not be submitted")
        return math.inf


RETRY_S = 1.0
"""Default seconds between two attempts to reach a lost store."""
CLOSE_S = 5.0
"""Seconds that closing a panel waits for updates that are being saved."""
OF_ONE_CIRCUIT = (StoreCorrupt, StoreTooNew)
"""Errors that concern one circuit, not the whole store."""


class Resilient:
    """A store that keeps working for breakers during an outage.

    Only messages are accepted while the inner store is unreachable; all other operations raise an error.
    The store is tried again about once a second, and calls in between raise the last error. A full or
    read-only store can still be read. Thread-safe; the inner store is called without a lock.

    `url`: the URL with which another process opens the same store. `operator`: checks overrides.
    """

    def __init__(
        self,
        store: Store,
        *,
        url: str | None = None,
        operator: OperatorLock | None = None,
        clock: Clock = monotonic,
        retry_s: float = RETRY_S,
    ) -> None:
        self.inner = store
        self.label: str = store.label
        self.now_s: Clock = store.now_s
        """The store's clock, which continues while the store is unreachable."""
        self.pushes: bool = store.pushes
        self._clock = clock
        self._retry_s = retry_s
        self._lock = ForkSafeLock()
        self._lost: StoreError | None = None
        self._retry_at_s = 0.0
        self._failures = 0
        """Number of times that the store was unreachable."""
        self.url = url
        self.operator: OperatorLock = operator or OperatorLock()
        self.is_kept: bool = False
        """Whether a thread calls `try_again` about once a second, so that no caller has to."""
        self._is_memory = type(store) is MemoryStore
        """Whether the store is in the memory of this process, and so never unreachable."""
        self._returning = threading.Lock()
        self._inside: set[int] = set()
        self._known: dict[str, StoredCircuit] = {}
        """The last known states in the store."""
        self._shift: dict[str, int] = {}
        """Offsets of versions, so that they increase for local readers even if those of the store decrease."""
        self._away: dict[str, Backlog] = {}
        """Circuits that are kept in memory while the store is unreachable or fails for them."""
        self.submitter: Submitter = Submitter()
        self.process: Callable[[], str] | None = getattr(store, "process", None)
        """The name under which this process reports to shared circuits; `None`: it shares none."""
        self._news: dict[str, tuple[Event, ...]] = {}
        """Events that the breaker has not received yet, from the recovery of the store or a cancelled task."""

    @property
    def refresh_s(self) -> float | None:
        """Maximum age of a snapshot in seconds: that of the store, or the retry interval in an outage."""
        return self._retry_s if self._lost is not None else self.inner.refresh_s

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def is_mine(self) -> bool:
        """Whether the calling thread is inside `apply`: then a finalizer must not call it."""
        return threading.get_ident() in self._inside

    def apply(
        self,
        key: str,
        policy: Policy,
        message: Message,
        now_s: float,
        before: DatedRecord | None = None,
    ) -> Step:
        """Apply a message in the store or, while the store is unreachable, in memory.

        `before`: a report to apply first, for a store that pushes changes.
        """
        if key not in self._known:
            checked_name(key)
        if isinstance(message, Override) and message.is_override:
            self.operator.demand(self, key)
        me = threading.get_ident()
        try:
            self._inside.add(me)  # inside `try`, so that an interrupt cannot leave it there
            if self._is_memory:
                return self.inner.apply(key, policy, message, now_s)
            if self._lost is not None or self._away:
                if self._is_away(key):
                    self._try_again()
                if self._is_away(key):
                    if before is None:
                        return self._fold_here(key, policy, message, now_s)
                    first = self._fold_here(key, policy, before.record, before.at_s)
                    done = self._fold_here(key, policy, message, now_s)
                    return done._replace(events=first.events + done.events)
            try:
                if before is None:
                    done = self.inner.apply(key, policy, message, now_s)
                else:
                    store: Any = self.inner
                    done = store.apply(key, policy, message, now_s, before=before)
            except StoreError as error:
                if before is None or error.before_in_doubt == "":
                    return self._lose(error, key, policy, message, now_s)
                in_doubt, error.in_doubt = error.in_doubt, error.before_in_doubt
                first = self._lose(error, key, policy, before.record, before.at_s)
                error.in_doubt = in_doubt
                done = self._lose(error, key, policy, message, now_s)
                return done._replace(events=first.events + done.events)
            return self._note_step(key, policy, done)
        finally:
            self._inside.discard(me)

    async def aapply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        if self._is_memory:
            return self.apply(key, policy, message, now_s)
        checked_name(key)
        if isinstance(message, Override) and message.is_override:
            await _in_thread(lambda: self.operator.demand(self, key))
        if self._is_away(key) and not self.is_kept:
            await _in_thread(self._try_again)
        if self._is_away(key):
            return self._fold_here(key, policy, message, now_s)
        try:
            done = await self.inner.aapply(key, policy, message, now_s)
        except StoreError as error:
            return self._lose(error, key, policy, message, now_s)
        except BaseException as cancelled:
            cause = cancelled.__cause__
            if isinstance(cause, StoreError) and isinstance(message, Record):
                lost = self._lose(cause, key, policy, message, now_s)
                with self._lock:  # the next message returns them
                    self._news[key] = self._news.get(key, ()) + lost.events
            raise
        return self._note_step(key, policy, done)

    def seen(self, circuit: Circuit) -> Circuit:
        """The circuit that the store pushed, with the version numbers of this process."""
        with self._lock:
            known = self._known.get(circuit.key)
            if known is not None:
                self._note(StoredCircuit(circuit, known.policy))
            return self._shift_version(circuit)

    def failure_mark(self, key: str) -> Callable[[], float]:
        """A function that returns when a process last reported a failure of the circuit; 0: unknown."""
        look = getattr(self.inner, "failure_mark", None)
        return float if look is None else look(key)

    def on_warm(self, listener: Callable[[str], object]) -> None:
        """Call the listener with names of circuits on which other processes report failures, if pushed."""
        listen = getattr(self.inner, "on_warm", None)
        if listen is not None:
            listen(listener)

    def release(self, key: str) -> None:
        """Drop the local state of a circuit that no breaker of this process uses any longer."""
        if self._is_memory:
            self.inner.release(key)  # type: ignore[attr-defined]
            return
        with self._lock:
            if key not in self._away and key not in self._news:
                self._known.pop(key, None)
                self._shift.pop(key, None)

    def forget_fork(self) -> None:
        """In a forked child: replace locks that another thread of the parent may have held."""
        self.submitter.forget_fork()
        self._returning = threading.Lock()
        self._inside.clear()

    # The other operations raise an error while the store is unreachable.

    @contextmanager
    def _asking(self) -> Iterator[None]:
        if isinstance(self._lost, StoreUnavailable):
            self._try_again()
            lost = self._lost
            if isinstance(lost, StoreUnavailable):
                raise lost.again()
        try:
            yield
        except StoreUnavailable as error:
            self._is_gone(error)
            raise

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        """As in `Store.transact`; overrides need the operator token here, too."""
        is_allowed = self.operator.allows(self)
        with self._asking():
            if is_allowed:
                return self.inner.transact(name, work)
            return self.inner.transact(name, lambda inside: work(_Checked(inside)))

    def get(self, key: str) -> StoredCircuit | None:
        checked_name(key)
        with self._asking():
            return self.inner.get(key)

    def find(self, glob: str = "*") -> Iterator[StoredCircuit]:
        checked_glob(glob)
        with self._asking():
            yield from self.inner.find(glob)

    def events(
        self, *, after: str | None = None, glob: str = "*", limit: int = 1000
    ) -> list[Entry]:
        checked_glob(glob)
        with self._asking():
            return self.inner.events(after=after, glob=glob, limit=limit)

    def retain(self, *, keep_events: int, idle_s: float) -> None:
        self.inner.retain(keep_events=keep_events, idle_s=idle_s)

    def operator_digest(self) -> str | None:
        with self._asking():
            return self.inner.operator_digest()

    def set_operator_digest(self, digest: str | None, *, instead_of: str | None) -> bool:
        """Replace the digest; replacing an existing one needs its token."""
        if instead_of is not None:
            self.operator.demand(self, "*", "a change of the operator token")
        with self._asking():
            return self.inner.set_operator_digest(digest, instead_of=instead_of)

    def facts(self) -> dict[str, str]:
        with self._asking():
            return self.inner.facts()

    def put(self, found: StoredCircuit, events: Sequence[Event] = ()) -> bool:
        """Save a circuit of another store; needs the operator token, as an override does."""
        self.operator.demand(self, checked_name(found.circuit.key))
        with self._asking():
            return self.inner.put(found, events)

    def vacuum(self, *, keep_events: int, idle_s: float, now_s: float) -> Vacuumed:
        """Remove the oldest events and abandoned circuits; below the minimum only with the operator token."""
        self.operator.demand_for_vacuum(self, keep_events, idle_s)
        with self._asking():
            return self.inner.vacuum(keep_events=keep_events, idle_s=idle_s, now_s=now_s)

    def on_change(
        self,
        listener: Callable[[Circuit], object],
        missing: Callable[[str], object] | None = None,
    ) -> None:
        """Call `listener` with circuits that other processes changed, `missing` with names of lost circuits."""

        def changed(circuit: Circuit) -> None:
            known = self._known.get(circuit.key)
            if missing is None or known is None or _is_news(circuit, known.circuit):
                listener(self.seen(circuit))
            else:  # the store restarted empty, and needs the local state
                self.operator.keep_again_in(self)
                missing(circuit.key)

        self.inner.on_change(changed)

    def try_again(self) -> None:
        """Save the queued updates if a retry is due and the store is back."""
        if (self._away or self._lost is not None) and self._clock() >= self._retry_at_s:
            self._come_back()

    def close(self) -> None:
        """Try a last time to save the queue, and close. The number of unsaved updates is logged."""
        failures = self._failures
        self.submitter.stop()
        if self._away and self._returning.acquire(
            timeout=CLOSE_S
        ):  # after the thread that saves now
            try:
                if self._failures == failures:  # otherwise the server does not respond
                    self._hurry()
                    self._bring_back(self._clock() + CLOSE_S)
            finally:
                self._returning.release()
        self._log_unsaved()
        self.is_kept = False
        self.inner.close()

    def _hurry(self) -> None:
        """Save only sums if saving the whole queue would take too long at the end of a program."""
        with self._lock:
            if sum(map(len, self._away.values())) > LISTED:
                for backlog in self._away.values():
                    backlog.condense()

    def _log_unsaved(self) -> None:
        with self._lock:
            left = sum(backlog.waiting for backlog in self._away.values())
        if left:
            updates = f"{left} {'update' if left == 1 else 'updates'}"
            log_warning("%s could not be saved to %s: %s", updates, self.label, self._lost)

    # The state in memory

    def _note_step(self, key: str, policy: Policy, done: Step) -> Step:
        found = StoredCircuit(done.circuit, policy)
        with self._lock:
            known = self._known.get(key)
            if known is None or known.circuit.version <= done.circuit.version:
                self._known[key] = found
            else:
                self._note(found)
            if not self._news and not self._shift:
                return done
            news = self._news.pop(key, ())
            circuit = self._shift_version(done.circuit)
        return Step(circuit, done.verdict, news + done.events)

    def _note(self, found: StoredCircuit) -> None:
        """Remember the state of the store, unless the known state is newer.

        A lower version at a later time is also newer: the circuit was removed and restarted. For local
        readers, its versions then continue after the last version that they read.
        """
        circuit = found.circuit
        known = self._known.get(circuit.key)
        if known is not None and circuit.version < known.circuit.version:
            if circuit.seen_s <= known.circuit.seen_s:
                return
            shown = known.circuit.version + self._shift.get(circuit.key, 0)
            self._shift[circuit.key] = shown + 1 - circuit.version
        self._known[circuit.key] = found

    def _shift_version(self, circuit: Circuit) -> Circuit:
        shift = self._shift.get(circuit.key, 0)
        return circuit._replace(version=circuit.version + shift) if shift else circuit

    def _is_away(self, key: str) -> bool:
        """Whether a circuit is kept in memory because the store is unreachable or fails for it."""
        return self._lost is not None or key in self._away

    def _is_gone(self, error: StoreError) -> None:
        """Note that the store is unreachable now."""
        with self._lock:
            self._lost = error
            self._failures += 1
            self._retry_at_s = self._clock() + self._retry_s

    def _lose(
        self, error: StoreError, key: str, policy: Policy, message: Message, now_s: float
    ) -> Step:
        """Apply a message in memory that the store could not save, and schedule the next attempt."""
        if isinstance(error, OF_ONE_CIRCUIT):
            self._retry_at_s = self._clock() + self._retry_s
        else:
            self._is_gone(error)
        return self._fold_here(key, policy, message, now_s, error)

    def _fold_here(
        self,
        key: str,
        policy: Policy,
        message: Message,
        now_s: float,
        error: StoreError | None = None,
    ) -> Step:
        """Apply a message to the last known state, and queue it to be saved later."""
        in_doubt, applied = None if error is None else error.in_doubt, message
        process = None
        if isinstance(message, Record) and message.source is not None:
            process = message.source.process
            message = message._replace(source=None)  # during an outage the circuit is not shared
        with self._lock:
            backlog = self._away.get(key)
            error = error or (backlog.error if backlog else None) or self._lost
            if isinstance(message, Override) and error is not None:
                raise error.again()
            events = self._news.pop(key, ())
            if backlog is None:
                circuit = self._start(key, policy, now_s)
                backlog = self._away[key] = Backlog(policy, circuit, error, self._clock())
                why = f"{error}; continues from the last known state"
                remark = Override("switchgear", why, kind=EventKind.STORE_LOST)
                gone = step(policy, backlog.circuit, remark, now_s)
                backlog.circuit, events = gone.circuit, events + gone.events
            backlog.process = process or backlog.process
            if isinstance(message, Acquire) and policy.strict:
                backlog.add(Record(Signal(count=0, refused=1)), in_doubt)
                return Step(backlog.circuit, self._strict(backlog), events)
            done = step(policy, backlog.circuit, message, now_s)
            backlog.circuit = done.circuit
            if isinstance(message, Record):
                backlog.add(message, in_doubt)
                last_commit.message = applied
            elif not done.verdict.admitted:
                backlog.add(Record(Signal(count=0, refused=1)), in_doubt)
        return done._replace(events=events + done.events)

    def _start(self, key: str, policy: Policy, now_s: float) -> Circuit:
        known = self._known.get(key)
        return policy.start(key, now_s) if known is None else self._shift_version(known.circuit)

    def _strict(self, backlog: Backlog) -> Verdict:
        circuit = backlog.circuit
        why = f"its policy is strict and its state unknown: {backlog.error}"
        return Verdict(False, circuit.phase, why, self._retry_s, circuit.heat)

    def _try_again(self) -> None:
        if not self.is_kept:
            self.try_again()

    def _come_back(self) -> None:
        """Try the store again, unless another thread does, and save the queued updates."""
        if not self._returning.acquire(blocking=False):
            return
        try:
            self._bring_back(math.inf)
        finally:
            self._returning.release()

    def _bring_back(self, until_s: float) -> None:
        tried: set[str] = set()
        try:
            self._see_whether_it_is_there()
            while (backlog := self._next_backlog(tried)) is not None and self._clock() < until_s:
                try:
                    self._return(backlog)
                except OF_ONE_CIRCUIT as error:
                    tried.add(backlog.circuit.key)
                    backlog.error = error
                    self._retry_at_s = self._clock() + self._retry_s
        except StoreError as error:
            self._is_gone(error)

    def _see_whether_it_is_there(self) -> None:
        """Query the store once, so that an unreachable store costs only one timeout."""
        if self._lost is not None:
            with suppress(*OF_ONE_CIRCUIT):
                self.inner.operator_digest()
        self.operator.keep_again_in(self.inner)

    def _next_backlog(self, tried: set[str]) -> Backlog | None:
        """A circuit with unsaved updates; if there is none, the store is back."""
        with self._lock:
            left = {key: backlog for key, backlog in self._away.items() if key not in tried}
            for backlog in left.values():
                if backlog.first() is not None or not backlog.remarked:
                    return backlog
            # Nothing can be queued in between, because queueing takes the same lock.
            for key, backlog in left.items():
                behind = backlog.circuit.version + 1 - self._known[key].circuit.version
                self._shift[key] = max(self._shift.get(key, 0), behind)
                del self._away[key]
            self._lost = None
        return None

    def _return(self, backlog: Backlog) -> None:
        """Return one circuit to the store: its state if the store lost it, then the queued updates."""
        key, policy = backlog.circuit.key, backlog.policy
        known = self._known.get(key)
        if known is not None:
            self.inner.put(known)  # does nothing if the store still has the circuit
        while (message := self._first_of(backlog)) is not None:
            before, sent = backlog.told, message
            try:
                now_s = self.inner.now_s()
                if backlog.process is not None:  # this process has recorded nothing else until now
                    sent = message._replace(source=ReportSource(backlog.process, now_s))
                last_commit.message = None  # it may be this very message, when it was queued
                done = self._send(key, policy, sent, now_s, backlog.identity_of(message))
                self._mark_saved(backlog, message, done)
            except StoreError as error:
                with self._lock:
                    if error.in_doubt is not None:
                        backlog.doubt(message, error.in_doubt)
                raise
            except BaseException:
                with self._lock:
                    if was_committed(sent) and backlog.told == before:
                        backlog.drop_first(message)
                raise
        if not backlog.remarked:
            gone = duration(self._clock() - backlog.since_s)
            saved = f"{backlog.told} missed updates were saved to it"
            why = f"the store {self.label} is back after {gone}; {saved}"
            remark = Override("switchgear", why, kind=EventKind.STORE_BACK)
            try:
                done = self._send(key, policy, remark, self.inner.now_s(), backlog.remark_in_doubt)
            except StoreError as error:
                backlog.remark_in_doubt = backlog.remark_in_doubt or error.in_doubt
                raise
            self._mark_saved(backlog, None, done)

    def _send(
        self, key: str, policy: Policy, message: Message, now_s: float, identity: str | None
    ) -> Step:
        """Send a message, with its identity if the store may already have saved it."""
        if identity is None:
            return self.inner.apply(key, policy, message, now_s)
        # Only a store whose errors leave doubt has identities.
        store: Any = self.inner
        done: Step = store.apply(key, policy, message, now_s, identity=identity)
        return done

    def _first_of(self, backlog: Backlog) -> Record | None:
        with self._lock:
            return backlog.first()

    def _mark_saved(self, backlog: Backlog, message: Record | None, done: Step) -> None:
        key = done.circuit.key
        with self._lock:
            if message is None:
                backlog.remarked = True
            else:
                backlog.drop_first(message)
            self._known[key] = StoredCircuit(done.circuit, backlog.policy)
            self._news[key] = self._news.get(key, ()) + done.events

    def __reduce__(self) -> tuple[Any, ...]:
        from switchgear._stores.url import reopen  # noqa: PLC0415  it imports this module

        if self.url is None or self.url.startswith("memory:"):
            raise TypeError(
                f"the store {self.label} lives in this process and does not pickle; a panel over "
                "SQLite or Redis does"
            )
        return reopen, (self.url, self.operator.digest)


class _Checked:
    """A transaction that refuses overrides. Used by one thread, inside `transact`."""

    def __init__(self, inside: Transaction) -> None:
        self._inside = inside
        self.now_s = inside.now_s

    @property
    def note(self) -> str | None:
        return self._inside.note

    @note.setter
    def note(self, note: str | None) -> None:
        self._inside.note = note

    @property
    def keep_s(self) -> float:
        return self._inside.keep_s

    @keep_s.setter
    def keep_s(self, keep_s: float) -> None:
        self._inside.keep_s = keep_s

    def apply(self, key: str, policy: Policy, message: Message) -> Step:
        if isinstance(message, Override) and message.is_override:
            raise OverrideRefused(key)
        return self._inside.apply(key, policy, message)


def _is_news(circuit: Circuit, known: Circuit) -> bool:
    return circuit.version > known.version or circuit.seen_s > known.seen_s


async def _in_thread(work: Callable[[], None]) -> None:
    from asyncio import to_thread  # noqa: PLC0415  only for programs with an event loop

    await to_thread(work)
