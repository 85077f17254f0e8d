"""Where events go besides the store: each sink is a callable that takes an `Event`."""

from switchgear._sinks import SINKS, Jsonl, Log, Sink

__all__ = ["SINKS", "Jsonl", "Log", "Sink"]
