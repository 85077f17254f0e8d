"""The answer of a router: who works, on what, by whose leave; and how the circuits hear of the end."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, NamedTuple, Self

from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._budgets.reservation import Reservation
from switchgear._core.errors import BudgetRefused, NoRoute, StoreError, duration
from switchgear._core.types import Permit, Signal
from switchgear._fleet.categories import category_of
from switchgear._fleet.manifest import Model
from switchgear._providers.errors import agent_signal, provider_signal, was_not_started
from switchgear._sinks.dispatch import log_warning
from switchgear._text.redact import redact


class RouteDecision(StrEnum):
    """What becomes of the work."""

    GO = "go"
    """The agent itself does it, on its own model."""
    REROUTED = "rerouted"
    """Another model or agent does it."""
    REQUEUE = "requeue"
    """Nobody may now; try again later."""
    PAUSE = "pause"
    """Its story or budget is used up; somebody must say that it goes on."""
    HALT = "halt"
    """Nobody may until an operator says so."""


class Refused(NamedTuple):
    """Somebody who may not, and who says so."""

    agent: str | None
    """Who; `None`: nobody may."""
    model: Model | None
    """On this model; `None`: on any."""
    circuit: str
    reason: str
    retry_after_s: float | None

    def __str__(self) -> str:
        on = "" if self.model is None else f" on {self.model}"
        who = "" if self.agent is None else f"{self.agent}{on}: "
        wait_s = self.retry_after_s
        then = "" if wait_s is None else f", for {duration(wait_s)}"
        return f"{who}{self.circuit}: {self.reason}{then}"


class Route:
    """Leave for one piece of work. Used by one thread at a time, and once.

    As a context manager it tells the circuits what happened inside; entering one that was refused
    raises `NoRoute`.
    """

    __slots__ = (
        "__weakref__",
        "_cost_micros",
        "_permits",
        "agent",
        "decision",
        "granted",
        "model",
        "refused",
        "reservation",
        "story",
        "worker",
    )

    def __init__(self, agent: str, story: str | None) -> None:
        self.agent: str = agent
        """Whom the work is for."""
        self.story: str | None = story
        self.decision: RouteDecision = RouteDecision.HALT
        self.worker: str | None = None
        """The agent that does it; `None`: nobody."""
        self.model: Model | None = None
        self.refused: list[Refused] = []
        """Those that were asked before, in order, and why not."""
        self.granted: list[CircuitBreaker] = []
        """The circuits that admitted it, and have not heard how it went."""
        self._permits: list[Permit] = []
        self.reservation: Reservation | None = None
        self._cost_micros: int | None = None

    @property
    def admitted(self) -> bool:
        """Whether somebody may do it."""
        return self.worker is not None

    @property
    def chosen(self) -> Model:
        """The model. Raises `NoRoute` where there is none."""
        if self.model is None:
            raise self.no_route()
        return self.model

    @property
    def retry_after_s(self) -> float | None:
        """When it may be tried again: the first that comes back by itself."""
        waits = [one.retry_after_s for one in self.refused if one.retry_after_s is not None]
        return None if self.admitted else min(waits, default=None)

    @property
    def why(self) -> str:
        """Why not those that were asked before."""
        return "; ".join(map(str, self.refused))

    def no_route(self) -> NoRoute:
        """The error that says so."""
        return NoRoute(self.agent, str(self.decision), self.why, self.retry_after_s)

    # For the router

    def grant(self, breaker: CircuitBreaker, permit: Permit) -> None:
        """One more circuit admits it."""
        self._permits.append(permit)
        self.granted.append(breaker)  # last: an interrupt before it leaves a permit too many

    def choose(self, worker: str, model: Model, *, rerouted: bool) -> None:
        """Somebody may."""
        self.worker, self.model = worker, model
        self.decision = RouteDecision.REROUTED if rerouted else RouteDecision.GO

    def refuse(self, decision: RouteDecision) -> None:
        """Nobody may: what was granted is given back."""
        self.give_back()
        self.decision = decision

    # What happened

    def spent(self, cost_micros: Any) -> None:
        """It cost so much more, in millionths of a dollar. Raises ValueError for negative money.

        Tell it after each call of the work: an error that comes later then costs what was told.
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
        error: BaseException | None = None,
        violation: str | None = None,
    ) -> None:
        """Let every circuit hear what concerns it; the route is used up.

        An error is understood (`guards.provider_errors`): the provider's failures count against
        the provider, the work's own against the agent. Without any fact it was cut off: evidence of
        nothing, but what it cost is spent.
        """
        told = _Told(ok, seconds, error, violation, self._cost_micros)
        for breaker, permit in self._used_up(0):
            told.to(breaker, permit)
        if self._cost_micros is None and error is not None and was_not_started(error):
            self._cost_micros = 0
        self._settle()

    def give_back(self, keep: int = 0) -> None:
        """Nothing was done: all but the first `keep` circuits take their permits back."""
        for breaker, permit in self._used_up(keep):
            if permit.probe:
                breaker.give_back(permit)
        if not keep and self.reservation is not None:
            self.reservation.release()
            self.reservation = None

    def _used_up(self, keep: int) -> Iterable[tuple[CircuitBreaker, Permit]]:
        back = zip(self.granted[keep:], self._permits[keep:], strict=False)
        del self.granted[keep:], self._permits[keep:]
        return back

    def _settle(self) -> None:
        reservation, self.reservation = self.reservation, None
        if reservation is None:
            return
        try:
            reservation.settle(self._cost_micros)  # unknown: all of it
        except (StoreError, BudgetRefused) as error:
            # The work is done and its answer is worth more; the end of the lease charges all of it.
            log_warning("what %r spent could not be settled: %s", reservation, error)

    def __enter__(self) -> Self:
        if not self.admitted:
            raise self.no_route()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self.granted and self.reservation is None:
            return  # it was told inside
        if error is None:
            self.record(ok=True)
        elif isinstance(error, Exception):
            self.record(error=error)
        else:
            self.record()

    def __repr__(self) -> str:
        who = f"{self.worker} on {self.model}" if self.admitted else self.why
        return f"<Route for {self.agent!r}: {self.decision}, {who}>"


