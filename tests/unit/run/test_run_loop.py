"""`switchgear.run_loop`: the loop of `switchgear run` for programs."""

import json
import sys
from pathlib import Path

import pytest

import switchgear
from switchgear import Panel, RunOptions, run_loop
from switchgear._run.loop import LoopRefused

AGENT = """
import os, pathlib, sys
n = int(os.environ["SWITCHGEAR_ITERATION"])
{body}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def agent(project: Path, body: str) -> str:
    script = project.parent / "agent.py"
    script.write_text(AGENT.format(body=body))
    return f"{sys.executable} -S {script}"


def test_a_loop_is_run_by_a_program_and_its_result_has_reason_and_receipt(project: Path) -> None:
    command = agent(project, "pathlib.Path('a').write_text('b')")
    panel = Panel("memory:")
    result = run_loop(RunOptions("write a", agent_cmd=command), folder=project, panel=panel)
    assert (result.exit_reason, result.exit_signal, result.success) == ("completed", None, True)
    assert result.receipt()["what"]["task"] == "write a"
    assert (project / "a").read_text() == "b"


def test_limits_that_differ_from_their_defaults_count_as_set(project: Path) -> None:
    command = agent(project, "sys.exit(f'Error: {chr(96 + n) * 7}')")
    options = RunOptions("fail", agent_cmd=command, consecutive_failures=6)
    panel = Panel("memory:")
    result = run_loop(options, folder=project, panel=panel)
    assert (result.exit_reason, result.exit_signal) == ("circuit_breaker", "circuit_open")
    assert result.stats == (6, 6, 6)
    with pytest.raises(LoopRefused, match="is open: 6 consecutive failures"):
        run_loop(options, folder=project, panel=panel)


def test_invalid_options_are_reported_before_anything_is_created(project: Path) -> None:
    with pytest.raises(ValueError, match="no agent is named"):
        run_loop(RunOptions("x"), panel=Panel("memory:"))
    with pytest.raises(LoopRefused, match="no program 'no-such-agent'"):
        run_loop(RunOptions("x", agent_cmd="no-such-agent"), panel=Panel("memory:"))
    with pytest.raises(LoopRefused, match="the budget cannot be enforced"):
        run_loop(RunOptions("x", agent_cmd="true", budget_micros=5), panel=Panel("memory:"))
    with pytest.raises(ValueError, match="--notify"):
        run_loop(RunOptions("x", agent="demo"), panel=Panel("memory:"), notify=["pager"])
    assert not (project / ".switchgear").exists()


def test_a_program_gets_a_warning_about_what_was_not_saved(project: Path) -> None:
    command = agent(project, "pathlib.Path('a').write_text('b')")
    options = RunOptions("write a", agent_cmd=command)
    result = run_loop(options, folder=project, panel=Panel("memory:"), notify=["command:false"])
    assert result.success
    assert any(note.startswith("notification to command-") for note in result.notes)
    run_loop(options._replace(task="again"), folder=project, panel=Panel("memory:"), notify=[f"command:tee {project}/got"])  # fmt: skip
    assert json.loads((project / "got").read_text())["severity"] in {"INFO", "SEV2"}


def test_the_runner_is_loaded_only_when_it_is_used() -> None:
    assert {"run_loop", "RunOptions"} <= set(switchgear.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = switchgear.nothing
