"""Watches a fleet: writes incidents and the world state, and sends notifications.

Each of these tasks has its own thread, so that a webhook that hangs delays nothing else. Circuits
decide without them, and each task continues where another process stopped.
"""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from switchgear._breaker.views import View
from switchgear._core.errors import SwitchgearError
from switchgear._core.evidence import FLOWING
from switchgear._core.types import Event, Mode, Phase
from switchgear._fleet.delivery import Delivery, OutboxPlace
from switchgear._fleet.fleet import GLOBS, Fleet
from switchgear._fleet.incidents import Incidents, iso
from switchgear._fleet.manifest import FleetAgent, Model
from switchgear._fleet.targets import Target
from switchgear._locks.state import LockHolder, Tenure, Waiter
from switchgear._sinks.dispatch import log_exception, log_warning
from switchgear._stores.url import default_file
from switchgear._system.files import as_json, write_whole
from switchgear._text.redact import redact

SCHEMA = 1


def world(fleet: Fleet) -> dict[str, Any]:
    """The world state as JSON values. Raises `StoreError` if the store cannot be read."""
    views = {view.name: view for glob in GLOBS for view in fleet.panel.circuits(glob)}
    now_s = fleet.panel.store.now_s()
    standings = fleet.standings()
    agents = {
        name: {
            **_agent(fleet, agent, views),
            "last_seen_on": standings[name]._asdict() if name in standings else None,
        }
        for name, agent in fleet.crew.agents.items()
    }
    return {
        "schema": SCHEMA,
        "at": iso(now_s),
        "at_s": now_s,
        "agents": agents,
        "stories": _stories(fleet, views),
        "providers": _circuit_rows(views, "provider/"),
        "dependencies": _circuit_rows(
            views, "provider/"
        ),  # the name of this key in earlier versions
        "locks": _locks(fleet, views),
        "rules": _circuit_rows(views, "rules", ""),
    }


def _agent(fleet: Fleet, agent: FleetAgent, views: dict[str, View]) -> dict[str, Any]:
    """The row of an agent: where its work would go now, and which circuits refuse."""
    why: list[str] = []

    def admits(names: list[str], label: str) -> bool:
        refusing = [name for name in names if name in views and not views[name].verdict.admitted]
        why.extend(f"{label}: {name}: {_until(views[name])}" for name in refusing)
        return not refusing

    found: tuple[FleetAgent, Model] | None = None
    settings = fleet.router.settings
    if admits(["rules"], "any agent"):
        found = next(
            (
                (candidate, model)
                for candidate in settings.chain(agent)
                if admits(settings.circuits(candidate), candidate.name)
                for model in candidate.models
                if admits(settings.circuits(model), f"{candidate.name} on {model}")
            ),
            None,
        )
    is_own = found is not None and found == (agent, agent.model)
    view = views.get(f"agent/{agent.name}/latency")
    latency = None if view is None else view.circuit
    return {
        "owner": agent.owner,
        "state": "works" if is_own else "rerouted" if found else "halted",
        "works": None if found is None else found[0].name,
        "model": None if found is None else str(found[1]),
        "primary_model": str(agent.model),
        "why": why,
        "stories": list(agent.stories),
        "load": 1.0 if latency is None or latency.phase in FLOWING else latency.outage.admit,
    }


def _until(view: View) -> str:
    """Why a circuit refuses calls, and when its next probe is due, as a time because the file is read later."""
    circuit, reason = view.circuit, view.verdict.reason
    if circuit.phase is not Phase.OPEN or circuit.mode is not Mode.AUTO:
        return reason
    retry_at_s = circuit.outage.retry_at_s
    if retry_at_s is None:
        return f"{reason}; it stays open until it is reset"
    return f"{reason}; next try at {iso(retry_at_s)}"


def _stories(fleet: Fleet, views: dict[str, View]) -> dict[str, Any]:
    names = {name.removeprefix("story/") for name in views if name.startswith("story/")}
    names |= {story for agent in fleet.crew.agents.values() for story in agent.stories}
    found: dict[str, Any] = {}
    for name in sorted(names | fleet.crew.stories.keys()):
        view = views.get(f"story/{name}")
        found[name] = {
            "owners": list(fleet.crew.owners_of(name)),
            "paused": view is not None and not view.verdict.admitted,
            "spent_micros": 0 if view is None else view.circuit.totals.cost_micros,
            "why": "" if view is None else view.verdict.reason,
        }
    return found


