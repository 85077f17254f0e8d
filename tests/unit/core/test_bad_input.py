"""Bad input is a ValueError that names the field, the value and the rule; nothing is half-changed."""

import math
from collections.abc import Callable
from typing import Any, cast

import pytest

from switchgear import (
    AgentStep,
    CircuitBreaker,
    Cooldown,
    Event,
    Permit,
    Policy,
    Signal,
    WeightedSum,
    WindowEnd,
    detectors,
)
from switchgear._core.types import Record
from switchgear.testing import FakeClock
from unit.shapes import driven

POLICY = Policy([detectors.ConsecutiveFailures(3)])
MAKE_POLICY: Callable[..., Policy] = Policy
WHOLE = "it must be a whole number of at least 1"
SECONDS = "it must be a finite number of seconds above 0"
TEXT = "it must be a text that is not empty"
EXCEPTIONS = (
    "it must be an exception type, a tuple of exception types, or a predicate that takes the "
    "exception"
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(
            ({"threshold": bad}, f"CircuitBreaker.threshold is {bad!r}: {WHOLE}")
            for bad in (0, -1, 2.5, "5", None, True, math.nan)
        ),
        *(
            ({field: bad}, f"CircuitBreaker.{field} is {bad!r}: {SECONDS}")
            for field in ("base_timeout", "max_timeout")
            for bad in (0, 0.0, -1.0, math.inf, math.nan, "60", None, True)
        ),
        (
            {"base_timeout": 400.0},
            "CircuitBreaker.base_timeout is 400: it must not be above max_timeout, which is 300",
        ),
        *(
            ({"name": bad}, f"CircuitBreaker.name is {bad!r}: {TEXT}")
            for bad in ("", "  ", None, 7)
        ),
        *(
            ({"policy": bad}, f"CircuitBreaker.policy is {bad!r}: it must be a Policy")
            for bad in ("fast", 5, detectors.ConsecutiveFailures(3))
        ),
        (
            {"policy": POLICY, "threshold": 3},
            (
                "CircuitBreaker.policy is given, and threshold is 3, base_timeout 60.0, "
                "max_timeout 300.0: set them in the policy instead"
            ),
        ),
        ({"fallback": 5}, "CircuitBreaker.fallback is 5: it must be callable"),
        (
            {"failure_if_result": "x"},
            "CircuitBreaker.failure_if_result is 'x': it must be callable",
        ),
        *(
            ({field: bad}, f"CircuitBreaker.{field} is {bad!r}: {EXCEPTIONS}")
            for field in ("failure_if", "ignore")
            for bad in (5, None, "ValueError", int, (ValueError, 5), (int,), [ValueError])
        ),
        ({"clock": 0.0}, "CircuitBreaker.clock is 0.0: it must be a callable that returns seconds"),
        ({"store": 5}, "CircuitBreaker.store is 5: it must be a store; for a shared one use"),
        ({"wall": 5}, "CircuitBreaker.wall is 5: it must be a callable that returns seconds"),
        ({"sinks": [5]}, "CircuitBreaker.sinks holds 5: a sink must be callable"),
        ({"sinks": print}, f"CircuitBreaker.sinks is {print!r}: it must be a list of callables"),
        ({"sinks": "log"}, "CircuitBreaker.sinks is 'log': it must be a list of callables"),
    ],
    ids=str,
)
def test_a_breaker_refuses_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        CircuitBreaker(**{"name": "api", **arguments})
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("reading", ["now", None, math.nan, math.inf])
def test_a_clock_must_return_a_number_at_its_first_reading(reading: Any) -> None:
    with pytest.raises(ValueError) as raised:
        CircuitBreaker("api", clock=lambda: reading)
    assert str(raised.value) == f"CircuitBreaker.clock() is {reading!r}: it must be a finite number"


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Policy([]), ["Policy.detectors", "empty", "ConsecutiveFailures"]),
        (lambda: MAKE_POLICY(["errors"]), ["Policy.detectors[0]", "'errors'", "FailureRate"]),
        (lambda: MAKE_POLICY("errors"), ["Policy.detectors", "'errors'", "list of detectors"]),
        (lambda: MAKE_POLICY(5), ["Policy.detectors", "5", "list of detectors"]),
        (lambda: MAKE_POLICY(POLICY.detectors, "slow"), ["Policy.recovery", "'slow'", "Cooldown"]),
        (lambda: MAKE_POLICY(POLICY.detectors, combine=5), ["Policy.combine", "5", "WeightedSum"]),
        (
            lambda: Policy(POLICY.detectors, tripping_at=1.0),
            ["Policy.tripping_at", "1.0", "below 1"],
        ),
        (lambda: Policy(POLICY.detectors, tripping_at=0), ["Policy.tripping_at", "0", "above 0"]),
        (
            lambda: Policy(POLICY.detectors, combine=WeightedSum({"no_such_detector": 60})),
            ["WeightedSum.weights", "'consecutive_failures'"],
        ),
        (lambda: Cooldown(0), ["Cooldown.base_s", "0", "seconds above 0"]),
        (lambda: Cooldown(60, 30), ["Cooldown.base_s", "60", "30", "must not be above max_s"]),
        (lambda: Cooldown(factor=0.5), ["Cooldown.factor", "0.5", "at least 1"]),
        (lambda: Cooldown(jitter=1.0), ["Cooldown.jitter", "1.0", "below 1"]),
        (lambda: Cooldown(probes=0), ["Cooldown.probes", "0", "at least 1"]),
        (lambda: Cooldown(successes=-1), ["Cooldown.successes", "-1", "at least 1"]),
        (lambda: Cooldown(lease_s=0), ["Cooldown.lease_s", "0", "seconds above 0"]),
        (lambda: WindowEnd(-5), ["WindowEnd.window_s", "-5", "seconds above 0"]),
    ],
)
def test_a_policy_refuses_bad_arguments_and_names_field_value_and_rule(
    make: Callable[[], object], names: list[str]
) -> None:
    with pytest.raises(ValueError) as raised:
        make()
    assert [name for name in names if name not in str(raised.value)] == []


