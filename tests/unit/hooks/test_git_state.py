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


def test_a_tracked_file_of_the_same_name_in_a_folder_is_another_file(tmp_path: Path) -> None:
    """The index has whole paths: `docs/switchgear.yaml` ends like `switchgear.yaml`."""
    git(tmp_path, "init", "-q")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "switchgear.yaml").write_text("an example\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "docs")
    (tmp_path / "switchgear.yaml").write_text("store: 'memory:'\n")
    assert discarded_file([f"untracked:{tmp_path}"], str(tmp_path)) == "switchgear.yaml"
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "guard")
    sweeps = [f"{kind}:{tmp_path}" for kind in ("untracked", "modified", "uncommitted")]
    assert discarded_file(sweeps, str(tmp_path)) == ""


def test_a_file_with_extended_flags_in_the_index_is_tracked(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "switchgear.yaml").write_text("store: 'memory:'\n")
    git(tmp_path, "add", "--intent-to-add", "switchgear.yaml")
    assert discarded_file([f"untracked:{tmp_path}"], str(tmp_path)) == ""
