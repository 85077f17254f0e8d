"""The state of the world: one JSON file that says who works, who does not, and who in whose stead.

Read from the store without asking anything of a circuit: looking takes no probe away.
"""

from datetime import UTC, datetime
from typing import Any

from switchgear._breaker.views import View
from switchgear._core.types import Mode, Phase
from switchgear._fleet.fleet import GLOBS, Fleet
from switchgear._fleet.manifest import Agent, Model
from switchgear._locks.state import Holder, Tenure, Waiter

SCHEMA = 1


def world(fleet: Fleet) -> dict[str, Any]:
    """The state of the world as JSON values. Raises `StoreError` when the store cannot be read."""
    views = {view.name: view for glob in GLOBS for view in fleet.panel.circuits(glob)}
    now_s = fleet.panel.store.now_s()
    went = fleet.standings()
    agents: dict[str, Any] = {}
    for name, agent in fleet.crew.agents.items():
        standing = went.get(name)
        agents[name] = {
            **_agent(fleet, agent, views),
            "last_seen_on": None if standing is None else standing._asdict(),
        }
    return {
        "schema": SCHEMA,
        "at": _iso(now_s),
        "at_s": now_s,
        "agents": agents,
        "stories": _stories(fleet, views),
        "providers": _some(views, "provider/"),
        "dependencies": _some(views, "provider/"),  # as the key was called before
        "locks": _locks(fleet, views),
        "rules": {name: _one(view) for name, view in views.items() if name.startswith("rules")},
    }


def _agent(fleet: Fleet, agent: Agent, views: dict[str, View]) -> dict[str, Any]:
    """Where its work would go now, and why not to itself."""
    why: list[str] = []

    def admits(names: list[str], who: str) -> bool:
        shut = [name for name in names if name in views and not views[name].verdict.admitted]
        why.extend(f"{who}: {name}: {_until(views[name])}" for name in shut)
        return not shut

    found: tuple[Agent, Model] | None = None
    by = fleet.router.settings
    if admits(["rules"], "any agent"):
        found = next(
            (
                (one, model)
                for one in by.chain(agent)
                if admits(by.circuits(one), one.name)
                for model in one.models
                if admits(by.dependencies(model), f"{one.name} on {model}")
            ),
            None,
        )
    itself = found is not None and found == (agent, agent.model)
    return {
        "owner": agent.owner,
        "state": "works" if itself else "rerouted" if found else "halted",
        "works": None if found is None else found[0].name,
        "model": None if found is None else str(found[1]),
        "primary_model": str(agent.model),
        "why": why,
        "stories": list(agent.stories),
        "load": _load(views.get(f"agent/{agent.name}/latency")),
    }


def _until(view: View) -> str:
    """Why a circuit admits nobody, and when it will be tried; not how soon, for that would pass."""
    circuit, reason = view.circuit, view.verdict.reason
    if circuit.phase is not Phase.OPEN or circuit.mode is not Mode.AUTO:
        return reason
    retry_at_s = circuit.outage.retry_at_s
    if retry_at_s is None:
        return f"{reason}; stays so until it is reset"
    return f"{reason}; next try at {_iso(retry_at_s)}"


def _load(view: View | None) -> float:
    """The share of calls that it is given: 1, unless it is too slow."""
    if view is None or view.circuit.phase in {Phase.CLOSED, Phase.TRIPPING}:
        return 1.0
    return view.circuit.outage.admit


def _stories(fleet: Fleet, views: dict[str, View]) -> dict[str, Any]:
    names = {name.removeprefix("story/") for name in views if name.startswith("story/")}
    names |= {story for agent in fleet.crew.agents.values() for story in agent.stories}
    found: dict[str, Any] = {}
    for name in sorted(names | fleet.crew.stories.keys()):
        view = views.get(f"story/{name}")
        found[name] = {
            "owners": list(fleet.crew.owners_of(name)),
            "paused": view is not None and not view.verdict.admitted,
            "spent_micros": 0 if view is None else view.circuit.totals.cost_micros,
            "why": "" if view is None else view.verdict.reason,
        }
    return found


def _locks(fleet: Fleet, views: dict[str, View]) -> dict[str, Any]:
    """The circuits of resources, and who has them or waits: each with their name and since when."""
    found = _some(views, "lock/")
    tenures = {seen.resource: seen.tenure for seen in fleet.panel.locks.all()}
    for name, one in found.items():
        tenure = tenures.get(name, Tenure())
        holder = tenure.holder
        one["holder"] = None if holder is None else _since(holder)
        one["waiting"] = [_since(waiter) for waiter in tenure.waiting]
    return found


def _since(who: Holder | Waiter) -> dict[str, Any]:
    return {"owner": who.owner, "since": _iso(who.since_s), "since_s": who.since_s}


def _some(views: dict[str, View], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): _one(view)
        for name, view in views.items()
        if name.startswith(prefix)
    }


def _one(view: View) -> dict[str, Any]:
    retry_at_s = view.circuit.outage.retry_at_s
    return {
        "phase": str(view.circuit.phase),
        "mode": str(view.circuit.mode),
        "admits": view.verdict.admitted,
        "why": view.verdict.reason,
        "retry_at": None if retry_at_s is None else _iso(retry_at_s),
    }


def _iso(at_s: float) -> str | None:
    try:
        return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):
        return None
