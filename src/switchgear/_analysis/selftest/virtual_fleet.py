"""A fleet on virtual time: the configured agents, or a stand-in, over a store in memory."""

from collections.abc import Callable
from typing import Any

from switchgear._config import Config
from switchgear._core.policy import Policy
from switchgear._core.types import Phase
from switchgear._fleet.categories import Category, category_of, default_breakers
from switchgear._fleet.fleet import Fleet, policies_of
from switchgear._fleet.manifest import Agent, Crew, agent, crew
from switchgear._fleet.route import Refused, Route
from switchgear._panel.panel import Panel
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock

NAME = "selftest"
FIRST = "first"
"""The provider that the stand-in works with."""
_ASKS = 40
"""How often an open circuit is asked: one that admits a share must refuse at least one."""


def stand_in() -> Crew:
    """Who is attacked where no agents are configured: two models, and one more agent."""
    deputy = agent(name="deputy", owner=NAME, provider="third", model="small")
    return crew(
        [
            agent(
                name=NAME,
                owner=NAME,
                provider=FIRST,
                model="large",
                fallback_models=["second/large"],
                fallback_chain=["deputy"],
            ),
            deputy,
        ]
    )


class VirtualFleet:
    """The fleet of a configuration, its router and its circuits. Used by one thread.

    Circuits are judged as `Fleet.from_config` would have it: rows of `circuits` first, then the
    categories of `breakers`.
    """

    def __init__(self, config: Config, store: MemoryStore, clock: FakeClock) -> None:
        self.clock = clock
        self.is_configured = bool(config.crew.agents)
        self.crew = config.crew if self.is_configured else stand_in()
        self.breakers = default_breakers() if config.breakers is None else config.breakers
        by_category = policies_of(self.breakers, self.crew)

        def policy_for(name: str) -> Policy | None:
            return config.policy_for(name) or by_category(name)

        panel = Panel(
            store,
            policies=policy_for,
            operator_token_sha256=config.operator_token_sha256,
            clock=clock,
        )
        self.fleet = Fleet(panel, self.crew, self.breakers, clock=clock)
        self.panel = panel

    @property
    def first(self) -> Agent:
        """The agent that is attacked where one is as good as another."""
        return next(iter(self.crew.agents.values()))

    @property
    def chains(self) -> dict[str, list[str]]:
        """Agents, and the providers that work for each, in turn; of those that go the same way one."""
        ways: dict[tuple[str, ...], str] = {}
        for one in self.crew.agents.values() if self.is_configured else (self.first,):
            chain = self.fleet.router.settings.chain(one)
            way = dict.fromkeys(model.provider for each in chain for model in each.models)
            ways.setdefault(tuple(way), one.name)
        return {name: list(way) for way, name in ways.items()}

    @property
    def story(self) -> str:
        """The story that is attacked."""
        return next(iter(self.crew.stories), NAME)

    def category(self, circuit: str) -> Category:
        """The category that switches the circuit on or off."""
        found: Category = getattr(self.breakers, category_of(circuit) or "")
        return found

    def opened(self, circuit: str) -> bool:
        """Whether a circuit has opened by now."""
        view = self.panel.view(circuit)
        return view is not None and view.circuit.phase is Phase.OPEN

    def call(self, name: str, work: Callable[[Route], object], **where: Any) -> Exception | None:
        """A call through the router, half a second after the last; the error that it ends with."""
        self.clock.advance(0.5)
        try:
            self.fleet.call(name, work, **where)
        except Exception as error:  # noqa: BLE001  whatever an attack raises
            return error
        return None

    def refusal(self, name: str, circuit: str, **where: Any) -> tuple[Route, Refused] | None:
        """A route for which this circuit said no; `None`: it lets all pass."""
        for _ in range(_ASKS):
            route = self.fleet.route(name, **where)
            route.give_back()
            for refused in route.refused:
                if refused.circuit == circuit:
                    return route, refused
        return None
