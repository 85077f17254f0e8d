"""The loop breaker as a breaker: both specifications at once, shared, held, shown, stored."""

import asyncio
import json
import pickle
from typing import Any

import pytest

from switchgear import (
    Event,
    IterationMetrics,
    Latched,
    LoopBreaker,
    LoopDecision,
    Phase,
    Policy,
    Rejected,
    Signal,
    detectors,
)
from switchgear._breaker.loop_breaker import loop_policy
from switchgear._core.types import Record
from switchgear._core.wire import dump_circuit, dump_message, load_circuit, load_message
from switchgear._detectors.policy_wire import dump_policy, load_policy
from switchgear._panel.panel import Panel
from switchgear._run.circuits import policy_of
from switchgear._run.options import RunOptions, limits_of
from switchgear.testing import FakeClock

STUCK = Signal(ok=True, files_changed=0)


def test_by_default_a_loop_detects_everything_that_both_documents_name() -> None:
    kinds = [detector.kind for detector in LoopBreaker("loop/1").policy.detectors]
    assert kinds == ["consecutive_failures", "same_error", "no_progress", "output_decline"]


@pytest.mark.parametrize(
    ("signals", "reason"),
    [
        (
            [Signal(ok=False, error=error) for error in "abc"],
            "3 consecutive failures (threshold: 3)",
        ),
        (
            [Signal(ok=False, error="a"), Signal(ok=True)] * 5,
            "Same error repeated 5 times (threshold: 5)",
        ),
        ([STUCK] * 4, "No progress in 4 iterations (threshold: 3)"),
        (
            [Signal(ok=True, files_changed=1, output_chars=n) for n in (90, 100, 110, 10, 20)],
            "Output declined: output of 20 characters, 20% of the usual 100 (threshold 70%)",
        ),
    ],
)
def test_each_detector_trips_the_loop_and_is_named(signals: list[Signal], reason: str) -> None:
    loop = LoopBreaker("loop/1", clock=FakeClock())
    for signal in signals:
        loop.record(signal)
    assert loop.trip_reason() == f"Circuit breaker tripped: {reason}"


@pytest.mark.parametrize(
    ("off", "signals"),
    [
        ("consecutive_failures", [Signal(ok=False, error=error) for error in "abcd"]),
        ("same_error", [Signal(ok=False, error="a"), Signal(ok=True)] * 9),
        ("no_progress", [STUCK] * 9),
        (
            "output_decline_percent",
            [Signal(ok=True, files_changed=1, output_chars=n) for n in (9, 9, 9, 1, 1)],
        ),
    ],
)
def test_each_detector_can_be_switched_off(off: str, signals: list[Signal]) -> None:
    options: dict[str, Any] = {off: None}
    loop = LoopBreaker("loop/1", **options)
    for signal in signals:
        loop.record(signal)
    assert not loop.is_tripped()


def test_a_loop_without_a_cooldown_stays_open_until_it_is_reset() -> None:
    clock = FakeClock()
    loop = LoopBreaker("loop/1", cooldown_s=None, clock=clock)
    for error in "abc":
        loop.record_failure(error)
    clock.advance(1e9)
    assert loop.is_tripped()
    loop.reset(by="ann", why="mended")
    assert not loop.is_tripped()


def test_a_retry_that_claims_success_and_changed_nothing_has_failed() -> None:
    clock = FakeClock()
    loop = LoopBreaker("loop/1", clock=clock)
    for _ in range(4):
        loop.record(STUCK)
    clock.advance(30.0)
    loop.record(STUCK, loop.enter())
    assert loop.is_tripped()
    clock.advance(30.0)
    loop.record(Signal(ok=True, files_changed=1), loop.enter())
    assert loop.state is Phase.CLOSED


def test_an_iteration_acquires_a_permit_and_is_refused_while_open() -> None:
    loop = LoopBreaker("loop/1")
    for error in "abc":
        loop.record_failure(error)
    with pytest.raises(Rejected, match="loop/1"):
        loop.enter()


