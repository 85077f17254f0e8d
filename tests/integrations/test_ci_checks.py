"""The GitHub Action and the pre-commit hooks, run for real on projects with good and bad configurations."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pre_commit")

import yaml

from timeouts import LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    *("pyproject.toml", "README.md", "LICENSE", "src", "plugins"),
    *("action.yml", ".pre-commit-hooks.yaml"),
)
GOOD = "circuits: [{match: 'provider/*', policy: provider}]"
BAD = "circuits: [{match: 'provider/*', policy: providr}]"
CANNOT_FIRE = "circuits: [{match: 'session/*', policy: {detectors: [talk_debt]}}]"

INSTALLED = {"version": "switchgear"}
"""What the fixture has installed already."""
Done = subprocess.CompletedProcess[str]


def run(command: list[str], folder: Path, **environ: str) -> Done:
    """A program without what the tests and an enclosing run set for Switchgear."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SWITCHGEAR_", "GIT_", "PYTEST_"))
    }
    return subprocess.run(
        command,
        cwd=folder,
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    done = run(["git", *who, *arguments], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with this working tree."""
    folder = tmp_path_factory.mktemp("clone") / "switchgear"
    folder.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, folder / part, ignore=ignored)
        else:
            shutil.copy(ROOT / part, folder / part)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")
    return folder


@pytest.fixture(scope="module")
def pre_commit(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Done]:
    """Runs the hooks of the clone; their environment is installed once."""
    home = tmp_path_factory.mktemp("pre-commit")
    config = {
        "repos": [
            {
                "repo": str(clone),
                "rev": git(clone, "rev-parse", "HEAD"),
                "hooks": [{"id": "switchgear-config-check"}, {"id": "switchgear-selftest"}],
            }
        ]
    }

    def checked(project: Path) -> Done:
        (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
        git(project, "add", "-A")
        command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"]
        return run(command, project, PRE_COMMIT_HOME=str(home))

    return checked


@pytest.fixture(scope="module")
def python(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a separate Python, as `actions/setup-python` puts it first in PATH, after the first step."""
    folder = tmp_path_factory.mktemp("python")
    made = run([sys.executable, "-m", "virtualenv", "--quiet", str(folder)], folder)
    assert made.returncode == 0, made.stderr
    [installed, _] = perform_action(clone, folder / "bin", folder, selftest="false")
    assert installed.returncode == 0, installed.stderr  # by default, the revision of the action
    return folder / "bin"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


def perform_action(clone: Path, python: Path, project: Path, **given: str) -> list[Done]:
    """The steps of the composite action with bash, as a runner of GitHub does them, up to one that fails."""
    action: Any = yaml.safe_load((clone / "action.yml").read_text())
    inputs = {name: one["default"] for name, one in action["inputs"].items()} | given
    about: dict[str, str] = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_ACTION_PATH": str(clone),
        "GITHUB_WORKSPACE": str(project),
        "PATH": f"{python}{os.pathsep}{os.environ['PATH']}",
    }

    def filled(text: str) -> str:
        return re.sub(r"\$\{\{ *inputs\.([\w-]+) *\}\}", lambda found: inputs[found[1]], text)

    done: list[Done] = []
    for step in action["runs"]["steps"]:
        if "uses" in step:
            assert step["uses"].startswith("actions/setup-python@")
            continue
        if condition := step.get("if"):
            found = re.fullmatch(r"inputs\.([\w-]+) == '(\w+)'", condition)
            assert found, condition
            if inputs[found[1]] != found[2]:
                continue
        environ = {name: filled(value) for name, value in step.get("env", {}).items()}
        assert step["shell"] == "bash"
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
        done.append(run(command, project, **about, **environ))
        if done[-1].returncode:
            break
    return done


def test_pre_commit_accepts_a_good_configuration(
    pre_commit: Callable[[Path], Done], project: Path
) -> None:
    (project / "switchgear.yaml").write_text(GOOD)
    done = pre_commit(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Passed") == 2, done.stdout


@pytest.mark.parametrize(("text", "says"), [(BAD, "providr"), (CANNOT_FIRE, "talk_debt")])
def test_pre_commit_stops_a_bad_configuration(
    pre_commit: Callable[[Path], Done], project: Path, text: str, says: str
) -> None:
    (project / "switchgear.yaml").write_text(text)
    done = pre_commit(project)
    assert done.returncode == 1
    assert says in done.stdout


def test_pre_commit_ignores_other_files(pre_commit: Callable[[Path], Done], project: Path) -> None:
    (project / "notes.md").write_text("none")
    done = pre_commit(project)
    assert done.returncode == 0
    assert done.stdout.count("Skipped") == 2, done.stdout


def test_the_action_accepts_the_configuration_that_config_init_writes(
    clone: Path, python: Path, project: Path
) -> None:
    made = run([str(python / "switchgear"), "config", "init", "--yes"], project)
    assert made.returncode == 0, made.stderr
    for given in ({}, {"config": "switchgear.yaml"}):
        done = perform_action(clone, python, project, **INSTALLED, **given)
        assert [each.returncode for each in done] == [0, 0, 0], done[-1].stdout + done[-1].stderr
        assert "every guard fires" in done[-1].stdout


@pytest.mark.parametrize(("text", "steps"), [(BAD, 2), (CANNOT_FIRE, 3)])
def test_the_action_fails_with_a_bad_configuration(
    clone: Path, python: Path, project: Path, text: str, steps: int
) -> None:
    (project / "other.yaml").write_text(text)
    done = perform_action(clone, python, project, **INSTALLED, config="other.yaml")
    assert len(done) == steps, done[-1].stderr
    assert done[-1].returncode in {1, 2}


def test_an_input_of_the_action_runs_no_command(clone: Path, python: Path, project: Path) -> None:
    config = '$(touch ran); "; touch ran'
    done = perform_action(clone, python, project, **INSTALLED, config=config)
    assert done[-1].returncode == 2
    assert not (project / "ran").exists()
