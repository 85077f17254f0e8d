"""Every change of phase there is, and the draft that makes them while a message is folded in.

The documentation draws its picture of the states from the table.
"""

from switchgear.core.policy import Policy
from switchgear.core.types import Circuit, Event, EventKind, Phase, Step, Verdict

LEGAL_MOVES: dict[tuple[Phase, Phase], str] = {
    (Phase.CLOSED, Phase.TRIPPING): "heat reaches tripping_at",
    (Phase.CLOSED, Phase.OPEN): "heat reaches 1",
    (Phase.TRIPPING, Phase.CLOSED): "heat falls below tripping_at, or reset",
    (Phase.TRIPPING, Phase.OPEN): "heat reaches 1",
    (Phase.OPEN, Phase.HALF_OPEN): "the cooldown is over",
    (Phase.OPEN, Phase.CLOSED): "the window ends, or reset",
    (Phase.HALF_OPEN, Phase.CLOSED): "enough probes succeed, or reset",
    (Phase.HALF_OPEN, Phase.OPEN): "a probe fails",
}


class Draft:
    """The circuit while a message is being folded in; lives for one `step`."""

    __slots__ = ("before", "circuit", "events", "now_s", "policy")

    def __init__(self, policy: Policy, circuit: Circuit, now_s: float) -> None:
        self.policy = policy
        self.before = circuit
        self.circuit = circuit
        self.now_s = max(now_s, circuit.seen_s)
        self.events: list[Event] = []

    def note(
        self, kind: EventKind, before: Phase, reason: str, by: str = "", why: str = ""
    ) -> None:
        """Number an event and keep it."""
        circuit = self.circuit
        self.circuit = circuit = circuit._replace(event_seq=circuit.event_seq + 1)
        retry_at_s = circuit.outage.retry_at_s
        self.events.append(
            Event(
                circuit.key,
                circuit.event_seq,
                self.now_s,
                kind,
                before,
                circuit.phase,
                circuit.mode,
                circuit.generation,
                reason,
                by,
                why,
                None if retry_at_s is None else max(0.0, retry_at_s - self.now_s),
            )
        )

    def move(self, to: Phase, reason: str) -> None:
        """Change the phase, legally, with an event."""
        before = self.circuit.phase
        if (before, to) not in LEGAL_MOVES:
            raise AssertionError(f"no circuit moves from {before} to {to}")
        self.circuit = self.circuit._replace(phase=to)
        self.note(EventKind.MOVED, before, reason)

    def count(self, **more: int) -> None:
        """Add to the totals."""
        totals = self.circuit.totals
        added = {name: getattr(totals, name) + number for name, number in more.items()}
        self.circuit = self.circuit._replace(totals=totals._replace(**added))

    def finish(self, verdict: Verdict) -> Step:
        """The result; a change makes a new version."""
        circuit = self.circuit
        if circuit is not self.before:
            circuit = circuit._replace(version=circuit.version + 1, seen_s=self.now_s)
        return Step(circuit, verdict, tuple(self.events))
