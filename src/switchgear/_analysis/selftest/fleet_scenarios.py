"""Attacks on the router in virtual time: which agent takes over when a circuit is open."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from switchgear._analysis.selftest.hook_trials import breach_of
from switchgear._analysis.selftest.sandbox import (
    FAILURES,
    FIRST,
    NAME,
    OVERLOADED,
    PATIENCE,
    SLOW,
    Bench,
    GuardRow,
    GuardStatus,
    ProviderOutage,
    VirtualFleet,
    blind,
    failed,
    hot,
    skipped,
    wait_for_held_lock,
    watchers,
)
from switchgear._breaker.rules import place_at
from switchgear._core.errors import NoRoute, OverrideRefused, Rejected
from switchgear._fleet.router import Route, RouteDecision

PATH = "router"


class FleetTrial(NamedTuple):
    """The agent that is attacked, and the circuit that should open. Its fleet is used by one thread."""

    stage: VirtualFleet
    agent: str
    circuit: str
    attack: str
    where: dict[str, Any] = {}  # noqa: RUF012  never changed
    """The facts about the work for the router: its story, its locks."""

    @property
    def guard(self) -> str:
        """The circuit as a glob, if it belongs to the stand-in agent."""
        return self.circuit.replace(NAME, "*").replace(f"provider/{FIRST}", "provider/*")

    def unwatched(self, sees: Iterable[str]) -> GuardRow | None:
        """The reason for skipping the trial: the category is off, or the policy has no such detector."""
        if not self.stage.category(self.circuit).enabled:
            why = f"switched off in `breakers`: the router does not check {self.guard}"
            return skipped(self.guard, self.attack, PATH, why)
        policy = self.stage.panel.breaker(self.circuit).policy
        if watchers(policy, sees):
            return None
        return skipped(self.guard, self.attack, PATH, blind(self.guard, policy))

    def calls(self, work: Callable[[Route], object]) -> GuardRow:
        """Calls through the router until the circuit opens."""
        began_s = self.stage.clock()
        for number in range(1, PATIENCE + 1):
            self.stage.call(self.agent, work, **self.where)
            if self.stage.opened(self.circuit):
                return self.cut(number, began_s)
        return self.failed(f"{PATIENCE:,} such calls are admitted")

    def cut(self, number: int, began_s: float) -> GuardRow:
        """The decision of the router after this many calls: it must refuse because of the circuit."""
        breaker = self.stage.panel.breaker(self.circuit)
        by, seconds = hot(breaker.readings()), self.stage.clock() - began_s
        found = self.stage.refusal(self.agent, self.circuit, **self.where)
        if found is None and self.stage.opened(self.circuit):
            return self.failed("it opens, and the router goes on as before")
        if found is None:
            return self.failed(f"it stays closed after {number:,} of them")
        route, refused = found
        went = f" to {route.worker} on {route.model}" if route.admitted else ""
        reason = f"{route.decision}{went}: {refused}"
        return GuardRow(self.guard, self.attack, PATH, by, number, seconds, reason=reason)

    def failed(self, why: str) -> GuardRow:
        """Why it cannot trip, with the readings of its detectors."""
        readings = self.stage.panel.breaker(self.circuit).readings().values()
        reasons = "; ".join([why, *(reading.reason for reading in readings)])
        return failed(self.guard, self.attack, PATH, reasons)


_CALLERS = 200
"""Calls that wait at the same time."""
_TIMEOUT_S = 600.0
"""How long a caller waits for a provider that does not respond."""
_AN_HOUR_S = 3600.0
_DOLLAR = 1_000_000
_BUG = "no such table: users"
"""The error of the work when it fails."""
_COSTS = ("spend", "total_cost")


class WorkFailed(Exception):
    """What the work itself raises in an attack: no provider is to blame."""


def dead_provider(bench: Bench) -> Iterator[GuardRow]:
    """For each way that work can go: its first provider fails, then all of them."""
    for name, providers in bench.fleet().chains.items():
        stage = bench.fleet()
        trial = FleetTrial(stage, name, f"provider/{providers[0]}", "dead provider")
        with stage.fleet:
            blind = trial.unwatched((*FAILURES, "retry_after"))
            if blind is not None:
                yield blind
                continue
            yield _until_rerouted(trial, providers)
            if len(providers) > 1:
                yield _all_providers_down(stage, name, providers)


def _until_rerouted(trial: FleetTrial, providers: list[str]) -> GuardRow:
    """Calls until the router no longer uses the dead provider, and another agent takes over."""

    def work(route: Route) -> None:
        trial.stage.clock.advance(0.5)
        if route.chosen.provider == providers[0]:
            raise ProviderOutage(OVERLOADED)

    row = trial.calls(work)
    if row.status is not GuardStatus.OK:
        return row
    if len(providers) == 1:
        return row._replace(reason=f"{row.reason}; {trial.agent} has no other provider")
    if not row.reason.startswith(RouteDecision.REROUTED):
        return trial.failed(f"{trial.circuit} is open, and no fallback is available: {row.reason}")
    return row


def _all_providers_down(stage: VirtualFleet, name: str, providers: list[str]) -> GuardRow:
    """All are dead: the caller must get an error without another call to one of them."""
    guard, attack = f"fallbacks of {name}", "dead provider"
    made, began_s = 0, stage.clock()

    def work(_: Route) -> None:
        nonlocal made
        made += 1
        raise ProviderOutage(OVERLOADED)

    for _ in range(PATIENCE):
        ended = stage.call(name, work)
        if isinstance(ended, NoRoute):
            kinds = {hot(stage.panel.breaker(f"provider/{one}").readings()) for one in providers}
            by, seconds = " + ".join(sorted(filter(None, kinds))), stage.clock() - began_s
            return GuardRow(guard, attack, PATH, by, made, seconds, reason=str(ended))
    why = f"{made:,} calls to {', '.join(providers)}, all dead, and the router keeps using them"
    return failed(guard, attack, PATH, why)


def slow_provider(bench: Bench) -> Iterator[GuardRow]:
    """Many calls at once that take far too long: less of the load goes to the agent."""
    stage = bench.fleet()
    name = stage.first.name
    trial = FleetTrial(stage, name, f"agent/{name}/latency", "slow provider")
    with stage.fleet:
        blind = trial.unwatched(SLOW)
        slow_s = 2.0 * (stage.panel.breaker(trial.circuit).policy.slow_from_s or 0.0) + 1.0
        yield blind or _concurrent_calls(trial, slow_s, ok=True)


def hang(bench: Bench) -> Iterator[GuardRow]:
    """Callers that wait for a provider that does not respond, until their own timeout."""
    stage = bench.fleet()
    trial = FleetTrial(stage, stage.first.name, f"provider/{stage.first.model.provider}", "hang")
    with stage.fleet:
        blind = trial.unwatched((*FAILURES, *SLOW))
        yield blind or _concurrent_calls(trial, _TIMEOUT_S, error=TimeoutError("no answer"))


def _concurrent_calls(trial: FleetTrial, seconds: float, **outcome: Any) -> GuardRow:
    """The calls overlap, so that all fall into one window."""
    stage, began_s = trial.stage, trial.stage.clock()
    routes = [stage.fleet.route(trial.agent) for _ in range(_CALLERS)]
    stage.clock.advance(seconds)
    for route in routes:
        route.record(seconds=seconds, **outcome)
    stage.panel.breaker(trial.circuit).refresh()
    return trial.cut(_CALLERS, began_s)


def same_error(bench: Bench) -> Iterator[GuardRow]:
    """The agent's own work fails repeatedly: another agent takes over, or none."""

    def work(_: Route) -> None:
        raise WorkFailed(_BUG)

    stage = bench.fleet()
    name = stage.first.name
    trial = FleetTrial(stage, name, f"agent/{name}/failure_rate", "same error")
    with stage.fleet:
        yield trial.unwatched(FAILURES) or trial.calls(work)


