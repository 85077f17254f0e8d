"""The event loop in virtual time: agents that check circuits, call, wait and retry.

Time jumps from event to event. A lane is one of the tasks that an agent works on at the same time. Each lane
has its own random number generator, so that both sides see the same random events.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, NamedTuple

from switchgear._analysis.simulate.world import (
    BURN,
    BURN_TIMES,
    CONVOY,
    LOCK_EVERY,
    OUTAGE,
    PAUSE_S,
    POISON,
    SLOW,
    STORY,
    SimulatedOutcome,
    Span,
    World,
)
from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._core.errors import Rejected
from switchgear._core.types import Event, EventKind, Permit, Phase, Signal
from switchgear._fleet.categories import Breakers
from switchgear._fleet.fleet import policies_of
from switchgear._fleet.manifest import Crew, Model
from switchgear._fleet.router import Candidate, Route, RouteDecision, Router
from switchgear._locks.locks import RECORD_EVERY_S
from switchgear._panel.panel import Panel, PolicyOf
from switchgear._system.clock import Clock

SLOTS = 60
"""Number of time slots in a plot."""
TAIL_S = 1200.0
"""Seconds after a trouble in which a trip still counts as caused by it, because calls end later."""
HALTS = ("budget", "failure_rate")


@dataclass(slots=True)
class Harm:
    """The harm of one trouble on one side."""

    span: Span
    last_s: float
    """When the last call was harmed or refused because of it."""
    wasted: int = 0
    """Number of doomed calls, or of waits that were too long."""
    micros: int = 0
    seconds: float = 0.0
    """The time of agents that was wasted."""
    detected_s: float | None = None
    """When the first circuit opened because of it."""
    interval_s: float = 0.0
    """The wait between two probes at the end of the trouble."""
    circuits: set[str] = field(default_factory=set)
    """The circuits that are open because of it."""

    @property
    def still_open(self) -> bool:
        """Whether the simulation ended before its circuits had closed."""
        return bool(self.circuits)


class Tally:
    """The counts of one side. Used by one thread."""

    def __init__(self, world: World, late_s: float, waits_s: float) -> None:
        self._world = world
        self._late_s, self._waits_s = late_s, waits_s
        self._slot_s = world.length_s / SLOTS
        self.made = [0] * SLOTS
        self.doomed = [0] * SLOTS
        self.refused = [0] * SLOTS
        self.done = self.rerouted = self.wrong_trips = self.trips = 0
        self.spent_micros = 0
        self.halted: set[str] = set()
        """Agents halted by one of their own circuits."""
        self.halted_well: set[str] = set()
        """Healthy agents among them."""
        self.harms = [Harm(span, span.ends_s) for span in world.spans]
        self._open: dict[str, Harm] = {}

    def _slot(self, now_s: float) -> int:
        return min(int(now_s / self._slot_s), SLOTS - 1)

    # Calls

    def call(
        self, begun_s: float, worker: str, provider: str, outcome: SimulatedOutcome, *, other: bool
    ) -> None:
        slot = self._slot(begun_s)
        self.made[slot] += 1
        self.spent_micros += outcome.cost_micros
        self.rerouted += other
        for harm in self.harms:
            span = harm.span
            if span.holds(begun_s) and self._is_wasted(span, worker, provider, outcome):
                cost = outcome.cost_micros
                self.doomed[slot] += 1
                harm.wasted += 1
                harm.micros += cost - cost // BURN_TIMES if span.kind == BURN else cost
                harm.seconds += outcome.seconds
                harm.last_s = max(harm.last_s, begun_s + outcome.seconds)

    def _is_wasted(self, span: Span, worker: str, provider: str, outcome: SimulatedOutcome) -> bool:
        if span.kind == OUTAGE:
            return provider in span.about and outcome.provider_failed
        if span.kind == SLOW:
            return provider in span.about and outcome.seconds > self._late_s
        return worker in span.about and (
            span.kind == BURN or (span.kind == POISON and not outcome.ok)
        )

    def refuse(self, now_s: float) -> None:
        self.refused[self._slot(now_s)] += 1

    def waited(self, now_s: float, lock: str, seconds: float) -> None:
        if seconds <= self._waits_s:
            return
        for harm in self.harms:
            span = harm.span
            if span.kind == CONVOY and lock in span.about and span.begins_s <= now_s:
                self.doomed[self._slot(now_s)] += 1
                harm.wasted += 1
                harm.seconds += seconds
                harm.last_s = max(harm.last_s, now_s)

    # Circuits

    def on_event(self, event: Event) -> None:
        """Count a change of a circuit. Used as a sink of the panel."""
        if event.kind is not EventKind.MOVED:
            return
        if event.after is Phase.OPEN:
            self._note_opening(event)
        elif event.after is Phase.CLOSED and event.before is not Phase.TRIPPING:
            harm = self._open.pop(event.circuit, None)
            if harm is not None:
                harm.circuits.discard(event.circuit)
                harm.last_s = max(harm.last_s, event.at_s)

    def _note_opening(self, event: Event) -> None:
        harm = self._cause_of_trip(event)
        is_failed_probe = event.before is Phase.HALF_OPEN
        if not is_failed_probe:
            self.trips += 1
            self._halt(event, well=harm is None)
        if harm is None:
            self.wrong_trips += not is_failed_probe and event.circuit not in self._open
            return
        self._open[event.circuit] = harm
        harm.circuits.add(event.circuit)
        if harm.detected_s is None:
            harm.detected_s = event.at_s
        if event.at_s < harm.span.ends_s and event.retry_after_s is not None:
            harm.interval_s = event.retry_after_s

    def _halt(self, event: Event, *, well: bool) -> None:
        head, _, rest = event.circuit.partition("/")
        name, _, category = rest.partition("/")
        if head == "rules" or (head == "agent" and category in HALTS):
            self.halted.add(name)
            if well:
                self.halted_well.add(name)

    def _cause_of_trip(self, event: Event) -> Harm | None:
        """The trouble that caused a trip; `None`: no trouble did."""
        for harm in self.harms:
            span = harm.span
            # The money of a story stays spent, so it may trip long after the trouble.
            until_s = math.inf if event.circuit.startswith("story/") else span.ends_s + TAIL_S
            if span.begins_s <= event.at_s <= until_s and self._concerns(span, event.circuit):
                return harm
        return self._open.get(event.circuit)

    def _concerns(self, span: Span, circuit: str) -> bool:
        head, _, rest = circuit.partition("/")
        name = rest.partition("/")[0]
        is_slow = circuit.endswith("/latency")
        if span.kind == OUTAGE:
            return head == "provider" and name in span.about and not is_slow
        if span.kind == SLOW:
            provider = name if head == "provider" else self._world.provider_of(name)
            return is_slow and provider in span.about
        if span.kind == CONVOY:
            return head == "lock" and name in span.about
        if head == "story":
            name = name.partition("-")[0]
        return name in span.about and head in {"agent", "rules", "story"}


ATTEMPTS = 4
"""How often an agent without breakers calls a failing provider before it uses the next one."""
FIRST_WAIT_S = 2.0
RETRY_S = 30.0
"""Seconds that refused work waits, if no circuit has a retry time."""
KEPT_BREAKERS = 10**7
"""Breakers that a panel keeps: more than any fleet has, because all circuits of a simulated fleet are in use."""


class Chosen(NamedTuple):
    """The worker for a piece of work, or the wait if there is none."""

    worker: str | None
    provider: str = ""
    route: Route | None = None
    retry_after_s: float = RETRY_S
    paused: bool = False
    """Whether the story is paused: then the agent works on another one."""


class Waiting(NamedTuple):
    """A place in a queue."""

    breaker: CircuitBreaker | None = None
    permit: Permit | None = None


class Unguarded:
    """A side of the simulation without breakers."""

    def __init__(self, crew: Crew) -> None:
        self._providers = {
            name: tuple(model.provider for model in agent.models)
            for name, agent in crew.agents.items()
        }
        self._first = {name: Chosen(name, all_of[0]) for name, all_of in self._providers.items()}

    def choose(self, agent: str, story: str, tried: Mapping[str, int]) -> Chosen:
        """The worker for a piece of work; `tried`: how often each provider failed it.

        This is the agent itself, on the first provider that has not failed too often.
        """
        del story
        for provider in self._providers[agent] if tried else ():
            if tried.get(provider, 0) < ATTEMPTS:
                return Chosen(agent, provider)
        return self._first[agent]

    def record(self, chosen: Chosen, outcome: SimulatedOutcome) -> None:
        """Record the outcome of the work."""

    def retry_s(self, chosen: Chosen, tried: Mapping[str, int]) -> float | None:
        """Seconds to wait after a provider failed the work; `None`: give up.

        The wait doubles each time. Before the next provider there is none.
        """
        times = tried[chosen.provider]
        if times < ATTEMPTS:
            return FIRST_WAIT_S * 2.0 ** (times - 1)
        providers = self._providers[str(chosen.worker)]
        return None if all(tried.get(one, 0) >= ATTEMPTS for one in providers) else 0.0

    def queue(self, lock: str) -> Waiting | None:
        """A place in the queue of a lock; `None`: refused, do other work."""
        del lock
        return Waiting()

    def stays(self, waiting: Waiting, waited_s: float, *, acquired: bool) -> bool:
        """Whether to stay in the queue after this time; `acquired`: the lock has been acquired."""
        del waiting, waited_s, acquired
        return True

    def heal(self, agent: str) -> None:
        """Let an agent work again, as an operator who has fixed it."""


class ProviderDown(ConnectionError):
    """The answer of a provider that is down, as its SDK raises it."""

    status_code = 503


class Guarded(Unguarded):
    """The side with breakers: the router and the circuits of a real fleet."""

    def __init__(
        self,
        crew: Crew,
        breakers: Breakers,
        policies: PolicyOf | None,
        clock: Clock,
        sink: Callable[[Event], object],
    ) -> None:
        super().__init__(crew)
        policies = policies or policies_of(breakers, crew)
        self.panel = Panel(
            "memory:", policies=policies, sinks=[sink], clock=clock, keep=KEPT_BREAKERS
        )
        self._router = Router(self.panel, crew, breakers, clock=clock)
        self._crew = crew
        self._locks = breakers.resource_lock.enabled
        self._paused: dict[str, set[str]] = {}
        self._error = ProviderDown("503 the provider is down")

    def choose(self, agent: str, story: str, tried: Mapping[str, int]) -> Chosen:
        failed: dict[Candidate, str] = {}
        if tried:
            names = (agent, *self._crew.agents[agent].fallback_chain)
            failed = {
                Candidate(name, Model(provider, "large")): "503"
                for name in names
                for provider in tried
            }
        route = self._router.route(agent, story=story, tried=failed)
        if route.model is None:
            paused = route.decision is RouteDecision.PAUSE
            if paused:
                self._paused.setdefault(agent, set()).add(f"story/{story}")
            wait_s = route.retry_after_s or RETRY_S
            return Chosen(None, retry_after_s=wait_s, route=route, paused=paused)
        return Chosen(route.worker, route.model.provider, route)

    def record(self, chosen: Chosen, outcome: SimulatedOutcome) -> None:
        route = chosen.route
        if route is None:
            return
        route.spent(outcome.cost_micros)
        if outcome.provider_failed:
            route.record(error=self._error, seconds=outcome.seconds)
        else:
            route.record(ok=outcome.ok, seconds=outcome.seconds, violation=outcome.violation)

    def retry_s(self, chosen: Chosen, tried: Mapping[str, int]) -> float | None:
        """Immediately, with the next worker."""
        del chosen, tried
        return 0.0

    def queue(self, lock: str) -> Waiting | None:
        """A place in the queue of a lock; `None`: its circuit refuses."""
        if not self._locks:
            return Waiting()
        breaker = self.panel.breaker(f"lock/{lock}")
        try:
            return Waiting(breaker, breaker.enter())
        except Rejected:
            return None

    def stays(self, waiting: Waiting, waited_s: float, *, acquired: bool) -> bool:
        """Record the wait, and give up when the circuit opens, as `panel.lock` does."""
        breaker, permit = waiting
        if breaker is None:
            return True
        signal = Signal(ok=True, waited_s=waited_s)
        if acquired:
            breaker.record(signal, permit)
            return True
        probes = permit is not None and permit.probe and breaker.policy.objection(signal)
        verdict = (
            breaker.record(signal, permit) if probes else breaker.record(Signal(waited_s=waited_s))
        )
        return verdict.phase is not Phase.OPEN or verdict.admitted

    def heal(self, agent: str) -> None:
        """Reset what only an operator can reset: the agent's rules, and the stories that it paused."""
        for name in (f"rules/{agent}", *sorted(self._paused.pop(agent, ()))):
            if self.panel.view(name) is not None:
                self.panel.breaker(name).reset(by="operator", why="the agent was fixed")


