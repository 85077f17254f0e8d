"""`switchgear run --agent NAME` with real agent CLIs, against the scripted API, in clean worlds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.agents.fake_llm import ScriptedApi
from e2e.agents.worlds import World

pytestmark = [pytest.mark.e2e_agents, pytest.mark.timeout(300)]

ONE_STRIKE = """
circuits:
  - match: "provider/*"
    policy:
      detectors: [{consecutive_failures: {threshold: 1}}]
      recovery: {cooldown: {base_s: 60}}
"""


def run(world: World, project: Path, *flags: str) -> dict[str, Any]:
    """The result of a run, nothing of this machine's environment in it."""
    command = [sys.executable, "-m", "switchgear", "run", "Check the settings."]
    done = subprocess.run(
        [*command, "--agent", world.agent.name, "--model", world.model, "--json", *flags],
        cwd=project,
        env=world.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == result["exit_code"], done.stderr
    return {**result, "lines": done.stderr}


def test_the_same_failing_command_for_ever_trips_within_the_threshold(
    world: World, api: ScriptedApi, project: Path
) -> None:
    api.play("same-error-for-ever")
    result = run(world, project, "--timeout", "3m")
    assert result["exit_reason"] == "circuit_breaker", result
    # One iteration is enough, unless the agent has its own guard and gives up before ours.
    assert result["iterations"] <= 3
    assert any("No such file" in each for each in result["evidence"]) or "loop" in result["lines"]


def test_the_same_failing_command_in_each_iteration_trips_at_the_threshold(
    world: World, api: ScriptedApi, project: Path
) -> None:
    api.play("same-error")
    result = run(world, project, "--timeout", "4m")
    assert result["exit_reason"] == "circuit_breaker", result
    assert result["iterations"] == 3
    assert result["stats"]["circuit_breaker"]["unique_errors"] == 1


def test_a_dead_provider_is_an_agent_error_and_not_evidence_against_the_loop(
    world: World, api: ScriptedApi, project: Path
) -> None:
    api.refuse()
    (project / "switchgear.yaml").write_text(ONE_STRIKE)
    result = run(world, project, "--timeout", "4m", "--budget", "1")
    assert result["exit_reason"] == "agent_error", result
    assert f"provider/{world.agent.name} is down" in result["reason"]
    assert result["stats"]["circuit_breaker"]["total_failures"] == 0, result
    assert result["stats"]["lost_to_provider"] == result["iterations"] == 1
    assert result["stats"]["unknown_prices"] == 0
    assert result["stats"]["files_changed"] == 0
    assert result["stats"]["seconds"] < 200  # most are stopped by us, the silent ones give up


def test_steady_progress_is_completed(world: World, api: ScriptedApi, project: Path) -> None:
    api.play("steady-progress")
    check = "test $(wc -l < progress.txt) -eq 3"
    result = run(world, project, "--completion-promise", "DONE", "--validate", check)
    assert result["exit_reason"] == "completed", result
    assert result["iterations"] == 1
    assert result["stats"]["files_changed"] == 1
    assert result["checkpoint"]["files"] == ["progress.txt"]
    assert (project / "progress.txt").read_text() == "line 0\nline 1\nline 2\n"


def test_work_that_crosses_the_budget_ends_as_budget(
    world: World, api: ScriptedApi, project: Path
) -> None:
    api.play("expensive")
    result = run(world, project, "--completion-promise", "NEVER", "--budget", "0.01")
    assert result["exit_reason"] == "budget", result
    assert result["iterations"] == 1
    # It is stopped as soon as it tells too much: after the first answer or, by then, the second.
    assert result["stats"]["cost_micros"] > 500_000
