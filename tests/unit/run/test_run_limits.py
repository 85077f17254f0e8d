"""A limit that was set takes precedence over those that were not."""

import json
from pathlib import Path
from typing import Any

import pytest

from switchgear._core.types import Signal
from switchgear._run.options import RunOptions, describe_limits, limits_of, run_options
from unit.runner_stage import Stage

DISTINCT = 'fail(f"Error: step {chr(96 + n) * 5} is broken")'
SAME = 'fail("Error: the parser is broken")'
SILENT = "pass"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def run(stage: Stage, body: str, **flags: Any) -> tuple[int, str]:
    """The iterations of a run that was given these flags, and why it ended."""
    command = stage.command(body)
    options = run_options("do it", {"agent_cmd": command, **flags})
    given = {key: value for key, value in options._asdict().items() if key != "agent_cmd"}
    result = stage.run(body, **given)
    return result.state.iterations, result.reason


@pytest.mark.parametrize("failures", [4, 5, 6, 8])
def test_failures_that_change_no_file_count_up_to_the_limit_that_was_set(
    stage: Stage, failures: int
) -> None:
    iterations, reason = run(stage, DISTINCT, consecutive_failures=failures)
    assert iterations == failures
    words = f"{failures} consecutive failures (threshold: {failures})"
    assert reason == f"Circuit breaker tripped: {words}"


def test_the_loose_example_allows_8_failures(stage: Stage) -> None:
    flags = {"consecutive_failures": 8, "same_error": 10, "preset": "scientific-method"}
    iterations, reason = run(stage, DISTINCT, validate="", **flags)
    assert (iterations, "8 consecutive failures" in reason) == (8, True)


def test_tdd_red_green_allows_5_different_failures_and_3_equal_ones(stage: Stage) -> None:
    flags = {"preset": "tdd-red-green", "validate": "", "commit": False}
    assert run(stage, DISTINCT, **flags)[0] == 5
    stage.record = None
    other = run(stage, SAME, **flags, plan="other")
    assert other[0] == 3
    assert "Same error repeated 3 times" in other[1]


def test_one_limit_raises_the_other_one_that_was_not_set(stage: Stage) -> None:
    assert run(stage, SAME, consecutive_failures=7)[0] == 7
    stage.record = None
    iterations, reason = run(stage, SAME, same_error=7, plan="b")
    assert iterations == 7
    assert "7 times" in reason or "7 consecutive" in reason


def test_no_progress_that_was_set_is_not_cut_short_by_failures_or_output(stage: Stage) -> None:
    iterations, reason = run(stage, DISTINCT, no_progress=6)
    assert iterations == 7
    assert reason.startswith("Circuit breaker tripped: ")
    stage.record = None
    shrinking = 'print("x" * max(1, 900 - 180 * n))'
    iterations, reason = run(stage, shrinking, no_progress=6, plan="b")
    assert (iterations, "No progress in 7 iterations" in reason) == (7, True)


def test_failures_with_less_and_less_output_count_up_to_the_limit(stage: Stage) -> None:
    body = 'print("x" * max(1, 9000 // 3 ** n))\n' + DISTINCT
    iterations, reason = run(stage, body, consecutive_failures=7)
    assert (iterations, "7 consecutive failures" in reason) == (7, True)


def test_no_progress_that_was_set_counts_failures(stage: Stage) -> None:
    iterations, reason = run(stage, DISTINCT, consecutive_failures=9, no_progress=3)
    assert (iterations, "No progress in 4 iterations" in reason) == (4, True)


def test_iterations_without_progress_are_stopped_whatever_the_failure_limit(
    stage: Stage,
) -> None:
    iterations, reason = run(stage, SILENT, consecutive_failures=9)
    assert (iterations, "No progress in 4 iterations" in reason) == (4, True)


def test_a_failure_limit_of_zero_never_trips_without_file_changes_either(stage: Stage) -> None:
    iterations, reason = run(stage, DISTINCT, consecutive_failures=0, max_iterations=9)
    assert (iterations, reason) == (9, "9 iterations and the task is not done")


def test_without_configured_limits_the_defaults_apply(stage: Stage) -> None:
    assert run(stage, DISTINCT)[0] == 3
    stage.record = None
    assert run(stage, SILENT, plan="b")[0] == 4


def test_which_limits_were_set_outlasts_the_process() -> None:
    options = run_options("t", {"agent": "demo", "no_progress": 3, "consecutive_failures": 8})
    assert options.given == ("consecutive_failures", "no_progress")
    again = RunOptions.load(json.loads(json.dumps(options.dump())))
    assert again == options
    assert limits_of(again.changed({"same_error": 5})).same_error == 5
    old = {key: value for key, value in options.dump().items() if key != "given"}
    assert RunOptions.load(old).given == ("consecutive_failures",)


def test_the_limits_are_shown_with_their_origin() -> None:
    assert describe_limits(run_options("t", {"agent": "demo", "consecutive_failures": 8})) == [
        "failed iterations in a row: 8 (set)",
        "occurrences of the same error: 8 (default, raised to what is set)",
        "iterations without progress: 3, then one more (default, without failed iterations)",
        "output under 70% of its usual length, twice in a row (default, without failed iterations)",
    ]
    off = describe_limits(run_options("t", {"agent": "demo", "no_progress": 0}))
    assert off[2] == "no progress: off"


def test_an_iteration_that_failed_but_changed_files_is_still_progress() -> None:
    limits = limits_of(run_options("t", {"agent": "demo", "consecutive_failures": 8}))
    told = limits.signal(Signal(ok=False, files_changed=2, tests_passing=1), failed=True)
    assert (told.files_changed, told.tests_passing) == (2, 1)
