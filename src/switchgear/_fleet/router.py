"""Chooses the worker: the first of an agent's models and fallbacks that all its circuits admit.

`route` uses no thread, clock or file: it checks the circuits of a panel and returns a decision, so the
same code routes real calls and simulated ones.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, Self, TypedDict, TypeVar, Unpack

from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._breaker.permits import Acquired, AcquiredPermits
from switchgear._budgets.budgets import Reservation
from switchgear._core.errors import BudgetRefused, NoRoute, Rejected, StoreError
from switchgear._core.types import Mode, Permit, Phase, Signal
from switchgear._fleet.categories import Breakers, category_of
from switchgear._fleet.manifest import Crew, FleetAgent, Model
from switchgear._panel.panel import Panel
from switchgear._providers.errors import agent_signal, classify, provider_signal, was_not_started
from switchgear._sinks.dispatch import log_warning
from switchgear._system.clock import Clock, monotonic
from switchgear._system.threads import run_in_thread
from switchgear._text.formats import Money, duration, micros_of
from switchgear._text.redact import redact


class RouteDecision(StrEnum):
    """What to do with the work."""

    GO = "go"
    """The agent itself does it, on its own model."""
    REROUTED = "rerouted"
    """Another model or agent does it."""
    REQUEUE = "requeue"
    """No worker is admitted now; try again later."""
    PAUSE = "pause"
    """The budget of its task is used up; an operator must resume the task."""
    HALT = "halt"
    """No worker is admitted until an operator resets a circuit."""


class Refused(NamedTuple):
    """A refused candidate, and the circuit that refused it."""

    agent: str | None
    """The refused agent; `None`: every agent is refused."""
    model: Model | None
    """The refused model; `None`: every model is refused."""
    circuit: str
    reason: str
    retry_after_s: float | None

    def __str__(self) -> str:
        on = "" if self.model is None else f" on {self.model}"
        candidate = "" if self.agent is None else f"{self.agent}{on}: "
        wait_s = self.retry_after_s
        wait = "" if wait_s is None else f", for {duration(wait_s)}"
        return f"{candidate}{self.circuit}: {self.reason}{wait}"


class Route:
    """A permit for one piece of work. Use it once, from one thread at a time.

    As a context manager it records the result of the block on its circuits; entering a refused route
    raises `NoRoute`.
    """

    __slots__ = (
        "__weakref__",
        "_cost_micros",
        "agent",
        "decision",
        "model",
        "permits",
        "refused",
        "reservation",
        "story",
        "worker",
    )

    def __init__(self, agent: str, story: str | None) -> None:
        self.agent: str = agent
        """The requested agent."""
        self.story: str | None = story
        self.decision: RouteDecision = RouteDecision.HALT
        self.worker: str | None = None
        """The agent that does the work; `None`: no agent is admitted."""
        self.model: Model | None = None
        self.refused: list[Refused] = []
        """The earlier candidates, in order, with the reasons of their refusals."""
        self.permits: AcquiredPermits[CircuitBreaker] = AcquiredPermits()
        """The permits of the circuits that have no result yet."""
        self.reservation: Reservation | None = None
        self._cost_micros: int | None = None

    @property
    def admitted(self) -> bool:
        """Whether a worker is admitted."""
        return self.worker is not None

    @property
    def chosen(self) -> Model:
        """The model. Raises `NoRoute` if no worker is admitted."""
        if self.model is None:
            raise self.no_route()
        return self.model

    @property
    def retry_after_s(self) -> float | None:
        """Seconds until the first candidate may be admitted again."""
        waits = [one.retry_after_s for one in self.refused if one.retry_after_s is not None]
        return None if self.admitted else min(waits, default=None)

    @property
    def why(self) -> str:
        """Why the earlier candidates were refused."""
        return "; ".join(map(str, self.refused))

    def no_route(self) -> NoRoute:
        """The refusal as an error."""
        return NoRoute(self.agent, str(self.decision), self.why, self.retry_after_s)

    # Called by the router

    def choose(self, worker: str, model: Model, *, rerouted: bool) -> None:
        """Admit a worker."""
        self.worker, self.model = worker, model
        self.decision = RouteDecision.REROUTED if rerouted else RouteDecision.GO

    def refuse(self, decision: RouteDecision) -> None:
        """Admit no worker, and return all permits."""
        self.give_back()
        self.decision = decision

    # Results

    def spent(self, cost_micros: Any) -> None:
        """Add a cost in millionths of a dollar. Raises ValueError for a negative amount.

        Call it after each model call, so that the cost is charged even if the work fails later.
        """
        if not isinstance(cost_micros, int) or isinstance(cost_micros, bool) or cost_micros < 0:
            rule = "it must be a whole number of micro-dollars, not below 0"
            raise ValueError(f"cost_micros is {cost_micros!r}: {rule}")
        self._cost_micros = (self._cost_micros or 0) + cost_micros

    def record(
        self,
        *,
        ok: bool | None = None,
        seconds: float | None = None,
        error: BaseException | str | None = None,
        violation: str | None = None,
    ) -> None:
        """Record the result on every circuit that it concerns; the route is used up.

        Errors, also those given as a text, are classified (`switchgear.errors.classify`): the
        provider's failures count against the provider, the work's own against the agent. Without
        arguments the call has no known result: it is not evidence, but its cost is charged.
        """
        signals = _signals(
            ok=ok, seconds=seconds, error=error, violation=violation, cost_micros=self._cost_micros
        )
        for breaker, permit, _ in self.permits.pop_all():
            if breaker.name == "rules":
                continue  # a rule that one agent broke is recorded on its own circuit
            signal = signals[category_of(breaker.name) or "failure_rate"]
            if signal.ok and signal.cost_micros is None:
                breaker.succeeded(permit, signal.seconds)
            elif permit.probe or (signal is not _NO_FACTS and tuple(signal) != tuple(_NO_FACTS)):
                breaker.record(signal, permit)
        raised = error if isinstance(error, BaseException) else None
        if self._cost_micros is None and raised is not None and was_not_started(raised):
            self._cost_micros = 0
        self._settle()

    def give_back(self, keep: int = 0) -> None:
        """Return the permits of all but the first `keep` circuits: no work was done."""
        for breaker, permit, _ in self.permits.pop_all(keep):
            if permit.probe:
                breaker.give_back(permit)
        if not keep and self.reservation is not None:
            self.reservation.release()
            self.reservation = None

    def _settle(self) -> None:
        reservation, self.reservation = self.reservation, None
        if reservation is None:
            return
        try:
            reservation.settle(self._cost_micros)  # an unknown cost settles the whole estimate
        except (StoreError, BudgetRefused) as error:
            # The work is done, so its result is kept; the estimate is charged when the lease ends.
            log_warning("%r could not be settled: %s", reservation, error)

    def __enter__(self) -> Self:
        if not self.admitted:
            raise self.no_route()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self.permits and self.reservation is None:
            return  # it was recorded inside
        if error is None:
            self.record(ok=True)
        elif isinstance(error, Exception):
            self.record(error=error)
        else:
            self.record()

    def __repr__(self) -> str:
        detail = f"{self.worker} on {self.model}" if self.admitted else self.why
        return f"<Route for {self.agent!r}: {self.decision}, {detail}>"


_NO_FACTS = Signal()


def _signals(
    *,
    ok: bool | None,
    seconds: float | None,
    error: BaseException | str | None,
    violation: str | None,
    cost_micros: int | None,
) -> dict[str, Signal]:
    """The signal for each category of circuits, with only the facts that concern it."""
    agent = provider = latency = Signal(ok=True, seconds=seconds) if ok else _NO_FACTS
    if error is not None and not isinstance(error, BaseException):
        agent = Signal(ok=False, seconds=seconds, error=redact(error))
        provider = latency = _NO_FACTS
    elif error is not None:
        agent, provider = agent_signal(error, seconds), provider_signal(error, seconds)
        # The time of a failed call is no latency, unless the provider failed and delayed the caller.
        latency = Signal(seconds=seconds if provider.ok is False else None)
    elif not ok:
        agent = Signal(ok=ok, seconds=seconds)
    broken = None if violation is None else Signal(ok=False, violation=redact(violation))
    return {
        "budget": Signal(ok=ok if error is None else agent.ok, cost_micros=cost_micros),
        "failure_rate": agent,
        "latency": latency,
        "constitutional": broken or _NO_FACTS,
        "external_dep": provider,
        "story_cost": _NO_FACTS if cost_micros is None else Signal(cost_micros=cost_micros),
    }


T = TypeVar("T")


class Candidate(NamedTuple):
    agent: str
    model: Model


class Switch(NamedTuple):
    """A change of the route of an agent's work."""

    agent: str
    before: Candidate | None
    after: Candidate
    why: str
    """Why the agent does not work on its own model; empty: it does again."""


