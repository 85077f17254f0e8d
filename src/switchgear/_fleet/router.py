"""Who does the work: the first of an agent's models and fallbacks that all its circuits admit.

No thread, no clock of its own, no file: it asks the circuits of a panel and says what it decided.
So the same code routes real calls and those of a simulation.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypedDict, TypeVar, Unpack

from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._core.errors import BudgetRefused, Rejected
from switchgear._core.types import Mode, Permit, Phase
from switchgear._fleet.categories import Breakers
from switchgear._fleet.manifest import Agent, Crew, Model
from switchgear._fleet.route import Refused, Route, RouteDecision
from switchgear._panel.panel import Panel
from switchgear._providers.errors import classify
from switchgear._system.aio import beside
from switchgear._system.clock import Clock, monotonic

T = TypeVar("T")


class Candidate(NamedTuple):
    """Somebody who could do the work."""

    agent: str
    model: Model


class Switch(NamedTuple):
    """Work for an agent goes elsewhere than before, or comes back."""

    agent: str
    before: Candidate | None
    after: Candidate
    why: str
    """Why not the agent on its own model; empty: it is back."""


class Settings(NamedTuple):
    """What a router goes by: one value, so that a route never sees half of a new configuration."""

    crew: Crew
    breakers: Breakers

    def circuits(self, agent: Agent) -> list[str]:
        """The circuits that an agent answers to, whatever it runs on."""
        on = self.breakers
        names = [
            (on.constitutional, f"rules/{agent.name}"),
            (on.budget, f"agent/{agent.name}/budget"),
            (on.failure_rate, f"agent/{agent.name}/failure_rate"),
            (on.latency, f"agent/{agent.name}/latency"),
        ]
        return [name for category, name in names if category.enabled]

    def dependencies(self, model: Model) -> list[str]:
        """The circuits that whatever runs on a model answers to."""
        on = self.breakers
        names = [
            (on.latency, f"provider/{model.provider}/latency"),
            (on.external_dep, f"provider/{model.provider}"),
        ]
        return [name for category, name in names if category.enabled]

    def chain(self, agent: Agent) -> list[Agent]:
        """The agent, then those that stand in for it."""
        return [agent, *(self.crew.agents[name] for name in agent.fallback_chain)]


class RouteOptions(TypedDict, total=False):
    """What a call of a fleet is for, each as `Router.route` documents it."""

    story: str | None
    locks: Collection[str]
    budget: str | None
    estimate_micros: int | None


class Router:
    """Decides for a fleet. Thread-safe, like the panel.

    A route and all attempts of a call go by the settings that hold when they begin; `use` changes
    them for those that begin later.

    `on_switch` hears where the work of an agent goes at first, when it begins to go elsewhere and
    when it comes back. `clock` gives seconds for measuring how long calls take.
    """

    def __init__(
        self,
        panel: Panel,
        crew: Crew,
        breakers: Breakers,
        *,
        on_switch: Callable[[Switch], object] | None = None,
        clock: Clock = monotonic,
    ) -> None:
        self.panel = panel
        self.settings: Settings = Settings(crew, breakers)
        self._on_switch = on_switch
        self._clock = clock
        self._last: dict[str, Candidate] = {}
        self._own: dict[str, tuple[Settings, list[CircuitBreaker]]] = {}
        """The breakers of each agent that was asked: found by one look, not by one for each."""

    @property
    def crew(self) -> Crew:
        """The agents and stories."""
        return self.settings.crew

    @property
    def breakers(self) -> Breakers:
        """The categories."""
        return self.settings.breakers

    def use(self, crew: Crew, breakers: Breakers) -> None:
        """Go by these from the next route on."""
        self.settings = Settings(crew, breakers)

    def route(
        self,
        agent: str,
        *,
        story: str | None = None,
        locks: Collection[str] = (),
        budget: str | None = None,
        estimate_micros: int | None = None,
        tried: Mapping[Candidate, str] | None = None,
    ) -> Route:
        """Who may work for an agent now, with leave from all its circuits, and why not the others.

        `story` is what it is for and `locks` the resources it will need; `budget` a node of the
        budgets, where `estimate_micros` is set aside; `tried` those who have failed it, and how. The
        route must be used: as a context manager, or by `tell` or `give_back`. Raises ValueError
        for an unknown agent.
        """
        return self._route(
            *(self.settings, agent, tried or {}),
            story=story,
            locks=locks,
            budget=budget,
            estimate_micros=estimate_micros,
        )

    def _route(
        self,
        by: Settings,
        agent: str,
        tried: Mapping[Candidate, str],
        *,
        story: str | None = None,
        locks: Collection[str] = (),
        budget: str | None = None,
        estimate_micros: int | None = None,
    ) -> Route:
        wanted = by.crew.agent(agent)
        route = Route(agent, story)
        on = by.breakers
        shared = ["rules"] if on.constitutional.enabled else []
        shared += [f"story/{story}"] if story and on.story_cost.enabled else []
        try:
            if self._free(route, by, locks) and self._asked(route, self._named(shared), None, None):
                found = self._first(route, by, wanted, tried)
                if found is not None and self._reserved(route, budget, estimate_micros):
                    route.choose(*found, rerouted=found != Candidate(agent, wanted.model))
                    self._note(wanted, found, route.refused)
                    return route
        except BaseException:
            route.give_back()
            raise
        route.refuse(_decision(route.refused))
        return route

    def call(self, agent: str, work: Callable[[Route], T], **where: Unpack[RouteOptions]) -> T:
        """Let `work` be done by whoever may, and by the next when a provider fails it.

        `work` is given the route: `route.model` says on what to run it, `route.spent(micros)` takes
        note of costs. Only what speaks of the provider or the account goes to the next; what a
        person must hear of (a bad key, a refused content, a bad request) and the work's own
        exceptions are raised at once. Raises `NoRoute` where nobody may, or the last error.
        """
        by = self.settings  # of all attempts
        tried: dict[Candidate, str] = {}
        last: Exception | None = None
        while True:
            route = self._route(by, agent, tried, **where)
            if not route.admitted:
                raise route.no_route() if last is None else last
            started_s = self._clock()
            try:
                done = work(route)
            except Exception as error:
                route.record(error=error, seconds=self._clock() - started_s)
                why = _why_another(error)
                if why is None:
                    raise
                tried[Candidate(str(route.worker), route.chosen)] = why
                last = error
            except BaseException:
                route.record()  # cut off: no evidence, but what it cost is spent
                raise
            else:
                route.record(ok=True, seconds=self._clock() - started_s)
                return done

    async def acall(
        self, agent: str, work: Callable[[Route], Awaitable[T]], **where: Unpack[RouteOptions]
    ) -> T:
        """What `call` is for a coroutine: the circuits are asked and told beside the event loop."""
        by = self.settings  # of all attempts
        tried: dict[Candidate, str] = {}
        last: Exception | None = None
        while True:
            ask = partial(self._route, by, agent, dict(tried), **where)
            route = await beside(ask, Route.give_back)
            if not route.admitted:
                raise route.no_route() if last is None else last
            started_s = self._clock()
            try:
                done = await work(route)
            except Exception as error:
                await beside(partial(route.record, error=error, seconds=self._clock() - started_s))
                why = _why_another(error)
                if why is None:
                    raise
                tried[Candidate(str(route.worker), route.chosen)] = why
                last = error
            except BaseException:
                await beside(route.record)
                raise
            else:
                await beside(partial(route.record, ok=True, seconds=self._clock() - started_s))
                return done

    def _first(
        self, route: Route, by: Settings, wanted: Agent, tried: Mapping[Candidate, str]
    ) -> Candidate | None:
        """The first agent that is admitted, on the first of its models that is."""
        for one in by.chain(wanted):
            before = len(route.granted)
            if self._asked(route, self._own_breakers(by, one), one.name, None):
                own = len(route.granted)
                for model in one.models:
                    found = Candidate(one.name, model)
                    if found in tried:
                        route.refused.append(Refused(*found, "tried", tried[found], None))
                    elif self._asked(route, self._named(by.dependencies(model)), *found):
                        return found
                    route.give_back(keep=own)
            route.give_back(keep=before)
        return None

    def _free(self, route: Route, by: Settings, locks: Collection[str]) -> bool:
        """Whether the circuits of these resources let anybody wait; nothing is taken."""
        if isinstance(locks, str):
            raise ValueError(f"locks is {locks!r}: it must be a list of resources")
        for resource in locks if by.breakers.resource_lock.enabled else ():
            view = self.panel.view(f"lock/{resource}")
            if view is not None and not view.verdict.admitted:
                verdict = view.verdict
                refusal = Refused(None, None, view.name, verdict.reason, verdict.retry_after_s)
                route.refused.append(refusal)
                return False
        return True

    def _named(self, names: Iterable[str]) -> list[CircuitBreaker]:
        return [self.panel.breaker(name) for name in names]

    def _own_breakers(self, by: Settings, agent: Agent) -> list[CircuitBreaker]:
        known = self._own.get(agent.name)
        if known is not None and known[0] is by:
            return known[1]
        found = self._named(by.circuits(agent))
        self._own[agent.name] = (by, found)
        return found

    def _asked(
        self,
        route: Route,
        breakers: list[CircuitBreaker],
        agent: str | None,
        model: Model | None,
    ) -> bool:
        """Whether all of these circuits admit; one that does not is noted.

        A circuit that has refused this route once is not asked again: another answer would let
        through what it has just kept out.
        """
        for breaker in breakers:
            before = next((one for one in route.refused if one.circuit == breaker.name), None)
            if before is not None:
                route.refused.append(before._replace(agent=agent, model=model))
                return False
            try:
                permit = _reduced_already(route, breaker) or breaker.enter()
            except Rejected as refused:
                why, wait_s = refused.reason, refused.retry_after_s
                route.refused.append(Refused(agent, model, breaker.name, why, wait_s))
                return False
            route.grant(breaker, permit)
        return True

    def _reserved(self, route: Route, budget: str | None, estimate_micros: int | None) -> bool:
        if budget is None:
            return True
        try:
            route.reservation = self.panel.budgets.reserve(
                budget, estimate_micros, owner=route.agent
            )
        except BudgetRefused as refused:
            route.refused.append(Refused(None, None, f"budget {budget}", refused.why, None))
            return False
        return True

    def _note(self, wanted: Agent, found: Candidate, refused: list[Refused]) -> None:
        before = self._last.get(wanted.name)
        if found == before or any(one.circuit.endswith("/latency") for one in refused):
            return  # a load that is reduced goes to and fro with every call
        self._last[wanted.name] = found
        if self._on_switch is not None:
            self._on_switch(Switch(wanted.name, before, found, "; ".join(map(str, refused))))


def _reduced_already(route: Route, breaker: CircuitBreaker) -> Permit | None:
    """A permit without asking, for a call that another latency circuit has admitted of its share.

    An agent and its provider are slow for the same cause: their shares would multiply. A probe is
    asked for as always.
    """
    if not _is_latency(breaker) or not any(map(_has_reduced, route.granted)):
        return None
    circuit = breaker.snapshot()
    is_reducing = circuit.phase is Phase.OPEN and circuit.outage.admit > 0.0
    return Permit(circuit.generation) if is_reducing and circuit.mode is Mode.AUTO else None


def _has_reduced(breaker: CircuitBreaker) -> bool:
    """Whether a circuit that has admitted a call did so of a reduced share."""
    return _is_latency(breaker) and breaker.last_known.phase in {Phase.OPEN, Phase.HALF_OPEN}


def _is_latency(breaker: CircuitBreaker) -> bool:
    return breaker.name.endswith("/latency")


def _why_another(error: Exception) -> str | None:
    """Why another may be asked instead; `None`: a person must hear of it."""
    found = classify(error)
    return f"{found.kind}: {found.text}" if found is not None and found.may_fail_over else None


def _decision(refused: list[Refused]) -> RouteDecision:
    """What is to become of work that nobody may do."""
    last = refused[-1] if refused else None
    if last is not None and last.agent is None:
        kind = last.circuit.partition("/")[0].partition(" ")[0]
        if kind in {"story", "budget"}:
            return RouteDecision.PAUSE
        if kind == "rules":
            return RouteDecision.HALT
        return RouteDecision.REQUEUE
    waits = [one.retry_after_s for one in refused if one.retry_after_s is not None]
    return RouteDecision.REQUEUE if waits else RouteDecision.HALT
