"""The verdict for circuits that were not advanced or were stored under another policy."""

import math

import pytest

from switchgear._core.machine import refuses_until_s, standing, step
from switchgear._core.policy import Cooldown, Latched, Policy
from switchgear._core.types import (
    Acquire,
    Circuit,
    EventKind,
    Mode,
    OpenState,
    Override,
    Permit,
    Phase,
    Probing,
    Record,
    Signal,
)
from switchgear._detectors import ConsecutiveFailures, SameError, SlowCalls

POLICY = Policy([ConsecutiveFailures(1)], Cooldown(60.0, probes=2))
NEW = POLICY.start("k", 0.0)
OPEN = NEW._replace(phase=Phase.OPEN, outage=OpenState(0.0, 60.0, 60.0, reason="why"))
PROBING = NEW._replace(
    phase=Phase.HALF_OPEN,
    outage=OpenState(reason="why"),
    probing=Probing((Permit(3, 1, 70.0), Permit(3, 2, 65.0)), 2, 0),
)
HELD = NEW._replace(
    mode=Mode.HELD_OPEN, order=Override("ada", "deploy", Mode.HELD_OPEN, until_s=60.0)
)


@pytest.mark.parametrize(
    ("circuit", "now_s", "wait_s"),
    [
        (OPEN, 59.5, 0.5),
        (OPEN, 60.0, 0.0),
        (OPEN, 99.0, 0.0),
        (PROBING, 64.5, 0.5),
        (PROBING, 65.0, 0.0),
        (PROBING, 99.0, 0.0),
        (PROBING._replace(probing=Probing((Permit(3, 1, 70.0),), 1, 0)), 61.0, 0.0),
        (OPEN._replace(outage=OpenState(reason="why")), 5.0, None),
        (NEW, 5.0, None),
        (HELD, 59.5, 0.5),
        (HELD, 99.0, 0.0),
    ],
)
def test_a_wait_is_never_negative(circuit: Circuit, now_s: float, wait_s: float | None) -> None:
    assert standing(POLICY, circuit, now_s).retry_after_s == wait_s


@pytest.mark.parametrize(
    ("circuit", "until_s"),
    [
        (NEW, -math.inf),
        (NEW._replace(phase=Phase.TRIPPING), -math.inf),
        (OPEN, 60.0),
        (OPEN._replace(outage=OpenState(reason="latched")), math.inf),
        (OPEN._replace(outage=OPEN.outage._replace(admit=0.1)), -math.inf),
        (OPEN._replace(mode=Mode.SHADOW), -math.inf),
        (OPEN._replace(mode=Mode.HELD_CLOSED), -math.inf),
        (NEW._replace(mode=Mode.HELD_OPEN), math.inf),
        (PROBING, 65.0),
        (PROBING._replace(probing=Probing((Permit(3, 1, 70.0),), 1, 0)), -math.inf),
    ],
)
def test_a_snapshot_refuses_until_a_call_may_be_admitted(circuit: Circuit, until_s: float) -> None:
    assert refuses_until_s(POLICY, circuit) == until_s


@pytest.mark.parametrize("circuit", [OPEN, PROBING], ids=["open", "half-open"])
def test_a_circuit_with_reduced_load_admits_calls(circuit: Circuit) -> None:
    reduced = circuit._replace(outage=circuit.outage._replace(admit=0.25))
    verdict = standing(POLICY, reduced, 1.0)
    assert (verdict.admitted, verdict.overruled) == (True, False)
    assert verdict.reason == "why; load reduced to 25%"


@pytest.mark.parametrize(
    ("circuit", "reason"),
    [
        (OPEN, "why"),
        (PROBING, "a probe is under way, after why"),
        (PROBING._replace(probing=Probing()), "why"),
        (OPEN._replace(probing=PROBING.probing), "why"),
    ],
)
def test_a_probe_is_named_while_one_is_under_way(circuit: Circuit, reason: str) -> None:
    assert standing(POLICY, circuit, 1.0).reason == reason


