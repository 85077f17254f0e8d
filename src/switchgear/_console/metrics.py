"""`/metrics`: the state of an installation for Prometheus, with a bounded number of series.

A session or a run is never a label. At most `MOST_CIRCUITS` circuits have series of their own: first
those that are not closed, then the hottest. The others are only counted by family.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

from switchgear._console.sources import Sources, state_of
from switchgear._core.errors import StoreError
from switchgear._core.types import Event, Mode, Phase
from switchgear._proxy.metrics import proxy_families
from switchgear._sinks.metrics import (
    MOST_CIRCUITS,
    OTHER,
    PER_WORK,
    MetricFamily,
    Metrics,
    circuit_label,
    exposition,
    family_of,
)

T = TypeVar("T")
STATES = (*map(str, Phase), *(str(mode) for mode in Mode if mode is not Mode.AUTO))
MOST_NODES = 300
MOST_FAMILIES = 50
DEEPEST_NODE = 3
"""Maximum number of parts in the path of a budget node with its own series."""
_OUTCOMES = {
    "succeeded": "success",
    "failed": "failure",
    "ignored": "ignored",
    "refused": "rejected",
    "late": "stale",
}


class ConsoleMetrics:
    """The metrics of one server. Thread-safe."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._events = Metrics()
        self._lock = Lock()
        self._refused: Counter[str] = Counter()

    def record(self, event: Event) -> None:
        self._events(event)

    def refuse(self, reason: str) -> None:
        with self._lock:
            self._refused[reason] += 1

    def text(self, rows: Sequence[Mapping[str, Any]], numbers: Mapping[str, int]) -> str:
        """All metrics; `rows` are the circuits, `numbers` the counts of the event stream."""
        transitions, overrides, *_ = self._events.families()
        families = [
            *circuit_families(rows),
            transitions,
            overrides,
            *self._budgets(),
            *self._sessions(rows),
            *_readable(lambda: proxy_families(self._sources.panel.store.inner)),
            *self._server(numbers),
        ]
        return exposition(families)

    def _budgets(self) -> list[MetricFamily]:
        limit = MetricFamily("switchgear_budget_limit_dollars", "gauge", "Limit of a budget.")
        spent = MetricFamily("switchgear_budget_spent_dollars", "gauge", "Spent from a budget.")
        held = MetricFamily(
            "switchgear_budget_reserved_dollars", "gauge", "Reserved from a budget."
        )
        shown = [
            row for row in _readable(self._sources.budgets) if row["path"].count("/") < DEEPEST_NODE
        ]
        for row in sorted(shown, key=lambda row: row["path"].count("/"))[:MOST_NODES]:
            node = row["path"]
            if row["limit_micros"] is not None:
                limit.add(row["limit_micros"] / 1e6, node=node)
            spent.add(row["spent_micros"] / 1e6, node=node)
            held.add(row["held_micros"] / 1e6, node=node)
        return [limit, spent, held]

    def _sessions(self, rows: Sequence[Mapping[str, Any]]) -> list[MetricFamily]:
        sessions = MetricFamily("switchgear_sessions", "gauge", "Guarded sessions.")
        decisions = MetricFamily(
            "switchgear_hook_decisions_total",
            "counter",
            "Calls of agents that hooks decided about.",
        )
        agents: dict[str, str] = {}
        for row in _readable(self._sources.session_rows):
            agents[row.id] = row.agent
            sessions.add(1, agent=row.agent, state=row.state)
        for circuit in rows:
            family, _, rest = circuit["name"].partition("/")
            agent = agents.get(rest.partition("/")[0])
            if family == "session" and agent is not None:
                totals = circuit["totals"]
                allowed = totals["succeeded"] + totals["failed"] + totals["ignored"]
                decisions.add(allowed, agent=agent, decision="allow")
                decisions.add(totals["refused"], agent=agent, decision="deny")
        return [sessions, decisions]

    def _server(self, numbers: Mapping[str, int]) -> list[MetricFamily]:
        refused = MetricFamily("switchgear_http_refused_total", "counter", "Refused HTTP requests.")
        clients = MetricFamily(
            "switchgear_event_stream_clients", "gauge", "Clients of the event stream."
        )
        dropped = MetricFamily(
            "switchgear_event_stream_dropped_total",
            "counter",
            "Clients dropped because they were too slow.",
        )
        incidents = MetricFamily("switchgear_incidents_open", "gauge", "Open incidents.")
        with self._lock:
            for reason, count in sorted(self._refused.items()):
                refused.add(count, reason=reason)
        clients.add(numbers["clients"])
        dropped.add(numbers["dropped"])
        incidents.add(len(self._sources.incidents(everything=False)))
        return [refused, clients, dropped, incidents]


def _readable(read: Callable[[], list[T]]) -> list[T]:
    """The result of `read`; empty if the store cannot be read."""
    try:
        return read()
    except StoreError:
        return []


def circuit_families(rows: Sequence[Mapping[str, Any]]) -> list[MetricFamily]:
    state = MetricFamily(
        "switchgear_circuit_state", "gauge", "1 for the state of the circuit, else 0."
    )
    counts = MetricFamily("switchgear_circuits", "gauge", "Circuits by family and state.")
    heat = MetricFamily(
        "switchgear_circuit_heat_ratio", "gauge", "How close the evidence is to a trip."
    )
    retry = MetricFamily(
        "switchgear_circuit_retry_after_seconds", "gauge", "Seconds until an open circuit probes."
    )
    calls = MetricFamily("switchgear_calls_total", "counter", "Recorded results and refusals.")
    families = {family for row in rows if (family := family_of(row["name"]))}
    known = set(sorted(families)[:MOST_FAMILIES])
    shown = {row["name"] for row in shown_rows(rows)}
    for row in rows:
        name, family = row["name"], family_of(row["name"])
        counts.add(1, family=family if family in known else OTHER, state=state_of(row))
        label = circuit_label(name) if name in shown or family in PER_WORK else OTHER
        for field, outcome in _OUTCOMES.items():
            calls.add(row["totals"][field], circuit=label, outcome=outcome)
        if name not in shown:
            continue
        for each in STATES:
            state.add(float(each == state_of(row)), circuit=name, state=each)
        heat.add(min(row["heat"] or 0.0, 1.0), circuit=name)
        if row["retry_after_s"] is not None and row["phase"] == Phase.OPEN:
            retry.add(row["retry_after_s"], circuit=name)
    return [state, counts, heat, retry, calls]


def shown_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The circuits with series of their own: those that are not closed first, then the hottest."""
    named = [row for row in rows if family_of(row["name"]) not in PER_WORK]

    def rank(row: Mapping[str, Any]) -> tuple[bool, float, str]:
        return state_of(row) == Phase.CLOSED, -(row["heat"] or 0.0), row["name"]

    return sorted(named, key=rank)[:MOST_CIRCUITS]