class Agenda:
    """Entries sorted by time; entries with the same time keep their order."""

    def __init__(self) -> None:
        self._entries: list[tuple[Any, ...]] = []
        self._numbers = count()

    def put(self, at_s: float, work: Callable[..., Any], *arguments: Any) -> None:
        heappush(self._entries, (at_s, next(self._numbers), work, *arguments))

    def next(self) -> tuple[Any, ...] | None:
        """Remove and return the next entry: its time, its function and the arguments; `None`: there is none."""
        if not self._entries:
            return None
        at_s, _, *entry = heappop(self._entries)
        return at_s, *entry


WORK_ATTEMPTS = 3
"""How often an agent attempts work that fails by its own fault."""
WORK_RETRY_S = 5.0
HEALED_AFTER_S = 300.0
"""Seconds after the end of its trouble until an operator lets an agent work again."""


@dataclass(slots=True, eq=False)
class Lane:
    """One of the tasks that an agent works on at the same time."""

    number: int
    agent: str
    name: str
    random: Random
    pieces: int = 0
    shift: int = 0
    """How many of its stories were paused."""
    tried: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    queued_s: float = 0.0
    waiting: Waiting | None = None

    @property
    def story(self) -> str:
        """What it works on now."""
        return f"{self.name}-{self.pieces // STORY + self.shift}"