def _locks(fleet: Fleet, views: dict[str, View]) -> dict[str, Any]:
    """The circuits of resources, with their holders and waiters, and since when."""
    found = _circuit_rows(views, "lock/")
    tenures = {seen.resource: seen.tenure for seen in fleet.panel.locks.all()}
    for name, one in found.items():
        tenure = tenures.get(name, Tenure())
        holder = tenure.holder
        one["holder"] = None if holder is None else _since_dict(holder)
        one["waiting"] = [_since_dict(waiter) for waiter in tenure.waiting]
    return found


def _since_dict(claim: LockHolder | Waiter) -> dict[str, Any]:
    return {"owner": claim.owner, "since": iso(claim.since_s), "since_s": claim.since_s}


def _circuit_rows(
    views: dict[str, View], prefix: str, removed: str | None = None
) -> dict[str, Any]:
    """The circuits with a prefix, by their names without the prefix, or without `removed` if given."""
    removed = prefix if removed is None else removed
    return {
        name.removeprefix(removed): {
            "phase": str(view.circuit.phase),
            "mode": str(view.circuit.mode),
            "admits": view.verdict.admitted,
            "why": view.verdict.reason,
            "retry_at": None if (at_s := view.circuit.outage.retry_at_s) is None else iso(at_s),
        }
        for name, view in views.items()
        if name.startswith(prefix)
    }


EVERY_S = 1.0
REWRITE_S = 60.0
WORLD_STATE, INCIDENTS = "world-state.json", "incidents"
_SQLITE = "sqlite:///"

# ruff: noqa: PTH100, PTH111, PTH118, PTH120  paths are texts, as in the stores


class Background:
    """Writes incidents and sends notifications for the events of a fleet in this process, in a thread.

    A sink: an event starts the thread, which ends when nothing is left to do. Messages that are not
    sent when the process ends stay in the store, for the next command or process. Thread-safe.
    """

    def __init__(self, watcher: "Watcher", *, writes: bool) -> None:
        self.watcher = watcher
        self._writes = writes
        """Whether incidents and the world state are written; a store in memory has no folder for them."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._has_news = False
        self._stopped = threading.Event()

    def __call__(self, event: Event) -> None:
        del event
        with self._lock:
            self._has_news = True
            if self._thread is not None and self._pid == os.getpid():
                return
            self._pid = os.getpid()
            self._thread = threading.Thread(
                target=self._work, name="switchgear-outbox", daemon=True
            )
        with suppress(RuntimeError):  # the interpreter is ending; the event stays in the outbox
            self._thread.start()

    def close(self, wait_s: float = 2.0) -> None:
        """End the thread; a message that is being sent has `wait_s` seconds."""
        self._stopped.set()
        with self._lock:
            thread = self._thread
        if thread is not None and self._pid == os.getpid() and thread.is_alive():
            thread.join(wait_s)

    def _work(self) -> None:
        wait_s: float | None = 0.0
        while wait_s is not None:
            if self._stopped.wait(wait_s):
                wait_s = 0.0 if self._has_news else None
            with self._lock:
                self._has_news = False
            try:
                if self._writes:
                    self.watcher.note()
                self.watcher.deliver()
                wait_s = self._next_s()
            except Exception:  # noqa: BLE001  an observer must not affect the fleet
                log_exception("incidents and notifications could not be processed")
                wait_s = REWRITE_S
            with self._lock:
                if self._has_news:
                    wait_s = 0.0
                if self._stopped.is_set():
                    wait_s = None
                if wait_s is None:
                    self._thread = None

    def _next_s(self) -> float | None:
        """Seconds until the next message is due; `None`: no message is pending."""
        now_s = self.watcher.fleet.panel.store.now_s()
        pending = [delivery.pending() for delivery in self.watcher.deliveries]
        dues = [each.next_s or now_s + EVERY_S for each in pending if each.waiting]
        return max(EVERY_S, min(dues) - now_s) if dues else None


def background_of(fleet: Fleet, targets: Sequence[Target]) -> "Background":
    url = fleet.panel.store.url
    writes = url is None or not url.startswith("memory:")
    return Background(Watcher(fleet, folder_of(url) if writes else "", targets), writes=writes)


def folder_of(url: str | None) -> str:
    """The folder of an installation's files: next to its SQLite file, or `.switchgear`."""
    if url is None:
        return os.path.dirname(default_file())
    if url.startswith(_SQLITE):
        return os.path.dirname(os.path.abspath(os.path.expanduser(url.removeprefix(_SQLITE))))
    return os.path.abspath(".switchgear")


