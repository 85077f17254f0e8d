"""How long an open circuit waits: numbers by hand, and bad numbers refused by name."""

import math
import pickle
import sys
from typing import Any

import pytest

from property import naive
from switchgear import CircuitBreaker, Policy, Rejected, detectors
from switchgear._core import values
from switchgear._core.machine import step
from switchgear._core.policy import Cooldown, Latched, Recovery, WindowEnd, spread
from switchgear._core.types import Acquire, Permit, Record, Signal
from switchgear.testing import FakeClock

QUIET = Signal()


def waits(recovery: Recovery, failed_probes: int, signal: Signal = QUIET) -> float | None:
    return recovery.wait_s("k", failed_probes, signal, 100.0)


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert Cooldown().fields() == {
        "base_s": 60.0,
        "max_s": 300.0,
        "factor": 2.0,
        "jitter": 0.0,
        "probes": 1,
        "successes": 1,
        "lease_s": None,
        "retry_after_max_s": 3600.0,
        "of": None,
    }


def test_each_failed_probe_doubles_the_wait_up_to_the_maximum() -> None:
    cooldown = Cooldown(60.0, 300.0)
    assert [waits(cooldown, n) for n in range(5)] == [60.0, 120.0, 240.0, 300.0, 300.0]


@pytest.mark.parametrize("factor", [1.0, 1.5, 2.0, 16.0, 1e200])
@pytest.mark.parametrize("failed_probes", [300, 1024, 10**6])
def test_no_number_of_failed_probes_is_too_large(factor: float, failed_probes: int) -> None:
    expected = 60.0 if factor == 1.0 else 300.0
    assert waits(Cooldown(60.0, 300.0, factor=factor), failed_probes) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(7.5, 7.5), (0.5, 0.5), (1, 1), (1e9, 90.0), (0.0, 60.0), (-5.0, 60.0), (None, 60.0)],
)
def test_a_retry_after_sets_the_wait_up_to_its_own_maximum(
    asked: float | None, expected: float
) -> None:
    cooldown = Cooldown(60.0, retry_after_max_s=90.0, jitter=0.0)
    assert waits(cooldown, 0, Signal(ok=False, retry_after_s=asked)) == expected


def test_jitter_shortens_a_wait_by_up_to_its_share_and_leaves_a_retry_after_alone() -> None:
    cooldown = Cooldown(60.0, jitter=0.5)
    found = [cooldown.wait_s("k", 0, QUIET, float(second)) for second in range(200)]
    assert 30.0 < min(found) < 32.0
    assert 58.0 < max(found) <= 60.0
    assert waits(cooldown, 0) == waits(cooldown, 0)
    assert waits(cooldown, 0, Signal(retry_after_s=7.0)) == 7.0


def test_spread_is_the_documented_hash_and_spreads_evenly() -> None:
    keys = ("a", "b", "ü", "a\udc80")
    found = [spread(key, float(at)) for key in keys for at in range(500)]
    assert found == [naive.fnv(key, float(at)) for key in keys for at in range(500)]
    assert len(set(found)) == len(found)
    assert all(0 <= number < 1 for number in found)
    assert abs(sum(found) / len(found) - 0.5) < 0.02


@pytest.mark.parametrize(
    ("now_s", "left_s"), [(0.0, 60.0), (59.5, 0.5), (60.0, 60.0), (61.0, 59.0)]
)
def test_a_window_ends_at_the_next_multiple_of_its_length(now_s: float, left_s: float) -> None:
    assert WindowEnd(60.0).wait_s("k", 3, Signal(retry_after_s=5.0), now_s) == left_s
    assert (WindowEnd(60.0).probes, WindowEnd(60.0).successes) == (0, 1)


def test_a_latched_circuit_never_recovers_by_itself() -> None:
    assert waits(Latched(), 0, Signal(retry_after_s=5.0)) is None
    assert Latched().probes == 0


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("base_s", 0.0, "finite number of seconds above 0"),
        ("base_s", -1, "finite number of seconds above 0"),
        ("base_s", "60", "finite number of seconds above 0"),
        ("base_s", math.nan, "finite number of seconds above 0"),
        ("base_s", math.inf, "finite number of seconds above 0"),
        ("base_s", 10**400, "finite number of seconds above 0"),
        ("base_s", True, "finite number of seconds above 0"),
        ("base_s", 10.0, "must not be above max_s, 9"),
        ("max_s", 0.0, "finite number of seconds above 0"),
        ("factor", 0.99, "at least 1"),
        ("factor", None, "at least 1"),
        ("jitter", 1.0, "at least 0 and below 1"),
        ("jitter", -0.01, "at least 0 and below 1"),
        ("probes", 0, "whole number of at least 1"),
        ("probes", 1.5, "whole number of at least 1"),
        ("successes", 0, "whole number of at least 1"),
        ("successes", True, "whole number of at least 1"),
        ("lease_s", 0.0, "finite number of seconds above 0"),
        ("retry_after_max_s", 0, "finite number of seconds above 0"),
    ],
)
def test_a_bad_field_is_refused_by_name_value_and_rule(field: str, value: Any, rule: str) -> None:
    with pytest.raises(ValueError) as refused:
        Cooldown(**{"base_s": 1.0, "max_s": 9.0, field: value})
    assert str(refused.value).startswith(f"Cooldown.{field} is ")
    assert rule in str(refused.value)


