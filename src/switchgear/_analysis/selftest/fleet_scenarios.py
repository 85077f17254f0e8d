"""Attacks on the router in virtual time: which agent takes over when a circuit is open."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from switchgear._analysis.selftest.hook_trials import first_breach
from switchgear._analysis.selftest.sandbox import (
    FAILURES,
    FIRST,
    MAX_ATTEMPTS,
    NAME,
    OVERLOADED,
    SLOW,
    Bench,
    GuardCase,
    GuardRow,
    GuardStatus,
    ProviderOutage,
    VirtualFleet,
    hot,
    reasons_of,
    wait_for_held_lock,
)
from switchgear._breaker.rules import place_at
from switchgear._core.errors import NoRoute, OverrideRefused, Rejected
from switchgear._fleet.router import Route, RouteDecision

PATH = "router"
_CALLERS = 200
"""Number of calls that wait at the same time."""
_TIMEOUT_S = 600.0
"""Seconds that a caller waits for a provider that does not respond."""
_AN_HOUR_S = 3600.0
_DOLLAR = 1_000_000
_BUG = "no such table: users"
_COSTS = ("spend", "total_cost")


class FleetTrial:
    """An attack on an agent, and the circuit that should open. Used by one thread.

    `where` has the facts about the work for the router, such as its story and locks.
    """

    def __init__(
        self, stage: VirtualFleet, agent: str, circuit: str, attack: str, **where: Any
    ) -> None:
        self.stage, self.agent, self.circuit, self.where = stage, agent, circuit, where
        # The circuit as a glob, if it belongs to the stand-in agent.
        guard = circuit.replace(NAME, "*").replace(f"provider/{FIRST}", "provider/*")
        self.case = GuardCase(guard, attack, PATH)
        self.breaker = stage.panel.breaker(circuit)

    def unwatched(self, sees: Iterable[str]) -> GuardRow | None:
        """A row that skips the trial, if the category is off or the policy has no such detector; else `None`."""
        if not self.stage.category(self.circuit).enabled:
            why = f"switched off in `breakers`: the router does not check {self.case.guard}"
            return self.case.skipped(why)
        return self.case.unwatched(self.breaker.policy, sees)

    def call_until_open(self, work: Callable[[Route], object]) -> GuardRow:
        """Call through the router until the circuit opens."""
        began_s = self.stage.clock()
        for number in range(1, MAX_ATTEMPTS + 1):
            self.stage.call(self.agent, work, **self.where)
            if self.stage.opened(self.circuit):
                return self.refusal_row(number, began_s)
        return self.failed(f"{MAX_ATTEMPTS:,} such calls are admitted")

    def refusal_row(self, number: int, began_s: float) -> GuardRow:
        """The decision of the router after `number` calls: it must refuse because of the circuit."""
        by, seconds = hot(self.breaker.readings()), self.stage.clock() - began_s
        found = self.stage.refusal(self.agent, self.circuit, **self.where)
        if found is None and self.stage.opened(self.circuit):
            return self.failed("it opens, and the router continues as before")
        if found is None:
            return self.failed(f"it stays closed after {number:,} of them")
        route, refused = found
        target = f" to {route.worker} on {route.model}" if route.admitted else ""
        return self.case.fired(by, number, seconds, f"{route.decision}{target}: {refused}")

    def failed(self, why: str) -> GuardRow:
        """A failure row with the reason and the readings of the detectors."""
        return self.case.failed("; ".join(filter(None, (why, reasons_of(self.breaker)))))


def _on_first_agent(bench: Bench, circuit: str, attack: str) -> FleetTrial:
    """A trial of the first agent in a new fleet; `{}` in the circuit is its name."""
    stage = bench.fleet()
    return FleetTrial(stage, stage.first.name, circuit.format(stage.first.name), attack)


class WorkFailed(Exception):
    """Raised by the work itself in an attack: the provider is not the cause."""


def dead_provider(bench: Bench) -> Iterator[GuardRow]:
    """For each order of providers, the first provider fails, then all of them."""
    for name, providers in bench.fleet().chains.items():
        stage = bench.fleet()
        trial = FleetTrial(stage, name, f"provider/{providers[0]}", "dead provider")
        with stage.fleet:
            unwatched = trial.unwatched((*FAILURES, "retry_after"))
            yield unwatched or _until_rerouted(trial, providers)
            if len(providers) > 1 and unwatched is None:
                yield _all_providers_down(stage, name, providers)


def _until_rerouted(trial: FleetTrial, providers: list[str]) -> GuardRow:
    """Call until the router avoids the dead provider and uses another one."""

    def work(route: Route) -> None:
        trial.stage.clock.advance(0.5)
        if route.chosen.provider == providers[0]:
            raise ProviderOutage(OVERLOADED)

    row = trial.call_until_open(work)
    if row.status is not GuardStatus.OK:
        return row
    if len(providers) == 1:
        return row._replace(reason=f"{row.reason}; {trial.agent} has no other provider")
    if not row.reason.startswith(RouteDecision.REROUTED):
        return trial.failed(f"{trial.circuit} is open, and no fallback is available: {row.reason}")
    return row


def _all_providers_down(stage: VirtualFleet, name: str, providers: list[str]) -> GuardRow:
    """All providers are dead: the caller must get an error without another call to one of them."""
    case = GuardCase(f"fallbacks of {name}", "dead provider", PATH)
    made, began_s = 0, stage.clock()

    def work(_: Route) -> None:
        nonlocal made
        made += 1
        raise ProviderOutage(OVERLOADED)

    for _ in range(MAX_ATTEMPTS):
        ended = stage.call(name, work)
        if isinstance(ended, NoRoute):
            kinds = {hot(stage.panel.breaker(f"provider/{one}").readings()) for one in providers}
            by = " + ".join(sorted(filter(None, kinds)))
            return case.fired(by, made, stage.clock() - began_s, ended)
    names = ", ".join(providers)
    return case.failed(f"{made:,} calls to {names}, all dead, and the router keeps using them")


def slow_provider(bench: Bench) -> Iterator[GuardRow]:
    """Many concurrent calls that take far too long: the agent must receive less load."""
    trial = _on_first_agent(bench, "agent/{}/latency", "slow provider")
    with trial.stage.fleet:
        slow_s = 2.0 * (trial.breaker.policy.slow_from_s or 0.0) + 1.0
        yield trial.unwatched(SLOW) or _concurrent_calls(trial, slow_s, ok=True)


def hang(bench: Bench) -> Iterator[GuardRow]:
    """Calls to a provider that does not respond, until their timeout."""
    stage = bench.fleet()
    trial = FleetTrial(stage, stage.first.name, f"provider/{stage.first.model.provider}", "hang")
    with stage.fleet:
        unwatched = trial.unwatched((*FAILURES, *SLOW))
        yield unwatched or _concurrent_calls(trial, _TIMEOUT_S, error=TimeoutError("no answer"))


def _concurrent_calls(trial: FleetTrial, seconds: float, **outcome: Any) -> GuardRow:
    """Make overlapping calls, so that all of them are in one window."""
    stage, began_s = trial.stage, trial.stage.clock()
    routes = [stage.fleet.route(trial.agent) for _ in range(_CALLERS)]
    stage.clock.advance(seconds)
    for route in routes:
        route.record(seconds=seconds, **outcome)
    trial.breaker.refresh()
    return trial.refusal_row(_CALLERS, began_s)


def same_error(bench: Bench) -> Iterator[GuardRow]:
    """The agent's own work fails repeatedly: another agent takes over, or none."""

    def work(_: Route) -> None:
        raise WorkFailed(_BUG)

    trial = _on_first_agent(bench, "agent/{}/failure_rate", "same error")
    with trial.stage.fleet:
        yield trial.unwatched(FAILURES) or trial.call_until_open(work)


