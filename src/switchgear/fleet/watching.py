"""Watches a fleet: incidents are written, the world's state kept, notifications sent, all the time.

Each has a thread of its own, so that a webhook that hangs holds nothing else up. None of it is
needed for a circuit to decide, and each goes on where another process left off.
"""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from switchgear.core.types import Event
from switchgear.errors import SwitchgearError
from switchgear.fleet.delivery import Delivery
from switchgear.fleet.files import as_json, write_whole
from switchgear.fleet.fleet import Fleet
from switchgear.fleet.incidents import Incidents
from switchgear.fleet.stream import Place
from switchgear.fleet.targets import Target
from switchgear.fleet.world import world
from switchgear.listeners import log_exception, log_warning
from switchgear.redact import redact
from switchgear.stores.open import default_file

EVERY_S = 1.0
REWRITE_S = 60.0
WORLD_STATE, INCIDENTS = "world-state.json", "incidents"
_SQLITE = "sqlite:///"

# ruff: noqa: PTH100, PTH111, PTH118, PTH120  paths are texts, as in the stores


def folder_of(url: str | None) -> str:
    """Where the files of an installation lie: beside its SQLite file, or in `.switchgear`."""
    if url is None:
        return os.path.dirname(default_file())
    if url.startswith(_SQLITE):
        return os.path.dirname(os.path.abspath(os.path.expanduser(url.removeprefix(_SQLITE))))
    return os.path.abspath(".switchgear")


class Watcher:
    """Looks after a fleet. `tick` does everything once; `start` and `stop` let threads do it."""

    def __init__(
        self, fleet: Fleet, folder: str, targets: Sequence[Target] = (), every_s: float = EVERY_S
    ) -> None:
        self.fleet = fleet
        self.incidents = Incidents(os.path.join(folder, INCIDENTS))
        self.world_file = os.path.join(folder, WORLD_STATE)
        self._every_s = every_s
        me = f"{os.uname().nodename}:{os.getpid()}:{os.urandom(4).hex()}"
        self._place = Place(fleet.panel, "incidents", me)
        self._world: dict[str, Any] = {}
        self._written_s = 0.0
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._deliveries: list[Delivery] = []
        self.retarget(targets)

    def retarget(self, targets: Sequence[Target]) -> None:
        """Send to these from now on; those that stay go on where they are.

        What is being sent to one that goes ends first. Each keeps its place in the events by its
        name, so one that comes back goes on there.
        """
        known = self._deliveries
        self._deliveries = [
            next((one for one in known if one.target == target), None)
            or Delivery(self.fleet, target)
            for target in targets
        ]
        if self._threads:
            for delivery in self._deliveries:
                if delivery not in known:
                    self._begin_sending(delivery)

    def tick(self) -> list[str]:
        """Write what is new and send what is due, once; the ids of new incidents."""
        found = self.note()
        for delivery in self._deliveries:
            delivery.run_once()
        return found

    def note(self) -> list[str]:
        """Write the incidents of events that nobody has seen to, and the state of the world."""
        found: list[str] = []

        def hear(event: Event) -> None:
            name = self.incidents.hear(event, self.fleet)
            if name is not None:
                found.append(name)

        self.fleet.pass_time()
        self._place.each(lambda entry: hear(entry.event))
        self._write_world()
        return found

    def _write_world(self) -> None:
        """Write the state of the world where it changed, and once a minute to show that we watch."""
        now = world(self.fleet)
        before, self._world = self._world, now
        is_same = {**before, "at": now["at"], "at_s": now["at_s"]} == now if before else False
        if is_same and now["at_s"] - self._written_s < REWRITE_S:
            return
        write_whole(self.world_file, as_json(now))
        self._written_s = now["at_s"]

    def deliver(self) -> int:
        """Send what is due, once; how many messages arrived."""
        return sum(delivery.run_once() for delivery in self._deliveries)

    def start(self) -> None:
        """Begin to watch, in threads that end with the process."""
        self._begin("incidents and world state", self.note)
        for delivery in self._deliveries:
            self._begin_sending(delivery)

    def _begin_sending(self, delivery: Delivery) -> None:
        what = f"notification target {delivery.target.name!r}"
        self._begin(what, delivery.run_once, lambda: delivery in self._deliveries)

    def _begin(
        self, what: str, work: Callable[[], object], goes_on: Callable[[], bool] = lambda: True
    ) -> None:
        thread = threading.Thread(
            target=self._loop, args=(what, work, goes_on), name="switchgear-watch", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """End the threads; one that is sending ends when that does. Idempotent."""
        self._stopped.set()
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.join(timeout=5.0)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until somebody stops it; whether somebody did."""
        return self._stopped.wait(timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _loop(self, what: str, work: Callable[[], object], goes_on: Callable[[], bool]) -> None:
        trouble: type[Exception] | None = None
        while goes_on() and not self._stopped.is_set():
            try:
                work()
                if trouble is not None:
                    log_warning("%s: it works again", what)
                trouble = None
            except (SwitchgearError, OSError) as error:
                # A store or disk that is gone comes back: said once, not every second.
                if trouble is not type(error):
                    log_warning(
                        "%s: %s; it is tried again and again", what, redact(str(error), 400)
                    )
                trouble = type(error)
            except Exception:  # noqa: BLE001  a defect of ours must not end the watching
                log_exception("%s could not be looked after", what)
            self._stopped.wait(self._every_s)