def test_the_limits_themselves_are_allowed() -> None:
    edge = Cooldown(9.0, 9.0, factor=1.0, jitter=0.0, probes=1, successes=1, lease_s=0.001)
    assert edge.fields()["lease_s"] == 0.001
    assert Cooldown(2).max_s == 10.0
    for largest in (sys.float_info.max, -sys.float_info.max):
        assert values.check_number("n", largest) == largest
    assert isinstance(Cooldown(2, 9).base_s, float)


@pytest.mark.parametrize("rule", [Cooldown(3.0, probes=2), WindowEnd(7.0), Latched()], ids=repr)
def test_a_rule_is_a_value(rule: Recovery) -> None:
    assert pickle.loads(pickle.dumps(rule)) == rule == rule.replace()
    assert hash(rule) == hash(rule.replace())
    assert rule not in (Cooldown(), WindowEnd(8.0), 3)
    assert not hasattr(rule, "__dict__")
    with pytest.raises(AttributeError, match="is immutable"):
        rule.kind = "x"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="is immutable"):
        del rule.kind
    assert repr(WindowEnd(7.0)) == "WindowEnd(window_s=7.0)"


def half_open(recovery: Recovery, **failure: Any) -> tuple[CircuitBreaker, FakeClock]:
    """A breaker whose first wait has just ended."""
    clock = FakeClock()
    policy = Policy([detectors.ConsecutiveFailures(1)], recovery)
    breaker = CircuitBreaker("api", policy=policy, clock=clock)
    breaker.record(Signal(ok=False, **failure))
    clock.advance(breaker.snapshot().outage.cooldown_s)
    assert breaker.state == "half_open"
    return breaker, clock


def test_a_provider_that_is_healthy_and_slower_than_the_lease_recovers() -> None:
    breaker, clock = half_open(Cooldown(2.0))
    breaker.call(clock.advance, 5.0)
    assert breaker.state == "closed"
    assert breaker.totals.late == 0


def test_a_probe_that_fails_after_its_lease_opens_the_circuit_and_lengthens_the_wait() -> None:
    breaker, clock = half_open(Cooldown(2.0))
    hung = breaker.enter()
    clock.advance(5.0)
    breaker.record(Signal(ok=False), hung)
    assert breaker.state == "open"
    assert breaker.snapshot().outage.cooldown_s == 4.0


@pytest.mark.parametrize("ok", [True, None])
def test_the_result_of_a_probe_after_its_lease_is_evaluated_once(ok: bool | None) -> None:
    breaker, clock = half_open(Cooldown(2.0, successes=2))
    hung = breaker.enter()
    clock.advance(2.0)
    for _ in range(3):
        breaker.record(Signal(ok=ok), hung)
    assert breaker.state == "half_open"
    assert breaker.snapshot().probing.successes == (1 if ok else 0)
    assert breaker.totals.late == 2


def test_after_another_probe_has_decided_a_hung_probe_is_stale() -> None:
    breaker, clock = half_open(Cooldown(2.0))
    hung = breaker.enter()
    clock.advance(2.0)
    breaker.record(Signal(ok=False), breaker.enter())
    breaker.record(Signal(ok=True), hung)
    assert (breaker.state, breaker.totals.late) == ("open", 1)


def test_the_last_sixteen_probes_that_hang_are_kept() -> None:
    breaker, clock = half_open(Cooldown(2.0, successes=20))
    hung = list[Permit]()
    for _ in range(17):
        hung.append(breaker.enter())
        clock.advance(2.0)
    for permit in hung:
        breaker.record(Signal(ok=True), permit)
    assert breaker.snapshot().probing.successes == 16
    assert breaker.totals.late == 1


@pytest.mark.parametrize(
    ("lease_s", "asked_s", "lasts_s"), [(None, 1.0, 60.0), (None, 90.0, 90.0), (5.0, 1.0, 5.0)]
)
def test_a_short_retry_after_does_not_make_the_lease_short(
    lease_s: float | None, asked_s: float, lasts_s: float
) -> None:
    breaker, clock = half_open(Cooldown(60.0, lease_s=lease_s), retry_after_s=asked_s)
    assert breaker.enter().lease_until_s == clock() + lasts_s
    with pytest.raises(Rejected):
        breaker.enter()


def test_a_circuit_with_a_retry_time_stays_open_under_a_policy_without_retries() -> None:
    policy = Policy([detectors.ConsecutiveFailures(1)], Cooldown(60.0))
    opened = step(policy, policy.start("api", 0.0), Record(Signal(ok=False)), 0.0).circuit
    assert opened.outage.retry_at_s == 60.0
    latched = policy.replace(recovery=Latched())
    for now_s in (1.0, 60.0, 1e6):
        done = step(latched, opened, Acquire(), now_s)
        assert not done.verdict.admitted
        assert (done.verdict.phase, done.verdict.retry_after_s) == ("open", None)
    assert step(policy.replace(recovery=WindowEnd(9.0)), opened, Acquire(), 60.0).verdict.admitted


def test_a_wait_whose_default_maximum_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Cooldown.base_s is 1e\+308: five times as much"):
        Cooldown(1e308)
    with pytest.raises(ValueError, match=r"Cooldown\.base_s is 4e\+307: five times as much"):
        Cooldown(4e307)
    assert Cooldown(1e308, 1.5e308).max_s == 1.5e308
    assert Cooldown(3e307).max_s == 1.5e308


def test_a_window_must_be_long_enough_to_be_counted() -> None:
    with pytest.raises(
        ValueError, match=r"WindowEnd.window_s is 1e-320: it must be at least 1e-06 s"
    ):
        WindowEnd(1e-320)
    wait_s = WindowEnd(1e-6).wait_s("k", 0, QUIET, 1.75e9)
    assert 0.0 <= wait_s < 1e-5
