"""Installed agents in clean worlds, talking to a scripted API: for all tests with real CLIs."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.agents.fake_llm import ScriptedApi
from e2e.agents.installation import PACKAGES, REQUIRED, why_missing
from e2e.agents.worlds import World, world_of


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    """Plays "short" until told otherwise: `api.play("same-error")`, `api.refuse()`."""
    with ScriptedApi() as server:
        yield server
        assert server.problems == []


@pytest.fixture(params=PACKAGES)
def agent_name(request: pytest.FixtureRequest) -> str:
    """Each agent CLI in turn."""
    name: str = request.param
    reason = why_missing(name)
    if reason is not None and name in REQUIRED:
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    return name


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for each agent and session: what an agent sets up at its first start, it keeps."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture
def world(agent_name: str, api: ScriptedApi, homes: Path) -> World:
    """The agent, its model and its environment."""
    return world_of(agent_name, api.url, homes / agent_name)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git repository with one commit."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "README.md").write_text("# Project\n")
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Start"]):
        subprocess.run([*git, *command], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def make_world(api: ScriptedApi, homes: Path) -> Callable[[str], World]:
    """The world of an agent by name, for tests that need one in particular."""
    return lambda name: world_of(name, api.url, homes / name)
