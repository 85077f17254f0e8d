"""The background of a panel whose store pushes changes: pushes arrive, counts leave in time.

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
"""How often in that time it looks for circuits on which this process begins to make calls: the others
wait only for the reports of processes that they know."""
KEPT_BREAKERS = 2000
"""How many breakers a panel keeps that nothing else refers to."""
B = TypeVar("B", bound=Breaker)


class KeptBreakers(Mapping[str, B], Generic[B]):
    """The breakers of a panel by name. Thread-safe.

    Those that were used last are kept, and all that cannot be made again from their name alone. The
    others stay as long as something else refers to them; then they go, after what they have
    counted is recorded. The circuit itself is in the store.
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
        """Record what they have counted; drop those that nothing else refers to."""
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
        """In a forked child: a lock that another thread held stays held for ever."""
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


class Keeper:
    """Owns at most one daemon thread. Thread-safe; `start` is cheap when it is running.

    With a `timer` it also moves circuits whose time has come, over every kind of store.
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
        """Listen and look after the breakers, if the store is one that pushes."""
        if self._thread is not None or not (self._store.pushes or self._timer):
            return
        self._thread = threading.Thread(target=self._run, name="switchgear-keeper", daemon=True)
        if self._store.pushes:
            self._store.is_kept = True
            self._store.on_change(self._pushed, self._missing)
            self._store.on_warm(self._failed_elsewhere)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. If it waits for a store that is gone, it ends by itself."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=0.0 if self._store.is_lost else 5.0)

    def forget_fork(self) -> None:
        """In a forked child: the thread stayed with the parent; begin again when needed."""
        was_running, self._thread = self._thread is not None, None
        self._stopped = threading.Event()
        if was_running:
            self.start()

    def _pushed(self, circuit: Circuit) -> None:
        for breaker in self._named(circuit.key):
            breaker.adopt(circuit)

    def _failed_elsewhere(self, key: str) -> None:
        """Report the successes of a circuit that another process saw failing."""
        for breaker in self._named(key):
            breaker.warm()

    def _missing(self, key: str) -> None:
        """Restore a circuit that the store has lost, even if it is not in use now."""
        for breaker in self._named(key):
            breaker.refresh()

    def _named(self, key: str) -> list[Breaker]:
        named = [kind.get(key) for kind in self._breakers]
        return [breaker for breaker in named if breaker is not None]

    def _run(self) -> None:
        for number in itertools.count(1):
            if self._stopped.wait(FOLD_EVERY_S / LOOKS):
                return
            if not number % LOOKS:
                self.look()
            elif self._store.pushes:
                self._introduce()

    def _introduce(self) -> None:
        """Report on circuits on which this process begins to make calls, so that others know it."""
        for breaker in [each for kind in self._breakers for each in list(kind.values())]:
            if breaker.is_unknown_to_others:
                self._attempt(breaker.flush, breaker.name)

    def look(self) -> None:
        """Look after every breaker, once."""
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
