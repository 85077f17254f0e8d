"""Metrics in the text format of Prometheus: counters of events and calls, and the format itself.

The number of series is bounded whatever names circuits have: circuits of sessions and runs share one
label per family, and circuits beyond the first `most_circuits` have the label `other`.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from switchgear._core import values
from switchgear._core.types import Event, EventKind
from switchgear._sinks.dispatch import Call
from switchgear._system.threads import ForkSafeLock

PER_WORK = frozenset(
    {"capsule", "invocation", "ladder", "loop", "progress", "run", "session", "task"}
)
"""Families with one circuit per session, run or task: their names never become labels."""
MOST_CIRCUITS = 300
"""Default number of circuits with a label of their own."""
OTHER = "other"
"""The label of all further circuits."""
Labels = tuple[tuple[str, str], ...]

# The upper bounds of the histogram's buckets.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


def family_of(circuit: str) -> str:
    """The first part of a circuit's name; `-` for a name without a slash."""
    family, slash, _ = circuit.partition("/")
    return family if slash else "-"


def circuit_label(circuit: str) -> str:
    """The label of a circuit: its name, or only its family if that has one circuit per session or run."""
    family = family_of(circuit)
    return f"{family}/*" if family in PER_WORK else circuit


class MetricFamily:
    """One metric with its samples, as text."""

    def __init__(self, name: str, kind: str, about: str) -> None:
        self.name, self.kind, self.about = name, kind, about
        self._samples: dict[tuple[str, Labels], float] = {}

    def add(self, value: float, suffix: str = "", /, **labels: str) -> None:
        """Add to the sample with these labels."""
        key = (suffix, tuple(labels.items()))
        self._samples[key] = self._samples.get(key, 0.0) + value

    def lines(self) -> Iterable[str]:
        """The lines of the metric in the text format; none without samples."""
        if not self._samples:
            return
        yield f"# HELP {self.name} {self.about}"
        yield f"# TYPE {self.name} {self.kind}"
        for (suffix, labels), value in self._samples.items():
            listed = ",".join(f'{name}="{escaped(text)}"' for name, text in labels)
            yield f"{self.name}{suffix}{'{' + listed + '}' if listed else ''} {number(value)}"


def escaped(text: str) -> str:
    """The value of a label: one line, at most 200 characters, valid UTF-8."""
    short = text if len(text) <= 200 else f"{text[:199]}…"
    short = short.encode(errors="replace").decode()
    return short.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def number(value: float) -> str:
    """A number in the text format."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def exposition(families: Iterable[MetricFamily]) -> str:
    """The metrics as one text."""
    return "".join(f"{line}\n" for family in families for line in family.lines())


class Metrics(values.Value):
    """Counts events and calls, and exports them as text for Prometheus. Thread-safe and fork-safe.

    A sink for `Panel(sinks=[metrics])`; with `on_call=metrics.on_call` it counts calls and their
    duration, too. Return `text()` from the endpoint `/metrics` of your program.

    - `most_circuits`: maximum number of circuits with a label of their own (300); further circuits
      have the label `other`.

    >>> metrics = Metrics()
    >>> metrics.text()
    ''
    """

    __slots__ = (
        *("_calls", "_lock", "_names", "_overrides", "_seconds", "_transitions"),
        "most_circuits",
    )
    most_circuits: int
    _lock: ForkSafeLock
    _names: set[str]
    _transitions: Counter[tuple[str, str]]
    _overrides: Counter[tuple[str, str]]
    _calls: Counter[tuple[str, str]]
    _seconds: dict[str, list[float]]

    def __init__(self, most_circuits: int = MOST_CIRCUITS) -> None:
        self._set(
            most_circuits=values.check_int("Metrics.most_circuits", most_circuits, least=0),
            _lock=ForkSafeLock(),
            _names=set(),
            _transitions=Counter(),
            _overrides=Counter(),
            _calls=Counter(),
            _seconds={},
        )

    def fields(self) -> dict[str, int]:
        """The settings, without the counters."""
        return {"most_circuits": self.most_circuits}

    def __call__(self, event: Event) -> None:
        """Count an event: a transition or an override."""
        with self._lock:
            label = self._label(event.circuit)
            if event.kind is EventKind.MOVED:
                self._transitions[label, str(event.after)] += 1
            elif event.kind is EventKind.ORDERED:
                self._overrides[label, str(event.mode)] += 1

    def on_call(self, call: Call) -> None:
        """Count a call and its duration."""
        with self._lock:
            label = self._label(call.circuit)
            self._calls[label, str(call.outcome)] += 1
            if call.seconds is not None:
                # One count per bucket, then the sum of the durations and the number of calls.
                seen = self._seconds.setdefault(label, [0.0] * (len(BUCKETS_S) + 2))
                for at, most_s in enumerate(BUCKETS_S):
                    seen[at] += call.seconds <= most_s
                seen[-2] += call.seconds
                seen[-1] += 1

    def _label(self, circuit: str) -> str:
        label = circuit_label(circuit)
        if label in self._names:
            return label
        if len(self._names) >= self.most_circuits:
            return OTHER
        self._names.add(label)
        return label

    def families(self) -> list[MetricFamily]:
        """The counters as metrics."""
        moved = MetricFamily(
            "switchgear_transitions_total", "counter", "Changes of the phase of circuits."
        )
        orders = MetricFamily("switchgear_overrides_total", "counter", "Overrides by operators.")
        calls = MetricFamily("switchgear_calls_total", "counter", "Guarded calls by outcome.")
        took = MetricFamily(
            "switchgear_call_duration_seconds", "histogram", "Duration of guarded calls."
        )
        with self._lock:
            _fill(moved, "to", self._transitions)
            _fill(orders, "mode", self._overrides)
            _fill(calls, "outcome", self._calls)
            for circuit, seen in self._seconds.items():
                for most_s, count in zip(BUCKETS_S, seen, strict=False):
                    took.add(count, "_bucket", circuit=circuit, le=number(most_s))
                took.add(seen[-1], "_bucket", circuit=circuit, le="+Inf")
                took.add(seen[-2], "_sum", circuit=circuit)
                took.add(seen[-1], "_count", circuit=circuit)
        return [moved, orders, calls, took]

    def text(self) -> str:
        """The counters in the text format of Prometheus."""
        return exposition(self.families())


def _fill(family: MetricFamily, label: str, counts: Mapping[tuple[str, str], int]) -> None:
    for (circuit, value), count in counts.items():
        family.add(count, circuit=circuit, **{label: value})
