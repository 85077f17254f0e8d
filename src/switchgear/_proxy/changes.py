"""Reads the circuits that other processes moved from the event stream, in a thread.

Requests need not read the store to find out that a session is held or that a circuit has opened.
"""

import threading
import time
from collections.abc import Callable

from switchgear._core.errors import StoreError
from switchgear._sinks.dispatch import log_exception
from switchgear._stores.fallback import Resilient

POLL_S = 0.05
"""Seconds between two reads of the stream."""
ALL_S = 5.0
"""Seconds after which all circuits are reported as possibly changed, independent of the stream."""
_RETRY_S = 0.5
_PAGE = 1000


class ChangeFeed:
    """Calls `changed` with the names of circuits that moved, or `None` if any may have. Owns one thread."""

    def __init__(self, store: Resilient, changed: Callable[[set[str] | None], object]) -> None:
        self._store = store
        self._changed = changed
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._cursor: str | None = None
        self._read_s = self._reported_all_s = -ALL_S

    @property
    def is_current(self) -> bool:
        """Whether the last read was less than half a second ago; if not, the store does not answer in time."""
        return time.monotonic() - self._read_s < _RETRY_S

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="switchgear-changes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; if it waits for an unresponsive store, it ends later by itself."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        wait_s = 0.0
        while not self._stopped.wait(wait_s):
            try:
                self.read_changes()
                wait_s = POLL_S
            except StoreError:
                wait_s = _RETRY_S  # in the meantime, requests read the store themselves
            except Exception:  # noqa: BLE001  the next read may succeed
                log_exception("changes of %r could not be read", self._store.label)
                wait_s = _RETRY_S

    def read_changes(self) -> None:
        """Read and report new events. Raises `StoreError`."""
        now_s = time.monotonic()
        if now_s - self._reported_all_s > ALL_S:
            newest = self._store.events(limit=1)
            self._cursor = newest[-1].cursor if newest else None
            self._changed(None)
            self._reported_all_s = now_s
        else:
            entries = self._store.events(after=self._cursor, limit=_PAGE)
            if entries:
                self._cursor = entries[-1].cursor
                self._changed({entry.event.circuit for entry in entries})
        self._read_s = now_s
