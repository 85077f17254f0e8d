"""Which runs share a circuit, and that a run's counts are its own."""

import re
from pathlib import Path

import pytest

from switchgear._run.circuits import loop_name, task_name
from switchgear._run.options import RunOptions
from unit.runner_stage import Stage, checker

FAILS = "fail(f'Error: {n} is odd ' + 'abcdefg'[n] * 9)"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def of(**fields: object) -> RunOptions:
    return RunOptions(**{"task": "Make the parser accept comments!", "agent": "claude", **fields})  # type: ignore[arg-type]


def test_the_circuit_depends_on_agent_and_validation_and_not_on_limits(
    tmp_path: Path,
) -> None:
    names = {
        loop_name(tmp_path, of()),
        loop_name(tmp_path, of(agent="codex")),
        loop_name(tmp_path, of(agent=None, agent_cmd="a.sh {prompt}")),
        loop_name(tmp_path, of(agent=None, agent_cmd="a.sh --fast {prompt}")),
        loop_name(tmp_path, of(validate="make test")),
        loop_name(tmp_path, of(validate="pytest -q")),
        loop_name(tmp_path / "x", of()),
        loop_name(tmp_path, of(task="other")),
    }
    assert len(names) == 8
    for fields in ({"max_iterations": 3}, {"same_error": 9}, {"budget_micros": 5}, {"preset": "x"}):
        assert loop_name(tmp_path, of(**fields)) == loop_name(tmp_path, of())
    assert task_name(tmp_path, of()) == task_name(tmp_path, of(agent="codex", validate="x"))
    spaced = of(task=" Make the  parser accept comments!\n")
    assert task_name(tmp_path, of()) == task_name(tmp_path, spaced), "it runs once at a time"


def test_the_detected_tests_are_the_validation(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("")
    auto = loop_name(tmp_path, of(validate="auto"))
    assert auto == loop_name(tmp_path, of(validate="python3 -m pytest -q"))
    assert auto != loop_name(tmp_path, of())


@pytest.mark.parametrize(
    ("task", "title"),
    [
        ("Make the parser accept comments!", "make-the-parser-accept-comments-"),
        ("x" * 90, "x" * 32 + "-"),
        ("use sk-proj-abcdefghijklmnopqrstuvwx now", "use-now-"),
        ("Grüße\n\x1b[2J; rm -rf /", "gr-e-2j-rm-rf-"),
        ("日本語", ""),
    ],
)
def test_the_circuit_name_contains_the_task_without_secrets_and_hostile_text(
    tmp_path: Path, task: str, title: str
) -> None:
    name = loop_name(tmp_path, of(task=task))
    assert re.fullmatch(rf"loop/{re.escape(title)}[0-9a-f]{{8}}", name)


def test_counts_of_an_earlier_run_are_not_mixed_into_the_next(stage: Stage) -> None:
    first = stage.run(FAILS, max_iterations=2)
    assert first.stats.total_failures == 2
    stage.record = None
    second = stage.run(FAILS, max_iterations=2)
    assert (second.exit_reason, second.state.iterations) == ("max_iterations", 2)
    assert second.stats == (2, 2, 2)
    assert second.circuit == first.circuit


def test_a_run_that_is_resumed_keeps_its_counts(stage: Stage) -> None:
    first = stage.run(FAILS, max_iterations=2)
    runner = stage.runner(FAILS, state=first.state, max_iterations=9)
    again = runner.run()
    assert "3 consecutive failures" in again.reason
    assert again.stats.total_failures == 3


def test_the_retry_after_a_trip_is_not_reported_with_the_counts_of_another_run(
    stage: Stage,
) -> None:
    assert stage.run(FAILS).stats.total_failures == 3
    stage.hands.sleep(31.0)
    stage.record = None
    again = stage.run(FAILS)
    assert again.state.iterations == 1
    assert again.stats == (1, 1, 1)
    assert (
        again.reason == "Circuit breaker tripped: the one retry after an earlier run's trip failed"
    )


def test_a_changed_validation_may_start_where_the_old_one_tripped(stage: Stage) -> None:
    bad = checker(stage, "sys.exit(1)")
    assert stage.run("write('n', str(n))", validate=bad).exit_reason == "circuit_breaker"
    stage.record = None
    assert stage.run("write('n', 'new')", validate="true").exit_reason == "completed"


def test_the_program_of_a_command_is_not_a_provider(stage: Stage) -> None:
    stage.run(FAILS, consecutive_failures=2)
    names = [view.name for view in stage.panel.circuits()]
    assert [name for name in names if name.startswith("loop/")]
    assert not [name for name in names if name.startswith("provider/")], names
