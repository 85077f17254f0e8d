"""The simulated fleet: agents, outages and faulty agents. The same for both sides.

All numbers of the model are here. The outcome of a call depends on the seed, the lane of the agent and the
number of its calls, so it is the same for both sides.
"""

import math
from random import Random
from typing import NamedTuple

from switchgear._fleet.manifest import Crew, FleetAgent, agent, crew

OUTAGE, SLOW, POISON, BURN, CONVOY = "outage", "slow-down", "poisoned-agent", "budget-burn", "lock-convoy"  # fmt: skip


class Trouble(NamedTuple):
    """A temporary fault; its times are shares of the simulated time."""

    kind: str
    begins: float
    ends: float


class Scenario(NamedTuple):
    """A named simulation."""

    name: str
    about: str
    hours: float
    """Default simulated time."""
    troubles: tuple[Trouble, ...]


def _single_trouble(kind: str, about: str) -> Scenario:
    return Scenario(kind, about, 1.0, (Trouble(kind, 0.25, 7 / 12),))


SCENARIOS: dict[str, Scenario] = {
    one.name: one
    for one in (
        _single_trouble(OUTAGE, "a provider is down for 20 minutes of the hour"),
        _single_trouble(SLOW, "a provider takes six times as long for 20 minutes of the hour"),
        _single_trouble(
            POISON, "one agent in a hundred fails most of its calls, and one breaks a rule"
        ),
        _single_trouble(
            BURN, "one agent in a hundred spends fifty times as much, as fast as it can"
        ),
        _single_trouble(CONVOY, "one lock in ten is held for 90 s; the others queue up"),
        Scenario(
            "day",
            "all of them over a day: 30 to 60 minutes each, at 3, 9, 13, 16 and 20 h",
            24.0,
            (
                Trouble(SLOW, 3 / 24, 3.67 / 24),
                Trouble(OUTAGE, 9 / 24, 9.5 / 24),
                Trouble(POISON, 13 / 24, 14 / 24),
                Trouble(BURN, 16 / 24, 17 / 24),
                Trouble(CONVOY, 20 / 24, 20.67 / 24),
            ),
        ),
    )
}


NORTH, SOUTH = "north", "south"
TEAM = 10
"""Number of agents in a team; the last one is the fallback of the others."""
POOLED, LANES = 50, 20
"""One agent in `POOLED`, such as a shared reviewer, works on `LANES` tasks at the same time."""
LOCKED_TEAMS = 5
"""Number of teams that share a repository, and so a lock."""
LOCK_EVERY = 5
"""One piece of work in this many needs the lock."""
STORY = 200
"""Pieces of work in a story."""
WORK_S, SPREAD, PAUSE_S = 36.0, 0.5, 20.0
"""The median duration of a call (log-normal, p95 82 s) and its spread, and the mean pause after a call."""
LOG_WORK = math.log(WORK_S)
COST_MICROS = (10_000, 30_000)
WORK_FAILS = 0.01
"""The share of calls that fail without any trouble."""
REFUSED_S, HANGS_S, HANGS = (1.0, 5.0), 30.0, 0.2
"""A provider that is down fails calls quickly, but a share of them hangs until the timeout."""
FAILED_COST = 0.2
"""The share of its price that a call costs if the provider fails it: the input is still paid for."""
SLOWER = 6.0
POISONED_FAILS, POISONED_S, BREAKS_RULE = 0.8, 6.0, 0.1
BROKEN = "rule deletes: outside the workspace"
BURN_TIMES, BURN_S, BURN_PAUSE_S = 50, 5.0, 1.0
HELD_S, CONVOY_HELD_S = 2.0, 90.0
SICK_SHARE, LOCKS_SHARE = 0.01, 0.1
FEWEST, MOST = 10, 100_000


class Span(NamedTuple):
    """A trouble with its times in seconds, and what it affects."""

    kind: str
    begins_s: float
    ends_s: float
    about: frozenset[str]
    """The provider, the agents or the locks."""

    def holds(self, now_s: float) -> bool:
        return self.begins_s <= now_s < self.ends_s


class SimulatedOutcome(NamedTuple):
    """The outcome of one call."""

    seconds: float
    cost_micros: int
    ok: bool
    provider_failed: bool = False
    violation: str | None = None


