"""The sections `breakers`, `agents`, `stories`, `notifications`: a fleet and its people."""

from collections.abc import Callable
from typing import Any, TypeVar

from switchgear._config.model import CircuitPolicy
from switchgear._config.parts import REQUIRED, build_part, construct, fields_of
from switchgear._config.problems import Node, Report, shown
from switchgear._fleet.categories import CATEGORIES, Breakers, Category, judged
from switchgear._fleet.manifest import Agent, Crew, Story, agent, faults, story
from switchgear._fleet.targets import TARGETS, Target

Made = TypeVar("Made")


ALIASES = {"provider": "external_dep", "policy_violation": "constitutional"}
"""Other keys of categories: those that the texts use, and those of the fleet's specification."""


def build_breakers(node: Node, report: Report) -> Breakers:
    """The seven categories; what the file does not say is as in the document."""
    keys = report.mapping(node, (*CATEGORIES, *ALIASES))
    for alias, category in ALIASES.items():
        if alias in keys and category in keys:
            report.add(keys[alias], f"says the same as {category!r}: keep one of them")
        elif alias in keys:
            keys[category] = keys.pop(alias)
    built: dict[str, Category] = {}
    for name, make in CATEGORIES.items():
        child = keys.get(name, Node(None))
        nodes = report.mapping(child, fields_of(make))
        found = construct(make, _plain(nodes, report), nodes, child, report)
        built[name] = make() if found is None else found
    return Breakers(**built)


def build_crew(agents: Node, stories: Node, report: Report) -> Crew:
    """The agents and stories, checked against each other."""
    named = report.mapping(agents)
    found = {name: _made(agent, name, child, report) for name, child in named.items()}
    sound: dict[str, Agent] = {name: one for name, one in found.items() if one is not None}
    for name, why in faults({name: _chain(child) for name, child in named.items()}):
        report.add(named[name].value["fallback_chain"], why)
    told: dict[str, Story] = {}
    for name, child in report.mapping(stories).items():
        one = _made(story, name, child, report)
        if one is not None:
            told[name] = one
    return Crew(sound, told)


def build_targets(node: Node, report: Report) -> tuple[Target, ...]:
    """Where notifications go; each has a name of its own, because its place goes by it."""
    found: dict[str, Target] = {}
    for item in report.items(node):
        target = build_part(item, TARGETS, report)
        if target is None:
            continue
        if target.match.startswith("dep/"):
            report.note(item, "match is accepted; circuits of providers are provider/… now")
            target = target.replace(match=f"provider/{target.match.removeprefix('dep/')}")
        if target.name in found:
            report.add(item, f"is the second target {target.name!r}: give it a name of its own")
        found[target.name] = target
    return tuple(found.values())


def rows(breakers: Breakers, crew: Crew) -> tuple[CircuitPolicy, ...]:
    """Which circuits the categories judge, for those that no rule of the user's names."""
    found = judged(breakers, crew.story_budgets)
    return tuple(CircuitPolicy(glob, policy) for glob, policy in found)


def _made(make: Callable[..., Made], name: str, place: Node, report: Report) -> Made | None:
    """A manifest under its name."""
    fields = {field: one for field, one in fields_of(make).items() if field != "name"}
    nodes = report.mapping(place, fields)
    if place.value is not None and not isinstance(place.value, dict):
        return None
    before = report.added
    given = {field: child.plain() for field, child in nodes.items() if child.value is not None}
    # What every manifest needs is a name: one stands in, so that what else is wrong is told as well.
    instead = {field: "unknown" for field, one in fields.items() if one.default is REQUIRED}
    for field in instead:
        if field not in given:
            report.add(place, f"needs the key {field!r}")
    given = {**instead, **given, "name": name}
    made = construct(make, given, nodes, place, report, instead={**instead, "name": "unknown"})
    return made if report.added == before else None


def _chain(place: Node) -> tuple[str, ...]:
    """An agent's fallbacks as far as they can be read, whatever else is wrong with it."""
    value = place.value if isinstance(place.value, dict) else {}
    items = value.get("fallback_chain", Node(None)).plain()
    return tuple(i for i in items if isinstance(i, str) and i) if isinstance(items, list) else ()


def _plain(nodes: dict[str, Node], report: Report) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, child in nodes.items():
        if isinstance(child.value, list | dict):
            report.add(child, f"is {shown(child.value)}: it must be a single value")
        else:
            given[name] = child.value
    return given