@dataclass(slots=True)
class Queue:
    """A lock: its holder and its waiters."""

    name: str
    held: bool = False
    behind: deque[Lane] = field(default_factory=deque)


class Engine:
    """One side of a simulation. Used once, by one thread."""

    def __init__(self, world: World, tally: Tally) -> None:
        self.now_s = 0.0
        self._world, self._tally = world, tally
        self._gate: Unguarded
        self._agenda = Agenda()
        self._queues: dict[str, Queue] = {}

    def clock(self) -> float:
        return self.now_s

    def run(self, gate: Unguarded, on_hour: Callable[[float], object] | None = None) -> None:
        self._gate = gate
        world = self._world
        for number in range(world.agents):
            for place in range(world.lanes_of(number)):
                name = f"{world.names[number]}-{place}"
                random = Random(f"{world.seed}/{name}")  # noqa: S311  no secret
                lane = Lane(number, world.names[number], name, random)
                self._after(lane.random.random() * PAUSE_S * 2, Engine._begin, lane)
        for span in world.spans:
            if span.kind in {POISON, BURN}:
                healed_s = span.ends_s + HEALED_AFTER_S
                for name in sorted(span.about):
                    self._after(healed_s, lambda _, name: gate.heal(name), name)
        if on_hour is not None:
            for hour in range(1, int(world.length_s / 3600) + 1):
                self._after(hour * 3600.0, lambda _, hour: on_hour(hour), float(hour))
        entry = self._agenda.next()
        while entry is not None and entry[0] <= world.length_s:
            self.now_s, work, *arguments = entry
            work(self, *arguments)
            entry = self._agenda.next()

    def _after(self, seconds: float, work: Callable[..., object], *arguments: Any) -> None:
        """Call `work` later, with the engine and these arguments."""
        self._agenda.put(self.now_s + seconds, work, *arguments)

    # A piece of work

    def _begin(self, lane: Lane) -> None:
        lane.pieces += 1
        lane.tried = {}
        lane.failures = 0
        if lane.pieces % LOCK_EVERY == 0 and not self._world.is_pooled(lane.number):
            self._queue(lane)
        else:
            self._work(lane)

    def _work(self, lane: Lane) -> None:
        chosen = self._gate.choose(lane.agent, lane.story, lane.tried)
        if chosen.worker is None:
            self._tally.refuse(self.now_s)
            lane.shift += chosen.paused
            self._after(chosen.retry_after_s, Engine._begin, lane)
            return
        if chosen.route is not None and chosen.route.refused:
            self._tally.refuse(self.now_s)
        outcome = self._world.call(lane.random, chosen.worker, chosen.provider, self.now_s)
        other = chosen.worker != lane.agent or chosen.provider != self._world.providers[lane.number]
        self._tally.call(self.now_s, chosen.worker, chosen.provider, outcome, other=other)
        self._after(outcome.seconds, Engine._end, lane, chosen, outcome)

    def _end(self, lane: Lane, chosen: Chosen, outcome: SimulatedOutcome) -> None:
        self._gate.record(chosen, outcome)
        if outcome.ok:
            self._tally.done += 1
        elif outcome.provider_failed:
            times = lane.tried.get(chosen.provider, 0) + 1
            lane.tried = {**lane.tried, chosen.provider: times}
            wait_s = self._gate.retry_s(chosen, lane.tried)
            if wait_s is not None:
                self._after(wait_s, Engine._work, lane)
                return
        else:
            lane.failures += 1
            if lane.failures < WORK_ATTEMPTS:
                self._after(WORK_RETRY_S, Engine._work, lane)
                return
        pause_s = self._world.pause_s(lane.random, str(chosen.worker), self.now_s)
        self._after(pause_s, Engine._begin, lane)

    # Locks

    def _queue(self, lane: Lane) -> None:
        name = self._world.lock_of(lane.number)
        lane.waiting = self._gate.queue(name)
        if lane.waiting is None:  # the agent does other work meanwhile
            self._tally.refuse(self.now_s)
            self._work(lane)
            return
        queue = self._queues.setdefault(name, Queue(name))
        lane.queued_s = self.now_s
        if queue.held:
            queue.behind.append(lane)
            self._after(RECORD_EVERY_S, Engine._check_wait, queue, lane, self.now_s)
        else:
            self._get(queue, lane)

    def _get(self, queue: Queue, lane: Lane) -> None:
        waited_s = self.now_s - lane.queued_s
        waiting, lane.waiting = lane.waiting, None
        queue.held = True
        self._after(self._world.held_s(queue.name, self.now_s), Engine._release, queue)
        self._tally.waited(self.now_s, queue.name, waited_s)
        if waiting is not None:
            self._gate.stays(waiting, waited_s, acquired=True)
        self._work(lane)

    def _check_wait(self, queue: Queue, lane: Lane, queued_s: float) -> None:
        """Record the wait of a lane that still waits for the lock."""
        if lane.waiting is None or lane.queued_s != queued_s:
            return
        waited_s = self.now_s - queued_s
        if self._gate.stays(lane.waiting, waited_s, acquired=False):
            self._after(RECORD_EVERY_S, Engine._check_wait, queue, lane, queued_s)
            return
        queue.behind.remove(lane)
        lane.waiting = None
        self._tally.waited(self.now_s, queue.name, waited_s)
        self._tally.refuse(self.now_s)
        self._work(lane)

    def _release(self, queue: Queue) -> None:
        queue.held = False
        if queue.behind:
            self._get(queue, queue.behind.popleft())
