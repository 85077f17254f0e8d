"""The documented breaker of a provider, row by row: thresholds, waits and recovery."""

import inspect
from collections.abc import Callable

import pytest

from stress.crew import in_time
from switchgear import CircuitBreaker, Cooldown, Event, Policy, Rejected, detectors
from switchgear.testing import FakeClock


class Provider:
    """A model provider that is up or down, and counts the requests that reach it."""

    def __init__(self) -> None:
        self.is_up = True
        self.requests: list[object] = []

    def complete(self, *request: object) -> str:
        self.requests.append(request)
        if not self.is_up:
            raise ConnectionError("down")
        return "answer"


def fail(breaker: CircuitBreaker, provider: Provider, times: int) -> None:
    provider.is_up = False
    for _ in range(times):
        with pytest.raises(ConnectionError):
            breaker.call(provider.complete)


# Parameters


def test_the_parameters_are_the_documented_ones_in_their_order_with_their_defaults() -> None:
    parameters = list(inspect.signature(CircuitBreaker).parameters.values())[:4]
    assert [(p.name, p.default) for p in parameters] == [
        ("name", inspect.Parameter.empty),
        ("threshold", 5),
        ("base_timeout", 60.0),
        ("max_timeout", 300.0),
    ]


def test_the_name_is_required() -> None:
    with pytest.raises(TypeError, match="name"):
        CircuitBreaker()  # type: ignore[call-arg]


def test_the_defaults_are_five_failures_in_a_row_and_a_wait_of_60_to_300_seconds() -> None:
    documented = Policy([detectors.ConsecutiveFailures(5)], Cooldown(60.0, 300.0))
    assert CircuitBreaker("anthropic").policy == documented


# States


def test_a_new_circuit_is_closed() -> None:
    assert CircuitBreaker("anthropic").state == "closed"


def test_a_closed_circuit_forwards_every_call_and_returns_its_result() -> None:
    provider, breaker = Provider(), CircuitBreaker("anthropic")
    assert [breaker.call(provider.complete, n) for n in range(100)] == ["answer"] * 100
    assert provider.requests == [(n,) for n in range(100)]


def test_an_open_circuit_refuses_at_once_and_no_request_reaches_the_provider() -> None:
    provider, breaker = Provider(), CircuitBreaker("anthropic", clock=FakeClock())
    fail(breaker, provider, 5)
    provider.requests.clear()
    for _ in range(100):
        with pytest.raises(Rejected, match="circuit 'anthropic' is open"):
            breaker.call(provider.complete)
    assert provider.requests == []


def test_a_half_open_circuit_admits_a_single_probe() -> None:
    clock, provider = FakeClock(), Provider()
    breaker = CircuitBreaker("anthropic", clock=clock)
    fail(breaker, provider, 5)
    clock.advance(60.0)

    def probe() -> str:
        for _ in range(10):
            with pytest.raises(Rejected, match="half-open"):
                in_time(lambda: breaker.call(provider.complete))
        return "probed"

    provider.requests.clear()
    assert breaker.call(probe) == "probed"
    assert provider.requests == []
    assert breaker.state == "closed"


@pytest.mark.parametrize("threshold", [1, 2, 5, 100])
def test_the_circuit_opens_at_the_threshold_and_not_before(threshold: int) -> None:
    provider, breaker = Provider(), CircuitBreaker("anthropic", threshold, clock=FakeClock())
    fail(breaker, provider, threshold - 1)
    assert breaker.state == "closed"
    fail(breaker, provider, 1)
    assert breaker.state == "open"


@pytest.mark.parametrize("base_timeout", [0.001, 1.0, 60.0, 300.0])
def test_the_circuit_waits_the_base_timeout_and_not_longer(base_timeout: float) -> None:
    clock, provider = FakeClock(), Provider()
    breaker = CircuitBreaker("anthropic", base_timeout=base_timeout, clock=clock)
    fail(breaker, provider, 5)
    clock.advance(base_timeout * 0.999)
    assert breaker.state == "open"
    clock.advance(base_timeout * 0.002)
    assert breaker.state == "half_open"


# Exponential backoff


def test_each_failed_probe_doubles_the_wait_up_to_the_maximum() -> None:
    clock, provider = FakeClock(), Provider()
    breaker = CircuitBreaker("anthropic", clock=clock)
    fail(breaker, provider, 5)
    waits = []
    for _ in range(6):
        with pytest.raises(Rejected) as refused:
            breaker.call(provider.complete)
        assert refused.value.retry_after_s is not None
        waits.append(refused.value.retry_after_s)
        clock.advance(refused.value.retry_after_s)
        fail(breaker, provider, 1)
    assert waits == [60.0, 120.0, 240.0, 300.0, 300.0, 300.0]


def test_the_recovery_timeline_is_the_documented_one() -> None:
    clock, provider, seen = FakeClock(50.0), Provider(), list[tuple[float, str]]()

    def note(event: Event) -> None:
        seen.append((event.at_s, event.after))

    breaker = CircuitBreaker("anthropic", clock=clock, sinks=[note])
    clock.advance(1.0)
    fail(breaker, provider, 5)
    for wait_s in (60.0, 120.0):
        clock.advance(wait_s)
        assert breaker.state == "half_open"
        clock.advance(1.0)
        fail(breaker, provider, 1)
    clock.advance(240.0)
    assert breaker.state == "half_open"
    clock.advance(1.0)
    provider.is_up = True
    breaker.call(provider.complete)
    assert seen == [
        (51.0, "open"),
        (111.0, "half_open"),
        (112.0, "open"),
        (232.0, "half_open"),
        (233.0, "open"),
        (473.0, "half_open"),
        (474.0, "closed"),
    ]


