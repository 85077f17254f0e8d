"""The loop of virtual time: lanes of agents that think, ask, call, wait and try again.

Time jumps from event to event. A lane is one thing that an agent does at a time, with a generator
of random numbers of its own, so that both sides meet the same luck.
"""

from bisect import insort_right
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from operator import itemgetter
from random import Random
from typing import Any

from switchgear._analysis.simulate.gates import Chosen, Gate, Waiting
from switchgear._analysis.simulate.tally import Tally
from switchgear._analysis.simulate.world import (
    BURN,
    LOCK_EVERY,
    PAUSE_S,
    POISON,
    STORY,
    SimulatedOutcome,
    World,
)
from switchgear._locks.locks import TELL_EVERY_S

Entry = tuple[Any, ...]
"""When, what, and what it is given."""
_time = itemgetter(0)


class Agenda:
    """Entries come out by time, and in the order they came where the time is the same.

    Nothing may be put before what came out last.
    """

    __slots__ = ("_later", "_now", "_place", "_second", "_seconds")

    def __init__(self) -> None:
        self._now: list[Entry] = []
        """The entries of the second that is under way, in order."""
        self._place = 0
        """How many of them have come out."""
        self._second = -1
        self._seconds: list[int] = []
        self._later: dict[int, list[Entry]] = {}
        """The entries of later seconds, as they came."""

    def put(self, at_s: float, work: Callable[..., Any], *given: Any) -> None:
        """Something is to happen at that time."""
        entry = (at_s, work, *given)
        second = int(at_s)
        if second == self._second:
            insort_right(self._now, entry, self._place, key=_time)
        elif second in self._later:
            self._later[second].append(entry)
        else:
            self._later[second] = [entry]
            heappush(self._seconds, second)

    def next(self) -> Entry | None:
        """What is to happen next, taken out; `None`: nothing any more."""
        if self._place == len(self._now):
            if not self._seconds:
                return None
            self._second = heappop(self._seconds)
            self._now = sorted(self._later.pop(self._second), key=_time)
            self._place = 0
        self._place += 1
        return self._now[self._place - 1]


WORK_TRIES = 3
"""How often an agent tries again what failed by its own fault."""
WORK_RETRY_S = 5.0
NOT_TRIED: Mapping[str, int] = {}
MENDED_AFTER_S = 300.0
"""So long after a sick agent is well again an operator lets it work."""


class Lane:
    """One thing that an agent does at a time."""

    __slots__ = ("agent", "failures", "name", "number", "pieces", "queued_s", "random", "shift", "tried", "waiting")  # fmt: skip

    def __init__(self, world: World, number: int, place: int) -> None:
        self.number = number
        self.agent = world.names[number]
        self.name = f"{self.agent}-{place}"
        self.random = Random(f"{world.seed}/{self.name}")  # noqa: S311  no secret
        self.pieces = 0
        self.shift = 0
        """How many stories were paused under it."""
        self.tried: Mapping[str, int] = NOT_TRIED
        self.failures = 0
        self.queued_s = 0.0
        self.waiting: Waiting | None = None

    @property
    def story(self) -> str:
        """What it works on now."""
        return f"{self.name}-{self.pieces // STORY + self.shift}"


class Queue:
    """A lock: whoever has it, and those behind."""

    __slots__ = ("behind", "held", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.held = False
        self.behind: deque[Lane] = deque()


class Engine:
    """One side of a simulation. Used once, by one thread."""

    def __init__(self, world: World, tally: Tally) -> None:
        self.now_s = 0.0
        self._world, self._tally = world, tally
        self._gate: Gate
        self._agenda = Agenda()
        self._queues: dict[str, Queue] = {}

    def clock(self) -> float:
        """The virtual time, in seconds."""
        return self.now_s

    def run(self, gate: Gate, on_hour: Callable[[float], object] | None = None) -> None:
        """Simulate from the beginning to the end."""
        self._gate = gate
        world = self._world
        for number in range(world.agents):
            for place in range(world.lanes_of(number)):
                lane = Lane(world, number, place)
                self._after(lane.random.random() * PAUSE_S * 2, Engine._begin, lane)
        for span in world.spans:
            if span.kind in {POISON, BURN}:
                for name in sorted(span.about):
                    self._after(span.ends_s + MENDED_AFTER_S, Engine._heal, name)
        if on_hour is not None:
            for hour in range(1, int(world.length_s / 3600) + 1):
                self._after(hour * 3600.0, Engine._tell, on_hour, float(hour))
        entry = self._agenda.next()
        while entry is not None and entry[0] <= world.length_s:
            self.now_s, work, *given = entry
            work(self, *given)
            entry = self._agenda.next()

    def _after(self, seconds: float, work: Callable[..., None], *given: Any) -> None:
        """Do something later; `work` is a function of the class, which is there anyway."""
        self._agenda.put(self.now_s + seconds, work, *given)

    def _heal(self, name: str) -> None:
        self._gate.heal(name)

    def _tell(self, on_hour: Callable[[float], object], hour: float) -> None:
        on_hour(hour)

    # A piece of work

    def _begin(self, lane: Lane) -> None:
        lane.pieces += 1
        lane.tried = NOT_TRIED
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
            self._after(chosen.again_s, Engine._begin, lane)
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
            if lane.failures < WORK_TRIES:
                self._after(WORK_RETRY_S, Engine._work, lane)
                return
        pause_s = self._world.pause_s(lane.random, str(chosen.worker), self.now_s)
        self._after(pause_s, Engine._begin, lane)

    # Locks

    def _queue(self, lane: Lane) -> None:
        name = self._world.lock_of(lane.number)
        lane.waiting = self._gate.queue(name)
        if lane.waiting is None:  # the piece is queued again, and the agent does something else
            self._tally.refuse(self.now_s)
            self._work(lane)
            return
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(name)
        lane.queued_s = self.now_s
        if queue.held:
            queue.behind.append(lane)
            self._after(TELL_EVERY_S, Engine._look, queue, lane, self.now_s)
        else:
            self._get(queue, lane)

    def _get(self, queue: Queue, lane: Lane) -> None:
        waited_s = self.now_s - lane.queued_s
        waiting, lane.waiting = lane.waiting, None
        queue.held = True
        self._after(self._world.held_s(queue.name, self.now_s), Engine._release, queue)
        self._tally.waited(self.now_s, queue.name, waited_s)
        if waiting is not None:
            self._gate.still(waiting, waited_s, has=True)
        self._work(lane)

    def _look(self, queue: Queue, lane: Lane, queued_s: float) -> None:
        """It still waits, or has long gone on."""
        if lane.waiting is None or lane.queued_s != queued_s:
            return
        waited_s = self.now_s - queued_s
        if self._gate.still(lane.waiting, waited_s, has=False):
            self._after(TELL_EVERY_S, Engine._look, queue, lane, queued_s)
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
