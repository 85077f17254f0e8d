"""Which files of the guard git would remove."""

import itertools
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from switchgear._hooks import git_state
from switchgear._hooks.git_state import MAX_PATH_BYTES, _entries, discarded_file


def git(folder: Path, *words: str, check: bool = True) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    subprocess.run(["git", *who, *words], cwd=folder, check=check, capture_output=True)


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


def test_a_tracked_file_whose_name_looks_like_the_flags_of_an_entry_is_another_file(
    tmp_path: Path,
) -> None:
    """The two characters before the name have the value of the flags of `switchgear.yaml`."""
    git(tmp_path, "init", "-q")
    (tmp_path / "a0\x0fswitchgear.yaml").write_text("a copy\n")
    git(tmp_path, "add", "-A")
    (tmp_path / "switchgear.yaml").write_text("store: 'memory:'\n")
    assert discarded_file([f"untracked:{tmp_path}"], str(tmp_path)) == "switchgear.yaml"


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("digest", ["sha1", "sha256"])
def test_a_modified_file_is_found_in_every_format_of_the_index(
    tmp_path: Path, digest: str, version: int
) -> None:
    """Version 4 shortens the paths, and `feature.manyFiles` selects it."""
    git(tmp_path, "init", "-q", f"--object-format={digest}")
    for name in ("src/app.py", "switch.py", "switchgear.yaml", "z.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "update-index", "--index-version", str(version))
    assert discarded_file([f"untracked:{tmp_path}"], str(tmp_path)) == ""
    (tmp_path / "switchgear.yaml").write_text("y\n")
    assert discarded_file([f"modified:{tmp_path}"], str(tmp_path)) == "switchgear.yaml"


@pytest.mark.parametrize("index", [b"DIRC\0\0\0\x09\0\0\0\x01", b"DIRC\0\0\0\x02\0\0\0\x01short"])
def test_every_file_counts_as_discarded_if_the_index_cannot_be_parsed(
    tmp_path: Path, index: bytes
) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "switchgear.yaml").write_text("store: 'memory:'\n")
    (tmp_path / ".git" / "index").write_bytes(index)
    for kind in ("untracked", "modified", "uncommitted", "tracked"):
        assert discarded_file([f"{kind}:{tmp_path}"], str(tmp_path)) == "switchgear.yaml"


@pytest.mark.parametrize("index", ["empty", "too large", "a pipe", "a folder", "a broken link"])
def test_every_file_counts_as_discarded_if_the_index_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "switchgear.yaml").write_text("store: 'memory:'\n")
    git(tmp_path, "add", "-A")
    path = tmp_path / ".git" / "index"
    if index == "too large":
        monkeypatch.setattr(git_state, "MAX_INDEX_BYTES", 10)
    else:
        path.unlink()
        make: dict[str, Callable[[], object]] = {
            "empty": path.touch,
            "a pipe": partial(os.mkfifo, path),
            "a folder": path.mkdir,
            "a broken link": partial(path.symlink_to, tmp_path / "gone"),
        }
        make[index]()
    for kind in ("untracked", "modified", "uncommitted", "tracked"):
        assert discarded_file([f"{kind}:{tmp_path}"], str(tmp_path)) == "switchgear.yaml"


def test_without_an_index_every_file_is_untracked(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "switchgear.yaml").write_text("store: 'memory:'\n")
    assert discarded_file([f"untracked:{tmp_path}"], str(tmp_path)) == "switchgear.yaml"
    assert discarded_file([f"modified:{tmp_path}"], str(tmp_path)) == ""


def test_every_file_counts_as_discarded_if_the_index_is_split(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "switchgear.yaml").write_text("store: 'memory:'\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "update-index", "--split-index")
    (tmp_path / "switchgear.yaml").write_text("store: 'sqlite:///x'\n")
    assert discarded_file([f"modified:{tmp_path}"], str(tmp_path)) == "switchgear.yaml"


def test_a_file_with_a_merge_conflict_is_modified(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    path = tmp_path / "switchgear.yaml"
    for branch, text in (("main", "0\n"), ("one", "1\n"), ("two", "2\n")):
        git(tmp_path, "checkout", "-q", "-B", branch, *(["main"] if branch != "main" else []))
        path.write_text(text)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-q", "-m", branch)
    git(tmp_path, "merge", "one", check=False)  # a conflict
    for text in ("0\n", "1\n", "2\n"):
        path.write_text(text)
        assert discarded_file([f"modified:{tmp_path}"], str(tmp_path)) == "switchgear.yaml"


def test_an_index_of_ever_longer_paths_is_not_parsed_to_the_end(tmp_path: Path) -> None:
    """In version 4, 12 MB can have paths of a terabyte."""
    count = 100_000
    entries = [
        bytes(60) + min(50 * (n + 1), 0xFFF).to_bytes(2, "big") + b"\0" + b"x" * 50 + b"\0"
        for n in range(count)
    ]
    git(tmp_path, "init", "-q")
    (tmp_path / "switchgear.yaml").write_text("store: 'memory:'\n")
    header = b"DIRC" + (4).to_bytes(4, "big") + count.to_bytes(4, "big")
    (tmp_path / ".git" / "index").write_bytes(header + b"".join(entries))
    assert discarded_file([f"modified:{tmp_path}"], str(tmp_path)) == "switchgear.yaml"
    parsed = itertools.count()
    with pytest.raises(ValueError, match=r"^$"):
        for _ in _entries((tmp_path / ".git" / "index").read_bytes(), 20):
            next(parsed)
    assert next(parsed) == MAX_PATH_BYTES // 50
