"""Half-open judged by a share of probes: `Cooldown(probes=n, successes=m, of=k)`."""

import itertools
import random
from statistics import median

import pytest

from switchgear import CircuitBreaker, Cooldown, Permit, Policy, Rejected, Signal, detectors
from switchgear._core.machine import step
from switchgear._core.policy import Recovery
from switchgear._core.types import Acquire, Phase, Record
from switchgear._core.wire import dump_circuit, load_circuit
from switchgear._detectors.policy_wire import dump_policy, load_policy
from switchgear.testing import FakeClock


def half_open(recovery: Recovery) -> tuple[CircuitBreaker, FakeClock]:
    clock = FakeClock()
    policy = Policy([detectors.ConsecutiveFailures(1)], recovery)
    breaker = CircuitBreaker("api", policy=policy, clock=clock)
    breaker.record(Signal(ok=False))
    clock.advance(60.0)
    assert breaker.state == "half_open"
    return breaker, clock


def asked_until_refused(breaker: CircuitBreaker) -> list[Permit]:
    permits = []
    for _ in range(100):
        try:
            permits.append(breaker.enter())
        except Rejected:
            return permits
    raise AssertionError("it never refuses")


def test_a_circuit_closes_with_enough_successes_although_some_probes_fail() -> None:
    breaker, _ = half_open(Cooldown(successes=3, of=5))
    for ok in (False, True, False, True):
        breaker.record(Signal(ok=ok), breaker.enter())
        assert breaker.state == "half_open"
    breaker.record(Signal(ok=True), breaker.enter())
    assert breaker.state == "closed"


def test_a_circuit_re_opens_as_soon_as_enough_successes_are_impossible() -> None:
    breaker, _ = half_open(Cooldown(successes=3, of=5))
    for ok in (False, True, False):
        breaker.record(Signal(ok=ok), breaker.enter())
    breaker.record(Signal(ok=False), breaker.enter())
    assert breaker.state == "open"
    assert breaker.snapshot().outage.reason == "3 of 4 probes failed (3 of 5 must succeed)"


@pytest.mark.parametrize("results", [*itertools.product((True, False), repeat=5)])
def test_every_order_of_results_decides_as_early_as_it_can(results: tuple[bool, ...]) -> None:
    needed, of = 3, 5
    breaker, _ = half_open(Cooldown(probes=5, successes=needed, of=of))
    for known in range(1, of + 1):
        good = sum(results[:known])
        breaker.record(Signal(ok=results[known - 1]), breaker.enter())
        if good >= needed:
            expected = "closed"
        elif known - good > of - needed:
            expected = "open"
        else:
            expected = "half_open"
        assert breaker.state == expected
        if expected != "half_open":
            return
    raise AssertionError("it is decided after the last")


@pytest.mark.parametrize("probes", [1, 2, 3, 5, 9])
@pytest.mark.parametrize(("needed", "of"), [(1, 1), (1, 3), (3, 5), (5, 5), (2, 8)])
def test_no_more_probes_are_admitted_than_can_still_matter(
    probes: int, needed: int, of: int
) -> None:
    randomly = random.Random(0)
    breaker, _ = half_open(Cooldown(probes=probes, successes=needed, of=of))
    under_way: list[Permit] = []
    known = 0
    while breaker.state == "half_open":
        under_way += asked_until_refused(breaker)
        assert len(under_way) == min(probes, of - known)
        breaker.record(Signal(ok=randomly.random() < 0.5), under_way.pop())
        known += 1
    assert known <= of


def test_an_ignored_result_does_not_count_as_a_probe() -> None:
    breaker, _ = half_open(Cooldown(probes=2, successes=2, of=2))
    for _ in range(10):
        for permit in asked_until_refused(breaker):
            breaker.record(Signal(), permit)
    for permit in asked_until_refused(breaker):
        breaker.record(Signal(ok=True), permit)
    assert breaker.state == "closed"