class _Told(NamedTuple):
    """What happened, for each kind of circuit in its own words."""

    ok: bool | None
    seconds: float | None
    error: BaseException | None
    violation: str | None
    cost_micros: int | None

    def to(self, breaker: CircuitBreaker, permit: Permit) -> None:
        """Tell a circuit what concerns it, if anything does."""
        if breaker.name == "rules":
            return  # what one agent broke is told to its own circuit
        signal = _WORDS[category_of(breaker.name) or "failure_rate"](self)
        if signal.ok and signal.cost_micros is None:
            breaker.succeeded(permit, signal.seconds)
        elif signal != _NOTHING or permit.probe:
            breaker.record(signal, permit)


def _of_agent(told: _Told) -> Signal:
    if told.error is not None:
        return agent_signal(told.error, told.seconds)
    return Signal(ok=told.ok, seconds=told.seconds)


def _of_budget(told: _Told) -> Signal:
    return Signal(ok=_of_agent(told).ok, cost_micros=told.cost_micros)


def _of_latency(told: _Told) -> Signal:
    """A failure that came quickly is no quick work; a provider that let us wait was slow."""
    if told.error is None:
        return Signal(ok=True, seconds=told.seconds) if told.ok else _NOTHING
    is_slow = provider_signal(told.error).ok is False
    return Signal(seconds=told.seconds if is_slow else None)


def _of_rules(told: _Told) -> Signal:
    if told.violation is None:
        return _NOTHING
    return Signal(ok=False, violation=redact(told.violation))


def _of_dependency(told: _Told) -> Signal:
    if told.error is not None:
        return provider_signal(told.error, told.seconds)
    return Signal(ok=True, seconds=told.seconds) if told.ok else _NOTHING


def _of_story(told: _Told) -> Signal:
    return Signal(cost_micros=told.cost_micros)


_NOTHING = Signal()
_WORDS: dict[str, Callable[[_Told], Signal]] = {
    "budget": _of_budget,
    "failure_rate": _of_agent,
    "latency": _of_latency,
    "constitutional": _of_rules,
    "external_dep": _of_dependency,
    "story_cost": _of_story,
}