class World:
    """A simulated fleet and its troubles. Immutable."""

    def __init__(
        self, scenario: Scenario, agents: int, hours: float, seed: int, noise: float = 0.0
    ) -> None:
        self.scenario, self.agents, self.seed, self.noise = scenario, agents, seed, noise
        self.length_s = hours * 3600.0
        self.names = [f"a{number:05}" for number in range(agents)]
        self.providers = [NORTH if number % 5 < 3 else SOUTH for number in range(agents)]
        self.number = {name: number for number, name in enumerate(self.names)}
        random = Random(f"{seed}/world")  # noqa: S311  a simulation, not a secret
        self.spans = tuple(
            Span(
                one.kind,
                one.begins * self.length_s,
                one.ends * self.length_s,
                self._affected_names(one.kind, random),
            )
            for one in scenario.troubles
        )
        self._down = [span for span in self.spans if span.kind == OUTAGE]
        self._slow = [span for span in self.spans if span.kind == SLOW]
        self._sick = [span for span in self.spans if span.kind in {POISON, BURN}]
        self._held = [span for span in self.spans if span.kind == CONVOY]

    def _affected_names(self, kind: str, random: Random) -> frozenset[str]:
        if kind in {OUTAGE, SLOW}:
            return frozenset((NORTH,))
        if kind == CONVOY:
            locks = sorted({self.lock_of(number) for number in range(self.agents)})
            return frozenset(random.sample(locks, math.ceil(len(locks) * LOCKS_SHARE)))
        # Fallbacks of other agents and pooled agents stay healthy.
        well = [n for n in range(self.agents) if n % TEAM != TEAM - 1 and not self.is_pooled(n)]
        sick = random.sample(well, math.ceil(self.agents * SICK_SHARE))
        return frozenset(self.names[number] for number in sorted(sick))

    def provider_of(self, name: str) -> str | None:
        """The first provider of an agent; `None`: there is no such agent."""
        number = self.number.get(name)
        return None if number is None else self.providers[number]

    def is_pooled(self, number: int) -> bool:
        return number % POOLED == 7

    def lanes_of(self, number: int) -> int:
        return LANES if self.is_pooled(number) else 1

    def lock_of(self, number: int) -> str:
        """The lock that an agent's work sometimes needs."""
        return f"repo-{number // (TEAM * LOCKED_TEAMS)}"

    def crew(self) -> Crew:
        """The fleet as its manifests."""
        return crew(self._manifest(number) for number in range(self.agents))

    def _manifest(self, number: int) -> FleetAgent:
        provider = self.providers[number]
        stand_in = number - number % TEAM + TEAM - 1
        chain = [self.names[stand_in]] if number < stand_in < self.agents else []
        return agent(
            name=self.names[number],
            owner=f"team-{number // TEAM}",
            provider=provider,
            model="large",
            fallback_models=[f"{SOUTH if provider == NORTH else NORTH}/large"],
            fallback_chain=chain,
        )

    # Calls

    def call(self, random: Random, worker: str, provider: str, now_s: float) -> SimulatedOutcome:
        seconds = random.lognormvariate(LOG_WORK, SPREAD)
        cost = random.randrange(*COST_MICROS)
        chance, second = random.random(), random.random()
        if _span_at(self._down, provider, now_s):
            waits = HANGS_S if chance < HANGS else REFUSED_S[0] + second * (
                REFUSED_S[1] - REFUSED_S[0]
            )  # fmt: skip
            return SimulatedOutcome(waits, int(cost * FAILED_COST), False, True)
        if second < self.noise:
            return SimulatedOutcome(REFUSED_S[0], int(cost * FAILED_COST), False, True)
        sick = _span_at(self._sick, worker, now_s)
        if sick is not None:
            well = SimulatedOutcome(seconds, cost, chance >= POISONED_FAILS)
            return self._sick_call(sick, worker, well, second)
        if _span_at(self._slow, provider, now_s):
            seconds *= SLOWER
        elif _span_at(self._down, provider, now_s + seconds):
            # The provider goes down before the call ends.
            return SimulatedOutcome(seconds, int(cost * FAILED_COST), False, True)
        return SimulatedOutcome(seconds, cost, chance >= WORK_FAILS)

    def _sick_call(
        self, span: Span, worker: str, well: SimulatedOutcome, second: float
    ) -> SimulatedOutcome:
        """The outcome of a call by a faulty agent; `well` is the outcome if the fault has no effect."""
        if span.kind == BURN:
            return SimulatedOutcome(BURN_S, well.cost_micros * BURN_TIMES, True)
        if worker == min(span.about) and second < BREAKS_RULE:
            return SimulatedOutcome(POISONED_S, well.cost_micros, False, violation=BROKEN)
        return well if well.ok else well._replace(seconds=POISONED_S)

    def pause_s(self, random: Random, worker: str, now_s: float) -> float:
        pause_s = random.expovariate(1.0 / PAUSE_S)
        sick = _span_at(self._sick, worker, now_s)
        return BURN_PAUSE_S if sick is not None and sick.kind == BURN else pause_s

    def held_s(self, lock: str, now_s: float) -> float:
        return CONVOY_HELD_S if _span_at(self._held, lock, now_s) else HELD_S


def _span_at(spans: list[Span], name: str, now_s: float) -> Span | None:
    """The trouble of an agent, provider or lock at that time, if any."""
    for span in spans:
        if span.begins_s <= now_s < span.ends_s and name in span.about:
            return span
    return None