@pytest.mark.parametrize(("phase", "overruled"), [(Phase.CLOSED, False), (Phase.OPEN, True)])
def test_shadow_overrules_refusals_only(phase: Phase, overruled: bool) -> None:
    circuit = OPEN._replace(phase=phase, mode=Mode.SHADOW)
    done = step(POLICY, circuit, Acquire(), 1.0)
    assert (done.verdict.admitted, done.verdict.overruled) == (True, overruled)
    assert done.circuit.totals.overruled == overruled


def test_a_circuit_stored_while_probing_may_be_used_under_a_policy_without_probes() -> None:
    latched = POLICY.replace(recovery=Latched())
    circuit = PROBING._replace(probing=Probing())
    assert refuses_until_s(latched, circuit) == -math.inf
    assert standing(latched, circuit, 5.0).retry_after_s == 0.0


def test_a_hold_without_an_override_is_still_a_hold() -> None:
    held = NEW._replace(mode=Mode.HELD_OPEN)
    assert standing(POLICY, held, 0.0).reason == "held open"
    told = held._replace(order=Override("ada", "maintenance", Mode.HELD_OPEN))
    assert standing(POLICY, told, 0.0).reason == "held open by ada: maintenance"


HALF_LOAD = Policy([SlowCalls(1.0, 2, 0.0, admit=0.5), ConsecutiveFailures(2)], Cooldown(60.0))
SLOW = Record(Signal(ok=True, seconds=9.0, count=2))
FAILED = Record(Signal(ok=False))


def test_the_detector_that_reduces_the_load_further_is_named_not_the_hotter_one() -> None:
    circuit = step(HALF_LOAD, HALF_LOAD.start("k", 0.0), SLOW, 0.0).circuit
    assert circuit.outage.admit == 0.5
    circuit = step(HALF_LOAD, circuit, FAILED, 1.0).circuit
    done = step(HALF_LOAD, circuit, FAILED, 2.0)
    assert done.circuit.heat == 2.0, "the slow calls are the hotter ones"
    [cut] = done.events
    assert (cut.kind, cut.reason) == (EventKind.LOAD_CUT, "2 failures in a row (threshold 2)")
    assert done.verdict.reason == cut.reason
    assert not done.verdict.admitted


def test_among_equally_strict_detectors_the_hottest_reduces_the_load() -> None:
    policy = HALF_LOAD.replace(detectors=[*HALF_LOAD.detectors, ConsecutiveFailures(1)])
    circuit = step(policy, policy.start("k", 0.0), SLOW, 0.0).circuit
    done = step(policy, circuit, Record(Signal(ok=False, count=2)), 1.0)
    assert done.events[-1].reason.endswith("in a row (threshold 1)")


def probing_at_half_load() -> Circuit:
    circuit = step(HALF_LOAD, HALF_LOAD.start("k", 0.0), SLOW, 0.0).circuit
    circuit = step(HALF_LOAD, circuit, Acquire(), 60.0).circuit
    assert (circuit.phase, len(circuit.probing.permits)) == (Phase.HALF_OPEN, 1)
    return circuit


def test_failures_during_a_probe_reduce_the_load_and_the_probe_decides() -> None:
    circuit, beside = probing_at_half_load(), Permit(3)
    circuit = step(HALF_LOAD, circuit, FAILED._replace(permit=beside), 61.0).circuit
    done = step(HALF_LOAD, circuit, FAILED._replace(permit=beside), 62.0)
    [cut] = done.events
    assert (cut.kind, cut.before, cut.after) == (EventKind.LOAD_CUT, *[Phase.HALF_OPEN] * 2)
    assert not done.verdict.admitted
    assert done.circuit.outage == circuit.outage._replace(admit=0.0, reason=cut.reason)
    [probe] = done.circuit.probing.permits
    closed = step(HALF_LOAD, done.circuit, Record(Signal(ok=True, seconds=0.1), probe), 63.0)
    assert closed.circuit.phase is Phase.CLOSED


def test_successes_during_a_probe_are_evidence_and_do_not_close_the_circuit() -> None:
    circuit = probing_at_half_load()
    fast = Record(Signal(ok=True, seconds=0.1, count=2), Permit(3))
    done = step(HALF_LOAD, circuit, fast, 61.0)
    assert (done.circuit.phase, done.circuit.heat, done.events) == (Phase.HALF_OPEN, 0.0, ())


