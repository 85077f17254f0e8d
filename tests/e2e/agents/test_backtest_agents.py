"""`switchgear backtest` on the session files that real agent CLIs write, against the scripted API."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.agents.fake_llm import ScriptedApi
from e2e.agents.worlds import World

pytestmark = [pytest.mark.e2e_agents, pytest.mark.timeout(300)]

READ = {"claude", "codex", "gemini", "opencode", "pi", "qwen"}
"""Agents whose own session files are read."""


def switchgear(world: World, project: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "switchgear", *arguments, "--json"],
        cwd=project,
        env=world.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def sessions(world: World, api: ScriptedApi, project: Path, scenario: str) -> dict[str, Any]:
    """Let the agent play a scenario once; the sessions that the backtest finds in the agent's home."""
    if world.agent.name not in READ:
        pytest.skip(f"the sessions of {world.agent.name} are not read")
    api.play(scenario)
    flags = ["--model", world.model, "--max-iterations", "1", "--timeout", "60s", "--shadow"]
    switchgear(world, project, "run", "Check it.", "--agent", world.agent.name, *flags)
    found = switchgear(world, project, "backtest", world.env["HOME"], "--policy", "operation")
    assert found["formats"].get(world.agent.name), found
    assert not found["unknown_lines"], found["unknown_lines"]
    return found


def test_a_session_with_progress_is_read_step_by_step(
    world: World, api: ScriptedApi, project: Path
) -> None:
    found = sessions(world, api, project, "steady-progress")
    rows = [row for row in found["rows"] if row["steps"] >= 4]
    assert rows, found
    assert rows[-1]["format"] == world.agent.name
    assert rows[-1]["tokens"] >= 4 * 1000
    assert rows[-1]["timed"] is True
    assert rows[-1]["judged"][0]["tripped_at"] is None


def test_a_failing_command_is_read_as_failed(world: World, api: ScriptedApi, project: Path) -> None:
    found = sessions(world, api, project, "same-error-for-ever")
    stops = [row["judged"][0] for row in found["rows"] if row["judged"][0]["tripped_at"]]
    assert stops, found
    assert "No such file" in json.dumps(stops[0]["evidence"])


def test_the_record_of_switchgear_about_the_same_run_is_read_too(
    world: World, api: ScriptedApi, project: Path
) -> None:
    api.play("same-error-for-ever")
    flags = ["--model", world.model, "--max-iterations", "1", "--timeout", "60s"]
    switchgear(world, project, "run", "Check it.", "--agent", world.agent.name, *flags)
    found = switchgear(world, project, "backtest", ".switchgear/runs", "--policy", "operation")
    assert found["formats"] == {"switchgear": 1}
    [row] = found["rows"]
    assert row["solved"] is False
    assert row["steps"] >= 3
    assert row["judged"][0]["tripped_at"] is not None
