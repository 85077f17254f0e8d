"""The shareable hooks, installed and run by the real CLIs: a forbidden call is refused, a harmless one runs."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.agents.hooked import Guarded, ScriptedModel, shell
from e2e.agents.installation import REQUIRED, program
from e2e.agents.worlds import world_of

pytestmark = [pytest.mark.e2e_agents, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[3]
INSTALLING = {
    "claude": (
        ("plugin", "validate", str(ROOT / "plugins" / "claude-code")),
        ("plugin", "marketplace", "add", str(ROOT)),
        ("plugin", "install", "switchgear@switchgear"),
    ),
    "codex": (
        ("plugin", "marketplace", "add", str(ROOT)),
        ("plugin", "add", "switchgear@switchgear"),
    ),
    "gemini": (
        ("extensions", "validate", str(ROOT / "plugins" / "gemini")),
        ("extensions", "link", str(ROOT / "plugins" / "gemini"), "--consent"),
    ),
}
"""What a user types, by agent."""


@pytest.fixture(params=INSTALLING)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    if not program(chosen).exists():
        message = f"{chosen} is not installed; `make e2e` installs it"
        if chosen in REQUIRED:
            pytest.fail(message)
        pytest.skip(message)
    return chosen


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(*shell("git push --force origin main", "echo fine > done.txt")) as server:
        yield server
        assert server.problems == []


def installed(name: str, model: ScriptedModel, project: Path, home: Path) -> Guarded:
    guarded = Guarded(name, world_of(name, model.url, home), project)
    for words in INSTALLING[name]:
        done = subprocess.run(
            [str(program(name)), *words],
            cwd=project,
            env=guarded.env,
            input="y\n",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return guarded


def test_a_plugin_guards_an_agent_without_any_settings_of_the_project(
    name: str, model: ScriptedModel, project: Path, tmp_path: Path
) -> None:
    guarded = installed(name, model, project, tmp_path / "home")
    ended = guarded.run()
    assert model.was_told("Switchgear refused this call"), ended.output[-3000:]
    assert (project / "done.txt").read_text() == "fine\n", ended.output[-3000:]
    assert any(event["kind"] == "rule_broken" for event in guarded.events())


def test_a_plugin_without_switchgear_refuses_and_reports_how_to_install_it(
    name: str, model: ScriptedModel, project: Path, tmp_path: Path
) -> None:
    guarded = installed(name, model, project, tmp_path / "home")
    guarded.env = guarded.world.env  # without our command on PATH
    ended = guarded.run()
    assert not (project / "done.txt").exists(), ended.output[-3000:]
    assert model.was_told("Switchgear is not installed"), ended.output[-3000:]
