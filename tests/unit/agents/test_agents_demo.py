"""The demo agent really works and really gets stuck, the same way every time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from switchgear._agents.demo import SCENARIOS, VALIDATION, Demo, make_repository
from switchgear._agents.events import AgentError, Question, ToolStep
from switchgear._agents.prices import cost_of
from switchgear._agents.process import AgentProcess, AgentRun, ProcessEnd
from switchgear._agents.registry import agent_named


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    make_repository(tmp_path / "project")
    return tmp_path / "project"


def iterate(scenario: str, repository: Path, iteration: int = 1) -> AgentRun:
    env = {**os.environ, "SWITCHGEAR_ITERATION": str(iteration)}
    process = AgentProcess(
        Demo(scenario, speed=1000), "do it", repository, env=env, deadline_s=60.0
    )
    return process.run()


def git(repository: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=repository, capture_output=True, text=True, check=True
    ).stdout


def validation_passes(repository: Path) -> bool:
    done = subprocess.run(VALIDATION.split(), cwd=repository, capture_output=True, check=False)
    return done.returncode == 0


def steps(run: AgentRun) -> list[ToolStep]:
    return [event for event in run.events if isinstance(event, ToolStep)]


def test_the_demo_agent_works_until_all_tests_pass_and_reports_it(repository: Path) -> None:
    for iteration in range(1, 5):
        assert not validation_passes(repository)
        run = iterate("works", repository, iteration)
        assert run.result is not None
        assert run.result.claimed_success is (iteration == 4)
        assert git(repository, "diff", "--stat").startswith(" shapes.py")
        assert steps(run)[0].files_changed == ("shapes.py",)
        assert steps(run)[1].ok is (iteration == 4)
    assert validation_passes(repository)
    before = git(repository, "diff")
    last = iterate("works", repository, 5)
    assert last.result is not None
    assert last.result.text.endswith("DONE")
    assert git(repository, "diff") == before


def test_the_same_command_fails_with_the_same_text(repository: Path) -> None:
    runs = [iterate("same-error", repository, iteration) for iteration in (1, 2)]
    found = {(step.call_key, step.ok, step.error) for run in runs for step in steps(run)}
    [(_, ok, error)] = found
    assert ok is False
    assert "No module named 'shapes_fast'" in str(error)
    assert [run.exit_code for run in runs] == [1, 1]
    assert git(repository, "status", "--porcelain") == ""


def test_no_progress_has_new_words_and_changes_nothing(repository: Path) -> None:
    runs = [iterate("no-progress", repository, iteration) for iteration in (1, 2, 3)]
    assert len({run.result for run in runs}) == 3
    assert git(repository, "status", "--porcelain") == ""


def test_declining_output_gets_shorter_while_files_change(repository: Path) -> None:
    runs = [iterate("declining", repository, iteration) for iteration in range(1, 7)]
    lengths = [run.output_chars for run in runs]
    assert lengths[0] == lengths[2]
    assert lengths[2] > 2 * lengths[3] > 4 * lengths[4]
    assert len((repository / "notes.md").read_text().splitlines()) == 7


def test_a_hang_lasts_at_any_speed(repository: Path) -> None:
    process = AgentProcess(
        Demo("hangs", speed=1000),
        "x",
        repository,
        deadline_s=60.0,
        on_event=lambda _: process.kill(),
    )
    run = process.run()
    assert run.end is ProcessEnd.KILLED
    assert run.lines == 1


def test_expensive_work_has_its_price(repository: Path) -> None:
    assert cost_of(iterate("expensive", repository).usage).micros == 750_000
    assert git(repository, "status", "--porcelain") == "?? ledger.txt\n"


def test_a_question_is_asked_with_a_tool(repository: Path) -> None:
    events = iterate("asks", repository).events
    [question] = [event for event in events if isinstance(event, Question)]
    assert question.by_tool
    assert question.text.endswith("?")


def test_done_is_claimed_with_nothing_changed(repository: Path) -> None:
    run = iterate("claims-done", repository)
    assert run.result is not None
    assert run.result.claimed_success is True
    assert git(repository, "status", "--porcelain") == ""


def test_a_dead_provider_and_a_rate_limit_are_reported(repository: Path) -> None:
    down = [
        event
        for event in iterate("provider-down", repository).events
        if isinstance(event, AgentError)
    ]
    assert [(error.kind, error.final) for error in down] == [
        ("connection", False),
        ("connection", False),
        ("connection", True),
    ]
    limited = iterate("rate-limited", repository, 2).events
    [error] = [event for event in limited if isinstance(event, AgentError)]
    assert (error.kind, error.status, error.retry_after_s) == ("rate_limit", 429, 2.0)


def test_the_story_works_twice_and_then_gets_stuck(repository: Path) -> None:
    outcomes = [steps(iterate("story", repository, number))[0].ok for number in (1, 2, 3, 4)]
    assert outcomes == [True, True, False, False]


def test_every_scenario_is_named_and_can_be_chosen() -> None:
    for name in SCENARIOS:
        chosen = agent_named(f"demo:{name}")
        assert isinstance(chosen, Demo)
        assert chosen.scenario == name


def test_two_runs_are_the_same(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        make_repository(tmp_path / name)
        run = iterate("works", tmp_path / name)
        made.append([event for event in run.events if "Ran 4 tests in" not in str(event)])
    assert made[0] == made[1]


def test_a_demo_agent_started_by_hand_counts_its_iterations(repository: Path) -> None:
    env = {key: value for key, value in os.environ.items() if key != "SWITCHGEAR_ITERATION"}
    for expected in ("Attempt 1", "Attempt 2"):
        run = AgentProcess(Demo("same-error", 1000), "x", repository, env=env).run()
        assert expected in str(run.events[0])
    assert git(repository, "status", "--porcelain") == ""


def test_a_folder_that_is_not_empty_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="must be an empty directory"):
        make_repository(tmp_path)


def test_the_demo_program_refuses_unknown_arguments() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "switchgear._agents.demo", "--scenario", "sulks"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 2
    assert "invalid choice: 'sulks'" in done.stderr