def overspend(bench: Bench) -> Iterator[GuardRow]:
    """Money that an agent spends, that a story costs, and that is reserved from a budget."""
    trial = _on_first_agent(bench, "agent/{}/budget", "overspend")
    with trial.stage.fleet:
        yield trial.unwatched(_COSTS) or trial.call_until_open(_spending(trial))
    stage = bench.fleet()
    story = stage.story
    with stage.fleet:
        trial = FleetTrial(stage, stage.first.name, f"story/{story}", "overspend", story=story)
        # An hour between two calls, so that the limit per minute does not trip first.
        yield trial.unwatched(_COSTS) or trial.call_until_open(_spending(trial, wait_s=_AN_HOUR_S))
    stage = bench.fleet()
    with stage.fleet:
        yield _reserve_until_refused(stage)


def _spending(trial: FleetTrial, wait_s: float = 0.0) -> Callable[[Route], None]:
    limits = [getattr(each, "limit_micros", _DOLLAR) for each in trial.breaker.policy.detectors]

    def work(route: Route) -> None:
        trial.stage.clock.advance(wait_s)
        route.spent(min(limits) // 8 + 1)

    return work


def _reserve_until_refused(stage: VirtualFleet) -> GuardRow:
    """A node of the budgets: the router reserves before the work starts."""
    case = GuardCase("budgets", "overspend", PATH)
    stage.panel.budgets.open(NAME, _DOLLAR)
    began_s = stage.clock()
    where = {"budget": NAME, "estimate_micros": _DOLLAR // 8}
    for number in range(MAX_ATTEMPTS):
        ended = stage.call(stage.first.name, lambda route: route.spent(_DOLLAR // 8), **where)
        if isinstance(ended, NoRoute) and ended.decision == RouteDecision.PAUSE:
            return case.fired("budget", number, stage.clock() - began_s, ended)
    return case.failed("a budget of $1.00 does not limit spending")


def rule_breach(bench: Bench) -> Iterator[GuardRow]:
    """An agent that broke an absolute rule receives no more work."""
    trial = _on_first_agent(bench, "rules/{}", "rule breach")
    rules, place = bench.config.rules.rules, place_at(bench.root)
    stage = trial.stage
    with stage.fleet:
        breach = first_breach(rules, place)
        unwatched = trial.unwatched(("violation",))
        if unwatched is not None or breach is None:
            yield unwatched or trial.failed("no rule is in effect, so none can be broken")
            return
        began_s = stage.clock()
        try:
            stage.fleet.rule_guard(trial.agent, rules, place).ask(breach.tool, breach.inputs)
        except Rejected:
            yield trial.refusal_row(1, began_s)
        else:
            yield trial.failed("the call was admitted")


def self_release(bench: Bench) -> Iterator[GuardRow]:
    """A halted agent, or one whose story is paused, that tries to release itself."""
    stage = bench.fleet()
    case = GuardCase("operator token", "self-release", PATH)
    if bench.config.operator_token_sha256 is None:
        yield case.skipped("none is configured: `switchgear config token`")
        return
    with stage.fleet:
        for circuit in (f"rules/{stage.first.name}", f"story/{stage.story}"):
            stage.panel.breaker(circuit).call(int)
            try:
                stage.panel.order(circuit, by=stage.first.name, why="I am fine", reset=True)
            except OverrideRefused:
                continue
            yield case.failed(f"a reset of {circuit} was accepted without a token")
            return
        yield case.fired("operator token", 2, reason="resets need the token")


def lock_convoy(bench: Bench) -> Iterator[GuardRow]:
    """Work that needs a resource for which others have waited too long must be refused."""
    stage = bench.fleet()
    trial = FleetTrial(stage, stage.first.name, f"lock/{NAME}", "lock convoy", locks=[NAME])
    with stage.fleet:
        if unwatched := trial.unwatched(("lock_wait",)):
            yield unwatched
            return
        began_s = stage.clock()
        tries, ended = wait_for_held_lock(stage.panel, stage.clock)
        if isinstance(ended, Rejected):
            yield trial.refusal_row(tries, began_s)
        else:
            yield trial.failed("a wait of a day does not open it")