def overspend(bench: Bench) -> Iterator[GuardRow]:
    """Money that an agent spends, that a story costs, and that is set aside from a budget."""
    stage = bench.fleet()
    name = stage.first.name
    with stage.fleet:
        trial = FleetTrial(stage, name, f"agent/{name}/budget", "overspend")
        yield trial.unwatched(_COSTS) or trial.calls(_spending(trial))
    stage = bench.fleet()
    with stage.fleet:
        where = {"story": stage.story}
        trial = FleetTrial(stage, name, f"story/{stage.story}", "overspend", where)
        # An hour between two calls, so that the limit per minute does not trip first.
        yield trial.unwatched(_COSTS) or trial.calls(_spending(trial, wait_s=_AN_HOUR_S))
    stage = bench.fleet()
    with stage.fleet:
        yield _set_aside(stage)


def _spending(trial: FleetTrial, wait_s: float = 0.0) -> Callable[[Route], None]:
    stage = trial.stage
    detectors = stage.panel.breaker(trial.circuit).policy.detectors
    limits = [getattr(each, "limit_micros", _DOLLAR) for each in detectors]

    def work(route: Route) -> None:
        stage.clock.advance(wait_s)
        route.spent(min(limits) // 8 + 1)

    return work


def _set_aside(stage: VirtualFleet) -> GuardRow:
    """A node of the budgets: the router reserves before the work starts."""
    stage.panel.budgets.open(NAME, _DOLLAR)
    began_s = stage.clock()
    where = {"budget": NAME, "estimate_micros": _DOLLAR // 8}
    for number in range(PATIENCE):
        ended = stage.call(stage.first.name, lambda route: route.spent(_DOLLAR // 8), **where)
        if isinstance(ended, NoRoute) and ended.decision == RouteDecision.PAUSE:
            seconds = stage.clock() - began_s
            return GuardRow(
                "budgets", "overspend", PATH, "budget", number, seconds, reason=str(ended)
            )
    return failed("budgets", "overspend", PATH, "a budget of $1.00 does not limit spending")


def rule_breach(bench: Bench) -> Iterator[GuardRow]:
    """An agent that broke an absolute rule receives no more work."""
    stage = bench.fleet()
    name, place = stage.first.name, place_at(bench.root)
    trial = FleetTrial(stage, name, f"rules/{name}", "rule breach")
    rules = bench.config.rules.rules
    with stage.fleet:
        blind = trial.unwatched(("violation",))
        found = (breach_of(rule, place).breach for rule in rules)
        breach = next((each for each in found if each is not None), None)
        if blind is not None or breach is None:
            why = "no rule is in effect, so none can be broken"
            yield blind or trial.failed(why)
            return
        began_s = stage.clock()
        try:
            stage.fleet.rule_guard(name, rules, place).ask(breach.tool, breach.inputs)
        except Rejected:
            yield trial.cut(1, began_s)
        else:
            yield trial.failed("the call was admitted")


def self_release(bench: Bench) -> Iterator[GuardRow]:
    """A halted agent, or one whose story is paused, that tries to release itself."""
    stage = bench.fleet()
    guard, attack = "operator token", "self-release"
    if bench.config.operator_token_sha256 is None:
        yield skipped(guard, attack, PATH, "none is configured: `switchgear config token`")
        return
    with stage.fleet:
        for circuit in (f"rules/{stage.first.name}", f"story/{stage.story}"):
            stage.panel.breaker(circuit).call(int)
            try:
                stage.panel.order(circuit, by=stage.first.name, why="I am fine", reset=True)
            except OverrideRefused:
                continue
            yield failed(guard, attack, PATH, f"a reset of {circuit} was accepted without a token")
            return
        yield GuardRow(guard, attack, PATH, "operator token", 2, reason="resets need the token")


def lock_convoy(bench: Bench) -> Iterator[GuardRow]:
    """Work that needs a resource for which others have waited too long is queued again."""
    stage = bench.fleet()
    where = {"locks": [NAME]}
    trial = FleetTrial(stage, stage.first.name, f"lock/{NAME}", "lock convoy", where)
    with stage.fleet:
        blind = trial.unwatched(("lock_wait",))
        if blind is not None:
            yield blind
            return
        began_s = stage.clock()
        waited = wait_for_held_lock(stage.panel, stage.clock)
        if isinstance(waited.ended, Rejected):
            yield trial.cut(waited.looks, began_s)
        else:
            yield trial.failed("a wait of a day does not open it")
