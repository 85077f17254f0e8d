"""Where events are sent besides the store: each sink is a callable that takes an `Event`.

>>> from switchgear import CircuitBreaker
>>> from switchgear.sinks import Jsonl
>>> breaker = CircuitBreaker("api", sinks=[Jsonl("events.jsonl")])
"""

from switchgear._core.wire import WireError, dump_event, load_event
from switchgear._sinks import SINKS, Jsonl, Log, Sink
from switchgear._sinks.metrics import Metrics
from switchgear._sinks.opentelemetry import OpenTelemetry
from switchgear._text.redact import redact

__all__ = [
    "SINKS",
    "Jsonl",
    "Log",
    "Metrics",
    "OpenTelemetry",
    "Sink",
    "WireError",
    "dump_event",
    "load_event",
    "redact",
]
