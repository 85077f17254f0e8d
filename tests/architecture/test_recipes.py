"""The recipes of CONTRIBUTING.md, followed in a copy of the package: one package or file, one row."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from architecture.pages import ROOT, blocks
from timeouts import LIMIT_S

FOLLOWS = {"Add a detector": "Add a store", "Add an agent": "Change the mechanism"}
"""The heading that follows a recipe."""
SCRIBE = """#!/bin/sh
cat > prompt.txt
echo '{"type": "call", "id": 1, "tool": "bash", "input": {"command": "make"}}'
echo '{"type": "output", "id": 1, "exit_code": 2, "text": "no rule"}'
echo '{"type": "tokens", "in": 900, "out": 50}'
echo '{"type": "end", "text": "done", "ok": true}'
"""
RUN = """
import sys
from pathlib import Path
from switchgear._agents.process import AgentProcess
from switchgear._agents.registry import agent_named

run = AgentProcess(agent_named("scribe"), "fix it", Path(sys.argv[1]), deadline_s=60).run()
print(run.exit_code, [type(event).__name__ for event in run.events], run.usage[0].input_tokens)
"""


def code(recipe: str, language: str) -> list[str]:
    """The blocks of a recipe in a language."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition(f"## {recipe}\n")[2].partition(f"\n## {FOLLOWS[recipe]}\n")[0]
    return [f"{block.text}\n" for block in blocks(section) if block.language == language]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package."""
    copy = tmp_path / "lib" / "switchgear"
    shutil.copytree(
        ROOT / "src" / "switchgear", copy, ignore=shutil.ignore_patterns("*.bin", "__pycache__")
    )
    return copy


PATIENT = """
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
"""
"""The `conftest.py` of the copied tests: a busy machine is slow, and that is no failure."""


def run(package: Path, cwd: Path, *words: str, stdin: str = "") -> str:
    """The output of a command that imports the copy instead of the package."""
    environment = {
        **os.environ,
        "HOME": str(package.parents[1] / "home"),
        "XDG_STATE_HOME": str(package.parents[1] / "state"),
        "PATH": f"{cwd / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join((str(package.parent), str(cwd))),
    }
    done = subprocess.run(
        words,
        input=stdin,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def insert(file: Path, place: str, text: str, *, before: bool = False) -> None:
    """Insert a text after a position in a file, or before it."""
    old = file.read_text()
    assert old.count(place) == 1, f"{file.name} has {old.count(place)} of {place!r}"
    file.write_text(old.replace(place, text + place if before else place + text))


def test_an_agent_is_one_package_and_one_row(package: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    program = project / "bin" / "scribe"
    program.parent.mkdir(parents=True)
    (project / ".switchgear").mkdir()  # else a folder of that name above would be the project's
    program.write_text(SCRIBE)
    program.chmod(0o755)
    agent, _, hooks = code("Add an agent", "python")
    [row] = code("Add an agent", "py")
    folder = package / "_agents" / "scribe"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""Scribe."""\n')
    (folder / "agent.py").write_text(agent)
    (folder / "hooks.py").write_text(hooks)
    registry = package / "_agents" / "registry.py"
    registry.write_text(
        registry.read_text().replace("ROWS = (\n", f"ROWS = (\n{row.rstrip()},\n", 1)
    )

    events = ["ToolStarted", "ToolStep", "Usage", "AgentResult"]
    assert run(package, project, sys.executable, "-c", RUN, str(project)).strip() == (
        f"0 {events} 900"
    )
    assert (project / "prompt.txt").read_text() == "fix it"

    run(package, project, sys.executable, "-m", "switchgear", "hooks", "install", "scribe")
    settings = json.loads((project / ".scribe" / "settings.json").read_text())
    assert set(settings["hooks"]) == {"PreToolUse", "PostToolUse", "Stop"}
    [group] = settings["hooks"]["PreToolUse"]
    command = group["hooks"][0]["command"]
    assert str(package) in command

    def decided(words: str) -> Any:
        event = {
            "hook_event_name": "PreToolUse",
            "session_id": "s1",
            "cwd": str(project),
            "tool_name": "Bash",
            "tool_input": {"command": words},
            "tool_use_id": "t1",
        }
        out = run(package, project, "/bin/sh", "-c", command, stdin=json.dumps(event))
        return json.loads(out or "{}").get("hookSpecificOutput", {})

    assert not (found := decided("ls")), found["permissionDecisionReason"]
    assert decided("rm -rf /etc")["permissionDecision"] == "deny"


def test_a_detector_is_one_file_and_one_row(package: Path, tmp_path: Path) -> None:
    detector = code("Add a detector", "python")[0]
    name = re.findall(r"^class (\w+)\(Detector\)", detector, re.MULTILINE)[0]
    (package / "_detectors" / "total_failures.py").write_text(detector)
    line = f"from switchgear._detectors.total_failures import {name}"
    registry = package / "_detectors" / "__init__.py"
    insert(registry, "from switchgear._core.detector import Detector, Measure\n", f"{line}\n")
    insert(registry, "ALL: tuple[type[Detector], ...] = (\n", f"    {name},\n")
    script = f"""
from switchgear import CircuitBreaker, Policy, Signal
from switchgear._detectors.policy_wire import dump_policy, load_policy
from switchgear._detectors.total_failures import {name}

policy = load_policy(dump_policy(Policy([{name}(threshold=2)])))
breaker = CircuitBreaker("op/deploy", policy=policy)
for ok in (False, True, False):
    breaker.record(Signal(ok=ok))
print(breaker.state)
"""
    assert run(package, tmp_path, sys.executable, "-c", script).strip().endswith("open")


def test_the_detector_of_the_recipe_obeys_the_laws_of_detectors(
    package: Path, tmp_path: Path
) -> None:
    (package / "_detectors" / "total_failures.py").write_text(code("Add a detector", "python")[0])
    line = "from switchgear._detectors.total_failures import TotalFailures\n"
    registry = package / "_detectors" / "__init__.py"
    insert(registry, "from switchgear._core.detector import Detector, Measure\n", line)
    insert(registry, "ALL: tuple[type[Detector], ...] = (\n", "    TotalFailures,\n")
    config, naive, kind, attack = code("Add a detector", "py")
    attacks = package / "_analysis" / "selftest" / "attacks.py"
    insert(attacks, "_ATTACKS: dict[str, Make] = {\n", attack)
    tests = tmp_path / "tests"
    shutil.copytree(ROOT / "tests" / "property", tests / "property")
    shutil.copy(ROOT / "tests" / "depth.py", tests)
    (tests / "conftest.py").write_text(PATIENT)
    strategies, oracle = tests / "property" / "strategies.py", tests / "property" / "naive.py"
    insert(strategies, "CONFIGS: dict[type[Detector], SearchStrategy[Detector]] = {\n", config)
    insert(oracle, "KINDS: dict[type[Detector], Kind] = {\n", kind)
    insert(oracle, "KINDS: dict", f"{naive}\n\n", before=True)
    laws = str(tests / "property" / "test_detector_laws.py")
    words = ("-q", "-p", "no:cacheprovider", "-k", "total_failures", laws)
    assert " passed" in run(package, tests, sys.executable, "-m", "pytest", *words)
