"""Where events are sent besides the store: each sink is a callable that takes an `Event`.

A sink is called after the event is committed, while no lock is held; its exceptions never reach the
caller of the breaker. Creating a sink has no side effects: files are opened with the first event.
"""

from collections.abc import Callable

from switchgear._sinks.dispatch import Sink
from switchgear._sinks.log import Jsonl, Log

SINKS: dict[str, Callable[..., Sink]] = {"jsonl": Jsonl, "log": Log}
"""The sinks that the configuration can name."""

__all__ = ["SINKS", "Jsonl", "Log", "Sink"]
