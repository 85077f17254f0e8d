"""Stagnation of an autonomous loop, as its specification describes it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from switchgear import IterationMetrics, LoopBreaker, LoopDecision, Phase
from switchgear._breaker.loop_breaker import loop_policy
from switchgear.testing import FakeClock

STUCK = IterationMetrics(files_changed=0, tests_passing=7, output_length=1000)
BUSY = IterationMetrics(files_changed=2, tests_passing=7, output_length=1000)
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def breaker(**limits: Any) -> LoopBreaker:
    return LoopBreaker.for_stagnation("loop/7f3a", **limits, clock=FakeClock())


def stuck(loop: LoopBreaker, times: int) -> LoopBreaker:
    for _ in range(times):
        loop.record_progress(STUCK)
    return loop


# States


def test_a_new_loop_is_closed_and_continues() -> None:
    assert breaker().check() == LoopDecision(allow_continue=True, state=Phase.CLOSED, reason=None)


def test_closed_to_half_open_after_three_iterations_without_progress() -> None:
    assert stuck(breaker(), 2).state is Phase.CLOSED
    decision = stuck(breaker(), 3).check()
    assert decision == LoopDecision(
        allow_continue=True,
        state=Phase.HALF_OPEN,
        reason="No progress in 3 iterations (threshold: 3): one more such iteration opens the circuit",
    )


def test_half_open_is_what_the_mechanism_calls_tripping() -> None:
    loop = stuck(breaker(), 3)
    assert loop.state is Phase.HALF_OPEN
    assert loop.snapshot().phase is Phase.TRIPPING


def test_half_open_to_closed_when_progress_resumes_and_the_counter_resets() -> None:
    loop = stuck(breaker(), 3)
    loop.record_progress(BUSY)
    assert loop.check() == LoopDecision(True, Phase.CLOSED, None)
    assert loop.status().consecutive_no_progress == 0
    assert stuck(loop, 2).state is Phase.CLOSED
    assert stuck(loop, 1).state is Phase.HALF_OPEN


def test_half_open_to_open_when_the_next_iteration_makes_no_progress_either() -> None:
    assert stuck(breaker(), 4).check() == LoopDecision(
        allow_continue=False,
        state=Phase.OPEN,
        reason="No progress in 4 iterations (threshold: 3)",
    )


def test_half_open_to_open_when_the_same_error_repeats() -> None:
    loop = breaker()
    for _ in range(4):
        loop.record_error("TypeError: x")
    stuck(loop, 3)
    assert loop.state is Phase.HALF_OPEN
    loop.record_error("TypeError: x")
    assert loop.check() == LoopDecision(
        False, Phase.OPEN, 'Same error repeated 5 times: "TypeError: x"'
    )


def test_closed_to_open_by_the_same_error_bypasses_half_open() -> None:
    seen = list[Phase]()
    loop = breaker()
    for _ in range(5):
        seen.append(loop.state)
        loop.record_error("TypeError: x")
    assert seen == [Phase.CLOSED] * 5
    assert loop.check() == LoopDecision(
        False, Phase.OPEN, 'Same error repeated 5 times: "TypeError: x"'
    )


def test_an_open_loop_stays_open_whatever_it_records_and_however_long_it_waits() -> None:
    clock = FakeClock()
    loop = stuck(LoopBreaker.for_stagnation("loop/1", clock=clock), 4)
    loop.record_progress(BUSY)
    loop.record_success()
    clock.advance(1e9)
    assert loop.check().allow_continue is False
    assert loop.state is Phase.OPEN


def test_reset_closes_and_clears_the_evidence() -> None:
    loop = stuck(breaker(), 4)
    loop.record_error("e")
    loop.reset()
    assert loop.check() == LoopDecision(True, Phase.CLOSED, None)
    assert loop.status() == (Phase.CLOSED, 0, {}, [], None)
    assert stuck(loop, 2).state is Phase.CLOSED


# Thresholds


def test_the_defaults_are_those_of_the_document() -> None:
    written_out = LoopBreaker.for_stagnation("loop/1", 3, 5, 70)
    assert LoopBreaker.for_stagnation("loop/1").policy == written_out.policy


@pytest.mark.parametrize("threshold", [1, 2, 5, 9])
def test_the_no_progress_threshold_has_an_effect(threshold: int) -> None:
    assert stuck(breaker(no_progress=threshold), threshold - 1).state is Phase.CLOSED
    assert stuck(breaker(no_progress=threshold), threshold).state is Phase.HALF_OPEN
    assert stuck(breaker(no_progress=threshold), threshold + 1).state is Phase.OPEN


@pytest.mark.parametrize("threshold", [1, 2, 8, 40])
def test_the_same_error_threshold_has_an_effect_and_is_printed(threshold: int) -> None:
    loop = breaker(same_error=threshold)
    for _ in range(threshold):
        assert loop.state is Phase.CLOSED
        loop.record_error("boom")
    times = "1 time" if threshold == 1 else f"{threshold} times"
    assert loop.check().reason == f'Same error repeated {times}: "boom"'


@pytest.mark.parametrize("percent", [20, 50, 70, 100])
def test_the_output_decline_threshold_has_an_effect(percent: int) -> None:
    def after(length: int) -> Phase:
        loop = breaker(output_decline_percent=percent)
        for chars in (1000, 900, 1100, length, length):
            loop.record_progress(IterationMetrics(1, 1, chars))
        return loop.state

    assert after(percent * 10) is Phase.CLOSED
    assert after(percent * 10 - 1) is Phase.OPEN


def test_output_below_70_percent_warns_and_trips_if_it_stays_there() -> None:
    loop = breaker()
    for chars in (1000, 1000, 1000):
        loop.record_progress(IterationMetrics(1, 1, chars))
    loop.record_progress(IterationMetrics(1, 1, 699))
    assert loop.state is Phase.HALF_OPEN
    loop.record_progress(IterationMetrics(1, 1, 650))
    assert loop.check() == LoopDecision(
        False,
        Phase.OPEN,
        "Output declined: output of 650 characters, 65% of the usual 1000 (threshold 70%)",
    )


def test_output_that_recovers_closes_the_circuit_again() -> None:
    loop = breaker()
    for chars in (1000, 1000, 1000, 100, 1000):
        loop.record_progress(IterationMetrics(1, 1, chars))
    assert loop.state is Phase.CLOSED


def test_output_needs_three_iterations_before_it_is_evaluated() -> None:
    loop = breaker()
    for chars in (1000, 1000, 1):
        loop.record_progress(IterationMetrics(1, 1, chars))
        assert loop.state is Phase.CLOSED
    loop.record_progress(IterationMetrics(1, 1, 1))
    assert loop.state is Phase.HALF_OPEN


def test_a_slow_decline_does_not_become_the_baseline() -> None:
    loop = breaker()
    for chars in (1000, 1000, 1000, 690, 695):
        loop.record_progress(IterationMetrics(1, 1, chars))
    assert loop.state is Phase.OPEN


# Progress is measured


def test_changed_files_are_progress() -> None:
    loop = stuck(breaker(), 3)
    loop.record_progress(IterationMetrics(files_changed=1))
    assert loop.state is Phase.CLOSED


def test_more_tests_passing_than_ever_before_are_progress() -> None:
    loop = stuck(breaker(), 3)
    loop.record_progress(IterationMetrics(0, 8, 1000))
    assert loop.state is Phase.CLOSED


def test_tests_that_only_come_back_are_not_progress() -> None:
    loop = breaker()
    for passing in (7, 3, 7, 7):
        loop.record_progress(IterationMetrics(0, passing, 1000))
    assert loop.state is Phase.OPEN


def test_output_that_recovers_is_progress() -> None:
    loop = breaker(no_progress=4)
    for chars in (1000, 1000, 1000, 100, 900):
        loop.record_progress(IterationMetrics(0, 7, chars))
    assert loop.status().consecutive_no_progress == 0


def test_more_output_alone_is_not_progress() -> None:
    loop = breaker()
    for chars in (1000, 1500, 2000, 9000):
        loop.record_progress(IterationMetrics(0, 7, chars))
    assert loop.state is Phase.OPEN


def test_facts_that_were_not_measured_are_not_evidence() -> None:
    loop = breaker()
    for _ in range(20):
        loop.record_progress(IterationMetrics())
        loop.record_progress(IterationMetrics(output_length=500))
        loop.record_success()
    assert loop.check() == LoopDecision(True, Phase.CLOSED, None)


# Error tracking


def test_errors_count_in_total_whatever_happens_in_between() -> None:
    loop = breaker()
    for number in range(5):
        loop.record_error("the one")
        loop.record_progress(BUSY)
        loop.record_error(f"another {chr(97 + number)}")
        loop.record_success()
    assert loop.check().reason == 'Same error repeated 5 times: "the one"'


def test_in_the_consecutive_scope_another_error_or_a_success_ends_the_count() -> None:
    loop = LoopBreaker("loop/1", policy=loop_policy(consecutive_failures=None, scope="consecutive"))
    for _ in range(4):
        loop.record_error("the one")
    loop.record_error("another")
    for _ in range(4):
        loop.record_error("the one")
    loop.record_success()
    for _ in range(4):
        loop.record_error("the one")
    assert loop.check().allow_continue
    loop.record_progress(BUSY)  # a measurement, not a success
    loop.record_error("the one")
    assert not loop.check().allow_continue


def test_errors_that_differ_in_variables_only_are_the_same() -> None:
    loop = breaker()
    for number in range(5):
        loop.record_error(f"timeout after {number} s in /tmp/run-{number}/log")
    assert (
        loop.check().reason == 'Same error repeated 5 times: "timeout after 0 s in /tmp/run-0/log"'
    )


# Status


def test_the_status_shows_what_was_recorded() -> None:
    loop = breaker()
    loop.record_progress(BUSY._replace(timestamp=NOON))
    loop.record_progress(STUCK._replace(output_length=900))
    for error in ("a", "b", "a"):
        loop.record_error(error)
    status = loop.status()
    assert status.state is Phase.CLOSED
    assert status.consecutive_no_progress == 1
    assert status.error_counts == {"a": 2, "b": 1}
    assert status.output_trend == [1000, 900]
    assert status.last_progress == NOON


def test_progress_without_a_date_is_dated_by_the_clock() -> None:
    loop = breaker()
    before = datetime.now(UTC)
    loop.record_progress(BUSY)
    last = loop.status().last_progress
    assert last is not None
    assert before <= last <= datetime.now(UTC)


def test_a_timestamp_may_be_seconds_since_the_epoch() -> None:
    loop = breaker()
    loop.record_progress(BUSY._replace(timestamp=NOON.timestamp()))
    assert loop.status().last_progress == NOON
