"""Where events are sent besides the store: each sink is a callable that takes an `Event`.

A sink is called after the event is committed. It never raises into the breaker and holds no lock
of it; making one has no effect outside until the first event comes.
"""

from collections.abc import Callable

from switchgear._core.types import Event
from switchgear._sinks.log import Jsonl, Log

Sink = Callable[[Event], object]

SINKS: dict[str, Callable[..., Sink]] = {"jsonl": Jsonl, "log": Log}
"""The registry: the configuration finds sinks in it."""

__all__ = ["SINKS", "Jsonl", "Log", "Sink"]
