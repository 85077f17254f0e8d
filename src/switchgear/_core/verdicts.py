"""How a circuit, or the draft of one, stands: what can be said of it without changing it."""

import math

from switchgear._core.moves import Draft
from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Mode, Phase, Verdict


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

    Minus infinity: somebody may be admitted now. Infinity: until something else changes it.
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
