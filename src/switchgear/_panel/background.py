"""The breakers of a panel, and its background thread, which receives pushed changes and reports counts.

Over Redis a call of a closed circuit sends nothing and reads no clock. Therefore a background thread
folds the successes about once a second, reads the snapshots again while no changes are pushed, and tries
an unreachable store again, so that no caller waits for a server that does not respond. Over SQLite the
calls themselves do this, and no thread is needed.
"""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from switchgear._breaker.handle import Breaker
from switchgear._breaker.tickets import FOLD_EVERY_S
from switchgear._core.types import Circuit
from switchgear._sinks.dispatch import log_exception
from switchgear._stores.fallback import Resilient

CHECKS_PER_FOLD = 4
"""Number of checks per folding interval for circuits on which this process has begun to make calls:
other processes wait only for the reports of processes that they know."""
KEPT_BREAKERS = 2000
"""Number of breakers that a panel keeps although nothing else refers to them."""
B = TypeVar("B", bound=Breaker)


class KeptBreakers(Mapping[str, B], Generic[B]):
    """The breakers of a panel by name. Thread-safe.

    The most recently used breakers are kept, and all breakers that cannot be created again from their
    name alone. Others are kept only while something else refers to them. Before a breaker is dropped, its
    counts are recorded; the circuit itself is in the store.
    """

    def __init__(self, most: int, on_drop: Callable[[str], object]) -> None:
        self._most = most
        self._on_drop = on_drop
        self._all: WeakValueDictionary[str, B] = WeakValueDictionary()
        self._kept: dict[str, B] = {}
        self._recent: OrderedDict[str, B] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str, default: B | None = None) -> B | None:  # type: ignore[override]
        """The breaker with this name, which is now the most recently used; or the default."""
        breaker = self._recent.get(name)
        if breaker is not None:
            try:
                self._recent.move_to_end(name)
            except KeyError:
                self._keep_again(name, breaker)  # another thread has just released it
            return breaker
        breaker = self._kept.get(name)
        if breaker is None and (breaker := self._all.get(name)) is not None:
            self._keep_again(name, breaker)
        return default if breaker is None else breaker

    def _keep_again(self, name: str, breaker: B) -> None:
        with self._lock:
            self._recent[name] = breaker
            released = self._pop_excess()
        self._release(released)

    def add(self, name: str, breaker: B, *, releasable: bool) -> B:
        """Keep the breaker and return it; if there is already one with this name, return that one instead."""
        with self._lock:
            known = self._all.get(name)
            if known is not None:
                return known
            self._all[name] = breaker
            (self._recent if releasable else self._kept)[name] = breaker
            released = self._pop_excess()
        self._release(released)
        return breaker

    def _pop_excess(self) -> list[B]:
        """Remove and return the least recently used breakers beyond the limit."""
        excess = len(self._recent) - self._most
        return [self._recent.popitem(last=False)[1] for _ in range(excess)]

    def _release(self, released: list[B]) -> None:
        """Record the counts of these breakers, and drop those that nothing else refers to."""
        while released:
            breaker = released.pop()
            name = breaker.name
            try:
                breaker.flush()
                del breaker
                with self._lock:  # so that no other thread creates the breaker again in between
                    if name not in self._all:
                        self._on_drop(name)
            except Exception:  # noqa: BLE001  the caller uses another breaker
                log_exception("background work for %r failed", name)

    def forget_fork(self) -> None:
        """In a forked child: replace the lock, because a thread of the parent may have held it."""
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> B:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter([ref.key for ref in self._all.valuerefs() if ref() is not None])

    def __len__(self) -> int:
        return len(self._all)

    def values(self) -> list[B]:  # type: ignore[override]
        # Iterating a weak dictionary directly fails when another thread adds to it.
        alive = (ref() for ref in self._all.valuerefs())
        return [breaker for breaker in alive if breaker is not None]


class BackgroundThread:
    """Owns at most one daemon thread. Thread-safe; `start` is cheap while the thread is running.

    With `timer` the thread also advances circuits whose cooldown or hold is over, for every kind of
    store.
    """

    def __init__(
        self, store: Resilient, *breakers: Mapping[str, Breaker], timer: bool = False
    ) -> None:
        self._timer = timer
        self._store = store
        self._breakers = breakers
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Receive pushes and check the breakers, if the store pushes changes."""
        if self._thread is not None or not (self._store.pushes or self._timer):
            return
        self._thread = threading.Thread(
            target=self._run_thread, name="switchgear-keeper", daemon=True
        )
        if self._store.pushes:
            self._store.is_kept = True
            self._store.on_change(self._on_push, self._restore)
            self._store.on_warm(self._warm)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; one that waits for an unreachable store ends later."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=0.0 if self._store.is_lost else 5.0)

    def forget_fork(self) -> None:
        """In a forked child: start a new thread if the parent had one."""
        was_running, self._thread = self._thread is not None, None
        self._stopped = threading.Event()
        if was_running:
            self.start()

    def _on_push(self, circuit: Circuit) -> None:
        for breaker in self._breakers_named(circuit.key):
            breaker.adopt(circuit)

    def _warm(self, key: str) -> None:
        """Report the successes of a circuit on which another process has recorded a failure."""
        for breaker in self._breakers_named(key):
            breaker.warm()

    def _restore(self, key: str) -> None:
        """Restore a circuit that the store has lost, even if it is not in use now."""
        for breaker in self._breakers_named(key):
            breaker.refresh()

    def _breakers_named(self, key: str) -> list[Breaker]:
        named = [kind.get(key) for kind in self._breakers]
        return [breaker for breaker in named if breaker is not None]

    def _run_thread(self) -> None:
        for number in itertools.count(1):
            if self._stopped.wait(FOLD_EVERY_S / CHECKS_PER_FOLD):
                return
            if not number % CHECKS_PER_FOLD:
                self.update_breakers()
            elif self._store.pushes:
                self._report_new()

    def _report_new(self) -> None:
        """Report circuits on which this process has begun to make calls, so that its successes count."""
        for breaker in self._all_breakers():
            if breaker.is_unknown_to_others:
                self._attempt(breaker.flush, breaker.name)

    def update_breakers(self) -> None:
        """Try an unreachable store again, fold the counts of all breakers, and apply the timer."""
        if self._store.pushes:
            self._attempt(self._store.try_again, self._store.label)
        for breaker in self._all_breakers():
            if self._store.pushes:
                update = breaker.flush if self._store.refresh_s is None else breaker.refresh
                self._attempt(update, breaker.name)
            if self._timer:
                self._attempt(breaker.advance, breaker.name)

    def _all_breakers(self) -> list[Breaker]:
        return [breaker for kind in self._breakers for breaker in list(kind.values())]

    def _attempt(self, work: Callable[[], None], what: str) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001  an error of one circuit must not affect the others
            log_exception("background work for %r failed", what)
