"""Events and calls as OpenTelemetry metrics and span events; needs `opentelemetry-api`."""

from typing import Any

from switchgear._core import values
from switchgear._core.types import Event, EventKind
from switchgear._sinks.dispatch import Call
from switchgear._sinks.metrics import circuit_label

NAME = "switchgear"
EXTRA = "the sink OpenTelemetry needs 'opentelemetry-api': pip install 'switchgear[otel]'"


class OpenTelemetry(values.Value):
    """Counts events and calls with OpenTelemetry, and adds events to the current span.

    A sink for `Panel(sinks=[telemetry])`; with `on_call=telemetry.on_call` it measures calls, too.
    The instruments are `switchgear.transitions`, `switchgear.overrides`, `switchgear.calls` and
    `switchgear.call.duration` (seconds); spans get the events `switchgear.transition` and
    `switchgear.override`. A session or run is never an attribute of a metric.

    - `meter`: creates the instruments; default: the meter of the global provider.

    Raises ImportError without `opentelemetry-api`.
    """

    __slots__ = ("_calls", "_overrides", "_seconds", "_span", "_transitions")
    _calls: Any
    _overrides: Any
    _seconds: Any
    _span: Any
    _transitions: Any

    def __init__(self, meter: Any = None) -> None:
        try:
            from opentelemetry import metrics, trace  # noqa: PLC0415  optional
        except ImportError:
            raise ImportError(EXTRA) from None
        meter = metrics.get_meter(NAME) if meter is None else meter
        self._set(
            _calls=meter.create_counter("switchgear.calls", "{call}", "Guarded calls by outcome."),
            _overrides=meter.create_counter("switchgear.overrides", "{override}", "Overrides."),
            _seconds=meter.create_histogram("switchgear.call.duration", "s", "Duration of calls."),
            _span=trace.get_current_span,
            _transitions=meter.create_counter(
                "switchgear.transitions", "{transition}", "Changes of the phase of circuits."
            ),
        )

    def fields(self) -> dict[str, Any]:
        """No configuration: the meter is an object."""
        return {}

    def __call__(self, event: Event) -> None:
        """Count a transition or an override, and add it to the current span."""
        circuit = circuit_label(event.circuit)
        if event.kind is EventKind.MOVED:
            self._transitions.add(1, {"circuit": circuit, "to": str(event.after)})
            name = "switchgear.transition"
        elif event.kind is EventKind.ORDERED:
            self._overrides.add(1, {"circuit": circuit, "mode": str(event.mode)})
            name = "switchgear.override"
        else:
            return
        self._span().add_event(
            name,
            {
                "switchgear.circuit": event.circuit,
                "switchgear.before": str(event.before),
                "switchgear.after": str(event.after),
                "switchgear.mode": str(event.mode),
                "switchgear.reason": event.why or event.reason,
            },
        )

    def on_call(self, call: Call) -> None:
        """Count a call and its duration."""
        labels = {"circuit": circuit_label(call.circuit), "outcome": str(call.outcome)}
        self._calls.add(1, labels)
        if call.seconds is not None:
            self._seconds.record(call.seconds, labels)