def test_an_unknown_argument_is_an_error() -> None:
    unknown: dict[str, Any] = {"treshold": 3}
    with pytest.raises(TypeError, match="treshold"):
        CircuitBreaker("api", **unknown)


ORDERS = ["hold_open", "hold_closed", "shadow", "release", "reset"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"by": "", "why": "test"}, f"by is '': {TEXT}"),
        ({"by": "ann", "why": " "}, f"why is ' ': {TEXT}"),
        ({"by": None, "why": "test"}, f"by is None: {TEXT}"),
        ({"by": "ann", "why": 5}, f"why is 5: {TEXT}"),
    ],
)
def test_an_override_without_author_and_reason_changes_nothing(
    order: str, words: dict[str, Any], message: str
) -> None:
    seen = list[Event]()
    breaker = CircuitBreaker("api", clock=FakeClock(), sinks=[seen.append])
    breaker.record(Signal(ok=False))
    before = breaker.snapshot()
    with pytest.raises(ValueError) as raised:
        getattr(breaker, order)(**words)
    assert str(raised.value) == message
    assert breaker.snapshot() is before
    assert seen == []


@pytest.mark.parametrize(
    "signal",
    [
        Signal(ok=False, count=-1),
        Signal(ok=True, refused=-1),
        Signal(ok=True, cost_micros=-5),
        Signal(ok=True, cost_micros=cast("int", 1.5)),
        Signal(ok=True, count=10**30),
        Signal(ok=True, count=cast("int", None)),
        Signal(ok=True, count=10**9, cost_micros=10**9),
    ],
)
def test_a_signal_with_an_invalid_count_is_refused_and_changes_nothing(signal: Signal) -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    before = breaker.snapshot()
    with pytest.raises(ValueError, match=r"signal is Signal\(.*must be whole numbers"):
        breaker.record(signal)
    assert breaker.snapshot() is before


SIGNAL: Callable[..., Signal] = Signal
OK, MEASURES, TEXTS = "its ok must be", "must be finite numbers or None", "must be texts or None"
ACT = "its step must be an AgentStep of texts"


@pytest.mark.parametrize(
    ("signal", "rule"),
    [
        (5, "signal is 5: it must be a Signal"),
        (None, "signal is None: it must be a Signal"),
        (Record(Signal()), "it must be a Signal"),
        *((Signal(ok=cast("bool", bad)), OK) for bad in ("no", 1, 0)),
        *(
            (SIGNAL(ok=False, **{field: bad}), MEASURES)
            for field in ("seconds", "retry_after_s", "context_used", "idle_s", "waited_s")
            for bad in ("5", math.nan, math.inf, 10**400, True)
        ),
        (Signal(ok=False, error=cast("str", ValueError("kept"))), TEXTS),
        *(
            (SIGNAL(ok=False, **{field: b"bytes"}), TEXTS)
            for field in ("error", "state", "failing_tests", "violation")
        ),
        (SIGNAL(step=("Bash", "ls")), ACT),
        (SIGNAL(step=AgentStep("Bash", cast("str", None))), ACT),
        (SIGNAL(step=AgentStep("Bash", "ls", result=cast("str", 5))), ACT),
    ],
    ids=lambda given: repr(given)[:60],
)
def test_an_invalid_signal_is_refused_before_anything_changes(signal: Any, rule: str) -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    before = breaker.snapshot()
    for tell in (breaker.record, lambda bad: driven(breaker.arecord(bad))):
        with pytest.raises(ValueError) as raised:
            tell(signal)
        assert rule in str(raised.value)
    assert breaker.snapshot() is before


@pytest.mark.parametrize("message", [5, None, Signal(ok=True), "tell"])
def test_an_object_that_is_not_a_message_is_not_sent(message: Any) -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    for send in (breaker.send, lambda bad: driven(breaker.asend(bad))):
        with pytest.raises(ValueError, match="it must be an Acquire, a Record or an Override"):
            send(message)


def test_only_issued_permits_are_accepted() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    with pytest.raises(ValueError, match=r"permit is 5: it must be a Permit"):
        breaker.record(Signal(ok=True), cast("Permit", 5))
    assert breaker.totals.succeeded == 0


@pytest.mark.parametrize("seconds", [-1.0, math.nan])
def test_a_fake_clock_does_not_run_backwards(seconds: float) -> None:
    clock = FakeClock()
    with pytest.raises(ValueError, match=r"seconds is .*: it must be a number of at least 0"):
        clock.advance(seconds)
    assert clock() == 0.0