def test_a_long_iteration_does_not_lose_the_one_retry_it_was_given() -> None:
    clock = FakeClock()
    loop = LoopBreaker("loop/1", clock=clock)
    for error in "abc":
        loop.record_failure(error)
    clock.advance(30.0)
    permit = loop.enter()
    clock.advance(1800.0)
    loop.record(Signal(ok=True), permit)
    assert loop.state is Phase.CLOSED


# Arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"no_progress": 0}, "NoProgress.threshold is 0"),
        ({"same_error": -1}, "SameError.threshold is -1"),
        ({"consecutive_failures": True}, "ConsecutiveFailures.threshold is True"),
        ({"output_decline_percent": 0}, "LoopBreaker.output_decline_percent is 0"),
        ({"output_decline_percent": 170}, "LoopBreaker.output_decline_percent is 170"),
        ({"cooldown_s": 0}, "LoopBreaker.cooldown_s is 0"),
        ({"scope": "some"}, "SameError.scope is 'some': it must be one of total, consecutive"),
        ({"fingerprint": "x"}, "SameError.fingerprint is 'x': it must be one of default, docu"),
        ({"policy": loop_policy(), "no_progress": 2}, "LoopBreaker.policy is given"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_name(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        LoopBreaker("loop/1", **options)


def test_a_loop_accepts_any_policy() -> None:
    loop = LoopBreaker("loop/1", policy=Policy([detectors.FailureRate(window=2)], Latched()))
    assert [loop.record_failure("a"), loop.record_failure("b")] == [False, True]
    assert loop.trip_reason() == (
        "Circuit breaker tripped: 2 of the last 2 calls failed (100%, threshold 50%)"
    )
    assert loop.stats() == (None, 2, None), "what nothing watches for is not known to be 0"
    assert loop.status() == (Phase.OPEN, None, {}, [], None)


# Orders


def test_a_loop_that_is_held_open_stops_and_names_the_operator() -> None:
    loop = LoopBreaker("loop/1")
    loop.hold_open(by="ann", why="deploy")
    assert loop.check() == LoopDecision(False, Phase.CLOSED, "held open by ann: deploy")
    assert loop.trip_reason() == "Circuit breaker tripped: held open by ann: deploy"


def test_a_loop_that_is_held_open_names_the_operator_and_not_an_earlier_trip() -> None:
    loop = LoopBreaker("loop/1")
    for error in "abc":
        loop.record_failure(error)
    loop.hold_open(by="ann", why="deploy")
    assert loop.trip_reason() == "Circuit breaker tripped: held open by ann: deploy"


def test_a_loop_in_shadow_mode_continues_and_reports_what_would_have_stopped_it() -> None:
    loop = LoopBreaker("loop/1")
    loop.shadow(by="ann", why="trial")
    assert [loop.record_failure(error) for error in "abc"] == [False, False, False]
    assert loop.check() == LoopDecision(True, Phase.OPEN, "3 consecutive failures (threshold: 3)")


# What is kept of errors


def test_output_recovers_at_the_share_that_counts_as_decline() -> None:
    def standstill(percent: int) -> int | None:
        loop = LoopBreaker("loop/1", output_decline_percent=percent, no_progress=9)
        for chars in (1000, 1000, 1000, 500, 600):
            loop.record_progress(IterationMetrics(0, None, chars))
        return loop.status().consecutive_no_progress

    assert (standstill(55), standstill(70)) == (0, 5)


def test_secrets_are_not_kept() -> None:
    loop = LoopBreaker("loop/1", same_error=1)
    loop.record_error("401 for key sk-proj-abcdefghijklmnop")
    everything = json.dumps(dump_circuit(loop.policy, loop.snapshot()))
    assert "abcdefgh" not in everything
    assert loop.check().reason == 'Same error repeated 1 time: "401 for key [redacted]"'


@pytest.mark.parametrize("fingerprint", ["default", "documented"])
def test_keys_that_rotate_are_the_same_error(fingerprint: str) -> None:
    loop = LoopBreaker("loop/1", fingerprint=fingerprint)
    for key in ("abcdefghijklmnop", "qrstuvwxyzabcdef"):
        loop.record_failure(f"401 for key sk-proj-{key}")
    assert loop.stats().unique_errors == 1


def test_the_informative_lines_of_a_long_output_are_kept() -> None:
    loop = LoopBreaker("loop/1")
    loop.record_failure("collecting 12 items\n....F\nE  assert 1 == 2\nFAILED test_x.py::test_y\n")
    assert loop.status().error_counts == {"FAILED test_x.py::test_y": 1}


def test_a_long_error_is_the_same_when_a_number_at_its_front_is_longer() -> None:
    loop = LoopBreaker("loop/1")
    tail = "cannot be replicated because the target is full and nobody knows another one " * 9
    for block in (7, 123456789012345678901234567890):
        loop.record_failure(f"error: block {block} of request {block} {tail}")
    assert loop.stats().unique_errors == 1


def test_few_errors_are_remembered_and_all_are_counted() -> None:
    loop = LoopBreaker("loop/1", consecutive_failures=None)
    for number in range(2000):
        loop.record_failure(f"code=E{number} failed")
    loop.record_failure("code=E1999 failed")
    assert loop.stats().unique_errors == 2000
    assert len(loop.status().error_counts) == 32
    assert loop.status().error_counts["code=E1999 failed"] == 2


# Shared, stored, sent


def test_loops_of_two_processes_share_a_circuit() -> None:
    clock = FakeClock(1e9)
    with Panel("memory:", clock=clock) as panel, Panel(panel.store.inner, clock=clock) as other:
        here, there = panel.loop("loop/1"), other.loop("loop/1")
        here.record_failure("a")
        there.record_failure("b")
        assert here.record_failure("c")
        assert there.is_tripped()
        assert there.trip_reason() == here.trip_reason()
        assert there.stats() == here.stats() == (3, 3, 3)
        clock.advance(30.0)
        there.record_success()
        assert not here.is_tripped()
        view = panel.view("loop/1")
        assert view is not None
        assert view.circuit.phase is Phase.CLOSED


_POLICIES = [
    loop_policy(),
    LoopBreaker.for_stagnation("loop/1").policy,
    LoopBreaker.for_failures("loop/1").policy,
]


@pytest.mark.parametrize("policy", _POLICIES)
def test_policies_and_states_survive_being_stored(policy: Policy) -> None:
    loop = LoopBreaker("loop/1", policy=policy, clock=FakeClock())
    loop.record_progress(IterationMetrics(1, 3, 100, 1e9))
    loop.record_progress(IterationMetrics(0, 3, 10, 1e9))
    loop.record_failure("a")
    assert load_policy(json.loads(json.dumps(dump_policy(policy)))) == policy
    stored = json.loads(json.dumps(dump_circuit(policy, loop.snapshot())))
    assert load_circuit(policy, stored) == loop.snapshot()


def test_facts_of_iterations_survive_being_sent() -> None:
    facts = Signal(ok=False, files_changed=3, tests_passing=4, output_chars=5, at_s=1.5e9)
    sent = json.loads(json.dumps(dump_message(Record(facts))))
    assert load_message(sent) == Record(facts)


def test_a_loop_is_pickled_with_its_state() -> None:
    loop = LoopBreaker("loop/1", same_error=2)
    loop.record_failure("a")
    again = pickle.loads(pickle.dumps(loop))
    assert isinstance(again, LoopBreaker)
    assert again.record_failure("a")
    assert not loop.is_tripped()


def test_the_events_of_a_loop_contain_the_warning_the_trip_and_the_recovery() -> None:
    events = list[Event]()
    clock = FakeClock()
    loop = LoopBreaker("loop/1", sinks=[events.append], clock=clock)
    for _ in range(4):
        loop.record(STUCK)
    clock.advance(30.0)
    loop.record(Signal(ok=True, files_changed=1))
    assert [(event.before, event.after, event.reason) for event in events] == [
        ("closed", "tripping", "3 iterations without progress (threshold 3, then one more)"),
        ("tripping", "open", "4 iterations without progress (threshold 3, then one more)"),
        ("open", "half_open", "waited 30 s"),
        ("half_open", "closed", "probe succeeded"),
    ]


# A limit that was set, and detectors that were not


def _fail(loop: LoopBreaker, number: int, how: str) -> None:
    error, stuck = f"error {number}", IterationMetrics(files_changed=0)
    if how == "together":
        loop.record(Signal(ok=False, error=error, files_changed=0))
    elif how == "outcome first":
        loop.record_failure(error)
        loop.record_progress(stuck)
    else:
        loop.record_progress(stuck)
        loop.record_failure(error)


@pytest.mark.parametrize("how", ["together", "outcome first", "measurement first"])
@pytest.mark.parametrize("made", ["alone", "by a panel", "from a pickle"])
def test_an_explicit_number_of_failures_is_not_cut_short_by_no_progress(
    how: str, made: str
) -> None:
    if made == "by a panel":
        loop = Panel("memory:").loop("loop/1", consecutive_failures=8)
    else:
        loop = LoopBreaker("loop/1", consecutive_failures=8)
    if made == "from a pickle":
        loop = pickle.loads(pickle.dumps(loop))
    for number in range(7):
        _fail(loop, number, how)
    assert not loop.is_tripped()
    _fail(loop, 7, how)
    assert loop.trip_reason() == "Circuit breaker tripped: 8 consecutive failures (threshold: 8)"


def test_an_explicit_number_of_failures_leaves_no_progress_for_iterations_that_succeed() -> None:
    loop = LoopBreaker("loop/1", consecutive_failures=8)
    for _ in range(4):
        loop.record_success()
        loop.record_progress(IterationMetrics(files_changed=0))
    assert (
        loop.trip_reason() == "Circuit breaker tripped: No progress in 4 iterations (threshold: 3)"
    )


def test_limits_of_python_and_of_the_command_are_the_same() -> None:
    every: list[dict[str, Any]] = [
        {"consecutive_failures": 8},
        {"same_error": 10},
        {"no_progress": 7},
        {"consecutive_failures": 2, "output_decline_percent": None},
    ]
    for given in every:
        loop = LoopBreaker("loop/1", **given)
        options = RunOptions("t", "demo", **given, given=tuple(given))
        assert loop.policy == policy_of(options) == loop_policy(**given)
        assert loop._limits == limits_of(options)
    assert loop_policy() == LoopBreaker("loop/1").policy == policy_of(RunOptions("t", "demo"))


def test_a_policy_is_used_as_it_is() -> None:
    loop = LoopBreaker("loop/1", policy=loop_policy(consecutive_failures=8))
    for number in range(4):
        _fail(loop, number, "together")
    assert (
        loop.trip_reason() == "Circuit breaker tripped: No progress in 4 iterations (threshold: 3)"
    )


def test_an_error_explains_only_the_next_measurement() -> None:
    loop = LoopBreaker("loop/x", same_error=10)
    loop.record_error("no such table")
    for _ in range(8):
        loop.record_progress(IterationMetrics(files_changed=0))
    assert loop.state is Phase.OPEN


def test_an_error_before_a_reset_explains_nothing_after_it() -> None:
    def measurements_until_open(loop: LoopBreaker) -> int:
        for number in range(1, 20):
            loop.record_progress(IterationMetrics(files_changed=0))
            if loop.state is Phase.OPEN:
                return number
        raise AssertionError("it never opened")

    loop = LoopBreaker("loop/x", same_error=10)
    at_first = measurements_until_open(loop)
    loop.record_error("no such table")
    loop.reset()
    assert measurements_until_open(loop) == at_first
    loop.record_error("no such table")
    asyncio.run(loop.areset())
    assert measurements_until_open(loop) == at_first


def test_a_detector_that_is_off_switches_no_other_off() -> None:
    loop = LoopBreaker("loop/x", consecutive_failures=None, same_error=None)
    for number in range(8):
        loop.record(Signal(ok=False, error=f"error {'abcdefgh'[number]}", files_changed=0))
    assert loop.state is Phase.OPEN


def test_a_decline_of_output_counts_where_files_are_not_measured() -> None:
    loop = LoopBreaker("loop/x", no_progress=10)
    for length in (4000, 4000, 4000, 4000, 4000, 40, 40, 40, 40, 40):
        loop.record_progress(IterationMetrics(output_length=length))
    assert loop.state is Phase.OPEN