def test_after_a_hung_probe_another_one_is_admitted() -> None:
    breaker, clock = half_open(Cooldown(lease_s=10.0, successes=2, of=3))
    breaker.enter()
    clock.advance(10.0)
    breaker.record(Signal(ok=True), breaker.enter())
    breaker.record(Signal(ok=True), breaker.enter())
    assert breaker.state == "closed"


def test_each_round_that_fails_doubles_the_wait() -> None:
    breaker, clock = half_open(Cooldown(60.0, 300.0, successes=2, of=3))
    waits = []
    for _ in range(3):
        for _ in range(2):
            breaker.record(Signal(ok=False), breaker.enter())
        waits.append(breaker.snapshot().outage.cooldown_s)
        clock.advance(waits[-1])
    assert waits == [120.0, 240.0, 300.0]


def test_without_of_one_failed_probe_re_opens_the_circuit() -> None:
    breaker, _ = half_open(Cooldown(probes=3, successes=2))
    permits = asked_until_refused(breaker)
    assert len(permits) == 3
    breaker.record(Signal(ok=True), permits[0])
    breaker.record(Signal(ok=False), permits[1])
    assert (breaker.state, breaker.snapshot().outage.reason) == ("open", "probe failed")


def test_of_must_not_be_below_successes() -> None:
    with pytest.raises(ValueError, match=r"Cooldown\.of is 2: it must not be below successes"):
        Cooldown(successes=3, of=2)
    for wrong in (0, 1.5, "3", True):
        with pytest.raises(ValueError, match=r"Cooldown\.of is"):
            Cooldown(of=wrong)  # type: ignore[arg-type]


def test_probe_results_are_stored_and_a_changed_policy_cannot_block_the_circuit() -> None:
    policy = Policy([detectors.ConsecutiveFailures(1)], Cooldown(successes=4, of=8))
    circuit = step(policy, policy.start("k", 0.0), Record(Signal(ok=False)), 0.0).circuit
    for ok in (True, False, True, False):
        asked = step(policy, circuit, Acquire(), 60.0)
        circuit = step(
            policy, asked.circuit, Record(Signal(ok=ok), asked.verdict.permit), 60.0
        ).circuit
    again = load_circuit(load_policy(dump_policy(policy)), dump_circuit(policy, circuit))
    assert again == circuit
    assert (again.probing.successes, again.probing.failures) == (2, 2)
    for of, phase in ((3, Phase.OPEN), (2, Phase.CLOSED), (None, Phase.CLOSED)):
        other = policy.replace(recovery=Cooldown(successes=2 if of != 3 else 3, of=of))
        assert step(other, again, Acquire(), 60.0).circuit.phase is phase


def recovery_s(recovery: Recovery, seed: int) -> float:
    """How long until a circuit closes over a dependency of which every fifth call fails."""
    randomly = random.Random(seed)
    policy = Policy([detectors.ConsecutiveFailures(1)], recovery)
    circuit = step(policy, policy.start(f"k/{seed}", 0.0), Record(Signal(ok=False)), 0.0).circuit
    now_s = 0.0
    while circuit.phase is not Phase.CLOSED:
        now_s = max(now_s + 0.05, circuit.outage.retry_at_s or 0.0)
        asked = step(policy, circuit, Acquire(), now_s)
        told = Record(Signal(ok=randomly.random() >= 0.2), asked.verdict.permit)
        circuit = step(policy, asked.circuit, told, now_s).circuit
    return now_s


def test_a_busy_dependency_is_back_after_one_wait_in_nearly_every_case() -> None:
    rule = {"jitter": 0.2, "probes": 3, "successes": 5}
    in_a_row = [recovery_s(Cooldown(15.0, 300.0, **rule), seed) for seed in range(300)]  # type: ignore[arg-type]
    of_eight = [recovery_s(Cooldown(15.0, 300.0, of=8, **rule), seed) for seed in range(300)]  # type: ignore[arg-type]
    assert median(in_a_row) > 30.0
    assert median(of_eight) < 16.0
    assert max(of_eight) < 120.0 < max(in_a_row)
