"""Submits what a process has counted on circuits that just failed somewhere, before anybody judges.

A failure makes a shared circuit warm. While it is warm each process reports its successes at most
`EVERY_S` after they happened, so that no process judges without them. One daemon thread does it, started
by the first warm circuit and ended when none is left: a calm process has no thread and sends nothing.
"""

import threading
from collections.abc import Callable
from time import monotonic
from weakref import WeakMethod

from switchgear._sinks.dispatch import log_exception

EVERY_S = 0.05
"""How long successes on a warm circuit wait to be reported together."""
TICK_S = 0.02
LINGER_S = 2.0
"""How long the thread waits for another warm circuit before it ends."""

Tick = Callable[[], bool]
"""Submits what is due; false: the circuit is calm again and needs no more ticks."""


class Submitter:
    """Owns at most one daemon thread. Thread-safe; `add` is cheap."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._ticks: dict[int, WeakMethod[Tick]] = {}
        """Weak, because a panel lets go of breakers that nothing else refers to."""
        self._thread: threading.Thread | None = None
        self._stopped = False

    def add(self, owner: object, tick: Tick) -> None:
        """Call `tick` soon, and then every `TICK_S` until it says that it is done."""
        if self._stopped:
            return
        known = self._ticks.get(id(owner))
        if known is None or known() is None:
            with self._lock:
                self._ticks[id(owner)] = WeakMethod(tick)
                thread = self._thread
                if thread is None or not thread.is_alive():
                    self._thread = threading.Thread(
                        target=self._run, name="switchgear-submitter", daemon=True
                    )
                    self._thread.start()
            self._woken.set()

    def forget_fork(self) -> None:
        """In a forked child: the thread stayed with the parent, and so did what it had to do."""
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
            self._woken.wait(TICK_S if self._ticks else LINGER_S)
            self._woken.clear()
            for owner, method in list(self._ticks.items()):
                tick = method()
                if tick is None or not _attempt(tick):
                    self._ticks.pop(owner, None)
                del tick
                idle_since_s = monotonic()
            if not self._ticks and monotonic() - idle_since_s >= LINGER_S:
                with self._lock:
                    if not self._ticks:
                        self._thread = None
                        return


def _attempt(tick: Tick) -> bool:
    try:
        return tick()
    except Exception:  # noqa: BLE001  one circuit's trouble is not the others'
        log_exception("successes of a warm circuit could not be submitted")
        return False
