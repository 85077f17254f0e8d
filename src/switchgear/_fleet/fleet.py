"""A running fleet: a panel, its router, and the stored routes of its agents."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, Unpack

from switchgear._breaker.handle import TIME_PASSES
from switchgear._breaker.rules import RuleGuard
from switchgear._budgets.tree import Open
from switchgear._core.errors import StoreError
from switchgear._core.policy import Policy
from switchgear._core.types import Phase, Verdict
from switchgear._fleet.categories import Breakers, circuit_policies, default_breakers
from switchgear._fleet.manifest import Crew, near
from switchgear._fleet.router import Route, RouteOptions, Router, Switch
from switchgear._panel.panel import Configured, Panel, PolicyOf
from switchgear._rules.effects import Place
from switchgear._rules.rules import Rule
from switchgear._sinks.dispatch import Sink, log_warning
from switchgear._stores.base import Amended, Ledger, Store, ledger_of
from switchgear._system.clock import Clock, monotonic
from switchgear._text.glob import matcher

if TYPE_CHECKING:
    from switchgear._fleet.targets import Target
    from switchgear._fleet.watcher import Background

T = TypeVar("T")
SHELF = "fleet"
MOST_SWITCHES = 100
"""Maximum number of stored route changes of an agent."""
SAME_S = 3600.0
"""Seconds within which a repeated route change is counted and not added again."""
SAME_AMONG = 10
"""Number of recent route changes that are searched for the same change."""
PREFIX, OLD_PREFIX = "provider/", "dep/"
"""The prefix of the circuits of providers, now and in earlier versions."""
GLOBS = ("agent/*", "rules*", "provider/*", "lock/*", "story/*")
"""The circuits of a fleet."""


class FleetConfigured(Configured, Protocol):
    """What a fleet needs from a configuration; `switchgear.config.Config` is one."""

    @property
    def breakers(self) -> Breakers | None:
        """The seven categories, if the file configures a fleet."""

    @property
    def crew(self) -> Crew:
        """The agents and stories."""

    @property
    def budgets(self) -> Sequence[Open]:
        """Nodes of budgets and their limits."""

    @property
    def notifications(self) -> "Sequence[Target]":
        """Where events are sent."""


class Standing(NamedTuple):
    """The stored route of an agent."""

    agent: str
    model: str
    since_s: float
    why: str
    """Why the agent does not work on its own model; empty: it does."""


class Fleet:
    """The agents of an installation and their circuits. Thread-safe; processes share the store.

    `panel` has policies for the circuits of the fleet: `Fleet.from_config` and `Fleet.open`
    create such a panel.

    >>> from switchgear.fleet import agent, crew
    >>> people = crew([agent(name="coder", owner="ana", provider="anthropic", model="opus")])
    >>> with Fleet.open("memory:", people) as fleet:
    ...     fleet.call("coder", lambda route: f"done on {route.model}")
    'done on anthropic/opus'
    """

    def __init__(
        self,
        panel: Panel,
        crew: Crew,
        breakers: Breakers | None = None,
        *,
        clock: Clock = monotonic,
    ) -> None:
        on = default_breakers() if breakers is None else breakers
        self.panel = panel
        self._background: Background | None = None
        self.router: Router = Router(panel, crew, on, on_switch=self._save_switch, clock=clock)

    @classmethod
    def open(
        cls,
        store: str | Store,
        crew: Crew,
        breakers: Breakers | None = None,
        *,
        clock: Clock | None = None,
    ) -> Self:
        """A fleet over a store, with the default policies of the categories."""
        on = default_breakers() if breakers is None else breakers
        options: dict[str, Any] = {} if clock is None else {"clock": clock}
        panel = Panel(store, policies=policies_of(on, crew), **options)
        return cls(panel, crew, on, **options)

    @classmethod
    def from_config(
        cls, config: FleetConfigured, *, token: str | None = None, clock: Clock | None = None
    ) -> Self:
        """The fleet that a configuration describes: `Fleet.from_config(load_config(path))`.

        A thread, which the first event starts, writes the events of this process as incidents and
        to the state file, and sends them to the configured targets.
        """
        options: dict[str, Any] = {} if clock is None else {"clock": clock}
        panel = Panel.from_config(config, token=token, clock=clock)
        fleet = cls(panel, config.crew, config.breakers, **options)
        try:
            fleet.take_over_names()
        except StoreError as error:
            log_warning("circuits of an earlier version could not be listed: %s", error)
        if config.notifications or not (panel.store.url or "").startswith("memory:"):
            from switchgear._fleet.watcher import background_of  # noqa: PLC0415  it imports this

            fleet._background = background_of(fleet, config.notifications)
            panel.reload(config.policy_for, sinks=(*config.sinks, fleet._background))
        if config.budgets:
            try:
                panel.budgets.apply(config.budgets, who="configuration")
            except StoreError as error:  # reservations are then refused: money fails closed
                log_warning("budgets of the configuration could not be applied: %s", error)
        return fleet

    @property
    def crew(self) -> Crew:
        """The agents and stories."""
        return self.router.crew

    def route(self, agent: str, **where: Unpack[RouteOptions]) -> Route:
        """The agent and model that do the work of an agent now; see `Router.route`."""
        return self.router.route(agent, **where)

    def call(self, agent: str, work: Callable[[Route], T], **where: Unpack[RouteOptions]) -> T:
        """Do work with the first admitted agent and model; see `Router.call`."""
        return self.router.call(agent, work, **where)

    async def acall(
        self, agent: str, work: Callable[[Route], Awaitable[T]], **where: Unpack[RouteOptions]
    ) -> T:
        """`call` for a coroutine, without blocking the event loop."""
        return await self.router.acall(agent, work, **where)

    def rule_guard(self, agent: str, rules: Iterable[Rule], place: Place) -> RuleGuard:
        """Checks the rules before each call of an agent; a broken rule halts it, see `RuleGuard`."""
        name = self.crew.agent(agent).name
        return RuleGuard(self.panel.breaker(f"rules/{name}"), rules, place)

    def take_over_names(self) -> list[str]:
        """Rename circuits that earlier versions called `dep/<provider>`; returns the new names.

        Circuits that exist under the new name stay unchanged. Idempotent.
        """
        store = self.panel.store
        taken = []
        for found in list(store.find(f"{OLD_PREFIX}*")):
            name = PREFIX + found.circuit.key.removeprefix(OLD_PREFIX)
            if store.get(name) is None:
                store.put(found._replace(circuit=found.circuit._replace(key=name)))
                taken.append(name)
        return taken

    def pass_time(self) -> None:
        """Move circuits whose wait is over, with an event, even without calls.

        They keep their stored policy.
        """
        store = self.panel.store
        for glob in GLOBS:
            for circuit, policy in list(store.find(glob)):
                if circuit.phase in {Phase.OPEN, Phase.HALF_OPEN}:
                    store.apply(circuit.key, policy, TIME_PASSES, store.now_s())

    def reload(self, config: FleetConfigured) -> list[str]:
        """Apply another configuration; circuits keep their phase and evidence.

        Returns the circuits whose policy has changed. Raises ValueError for a configuration with
        another store, and then changes nothing.
        """
        ours = self.panel.store.url
        if config.store is not None and ours is not None and config.store != ours:
            raise ValueError(
                f"the new configuration has another store than {self.panel.store.label}: "
                "restart to change it, or move the circuits with export and import"
            )
        on = default_breakers() if config.breakers is None else config.breakers
        sinks: tuple[Sink, ...] = tuple(config.sinks)
        if self._background is not None:
            self._background.watcher.retarget(config.notifications)
            sinks = (*sinks, self._background)
        changed = self.panel.reload(config.policy_for, sinks=sinks, retention=config.retention)
        self.router.use(config.crew, on)
        return changed

    def resume(self, story: str, *, by: str, why: str) -> Verdict:
        """Resume a paused story: reset its circuit, and clear its cost so far.

        Raises ValueError for a story that is not paused, `OverrideRefused` without a needed token.
        """
        self.demand_paused(story)
        return self.panel.order(f"story/{story}", by=by, why=why, reset=True)

    def demand_paused(self, story: str) -> None:
        """Raise ValueError for a story that is unknown or not paused."""
        view = self.panel.view(f"story/{story}")
        if view is None:
            known = [view.name.removeprefix("story/") for view in self.panel.circuits("story/*")]
            hint = near(story, known) if known else "no task has cost anything yet"
            raise ValueError(f"no costs are recorded for a task {story!r}; {hint}")
        if view.verdict.admitted:
            # Resuming clears the cost, so resuming twice by mistake would double the budget.
            raise ValueError(f"task {story!r} is not paused, so there is nothing to resume")

    def standings(self) -> dict[str, Standing]:
        """The current route of each agent that was ever rerouted."""
        ledger = self._ledger()
        names = [name for name in ledger.keys(SHELF) if name.startswith("agent/")]
        found = {name.removeprefix("agent/"): ledger.value(SHELF, name) for name in names}
        return {
            name: Standing(*(value[field] for field in Standing._fields))
            for name, value in found.items()
        }

    def switches(self, agent: str) -> list[dict[str, Any]]:
        """The route changes of an agent, oldest first.

        A provider that fails and recovers causes the same changes repeatedly: within an hour they
        are one line, with their number (`count`) and the last time (`last_s`). The last 100 lines are
        stored.
        """
        key = f"agent/{agent}"
        value = self._ledger().value(SHELF, key) or {}
        earlier = self._ledger().lines(SHELF, key)  # written by versions that stored every change
        return [*earlier, *value.get("switches", ())]

    def close(self) -> None:
        """Close the panel; a message that is being sent has two seconds. Idempotent."""
        if self._background is not None:
            self._background.close()
        self.panel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Fleet of {len(self.crew.agents)} agents over {self.panel.store.label}>"

    def _ledger(self) -> Ledger:
        return ledger_of(self.panel.store.inner)

    def _save_switch(self, switch: Switch) -> None:
        """Store a route change for all processes; an unavailable store does not stop work."""

        def work(value: Any, now_s: float) -> Amended:
            now = {"agent": switch.after.agent, "model": str(switch.after.model), "why": switch.why}
            known = value or {}
            same = (known.get("agent"), known.get("model")) == (now["agent"], now["model"])
            if same or (value is None and not switch.why):
                return Amended(None)
            before = switch.before
            was = None if before is None else f"{before.agent} on {before.model}"
            line = {"at_s": now_s, "from": was, **now, "count": 1, "last_s": now_s}
            lines = _with_switch(known.get("switches", []), line)
            return Amended(None, {**now, "since_s": now_s, "switches": lines})

        try:
            self._ledger().amend(SHELF, f"agent/{switch.agent}", work)
        except StoreError as error:
            log_warning("the current model of agent %r could not be saved: %s", switch.agent, error)


def policies_of(breakers: Breakers, crew: Crew) -> PolicyOf:
    """A function that returns the policy of a circuit, or `None` if no category covers it."""
    rows = [
        (matcher(glob), policy) for glob, policy in circuit_policies(breakers, crew.story_budgets)
    ]

    def policy_for(name: str) -> Policy | None:
        return next((policy for matches, policy in rows if matches(name)), None)

    return policy_for


def _with_switch(lines: list[dict[str, Any]], line: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines with a new line appended, or with the count of a recent identical line increased."""
    for index in range(len(lines) - 1, max(-1, len(lines) - 1 - SAME_AMONG), -1):
        known = lines[index]
        is_same = all(known[key] == line[key] for key in ("from", "agent", "model"))
        if is_same and line["at_s"] - known["last_s"] <= SAME_S:
            again = {**line, "at_s": known["at_s"], "count": known["count"] + 1}
            return [*lines[:index], again, *lines[index + 1 :]]
    return [*lines, line][-MOST_SWITCHES:]
