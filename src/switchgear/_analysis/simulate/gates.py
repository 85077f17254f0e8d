"""Who decides whether a call is made: the real router over real circuits, or nobody.

Both sides have the same face. The guarded one has no logic of its own: it asks `Router` and a
`Panel` in memory whose clock is that of the simulation. The other one does what agents do that have
no breakers: try again, wait a little longer each time, and then take the next model.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from switchgear._analysis.simulate.world import SimulatedOutcome
from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._core.errors import Rejected
from switchgear._core.types import Event, Permit, Phase, Signal
from switchgear._fleet.categories import Breakers
from switchgear._fleet.fleet import policies_of
from switchgear._fleet.manifest import Crew, Model
from switchgear._fleet.router import Candidate, Route, RouteDecision, Router
from switchgear._panel.panel import Panel
from switchgear._panel.settings import PolicyOf
from switchgear._system.clock import Clock

TRIES = 4
"""How often an agent without breakers asks a provider that fails it, before it takes the next."""
FIRST_WAIT_S = 2.0
ASK_AGAIN_S = 30.0
"""How long work waits that nobody may do, if no circuit says how long."""


MOST_BREAKERS = 10**7
"""All circuits of a simulated fleet are in use: none is released."""


class Chosen(NamedTuple):
    """Who does a piece of work; without a worker, when to ask again."""

    worker: str | None
    provider: str = ""
    route: Route | None = None
    again_s: float = ASK_AGAIN_S
    paused: bool = False
    """The story is paused: the agent takes another one."""


class Waiting(NamedTuple):
    """Leave to stand in a queue."""

    breaker: CircuitBreaker | None = None
    permit: Permit | None = None


class Gate(Protocol):
    """What the simulation asks of a side."""

    def choose(self, agent: str, story: str, tried: Mapping[str, int]) -> Chosen:
        """Who does a piece of work now; `tried`: how often each provider failed it."""

    def record(self, chosen: Chosen, outcome: SimulatedOutcome) -> None:
        """How it went."""

    def retry_s(self, chosen: Chosen, tried: Mapping[str, int]) -> float | None:
        """How long to wait after a provider failed the work; `None`: give up."""

    def queue(self, lock: str) -> Waiting | None:
        """Leave to wait for a lock; `None`: do something else."""

    def still(self, waiting: Waiting, waited_s: float, *, has: bool) -> bool:
        """It waits for so long now, or has the lock at last; `False`: it must leave the queue."""

    def heal(self, agent: str) -> None:
        """An operator has looked at an agent and lets it work again."""


class Unguarded:
    """No breakers at all."""

    def __init__(self, crew: Crew) -> None:
        self._providers = {
            name: tuple(model.provider for model in agent.models)
            for name, agent in crew.agents.items()
        }
        self._first = {name: Chosen(name, those[0]) for name, those in self._providers.items()}

    def choose(self, agent: str, story: str, tried: Mapping[str, int]) -> Chosen:
        """The agent itself, on the first provider that has not failed it too often."""
        del story
        for provider in self._providers[agent] if tried else ():
            if tried.get(provider, 0) < TRIES:
                return Chosen(agent, provider)
        return self._first[agent]

    def record(self, chosen: Chosen, outcome: SimulatedOutcome) -> None:
        """Nobody listens."""

    def retry_s(self, chosen: Chosen, tried: Mapping[str, int]) -> float | None:
        """Twice as long each time; at once with the next provider; until there is none."""
        times = tried[chosen.provider]
        if times < TRIES:
            return FIRST_WAIT_S * 2.0 ** (times - 1)
        providers = self._providers[str(chosen.worker)]
        return None if all(tried.get(one, 0) >= TRIES for one in providers) else 0.0

    def queue(self, lock: str) -> Waiting | None:
        """Whoever wants to may wait."""
        del lock
        return Waiting()

    def still(self, waiting: Waiting, waited_s: float, *, has: bool) -> bool:
        """For as long as it takes."""
        del waiting, waited_s, has
        return True

    def heal(self, agent: str) -> None:
        """Nothing was cut."""


class ProviderDown(ConnectionError):
    """What a provider that is down answers, as its SDK would raise it."""

    status_code = 503


class Guarded:
    """The router and the circuits, as they are in a real fleet."""

    def __init__(
        self,
        crew: Crew,
        breakers: Breakers,
        policies: PolicyOf | None,
        clock: Clock,
        sink: Callable[[Event], object],
    ) -> None:
        judged_by = policies or policies_of(breakers, crew)
        self.panel = Panel(
            "memory:", policies=judged_by, sinks=[sink], clock=clock, keep=MOST_BREAKERS
        )
        self._router = Router(self.panel, crew, breakers, clock=clock)
        self._crew = crew
        self._locks = breakers.resource_lock.enabled
        self._paused: dict[str, set[str]] = {}
        self._error = ProviderDown("503 the provider is down")

    def choose(self, agent: str, story: str, tried: Mapping[str, int]) -> Chosen:
        """Whoever the router says."""
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
            again_s = route.retry_after_s
            return Chosen(None, again_s=again_s or ASK_AGAIN_S, route=route, paused=paused)
        return Chosen(route.worker, route.model.provider, route)

    def record(self, chosen: Chosen, outcome: SimulatedOutcome) -> None:
        """Each circuit hears what concerns it."""
        route = chosen.route
        if route is None:
            return
        route.spent(outcome.cost_micros)
        if outcome.provider_failed:
            route.record(error=self._error, seconds=outcome.seconds)
        else:
            route.record(ok=outcome.ok, seconds=outcome.seconds, violation=outcome.violation)

    def retry_s(self, chosen: Chosen, tried: Mapping[str, int]) -> float | None:
        """At once, with whoever is next."""
        del chosen, tried
        return 0.0

    def queue(self, lock: str) -> Waiting | None:
        """Unless its circuit is open."""
        if not self._locks:
            return Waiting()
        breaker = self.panel.breaker(f"lock/{lock}")
        try:
            return Waiting(breaker, breaker.enter())
        except Rejected:
            return None

    def still(self, waiting: Waiting, waited_s: float, *, has: bool) -> bool:
        """As `panel.lock` does: say it while waiting, and leave when the circuit opens."""
        breaker, permit = waiting
        if breaker is None:
            return True
        signal = Signal(ok=True, waited_s=waited_s)
        if has:
            breaker.record(signal, permit)
            return True
        probes = permit is not None and permit.probe and breaker.policy.objection(signal)
        told = (
            breaker.record(signal, permit) if probes else breaker.record(Signal(waited_s=waited_s))
        )
        return told.phase is not Phase.OPEN or told.admitted

    def heal(self, agent: str) -> None:
        """Reset what only an operator can: the agent's rules, and stories that it had paused."""
        for name in (f"rules/{agent}", *sorted(self._paused.pop(agent, ()))):
            if self.panel.view(name) is not None:
                self.panel.breaker(name).reset(by="operator", why="the agent was mended")