@pytest.mark.parametrize("kind", [EventKind.STORE_LOST, EventKind.UNDECIDED, EventKind.RULE_BROKEN])
def test_a_remark_of_switchgear_is_an_event_of_its_own_kind(kind: EventKind) -> None:
    made = step(POLICY, NEW, Override("switchgear", "it is gone", kind=kind), 5.0)
    [event] = made.events
    assert (event.kind, event.reason, event.by) == (kind, "it is gone", "switchgear")
    assert (event.before, event.after) == (Phase.CLOSED, Phase.CLOSED)


@pytest.mark.parametrize(
    ("tripping_at", "bands"),
    [(0.5, {0: 0, 3: 0, 4: 1, 5: 2, 9: 2, 10: 3}), (None, {0: 0, 9: 0, 10: 3})],
)
def test_the_bands_of_a_detector_end_where_the_circuit_moves(
    tripping_at: float | None, bands: dict[int, int]
) -> None:
    policy = Policy([ConsecutiveFailures(10)], tripping_at=tripping_at)
    assert {n: policy.bands((n,), 0.0)[0] for n in bands} == bands


def test_tripping_ends_a_fifth_below_tripping_at_without_float_rounding() -> None:
    assert Policy([ConsecutiveFailures(10)], tripping_at=0.123456789).calm_below == 0.098765431
    assert Policy([ConsecutiveFailures(10)]).calm_below is None


def test_the_first_of_equal_signals_is_folded_alone_because_it_may_begin_a_new_row() -> None:
    """Four errors end as hot as the four others before them, and the first of them is cold."""
    policy = Policy([SameError(5, scope="consecutive")], tripping_at=0.7)
    warm = step(policy, policy.start("k", 0.0), Record(Signal(ok=False, error="a", count=4)), 1.0)
    assert warm.circuit.phase is Phase.TRIPPING
    done = step(policy, warm.circuit, Record(Signal(ok=False, error="b", count=4)), 2.0)
    assert done.circuit.phase is Phase.TRIPPING
    assert [event.after for event in done.events] == [Phase.CLOSED, Phase.TRIPPING]


def test_a_slow_probe_opens_the_circuit_and_is_the_reason() -> None:
    policy = Policy([SlowCalls(1.0, 2)], Cooldown(60.0))
    circuit = policy.start("k", 0.0)._replace(phase=Phase.HALF_OPEN, outage=OPEN.outage)
    done = step(policy, circuit, Record(Signal(ok=True, seconds=12.0)), 61.0)
    assert done.circuit.phase is Phase.OPEN
    assert done.events[-1].reason == "probe took 12 s, longer than 1 s"


def test_a_detector_that_just_trips_cuts_the_load_of_an_open_circuit() -> None:
    policy = Policy([SlowCalls(1.0, 2, 0.9, admit=0.5), ConsecutiveFailures(3)], Cooldown(60.0))
    slow = Record(Signal(ok=True, seconds=9.0, count=2))
    circuit = step(policy, policy.start("k", 0.0), slow, 0.0).circuit
    assert (circuit.phase, circuit.heat, circuit.outage.admit) == (Phase.OPEN, 1.0, 0.5)
    done = step(policy, circuit, Record(Signal(ok=False, count=3)), 1.0)
    assert (done.circuit.heat, done.circuit.outage.admit) == (1.0, 0.0)


@pytest.mark.parametrize(("failures", "phase"), [(4, Phase.CLOSED), (5, Phase.TRIPPING)])
def test_a_closed_circuit_begins_to_trip_at_the_heat_of_the_policy(
    failures: int, phase: Phase
) -> None:
    policy = Policy([ConsecutiveFailures(10)], tripping_at=0.5)
    circuit = step(policy, policy.start("k", 0.0), Record(Signal(ok=False, count=failures)), 0.0)
    assert circuit.circuit.phase is phase


def test_automatic_operation_has_no_end() -> None:
    back = Override("ada", "done", Mode.AUTO, until_s=60.0)
    order = step(POLICY, HELD, back, 1.0).circuit.order
    assert order is not None
    assert (order.mode, order.until_s) == (Mode.AUTO, None)