# Success handling


def test_a_success_resets_the_failure_count() -> None:
    provider, breaker = Provider(), CircuitBreaker("anthropic", clock=FakeClock())
    for _ in range(10):
        fail(breaker, provider, 4)
        provider.is_up = True
        breaker.call(provider.complete)
    assert breaker.state == "closed"
    fail(breaker, provider, 4)
    assert breaker.state == "closed"


def test_a_single_successful_probe_restores_normal_operation_timeout_and_count() -> None:
    clock, provider = FakeClock(), Provider()
    breaker = CircuitBreaker("anthropic", clock=clock)
    fail(breaker, provider, 5)
    clock.advance(60.0)
    fail(breaker, provider, 1)
    clock.advance(120.0)
    provider.is_up = True
    breaker.call(provider.complete)
    assert breaker.state == "closed"
    fail(breaker, provider, 4)
    assert breaker.state == "closed"
    fail(breaker, provider, 1)
    with pytest.raises(Rejected) as refused:
        breaker.call(provider.complete)
    assert refused.value.retry_after_s == 60.0


# Thread safety: see tests/stress. The automatic transition:


def test_reading_the_state_moves_an_open_circuit_whose_wait_is_over_to_half_open() -> None:
    clock, provider, seen = FakeClock(), Provider(), list[Event]()
    breaker = CircuitBreaker("anthropic", clock=clock, sinks=[seen.append])
    fail(breaker, provider, 5)
    clock.advance(60.0)
    assert len(seen) == 1
    assert breaker.state == "half_open"
    assert [event.after for event in seen] == ["open", "half_open"]


# Failure scenarios


@pytest.mark.parametrize("failures", [1, 2, 3, 4])
def test_a_transient_error_is_counted_and_the_circuit_stays_closed(failures: int) -> None:
    provider, breaker = Provider(), CircuitBreaker("anthropic", clock=FakeClock())
    fail(breaker, provider, failures)
    assert breaker.state == "closed"
    assert breaker.totals.failed == failures
    assert breaker.readings()["consecutive_failures"].heat == failures / 5


def test_a_provider_that_is_down_opens_the_circuit_which_blocks_all_calls_for_60_s() -> None:
    clock, provider = FakeClock(), Provider()
    breaker = CircuitBreaker("anthropic", clock=clock)
    fail(breaker, provider, 5)
    for _ in range(59):
        clock.advance(1.0)
        with pytest.raises(Rejected):
            breaker.call(provider.complete)
    clock.advance(1.0)
    fail(breaker, provider, 1)


def test_a_provider_that_recovers_after_an_outage_closes_the_circuit_by_its_probe() -> None:
    clock, provider = FakeClock(), Provider()
    breaker = CircuitBreaker("anthropic", clock=clock)
    fail(breaker, provider, 5)
    provider.is_up = True
    clock.advance(60.0)
    assert breaker.call(provider.complete) == "answer"
    assert breaker.state == "closed"


def test_a_provider_that_recovers_in_parts_doubles_the_timeout_when_its_probe_fails() -> None:
    clock, provider = FakeClock(), Provider()
    breaker = CircuitBreaker("anthropic", clock=clock)
    fail(breaker, provider, 5)
    clock.advance(60.0)
    fail(breaker, provider, 1)
    provider.is_up = True
    clock.advance(119.0)
    assert breaker.state == "open"
    clock.advance(1.0)
    assert breaker.call(provider.complete) == "answer"
    assert breaker.state == "closed"


def test_a_provider_that_is_permanently_down_is_probed_every_300_s() -> None:
    clock, provider, probed_at = FakeClock(), Provider(), list[float]()
    breaker = CircuitBreaker("anthropic", clock=clock)
    fail(breaker, provider, 5)
    while clock() < 3600.0:
        clock.advance(1.0)
        try:
            breaker.call(provider.complete)
        except Rejected:
            continue
        except ConnectionError:
            probed_at.append(clock())
    assert probed_at == [60.0, 180.0, *range(420, 3601, 300)]


# Usage


def test_the_documented_usage_forwards_all_arguments() -> None:
    provider = Provider()
    breaker = CircuitBreaker("anthropic", threshold=5, base_timeout=60.0)
    messages, tools, system = ["hello"], ["search"], "be brief"
    assert breaker.call(provider.complete, messages, tools, system) == "answer"
    assert provider.requests == [(messages, tools, system)]


def test_a_runtime_falls_back_to_another_provider_when_the_circuit_opens() -> None:
    first, second = Provider(), Provider()
    breaker = CircuitBreaker("first", clock=FakeClock())

    def respond(or_else: Callable[[], str]) -> str:
        try:
            return breaker.call(first.complete)
        except Rejected:
            return or_else()

    fail(breaker, first, 5)
    assert respond(second.complete) == "answer"
    assert len(second.requests) == 1
