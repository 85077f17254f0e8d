"""The fleet: agents that answer to circuits of seven categories, and who works in whose stead.

What is exported is imported when it is asked for: the configuration knows categories and people,
and a hook that reads it must not pay for the rest.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from switchgear.fleet.fleet import Fleet
    from switchgear.fleet.manifest import Crew, agent, crew, story
    from switchgear.fleet.route import Decision, Refused, Route
    from switchgear.fleet.router import Router
    from switchgear.fleet.watching import Watcher

_HOMES = {
    "Fleet": "fleet",
    "Router": "router",
    "Watcher": "watching",
    **dict.fromkeys(("Crew", "agent", "crew", "story"), "manifest"),
    **dict.fromkeys(("Decision", "Refused", "Route"), "route"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "Crew",
    "Decision",
    "Fleet",
    "Refused",
    "Route",
    "Router",
    "Watcher",
    "agent",
    "crew",
    "story",
]