class Watcher:
    """Watches a fleet. `tick` does everything once; `start` and `stop` run it in threads."""

    def __init__(
        self, fleet: Fleet, folder: str, targets: Sequence[Target] = (), every_s: float = EVERY_S
    ) -> None:
        self.fleet = fleet
        self.incidents: Incidents = Incidents(os.path.join(folder, INCIDENTS))
        self.world_file: str = os.path.join(folder, WORLD_STATE)
        self._every_s = every_s
        me = f"{os.uname().nodename}:{os.getpid()}:{os.urandom(4).hex()}"
        self._place = OutboxPlace(fleet.panel, "incidents", me)
        self._world: dict[str, Any] = {}
        self._written_s = 0.0
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._deliveries: list[Delivery] = []
        self.retarget(targets)

    def retarget(self, targets: Sequence[Target]) -> None:
        """Send to these targets from now on; unchanged targets continue where they were.

        A delivery in progress to a removed target is completed first. Positions are stored by the name
        of the target, so a target that is added again continues at its position.
        """
        known = self._deliveries
        self._deliveries = [
            next((each for each in known if each.target == target), None)
            or Delivery(self.fleet, target)
            for target in targets
        ]
        if self._threads:
            for delivery in self._deliveries:
                if delivery not in known:
                    self._begin_sending(delivery)

    def tick(self) -> list[str]:
        """Write incidents and send messages that are due, once; returns the ids of new incidents."""
        found = self.note()
        for delivery in self._deliveries:
            delivery.run_once()
        return found

    def note(self) -> list[str]:
        """Write the incidents of new events, and the world state; returns the ids of new incidents."""
        found: list[str | None] = []
        self.fleet.pass_time()
        self._place.for_each(
            lambda entry: found.append(self.incidents.process(entry.event, self.fleet))
        )
        self._write_world()
        return [name for name in found if name is not None]

    def _write_world(self) -> None:
        """Write the world state if it has changed, and once a minute to show that the watcher runs."""
        now = world(self.fleet)
        is_same = {**self._world, "at": now["at"], "at_s": now["at_s"]} == now
        self._world = now
        if is_same and now["at_s"] - self._written_s < REWRITE_S:
            return
        write_whole(self.world_file, as_json(now))
        self._written_s = now["at_s"]

    def deliver(self, *, now: bool = False) -> int:
        """Send the messages that are due, once; returns how many arrived. `now`: see `Delivery.run_once`."""
        return sum(delivery.run_once(now=now) for delivery in self._deliveries)

    @property
    def deliveries(self) -> "tuple[Delivery, ...]":
        """One delivery for each target."""
        return tuple(self._deliveries)

    def start(self) -> None:
        """Begin to watch, in threads that end with the process."""
        self._begin("incidents and world state", self.note)
        for delivery in self._deliveries:
            self._begin_sending(delivery)

    def _begin_sending(self, delivery: Delivery) -> None:
        what = f"notification target {delivery.target.name!r}"
        self._begin(what, delivery.run_once, lambda: delivery in self._deliveries)

    def _begin(
        self, what: str, work: Callable[[], object], is_active: Callable[[], bool] = lambda: True
    ) -> None:
        thread = threading.Thread(
            target=self._loop, args=(what, work, is_active), name="switchgear-watch", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """End the threads, after a message that is being sent. Idempotent."""
        self._stopped.set()
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.join(timeout=5.0)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the watcher is stopped. Returns False after the timeout."""
        return self._stopped.wait(timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _loop(self, what: str, work: Callable[[], object], is_active: Callable[[], bool]) -> None:
        last_error: type[Exception] | None = None
        while is_active() and not self._stopped.is_set():
            try:
                work()
                if last_error is not None:
                    log_warning("%s: works again", what)
                last_error = None
            except (SwitchgearError, OSError) as error:
                # A store or a disk can be unavailable for a while: report that once, not every second.
                if last_error is not type(error):
                    log_warning("%s: %s; retrying", what, redact(str(error), 400))
                last_error = type(error)
            except Exception:  # noqa: BLE001  a defect must not end the watcher
                log_exception("a check of %s failed", what)
            self._stopped.wait(self._every_s)