class Settings(NamedTuple):
    """The settings of a router, as one value: a route never sees a half-replaced configuration."""

    crew: Crew
    breakers: Breakers

    def circuits(self, member: FleetAgent | Model) -> list[str]:
        """The circuits of an agent, whatever its model, or of a model."""
        on = self.breakers
        if isinstance(member, Model):
            names = [
                (on.latency, f"provider/{member.provider}/latency"),
                (on.external_dep, f"provider/{member.provider}"),
            ]
        else:
            names = [
                (on.constitutional, f"rules/{member.name}"),
                (on.budget, f"agent/{member.name}/budget"),
                (on.failure_rate, f"agent/{member.name}/failure_rate"),
                (on.latency, f"agent/{member.name}/latency"),
            ]
        return [name for category, name in names if category.enabled]

    def chain(self, agent: FleetAgent) -> list[FleetAgent]:
        """The agent, then the agents that stand in for it, in order."""
        return [agent, *(self.crew.agents[name] for name in agent.fallback_chain)]


class RouteOptions(TypedDict, total=False):
    """The options of a routed call; `Router.route` documents them."""

    story: str | None
    locks: Collection[str]
    budget: str | None
    estimate_micros: int | None
    estimate: Money | str | None


class Router:
    """Chooses the agent and the model for each call of a fleet. Thread-safe, like the panel.

    A route, and all attempts of a call, use the settings at their start; `use` sets those of later
    routes and calls.

    `on_switch` is called when the worker of an agent changes, and for its first worker. `clock`
    returns seconds; it measures how long calls take.
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
        self._breaker_cache: dict[
            FleetAgent | Model | str, tuple[Settings, list[CircuitBreaker]]
        ] = {}
        """The breakers of each agent, model and circuit name that was used, and the settings then."""

    @property
    def crew(self) -> Crew:
        """The agents and stories."""
        return self.settings.crew

    @property
    def breakers(self) -> Breakers:
        """The categories."""
        return self.settings.breakers

    def use(self, crew: Crew, breakers: Breakers) -> None:
        """Use these settings from the next route on."""
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
        estimate: Money | str | None = None,
    ) -> Route:
        """The worker for an agent now, with the permits of its circuits, and the refused candidates.

        `story` is the task of the work, `locks` are the resources that it will need, and `budget` is
        the node of the budgets in which `estimate="$0.50"` or `estimate_micros` is reserved. `tried`
        maps candidates that failed to their errors. Use the route as a context manager, or call
        `record` or `give_back`. Raises ValueError for an unknown agent.
        """
        return self._route(
            *(self.settings, agent, tried or {}),
            story=story,
            locks=locks,
            budget=budget,
            estimate_micros=estimate_micros,
            estimate=estimate,
        )

    def _route(
        self,
        settings: Settings,
        agent: str,
        tried: Mapping[Candidate, str],
        **where: Unpack[RouteOptions],
    ) -> Route:
        if unknown := where.keys() - RouteOptions.__annotations__.keys():
            raise TypeError(f"a routed call has no option {min(unknown)!r}")
        story, locks = where.get("story"), where.get("locks", ())
        requested = settings.crew.agent(agent)
        route = Route(agent, story)
        on = settings.breakers
        try:
            shared = self._breakers_of(settings, "rules") if on.constitutional.enabled else []
            if story and on.story_cost.enabled:
                shared = [*shared, self.panel.breaker(f"story/{story}")]
            is_free = not locks or self._locks_admit(route, settings, locks)
            if is_free and self._all_admit(route, shared, None, None):
                found = self._first_admitted(route, settings, requested, tried)
                if found is not None and self._reserve(route, where):
                    route.choose(*found, rerouted=found != (agent, requested.model))
                    self._report_switch(requested, found, route.refused)
                    return route
        except BaseException:
            route.give_back()
            raise
        route.refuse(_decision(route.refused))
        return route

    def call(self, agent: str, work: Callable[[Route], T], **where: Unpack[RouteOptions]) -> T:
        """Do `work` with the first admitted worker, and with the next when a provider fails.

        `work` receives the route: `route.model` is the model to use, `route.spent(micros)` records
        costs. After an error of the provider or the account, the next candidate is tried. Errors
        that a person must fix (a bad key, refused content, a bad request) and exceptions of `work`
        itself are raised at once. Raises `NoRoute` without an admitted worker, or the last error.
        """
        settings = self.settings  # of all attempts
        tried: dict[Candidate, str] = {}
        last: Exception | None = None
        while True:
            route = self._route(settings, agent, tried, **where)
            if route.worker is None:
                raise route.no_route() if last is None else last
            started_s = self._clock()
            try:
                done = work(route)
            except Exception as error:
                route.record(error=error, seconds=self._clock() - started_s)
                why = _failover_reason(error)
                if why is None:
                    raise
                tried[Candidate(route.worker, route.chosen)] = why
                last = error
            except BaseException:
                route.record()  # interrupted: no evidence, but the cost is charged
                raise
            else:
                route.record(ok=True, seconds=self._clock() - started_s)
                return done

    async def acall(
        self, agent: str, work: Callable[[Route], Awaitable[T]], **where: Unpack[RouteOptions]
    ) -> T:
        """`call` for a coroutine: the circuits are checked and recorded on outside the event loop."""
        settings = self.settings  # of all attempts
        tried: dict[Candidate, str] = {}
        last: Exception | None = None
        while True:
            acquire = partial(self._route, settings, agent, dict(tried), **where)
            route = await run_in_thread(acquire, Route.give_back)
            if not route.admitted:
                raise route.no_route() if last is None else last
            started_s = self._clock()
            try:
                done = await work(route)
            except Exception as error:
                await run_in_thread(
                    partial(route.record, error=error, seconds=self._clock() - started_s)
                )
                why = _failover_reason(error)
                if why is None:
                    raise
                tried[Candidate(str(route.worker), route.chosen)] = why
                last = error
            except BaseException:
                await run_in_thread(route.record)
                raise
            else:
                await run_in_thread(
                    partial(route.record, ok=True, seconds=self._clock() - started_s)
                )
                return done

    def _first_admitted(
        self,
        route: Route,
        settings: Settings,
        requested: FleetAgent,
        tried: Mapping[Candidate, str],
    ) -> Candidate | None:
        """The first agent that is admitted, on its first model that is admitted."""
        for agent in settings.chain(requested):
            before = len(route.permits)
            if self._all_admit(route, self._breakers_of(settings, agent), agent.name, None):
                own = len(route.permits)
                for model in (agent.model, *agent.fallback_models):
                    found = Candidate(agent.name, model)
                    if found in tried:
                        route.refused.append(Refused(*found, "tried", tried[found], None))
                    elif self._all_admit(route, self._breakers_of(settings, model), *found):
                        return found
                    route.give_back(keep=own)
            route.give_back(keep=before)
        return None

    def _locks_admit(self, route: Route, settings: Settings, locks: Collection[str]) -> bool:
        """Whether the circuits of these resources admit waiting; acquires nothing."""
        if isinstance(locks, str):
            raise ValueError(f"locks is {locks!r}: it must be a list of resources")
        for resource in locks if settings.breakers.resource_lock.enabled else ():
            view = self.panel.view(f"lock/{resource}")
            if view is not None and not view.verdict.admitted:
                verdict = view.verdict
                refusal = Refused(None, None, view.name, verdict.reason, verdict.retry_after_s)
                route.refused.append(refusal)
                return False
        return True

    def _breakers_of(
        self, settings: Settings, member: FleetAgent | Model | str
    ) -> list[CircuitBreaker]:
        """The breakers of an agent, of a model, or of the circuit with this name."""
        known = self._breaker_cache.get(member)
        if known is not None and known[0] is settings:
            return known[1]
        names = [member] if isinstance(member, str) else settings.circuits(member)
        found = [self.panel.breaker(name) for name in names]
        self._breaker_cache[member] = (settings, found)
        return found

    def _all_admit(
        self, route: Route, breakers: list[CircuitBreaker], agent: str | None, model: Model | None
    ) -> bool:
        """Acquire permits of these circuits; at the first refusal, note it and return False.

        A circuit that has refused this route is not checked again, so that its refusal stays in
        effect.
        """
        for breaker in breakers:
            refusal = next((each for each in route.refused if each.circuit == breaker.name), None)
            if refusal is not None:
                route.refused.append(refusal._replace(agent=agent, model=model))
                return False
            try:
                # The latency circuit of the agent is checked before that of the model.
                is_latency = model is not None and breaker.name.endswith("/latency")
                permit = _reduced_already(route, breaker) if is_latency else None
                permit = permit or breaker.enter()
            except Rejected as refused:
                why, wait_s = refused.reason, refused.retry_after_s
                route.refused.append(Refused(agent, model, breaker.name, why, wait_s))
                return False
            route.permits.append(Acquired(breaker, permit))
        return True

    def _reserve(self, route: Route, where: RouteOptions) -> bool:
        budget, micros = where.get("budget"), where.get("estimate_micros")
        if budget is None:
            return True
        if (estimate := where.get("estimate")) is not None:
            micros = micros_of("estimate", estimate, micros)
        try:
            route.reservation = self.panel.budgets.reserve(budget, micros, owner=route.agent)
        except BudgetRefused as refused:
            route.refused.append(Refused(None, None, f"budget {budget}", refused.why, None))
            return False
        return True

    def _report_switch(
        self, requested: FleetAgent, found: Candidate, refused: list[Refused]
    ) -> None:
        before = self._last.get(requested.name)
        if found == before or any(each.circuit.endswith("/latency") for each in refused):
            return  # a reduced load alternates between two workers
        self._last[requested.name] = found
        if self._on_switch is not None:
            self._on_switch(Switch(requested.name, before, found, "; ".join(map(str, refused))))


def _reduced_already(route: Route, breaker: CircuitBreaker) -> Permit | None:
    """A permit of a latency circuit for a call that another latency circuit has let through; else `None`.

    An agent and its provider are slow for the same reason. If both reduced the load, their shares
    would multiply. A probe always needs a permit of its own.
    """
    granted = [one.breaker for one in route.permits if one.breaker.name.endswith("/latency")]
    if not any(one.last_known.phase in {Phase.OPEN, Phase.HALF_OPEN} for one in granted):
        return None
    circuit = breaker.snapshot()
    is_reducing = circuit.phase is Phase.OPEN and circuit.outage.admit > 0.0
    return Permit(circuit.generation) if is_reducing and circuit.mode is Mode.AUTO else None


def _failover_reason(error: Exception) -> str | None:
    """Why the next candidate may be tried; `None`: a person must fix the error."""
    found = classify(error)
    return f"{found.kind}: {found.text}" if found is not None and found.may_fail_over else None


def _decision(refused: list[Refused]) -> RouteDecision:
    """What to do with work for which no worker is admitted."""
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
