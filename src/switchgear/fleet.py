"""A fleet: agents with fallbacks, guarded by circuits; incidents and notifications."""

from switchgear._fleet.fleet import Fleet
from switchgear._fleet.manifest import Crew, agent, crew, story
from switchgear._fleet.router import Refused, Route, RouteDecision, Router
from switchgear._fleet.targets import Command, Slack, Webhook, sign, verify
from switchgear._fleet.watcher import Watcher

__all__ = [
    "Command",
    "Crew",
    "Fleet",
    "Refused",
    "Route",
    "RouteDecision",
    "Router",
    "Slack",
    "Watcher",
    "Webhook",
    "agent",
    "crew",
    "sign",
    "story",
    "verify",
]
