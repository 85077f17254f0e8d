"""Every change of phase there is, the draft that makes them, and the verdict on the result.

The documentation draws its picture of the states from the table.
"""

import math

from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Event, EventKind, Mode, Phase, Step, Totals, Verdict

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


def standing(policy: Policy, circuit: Circuit | Draft, now_s: float) -> Verdict:
    """Whether calls flow, and if not, why and for how long. `circuit` is advanced to `now_s`."""
    phase, heat = circuit.phase, circuit.heat
    if circuit.mode is Mode.HELD_OPEN:
        return Verdict(False, phase, _order(circuit), _hold_left_s(circuit, now_s), heat)
    if phase is Phase.CLOSED or phase is Phase.TRIPPING:
        return Verdict(True, phase, circuit.outage.reason, None, heat)
    flows = circuit.outage.admit > 0.0 or _free_probe(policy, circuit)
    overruled = not flows and circuit.mode is not Mode.AUTO
    return Verdict(
        flows or overruled,
        phase,
        _outage_reason(circuit),
        _wait_s(policy, circuit, now_s),
        heat,
        overruled=overruled,
    )


def refuses_until_s(policy: Policy, circuit: Circuit | Draft) -> float:
    """Until when this state refuses everyone, so that refusing needs no message.

    Minus infinity: a call may be admitted now. Infinity: until something else changes it.
    """
    if circuit.mode is Mode.HELD_OPEN:
        until_s = None if circuit.order is None else circuit.order.until_s
        return math.inf if until_s is None else until_s
    if circuit.mode is not Mode.AUTO or circuit.outage.admit > 0.0:
        return -math.inf
    if circuit.phase is Phase.OPEN:
        return math.inf if circuit.outage.retry_at_s is None else circuit.outage.retry_at_s
    if circuit.phase is Phase.HALF_OPEN and not _free_probe(policy, circuit):
        return _first_lease_s(circuit)
    return -math.inf


def _free_probe(policy: Policy, circuit: Circuit | Draft) -> bool:
    return circuit.phase is Phase.HALF_OPEN and policy.recovery.may_probe(circuit.probing)


def _first_lease_s(circuit: Circuit | Draft) -> float:
    """When the first probe under way loses its place, should it not report."""
    leases = [permit.lease_until_s for permit in circuit.probing.permits]
    return min([lease for lease in leases if lease is not None], default=-math.inf)


def _wait_s(policy: Policy, circuit: Circuit | Draft, now_s: float) -> float | None:
    if circuit.phase is Phase.OPEN:
        retry_at_s = circuit.outage.retry_at_s
        return None if retry_at_s is None else max(0.0, retry_at_s - now_s)
    if _free_probe(policy, circuit):
        return 0.0
    return max(0.0, _first_lease_s(circuit) - now_s)


def _outage_reason(circuit: Circuit | Draft) -> str:
    outage = circuit.outage
    if outage.admit:
        return f"{outage.reason}; load reduced to {outage.admit:.0%}"
    if circuit.phase is Phase.HALF_OPEN and circuit.probing.permits:
        return f"a probe is under way, after {outage.reason}"
    return outage.reason


def _hold_left_s(circuit: Circuit | Draft, now_s: float) -> float | None:
    until_s = None if circuit.order is None else circuit.order.until_s
    return None if until_s is None else max(0.0, until_s - now_s)


def _order(circuit: Circuit | Draft) -> str:
    order = circuit.order
    return f"held open by {order.by}: {order.why}" if order else "held open"
