"""Which files of the guard git would remove."""

import subprocess
from pathlib import Path

import pytest

from switchgear._hooks.git_state import discarded_file


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize("inside", [".", "packages/app"])
def test_a_committed_file_survives_a_reset_wherever_its_project_is(
    tmp_path: Path, inside: str
) -> None:
    root = tmp_path / inside
    root.mkdir(parents=True, exist_ok=True)
    sweeps = [f"modified:{root}", f"uncommitted:{root}"]
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "start")
    (root / "switchgear.yaml").write_text("store: 'memory:'\n")
    git(tmp_path, "add", "-A")
    assert discarded_file(sweeps, str(root)) == "switchgear.yaml"
    git(tmp_path, "commit", "-q", "-m", "guard")
    assert discarded_file(sweeps, str(root)) == ""
    (root / "switchgear.yaml").write_text("store: 'sqlite:///x'\n")
    assert discarded_file(sweeps, str(root)) == "switchgear.yaml"
