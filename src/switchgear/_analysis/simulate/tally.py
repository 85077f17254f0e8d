"""What is counted while a fleet is simulated: per slot of time, and per trouble."""

import math

from switchgear._analysis.simulate.world import (
    BURN,
    BURN_TIMES,
    CONVOY,
    OUTAGE,
    POISON,
    SLOW,
    SimulatedOutcome,
    Span,
    World,
)
from switchgear._core.types import Event, EventKind, Phase

SLOTS = 60
"""How many slots of time a plot has."""
TAIL_S = 1200.0
"""What trips so long after a trouble may still be due to it: calls that had begun end later."""
HALTS = ("budget", "failure_rate")


class Harm:
    """What one trouble did on one side."""

    __slots__ = (
        "circuits",
        "detected_s",
        "interval_s",
        "last_s",
        "micros",
        "seconds",
        "span",
        "wasted",
    )

    def __init__(self, span: Span) -> None:
        self.span = span
        self.wasted = 0
        """Calls that were made in vain, or waits that were too long."""
        self.micros = 0
        self.seconds = 0.0
        """What agents spent on them."""
        self.detected_s: float | None = None
        """When the first of its circuits opened."""
        self.last_s = span.ends_s
        """When the last call was harmed or refused because of it."""
        self.interval_s = 0.0
        """How long the circuits stayed open between two probes, at its end."""
        self.circuits: set[str] = set()
        """Its circuits that are open."""

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
        """Agents that a circuit of their own halted."""
        self.halted_well: set[str] = set()
        self.harms = [Harm(span) for span in world.spans]
        self._open: dict[str, Harm] = {}

    def _slot(self, now_s: float) -> int:
        return min(int(now_s / self._slot_s), SLOTS - 1)

    # What happens to calls

    def call(
        self, begun_s: float, worker: str, provider: str, outcome: SimulatedOutcome, *, other: bool
    ) -> None:
        """A call was made."""
        slot = self._slot(begun_s)
        self.made[slot] += 1
        self.spent_micros += outcome.cost_micros
        self.rerouted += other
        for harm in self.harms:
            span = harm.span
            wasted = span.holds(begun_s) and self._wasted(span, worker, provider, outcome)
            if wasted:
                self.doomed[slot] += 1
                harm.wasted += 1
                harm.micros += wasted[0]
                harm.seconds += outcome.seconds
                harm.last_s = max(harm.last_s, begun_s + outcome.seconds)

    def _wasted(
        self, span: Span, worker: str, provider: str, outcome: SimulatedOutcome
    ) -> tuple[int] | None:
        """What a call cost in vain; `None`: it was not."""
        cost = outcome.cost_micros
        if span.kind == OUTAGE:
            return (cost,) if provider in span.about and outcome.provider_failed else None
        if span.kind == SLOW:
            late = provider in span.about and outcome.seconds > self._late_s
            return (cost,) if late else None
        if worker not in span.about:
            return None
        if span.kind == POISON:
            return None if outcome.ok else (cost,)
        return (cost - cost // BURN_TIMES,) if span.kind == BURN else None

    def refuse(self, now_s: float) -> None:
        """A call, or a place in a queue, was refused."""
        self.refused[self._slot(now_s)] += 1

    def waited(self, now_s: float, lock: str, seconds: float) -> None:
        """Somebody stood in a queue, until now."""
        if seconds <= self._waits_s:
            return
        for harm in self.harms:
            span = harm.span
            if span.kind == CONVOY and lock in span.about and span.begins_s <= now_s:
                self.doomed[self._slot(now_s)] += 1
                harm.wasted += 1
                harm.seconds += seconds
                harm.last_s = max(harm.last_s, now_s)

    # What happens to circuits

    def hear(self, event: Event) -> None:
        """A circuit changed: a sink of the panel."""
        if event.kind is not EventKind.MOVED:
            return
        if event.after is Phase.OPEN:
            self._opened(event)
        elif event.after is Phase.CLOSED and event.before is not Phase.TRIPPING:
            harm = self._open.pop(event.circuit, None)
            if harm is not None:
                harm.circuits.discard(event.circuit)
                harm.last_s = max(harm.last_s, event.at_s)

    def _opened(self, event: Event) -> None:
        harm = self._cause(event)
        again = event.before is Phase.HALF_OPEN
        if not again:
            self.trips += 1
            self._halt(event, well=harm is None)
        if harm is None:
            self.wrong_trips += not again and event.circuit not in self._open
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

    def _cause(self, event: Event) -> Harm | None:
        """The trouble that a trip is due to."""
        for harm in self.harms:
            span = harm.span
            # What a story was burnt for stays spent, however much later the last cent is.
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
