"""Every change of phase there is, and the draft that makes them while a message is folded in.

The documentation draws its picture of the states from the table.
"""

from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Event, EventKind, Phase, Step, Totals, Verdict

LEGAL_MOVES: dict[tuple[Phase, Phase], str] = {
    (Phase.CLOSED, Phase.TRIPPING): "heat reaches tripping_at",
    (Phase.CLOSED, Phase.OPEN): "heat reaches 1",
    (Phase.TRIPPING, Phase.CLOSED): "heat falls a fifth below tripping_at, or reset",
    (Phase.TRIPPING, Phase.OPEN): "heat reaches 1",
    (Phase.OPEN, Phase.HALF_OPEN): "the cooldown is over, or probe now",
    (Phase.OPEN, Phase.CLOSED): "the window ends, or reset",
    (Phase.HALF_OPEN, Phase.CLOSED): "enough probes succeed, or reset",
    (
        Phase.HALF_OPEN,
        Phase.OPEN,
    ): "probes fail, or the policy no longer probes",
}


class Draft:
    """The circuit while a message is being folded in: its fields, to be changed. One `step` long."""

    __slots__ = (*Circuit._fields, "before", "events", "hold", "now_s", "policy")

    def __init__(
        self, policy: Policy, circuit: Circuit, now_s: float, *, hold: bool = False
    ) -> None:
        self.policy = policy
        self.hold = hold
        """Whether evidence is only counted and moves nothing yet."""
        self.before = circuit
        self.now_s = max(now_s, circuit.seen_s)
        self.events: list[Event] = []
        (
            self.key,
            self.memories,
            self.phase,
            self.mode,
            self.order,
            self.generation,
            self.version,
            self.event_seq,
            self.seen_s,
            self.heat,
            self.outage,
            self.probing,
            self.failures,
            self.totals,
            self.recent,
            self.isolated,
        ) = circuit

    def circuit(self) -> Circuit:
        """The circuit as drafted so far."""
        return Circuit(
            self.key,
            self.memories,
            self.phase,
            self.mode,
            self.order,
            self.generation,
            self.version,
            self.event_seq,
            self.seen_s,
            self.heat,
            self.outage,
            self.probing,
            self.failures,
            self.totals,
            self.recent,
            self.isolated,
        )

    def note(
        self, kind: EventKind, before: Phase, reason: str, *, by: str = "", why: str = ""
    ) -> None:
        """Number an event and keep it."""
        self.event_seq += 1
        retry_at_s = self.outage.retry_at_s
        self.events.append(
            Event(
                circuit=self.key,
                seq=self.event_seq,
                at_s=self.now_s,
                kind=kind,
                before=before,
                after=self.phase,
                mode=self.mode,
                generation=self.generation,
                reason=reason,
                by=by,
                why=why,
                retry_after_s=None if retry_at_s is None else retry_at_s - self.now_s,
            )
        )

    def move(self, to: Phase, reason: str) -> None:
        """Change the phase, legally, with an event."""
        before = self.phase
        if (before, to) not in LEGAL_MOVES:
            raise AssertionError(f"no circuit moves from {before} to {to}")
        self.phase = to
        if to is Phase.OPEN:
            self.isolated = ()  # it refuses the calls of all processes
        self.note(EventKind.MOVED, before, reason)

    def count(
        self,
        *,
        succeeded: int = 0,
        failed: int = 0,
        ignored: int = 0,
        late: int = 0,
        refused: int = 0,
        overruled: int = 0,
        cost_micros: int = 0,
    ) -> None:
        """Add to the totals."""
        old = self.totals
        self.totals = Totals(
            old.succeeded + succeeded,
            old.failed + failed,
            old.ignored + ignored,
            old.late + late,
            old.refused + refused,
            old.overruled + overruled,
            old.cost_micros + cost_micros,
        )

    def finish(self, verdict: Verdict) -> Step:
        """The result: the same circuit if nothing changed, else a new version of it."""
        # Most messages are counted, and what is counted has changed: no need to compare.
        if self.totals is self.before.totals and self.circuit() == self.before:
            return Step(self.before, verdict, ())
        self.version += 1
        self.seen_s = self.now_s
        return Step(self.circuit(), verdict, tuple(self.events))
