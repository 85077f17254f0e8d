"""The plugins in the repository: as the registry would make them now, and safe without Switchgear."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


def test_the_plugins_match_the_registry() -> None:
    made = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make_plugins.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, f"{made.stdout}run scripts/make_plugins.py"


def hooks(agent: str) -> dict[str, str]:
    data = json.loads((ROOT / "plugins" / agent / "hooks" / "hooks.json").read_text())
    return {event: groups[0]["hooks"][0]["command"] for event, groups in data["hooks"].items()}


@pytest.mark.parametrize(
    ("agent", "before"),
    [("claude-code", "PreToolUse"), ("codex", "PreToolUse"), ("gemini", "BeforeTool")],
)
def test_without_switchgear_only_tool_calls_are_refused(
    agent: str, before: str, tmp_path: Path
) -> None:
    for event, command in hooks(agent).items():
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env={"PATH": str(tmp_path)},
            input="{}",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (2 if event == before else 0), (event, done.stderr)
        assert ("Switchgear is not installed" in done.stderr) == (event == before)


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini"])
def test_a_hook_that_fails_to_start_refuses_the_call(agent: str, tmp_path: Path) -> None:
    broken = tmp_path / "switchgear-hook"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    before = next(event for event in hooks(agent) if event in {"PreToolUse", "BeforeTool"})
    done = subprocess.run(
        ["/bin/sh", "-c", hooks(agent)[before]],
        env={"PATH": f"{tmp_path}:/bin"},
        input="{}",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2


def test_the_action_and_the_pre_commit_hooks_are_well_formed() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", ""), "an input in a script could run commands"
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {hook["id"] for hook in hooks} == {"switchgear-config-check", "switchgear-selftest"}
    assert all("SWITCHGEAR_TRUST=1" in hook["entry"] for hook in hooks)
