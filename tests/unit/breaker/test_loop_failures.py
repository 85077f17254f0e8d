"""Failures of an agent loop, as its specification describes them."""

import pytest

from switchgear import LoopBreaker, Phase
from switchgear._breaker.presets import LOOP_PRESETS
from switchgear.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def loop(clock: FakeClock) -> LoopBreaker:
    return LoopBreaker.for_failures("loop/1", clock=clock)


def fail(loop: LoopBreaker, *errors: str) -> list[bool]:
    return [loop.record_failure(error) for error in errors]


# How it works


def test_the_example_of_the_document(loop: LoopBreaker) -> None:
    loop.record_success()
    assert loop.stats().consecutive_failures == 0
    assert fail(loop, "err A") == [False]
    assert loop.stats() == (1, 1, 1)
    assert fail(loop, "err A") == [False]
    assert loop.stats() == (2, 2, 1)
    assert fail(loop, "err A") == [True]
    assert loop.stats() == (3, 3, 1)
    assert loop.trip_reason() == "Circuit breaker tripped: 3 consecutive failures (threshold: 3)"


def test_the_defaults_are_those_of_the_document() -> None:
    written_out = LoopBreaker.for_failures("loop/1", 3, 5, 30.0)
    assert LoopBreaker.for_failures("loop/1").policy == written_out.policy


def test_the_same_error_trips_despite_other_errors_and_successes_in_between(
    loop: LoopBreaker,
) -> None:
    for other in ("b", "c", "d", "e"):
        fail(loop, "the one")
        loop.record_success()
        fail(loop, f"{other}!")
        loop.record_success()
    assert not loop.is_tripped()
    assert fail(loop, "the one") == [True]
    assert loop.trip_reason() == (
        "Circuit breaker tripped: Same error repeated 5 times (threshold: 5)"
    )
    assert loop.stats() == (1, 9, 5)


def test_a_healthy_loop_has_no_trip_reason(loop: LoopBreaker) -> None:
    fail(loop, "a", "b")
    assert loop.trip_reason() is None
    assert loop.is_tripped() is False


# Flags


def test_five_failures_instead_of_three() -> None:
    loop = LoopBreaker.for_failures("loop/1", consecutive_failures=5, same_error=9)
    assert fail(loop, *"abcde") == [False, False, False, False, True]


def test_three_errors_instead_of_five() -> None:
    loop = LoopBreaker.for_failures("loop/1", same_error=3)
    for _ in range(2):
        fail(loop, "x")
        loop.record_success()
    assert fail(loop, "x") == [True]
    assert loop.trip_reason() == (
        "Circuit breaker tripped: Same error repeated 3 times (threshold: 3)"
    )


def test_the_tight_configuration_trips_by_either_limit() -> None:
    in_a_row = LoopBreaker.for_failures("loop/1", 2, 3)
    assert fail(in_a_row, "a", "b") == [False, True]
    repeated = LoopBreaker.for_failures("loop/1", 2, 3)
    for _ in range(2):
        fail(repeated, "a")
        repeated.record_success()
    assert fail(repeated, "a") == [True]


def test_one_failure_stops_critical_work() -> None:
    loop = LoopBreaker.for_failures("loop/1", consecutive_failures=1, same_error=2)
    assert fail(loop, "webhook refused") == [True]
    assert loop.trip_reason() == "Circuit breaker tripped: 1 consecutive failure (threshold: 1)"


def test_exploration_tolerates_failures() -> None:
    loop = LoopBreaker.for_failures("loop/1", consecutive_failures=8, same_error=10)
    assert fail(loop, *"abcdefgh") == [False] * 7 + [True]


# Deduplication


@pytest.mark.parametrize("fingerprint", ["default", "documented"])
def test_the_same_error_at_another_line_is_counted_as_the_same(fingerprint: str) -> None:
    loop = LoopBreaker("loop/1", consecutive_failures=None, same_error=2, fingerprint=fingerprint)
    text = "TypeError: Cannot read property 'id' of undefined at UserController (/src/controllers/user.ts:{})"
    assert fail(loop, text.format("42:15"), text.format("87:22")) == [False, True]
    assert loop.stats().unique_errors == 1


def test_the_documented_fingerprint_merges_codes_and_the_default_does_not() -> None:
    def unique(fingerprint: str) -> int | None:
        loop = LoopBreaker("loop/1", fingerprint=fingerprint)
        fail(loop, "exit code 1", "exit code 137")
        return loop.stats().unique_errors

    assert (unique("documented"), unique("default")) == (1, 2)


def test_the_documented_fingerprint_reads_500_characters_of_the_whole_text() -> None:
    loop = LoopBreaker("loop/1", fingerprint="documented")
    head = "word " * 80
    fail(loop, head + "same", head + "other")
    assert loop.stats().unique_errors == 2


# Cooldown


def test_during_the_cooldown_it_is_tripped(loop: LoopBreaker, clock: FakeClock) -> None:
    fail(loop, *"abc")
    clock.advance(29.999)
    assert loop.is_tripped()
    assert not loop.check().allow_continue


