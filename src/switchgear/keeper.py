"""The background of a panel whose store pushes changes: pushes arrive, counts leave in time.

Over Redis a closed call sends nothing and reads no clock, so somebody else must see to it that
successes are folded about once a second, that the snapshots are read again while no pushes come,
and that a store that is gone is tried again: no caller waits for a server that does not answer.
Over SQLite the calls themselves do, and no thread is needed.
"""

import itertools
import threading
from collections.abc import Callable, Mapping

from switchgear.breaker import Breaker
from switchgear.core.types import Circuit
from switchgear.listeners import log_exception
from switchgear.runs import FOLD_EVERY_S
from switchgear.stores.resilient import Resilient

LOOKS = 4
"""How often in that time it looks for circuits on which this process begins to make calls: the others
wait only for the reports of processes that they know."""


class Keeper:
    """Owns at most one daemon thread. Thread-safe; `start` is cheap when it is running."""

    def __init__(self, store: Resilient, *breakers: Mapping[str, Breaker]) -> None:
        self._store = store
        self._breakers = breakers
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen and look after the breakers, if the store is one that pushes."""
        if self._thread is not None or not self._store.pushes:
            return
        self._store.is_kept = True
        self._thread = threading.Thread(target=self._run, name="switchgear-keeper", daemon=True)
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
        """Give a circuit back that the store has lost, although nobody uses it just now."""
        for breaker in self._named(key):
            breaker.refresh()

    def _named(self, key: str) -> list[Breaker]:
        return [kind[key] for kind in self._breakers if key in kind]

    def _run(self) -> None:
        for number in itertools.count(1):
            if self._stopped.wait(FOLD_EVERY_S / LOOKS):
                return
            is_time = not number % LOOKS
            if is_time:
                self._attempt(self._store.try_again, self._store.label)
            for breaker in [each for kind in self._breakers for each in list(kind.values())]:
                look = breaker.flush if self._store.refresh_s is None else breaker.refresh
                if is_time or breaker.is_unknown_to_others:
                    self._attempt(look if is_time else breaker.flush, breaker.name)

    def _attempt(self, work: Callable[[], None], what: str) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001  one circuit's trouble is not the others'
            log_exception("%r could not be looked after", what)
