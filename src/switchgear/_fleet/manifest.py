"""The members of a fleet: agents with their models, owners and fallbacks; stories and their owners.

Everything is checked before anything is used, so that a fleet is never partly changed.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from switchgear._core import values
from switchgear._fleet.categories import micros
from switchgear._text.formats import Money, micros_of

NAME = re.compile(r"[A-Za-z0-9](?:[\w.@:+-]{0,98}\w)?", re.ASCII)
"""Names of agents, providers and stories, which become parts of circuit names and of paths."""


class Model(NamedTuple):
    """A model and its provider."""

    provider: str
    name: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.name}"


class FleetAgent(NamedTuple):
    """An agent's manifest."""

    name: str
    owner: str
    """Person to notify when one of its circuits trips."""
    model: Model
    fallback_models: tuple[Model, ...] = ()
    """The models that the agent uses while the circuit of its provider is open, in order."""
    fallback_chain: tuple[str, ...] = ()
    """Agents that stand in for it while its circuits are open, in order."""
    stories: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[Model, ...]:
        """Its models, the primary one first."""
        return (self.model, *self.fallback_models)


class Story(NamedTuple):
    """A piece of work that several agents may work on."""

    name: str
    owner: str
    budget_micros: int | None = None
    """Its budget in millionths of a dollar; `None`: the default of `story_cost`."""


def agent(
    *,
    name: str,
    owner: str,
    provider: str,
    model: str,
    fallback_models: Iterable[str] = (),
    fallback_chain: Iterable[str] = (),
    stories: Iterable[str] = (),
) -> FleetAgent:
    """A checked manifest. Raises ValueError.

    >>> agent(name="coder", owner="ana", provider="anthropic", model="opus").models
    (Model(provider='anthropic', name='opus'),)
    """
    return FleetAgent(
        _name("agent.name", name),
        values.check_text("agent.owner", owner).strip(),
        Model(_name("agent.provider", provider), values.check_text("agent.model", model)),
        tuple(
            _model("agent.fallback_models", one)
            for one in _items("fallback_models", fallback_models)
        ),
        tuple(_items("fallback_chain", fallback_chain)),
        tuple(_name("agent.stories", one) for one in _items("stories", stories)),
    )


def story(
    *, name: str, owner: str, budget_dollars: float | None = None, budget: Money | str | None = None
) -> Story:
    """A checked story; its budget is `budget="$3"` or `budget_dollars=3`. Raises ValueError."""
    amount = None if budget_dollars is None else micros("story.budget_dollars", budget_dollars)
    amount = micros_of("budget", budget, amount, suffix="_dollars")
    return Story(_name("story.name", name), values.check_text("story.owner", owner).strip(), amount)


class Crew(NamedTuple):
    """All agents and stories of a fleet. Immutable; `crew` checks them."""

    agents: Mapping[str, FleetAgent] = {}
    stories: Mapping[str, Story] = {}

    def agent(self, name: str) -> FleetAgent:
        """An agent by name. Raises ValueError with a suggestion for an unknown name."""
        found = self.agents.get(name)
        if found is None:
            raise ValueError(f"there is no agent {name!r}; {near(name, self.agents)}")
        return found

    @property
    def story_budgets(self) -> dict[str, int]:
        """The budgets of the stories that have one, in millionths of a dollar."""
        budgets = {name: one.budget_micros for name, one in self.stories.items()}
        return {name: amount for name, amount in budgets.items() if amount is not None}

    def owners_of(self, story: str) -> tuple[str, ...]:
        """The owners to notify about a story: its owner, or those of the agents that work on it."""
        found = self.stories.get(story)
        if found is not None:
            return (found.owner,)
        owners = [agent.owner for agent in self.agents.values() if story in agent.stories]
        return tuple(dict.fromkeys(owners))


def crew(agents: Iterable[FleetAgent], stories: Iterable[Story] = ()) -> Crew:
    """The agents and stories of a fleet, checked against each other. Raises ValueError."""
    known: dict[str, FleetAgent] = {}
    for one in agents:
        if one.name in known:
            raise ValueError(f"agent {one.name!r} is defined twice")
        known[one.name] = one
    for name, why in faults({name: one.fallback_chain for name, one in known.items()}):
        raise ValueError(f"agent {name!r}: {why}")
    return Crew(known, {story.name: story for story in stories})


def faults(chains: Mapping[str, Iterable[str]]) -> Iterable[tuple[str, str]]:
    """The errors in fallback chains: unknown agents and cycles."""
    for name, chain in chains.items():
        for other in chain:
            if other not in chains:
                yield name, f"there is no agent {other!r} to fall back to; {near(other, chains)}"
    left = dict(chains)
    while (circle := cycle(left)) is not None:
        yield circle[0], f"its fallback_chain is a cycle: {' → '.join(circle)}"
        left = {name: chain for name, chain in left.items() if name not in circle}


def near(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: `did you mean 'coder'?`, or the known names."""
    import difflib  # noqa: PLC0415  only needed for errors

    names = list(known)[:500]
    found = difflib.get_close_matches(str(name)[:100], names, n=1)
    if found:
        return f"did you mean {found[0]!r}?"
    return "choose one of " + ", ".join(sorted(names)[:20]) if names else "none are defined"


def cycle(needs: Mapping[str, Iterable[str]]) -> list[str] | None:
    """A cycle of names that need each other, with the first name repeated at the end; else `None`.

    The cycle starts with the name that comes first in `needs`.

    >>> cycle({"a": ["b"], "b": ["c"], "c": ["a"]})
    ['a', 'b', 'c', 'a']
    """
    from graphlib import CycleError, TopologicalSorter  # noqa: PLC0415  hooks load this module

    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        ring = error.args[1][:0:-1]  # graphlib lists each name before the one that needs it
        first = ring.index(next(name for name in needs if name in ring))
        return [*ring[first:], *ring[:first], ring[first]]
    return None


def _name(field: str, value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        rule = "it must be a name of letters, digits and .@:+_- without a slash, up to 100 long"
        raise ValueError(f"{field} is {value!r}: {rule}")
    return value


def _model(field: str, value: Any) -> Model:
    provider, slash, name = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not slash or not name.strip():
        raise ValueError(f"{field} is {value!r}: it must be 'provider/model'")
    return Model(_name(field, provider), name)


def _items(field: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"agent.{field} is {value!r}: it must be a list")
    found = list(value)
    for item in found:
        if not isinstance(item, str) or not item:
            raise ValueError(f"agent.{field} holds {item!r}: it must hold names")
    if len(set(found)) < len(found):
        raise ValueError(f"agent.{field} is {found!r}: it must not name anything twice")
    return found
