"""The background thread of a panel: receives pushed changes, and reports counts in time.

Over Redis a closed call sends nothing and reads no clock, so a background thread ensures that
successes are folded about once a second, that the snapshots are read again while no pushes come,
and that a store that is gone is tried again: no caller waits for a server that does not answer.
Over SQLite the calls themselves do, and no thread is needed.
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

LOOKS = 4
"""Looks per folding interval for circuits on which this process starts to make calls: other processes
wait only for the reports of processes that they know."""
KEPT_BREAKERS = 2000
"""Number of breakers that a panel keeps although nothing else refers to them."""
B = TypeVar("B", bound=Breaker)


class KeptBreakers(Mapping[str, B], Generic[B]):
    """The breakers of a panel by name. Thread-safe.

    The most recently used ones are kept, and all that cannot be created again from their name
    alone. The others are kept while something else refers to them; then they are dropped, after
    their counts are recorded. The circuit itself is in the store.
    """

    def __init__(self, most: int, gone: Callable[[str], object]) -> None:
        self._most = most
        self._gone = gone
        self._all: WeakValueDictionary[str, B] = WeakValueDictionary()
        self._kept: dict[str, B] = {}
        self._recent: OrderedDict[str, B] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str, default: B | None = None) -> B | None:  # type: ignore[override]
        """The breaker of that name, used just now; or the default."""
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
            released = self._too_many()
        self._release(released)

    def add(self, name: str, breaker: B, *, releasable: bool) -> B:
        """Keep the breaker, unless there is one of that name: then that one."""
        with self._lock:
            known = self._all.get(name)
            if known is not None:
                return known
            self._all[name] = breaker
            (self._recent if releasable else self._kept)[name] = breaker
            released = self._too_many()
        self._release(released)
        return breaker

    def _too_many(self) -> list[B]:
        over = len(self._recent) - self._most
        return [self._recent.popitem(last=False)[1] for _ in range(over)]

    def _release(self, released: list[B]) -> None:
        """Record their counts; drop those that nothing else refers to."""
        while released:
            breaker = released.pop()
            name = breaker.name
            try:
                breaker.flush()
                del breaker
                with self._lock:  # so that no thread creates it again in between
                    if name not in self._all:
                        self._gone(name)
            except Exception:  # noqa: BLE001  it does not concern the caller
                log_exception("background work for %r failed", name)

    def forget_fork(self) -> None:
        """Replace the lock in a forked child: one that another thread held is never released there."""
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> B:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter([ref.key for ref in self._all.valuerefs() if ref() is not None])

    def __len__(self) -> int:
        return len(self._all)

    def values(self) -> list[B]:  # type: ignore[override]
        # By references: iterating a weak dictionary fails when another thread adds to it.
        alive = (ref() for ref in self._all.valuerefs())
        return [breaker for breaker in alive if breaker is not None]


class BackgroundThread:
    """Owns at most one daemon thread. Thread-safe; `start` is cheap when it is running.

    With a `timer` it also advances circuits whose cooldown or hold is over, with every kind of
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
            self._store.on_change(self._on_push, self._missing)
            self._store.on_warm(self._failed_elsewhere)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. If it waits for an unreachable store, it ends later."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=0.0 if self._store.is_lost else 5.0)

    def forget_fork(self) -> None:
        """In a forked child: drop the thread, which stays in the parent; `start` creates a new one."""
        was_running, self._thread = self._thread is not None, None
        self._stopped = threading.Event()
        if was_running:
            self.start()

    def _on_push(self, circuit: Circuit) -> None:
        for breaker in self._breakers_named(circuit.key):
            breaker.adopt(circuit)

    def _failed_elsewhere(self, key: str) -> None:
        """Report the successes of a circuit on which another process has recorded a failure."""
        for breaker in self._breakers_named(key):
            breaker.warm()

    def _missing(self, key: str) -> None:
        """Restore a circuit that the store has lost, even if it is not in use now."""
        for breaker in self._breakers_named(key):
            breaker.refresh()

    def _breakers_named(self, key: str) -> list[Breaker]:
        named = [kind.get(key) for kind in self._breakers]
        return [breaker for breaker in named if breaker is not None]

    def _run_thread(self) -> None:
        for number in itertools.count(1):
            if self._stopped.wait(FOLD_EVERY_S / LOOKS):
                return
            if not number % LOOKS:
                self.look()
            elif self._store.pushes:
                self._introduce()

    def _introduce(self) -> None:
        """Report circuits on which this process begins to make calls, so that it takes part in shared trips."""
        for breaker in [each for kind in self._breakers for each in list(kind.values())]:
            if breaker.is_unknown_to_others:
                self._attempt(breaker.flush, breaker.name)

    def look(self) -> None:
        if self._store.pushes:
            self._attempt(self._store.try_again, self._store.label)
        for breaker in [each for kind in self._breakers for each in list(kind.values())]:
            if self._store.pushes:
                look = breaker.flush if self._store.refresh_s is None else breaker.refresh
                self._attempt(look, breaker.name)
            if self._timer:
                self._attempt(breaker.advance, breaker.name)

    def _attempt(self, work: Callable[[], None], what: str) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001  one circuit's trouble is not the others'
            log_exception("background work for %r failed", what)