def test_after_the_cooldown_it_half_opens_and_one_retry_is_allowed(
    loop: LoopBreaker, clock: FakeClock
) -> None:
    fail(loop, *"abc")
    clock.advance(30.0)
    assert loop.is_tripped() is False
    assert loop.trip_reason() is None
    assert loop.state is Phase.HALF_OPEN
    assert loop.check().allow_continue
    assert loop.check().reason == "one retry after: 3 consecutive failures (threshold: 3)"


def test_a_retry_that_succeeds_closes(loop: LoopBreaker, clock: FakeClock) -> None:
    fail(loop, *"abc")
    clock.advance(30.0)
    loop.record_success()
    assert loop.state is Phase.CLOSED
    assert loop.stats().consecutive_failures == 0
    assert fail(loop, *"de") == [False, False]


def test_a_retry_that_fails_trips_again_and_the_cooldown_restarts(
    loop: LoopBreaker, clock: FakeClock
) -> None:
    fail(loop, *"abc")
    for failures in (4, 5, 6):
        clock.advance(30.0)
        assert fail(loop, "whatever it is") == [True]
        assert loop.stats().consecutive_failures == failures
        assert loop.trip_reason() == (
            f"Circuit breaker tripped: {failures} consecutive failures (threshold: 3)"
        )
        clock.advance(29.0)
        assert loop.is_tripped()
        clock.advance(1.0)
        assert not loop.is_tripped()


def test_the_cooldown_has_an_effect(clock: FakeClock) -> None:
    loop = LoopBreaker.for_failures("loop/1", cooldown_s=5.0, clock=clock)
    fail(loop, *"abc")
    clock.advance(5.0)
    assert not loop.is_tripped()


def test_after_a_same_error_trip_the_retry_decides_whatever_its_error(clock: FakeClock) -> None:
    loop = LoopBreaker("loop/1", consecutive_failures=None, same_error=2, clock=clock)
    fail(loop, "a", "a")
    clock.advance(30.0)
    assert fail(loop, "never seen") == [True]
    clock.advance(30.0)
    loop.record_success()
    assert loop.state is Phase.CLOSED


def test_one_of_two_callers_gets_the_retry(loop: LoopBreaker, clock: FakeClock) -> None:
    fail(loop, *"abc")
    clock.advance(30.0)
    assert loop.enter().probe == 1
    assert loop.is_tripped()


# Success and history


def test_a_success_resets_failures_in_a_row_and_not_the_error_counts(loop: LoopBreaker) -> None:
    fail(loop, "x", "x")
    loop.record_success()
    fail(loop, "x", "x")
    assert loop.stats() == (2, 4, 1)
    assert loop.status().error_counts == {"x": 4}
    loop.record_success()
    assert fail(loop, "x") == [True]


def test_the_error_counts_outlast_a_recovery(loop: LoopBreaker, clock: FakeClock) -> None:
    fail(loop, "x", "x", "x")
    clock.advance(30.0)
    loop.record_success()
    assert loop.status().error_counts == {"x": 3}
    fail(loop, "x")
    loop.record_success()
    assert fail(loop, "x") == [True]
    assert loop.trip_reason() == (
        "Circuit breaker tripped: Same error repeated 5 times (threshold: 5)"
    )


def test_the_error_of_a_failed_retry_is_counted(loop: LoopBreaker, clock: FakeClock) -> None:
    fail(loop, "x", "x", "x")
    clock.advance(30.0)
    fail(loop, "y")
    assert loop.stats() == (4, 4, 2)
    assert loop.status().error_counts == {"x": 3, "y": 1}


def test_the_error_that_tripped_restarts_from_zero_after_a_recovery(clock: FakeClock) -> None:
    loop = LoopBreaker("loop/1", consecutive_failures=None, same_error=2, clock=clock)
    fail(loop, "a", "b", "a")
    clock.advance(30.0)
    loop.record_success()
    assert loop.status().error_counts == {"b": 1}
    assert fail(loop, "a") == [False]
    assert loop.stats().unique_errors == 2
    assert fail(loop, "b") == [True]


def test_the_numbers_of_the_documented_result(loop: LoopBreaker) -> None:
    fail(loop, "a", "b")
    loop.record_success()
    fail(loop, "a", "b", "a")
    stats = loop.stats()
    assert stats.consecutive_failures == 3
    assert stats.total_failures == 5
    assert stats.unique_errors == 2


def test_reset_clears_all_state(loop: LoopBreaker) -> None:
    fail(loop, *"abc")
    loop.reset()
    assert loop.stats() == (0, 0, 0)
    assert loop.state is Phase.CLOSED
    assert loop.status().error_counts == {}


# Presets


@pytest.mark.parametrize(
    ("preset", "failures", "errors"),
    [
        ("feature", 3, 5),
        ("tdd-red-green", 5, 3),
        ("refactor", 2, 3),
        ("incident-response", 2, 2),
        ("migration-safety", 1, 2),
        ("debug", 3, 5),
        ("review", 3, 5),
        ("docs", 3, 5),
    ],
)
def test_presets_have_the_limits_of_the_document(preset: str, failures: int, errors: int) -> None:
    limits = LOOP_PRESETS[preset]
    assert (limits.consecutive_failures, limits.same_error) == (failures, errors)
