"""Where events go besides the store: each sink is a callable that takes an `Event`."""

from switchgear._core.wire import WireError, dump_event, load_event
from switchgear._sinks import SINKS, Jsonl, Log, Sink
from switchgear._text.redact import redact

__all__ = [
    "SINKS",
    "Jsonl",
    "Log",
    "Sink",
    "WireError",
    "dump_event",
    "load_event",
    "redact",
]
