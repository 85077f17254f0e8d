"""What is known at the time of an incident: evidence, money, who was rerouted, what is half done."""

from shlex import quote
from typing import Any

from switchgear._breaker.views import View
from switchgear._core.errors import StoreError, SwitchgearError
from switchgear._core.types import Event
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.manifest import Agent
from switchgear._text.redact import redact

MOST = 20


def facts_of(event: Event, category: str, fleet: Fleet, incident: str) -> dict[str, Any]:
    """The facts; what cannot be read is said to be unknown and keeps nothing from being written."""
    agents = concerned(fleet, event.circuit)
    facts: dict[str, Any] = {
        "agents": [agent.name for agent in agents],
        "owners": owners(fleet, event.circuit),
        "evidence": [redact(event.reason, 400)],
        "spent_micros": None,
        "rerouted": [],
        "partial_state": [],
        "what_to_do": what_to_do(category, event.circuit, incident),
    }
    try:
        view = fleet.panel.view(event.circuit)
        if view is not None:
            facts["evidence"] = _evidence(event, view)
        facts["spent_micros"] = _spent(fleet, event.circuit, agents)
        facts["rerouted"] = rerouted(fleet, event.circuit, event.at_s)
        facts["partial_state"] = _partial(fleet, agents)
    except (StoreError, SwitchgearError) as error:
        facts["unknown"] = redact(str(error), 400)
    return facts


def concerned(fleet: Fleet, circuit: str) -> list[Agent]:
    """The agents that a circuit is about."""
    kind, _, rest = circuit.partition("/")
    people = fleet.crew.agents
    if kind == "agent":
        found = people.get(rest.rpartition("/")[0])
        return [] if found is None else [found]
    if kind == "rules":
        return [people[rest]] if rest in people else list(people.values()) if not rest else []
    if kind in {"provider", "dep"}:  # as in earlier versions
        provider = rest.removesuffix("/latency")
        return [one for one in people.values() if any(m.provider == provider for m in one.models)]
    if kind == "story":
        return [one for one in people.values() if rest in one.stories]
    if kind == "lock":
        return [people[name] for name in lock_users(fleet, rest) if name in people]
    return []


def lock_users(fleet: Fleet, resource: str) -> list[str]:
    """Who had a resource and who waited for it: now, and when its circuit opened last."""
    try:
        locks = fleet.panel.locks
        alert = locks.alert(resource)
        tenures = [seen.tenure for seen in locks.all() if seen.resource == resource]
    except StoreError:
        return []
    found = [alert.get("holder", ""), alert.get("waiter", "")]
    for tenure in tenures:
        found += [tenure.holder.owner] if tenure.holder is not None else []
        found += [waiter.owner for waiter in tenure.waiting]
    return [name for name in dict.fromkeys(found) if name][:MOST]


def owners(fleet: Fleet, circuit: str) -> list[str]:
    """Whom to tell: the owners of the agents, and of the stories that they work on.

    Of a lock, whoever has it or waits is an owner where no agent of that name is known.
    """
    kind, _, rest = circuit.partition("/")
    if kind == "story":
        return list(fleet.crew.owners_of(rest))
    agents = concerned(fleet, circuit)
    found = [agent.owner for agent in agents]
    if kind == "lock":
        found += [name for name in lock_users(fleet, rest) if name not in fleet.crew.agents]
    for agent in agents:
        for story in agent.stories:
            found += fleet.crew.owners_of(story)
    return list(dict.fromkeys(found))


def _evidence(event: Event, view: View) -> list[str]:
    """What was known at the trip, not what has come since."""
    circuit = view.circuit
    readings = (
        [reading.reason for reading in view.policy.readings(circuit.memories, event.at_s)]
        if circuit.seen_s <= event.at_s
        else []  # the memories have gone on; the event has kept what tripped it
    )
    errors = [one.error for one in circuit.failures if one.error and one.at_s <= event.at_s]
    found = dict.fromkeys([event.reason, *readings])
    return [redact(text, 400) for text in [*found, *errors[-MOST:]]]


def what_to_do(category: str, circuit: str, incident: str) -> list[str]:
    """The next steps, as commands where there are any."""
    named = quote(circuit)
    show = f"Look at the evidence: switchgear show {named}"
    steps = {
        "budget": "Find out what it spent on; raise hard_cap_dollars only if that was right.",
        "failure_rate": "Read the last errors; the agent is tried again after the cooldown.",
        "latency": "See whether the provider or the work is slow; half of the load goes elsewhere.",
        "constitutional": f"Read what it tried. When it is safe: switchgear reset {named} --why '…'",
        "external_dep": "Nothing, if the provider says that it works on it: it is tried by itself.",
        "resource_lock": "See who holds it: switchgear locks",
        "story_cost": f"Decide whether it is worth more: switchgear fleet resume {quote(circuit[6:])} --why '…'",
    }
    close = f"Then close it: switchgear incidents close {incident} --why '…' --confirmed"
    return [show, steps[category], f"{close}, or --false-positive if it should not have tripped"]


def _spent(fleet: Fleet, circuit: str, agents: list[Agent]) -> int:
    names = {circuit, *(f"agent/{agent.name}/budget" for agent in agents[:MOST])}
    found = [fleet.panel.view(name) for name in sorted(names)]
    return sum(view.circuit.totals.cost_micros for view in found if view is not None)


def rerouted(fleet: Fleet, circuit: str, since_s: float) -> list[str]:
    """Whose work went elsewhere since then, or goes elsewhere still. Raises `StoreError`."""
    found: list[str] = []
    went = fleet.standings()
    for agent in concerned(fleet, circuit)[:MOST]:
        if agent.name not in went:
            continue
        ways = [
            line
            for line in fleet.switches(agent.name)
            if line.get("last_s", line["at_s"]) >= since_s
        ]
        found += [
            f"{agent.name}: {line['agent']} on {line['model']}" for line in ways if line["why"]
        ]
        if went[agent.name].why and not ways:
            found.append(f"{agent.name}: {went[agent.name].agent} on {went[agent.name].model}")
    return list(dict.fromkeys(found))[:MOST]


def _partial(fleet: Fleet, agents: list[Agent]) -> list[str]:
    """What is begun and not ended: stories with what they cost, locks that are held."""
    found: list[str] = []
    for story in dict.fromkeys(story for agent in agents[:MOST] for story in agent.stories):
        view = fleet.panel.view(f"story/{story}")
        if view is not None:
            state = "goes on" if view.verdict.admitted else "is paused"
            dollars = view.circuit.totals.cost_micros / 1_000_000
            found.append(f"story {story} {state}, ${dollars:.2f} spent")
    names = {agent.name for agent in agents}
    for seen in fleet.panel.locks.all():
        holder = seen.tenure.holder
        if holder is not None and holder.owner in names:
            found.append(f"lock {seen.resource} is held by {holder.owner}")
    return found
