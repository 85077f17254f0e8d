"""Worktrees are those of git, whatever the number of others."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from repositories import make_repository
from switchgear._measure import git_command, worktrees
from switchgear._measure.git_command import GitError
from switchgear._measure.worktrees import add_worktree

WHO = ("-c", "user.name=t", "-c", "user.email=t@localhost")


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *WHO, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    make_repository(folder)
    (folder / "sub").mkdir()
    (folder / "sub" / "file").write_text("one\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "start")
    return folder


def test_a_worktree_is_like_one_that_git_adds(project: Path, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "trees" / "ours"
    git(project, "worktree", "add", "-q", "-b", "theirs", str(theirs), "HEAD")
    add_worktree(project, ours, "switchgear/b/ours", "HEAD")
    for words in (("status", "--porcelain"), ("rev-parse", "HEAD"), ("ls-files", "-s"), ("diff",)):
        assert git(ours, *words) == git(theirs, *words)
    assert git(ours, "rev-parse", "--abbrev-ref", "HEAD") == "switchgear/b/ours\n"
    assert f"{ours} " in git(project, "worktree", "list")
    assert (theirs.stat().st_mode, (theirs / ".git").stat().st_mode) == (
        ours.stat().st_mode,
        (ours / ".git").stat().st_mode,
    )
    git(project, "worktree", "prune")
    (ours / "sub" / "file").write_text("two\n")
    git(ours, "commit", "-qam", "more")
    assert git(project, "log", "--format=%s", "switchgear/b/ours") == "more\nstart\n"
    with pytest.raises(subprocess.CalledProcessError):
        git(project, "checkout", "-q", "switchgear/b/ours")  # git knows where it is checked out
    git(project, "worktree", "remove", str(ours))
    assert not ours.exists()


def test_a_branch_that_exists_continues(project: Path, tmp_path: Path) -> None:
    add_worktree(project, tmp_path / "first", "switchgear/b/t", "HEAD")
    git(tmp_path / "first", "commit", "-q", "--allow-empty", "-m", "work")
    git(project, "worktree", "remove", str(tmp_path / "first"))
    add_worktree(project, tmp_path / "again", "switchgear/b/t", "HEAD")
    assert git(tmp_path / "again", "log", "--format=%s") == "work\nstart\n"


def test_from_a_worktree_the_shared_repository_is_used(project: Path, tmp_path: Path) -> None:
    add_worktree(project, tmp_path / "first", "switchgear/b/first", "HEAD")
    add_worktree(tmp_path / "first", tmp_path / "second", "switchgear/b/second", "HEAD")
    assert len(git(project, "worktree", "list").splitlines()) == 3
    assert (tmp_path / "second" / "sub" / "file").read_text() == "one\n"


def test_a_sparse_checkout_is_left_to_git(project: Path, tmp_path: Path) -> None:
    (project / "other").mkdir()
    (project / "other" / "file").write_text("other\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "other")
    git(project, "sparse-checkout", "set", "sub")
    add_worktree(project, tmp_path / "tree", "switchgear/b/t", "HEAD")
    assert (tmp_path / "tree" / "sub").exists()
    assert not (tmp_path / "tree" / "other").exists()


def test_a_failed_worktree_leaves_nothing_behind(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GitError):
        add_worktree(project, tmp_path / "tree", "switchgear/b/t", "no-such-commit")
    run = git_command.run_git

    def failing(folder: Path, arguments: list[str], **more: Any) -> str:
        if arguments[0] == "reset":
            raise GitError("the disk is full")
        return run(folder, arguments, **more)

    monkeypatch.setattr(worktrees, "run_git", failing)
    with pytest.raises(GitError, match="the disk is full"):
        add_worktree(project, tmp_path / "tree", "switchgear/b/t", "HEAD")
    assert [each.name for each in tmp_path.iterdir()] == ["project"]
    assert [*(project / ".git" / "worktrees").iterdir()] == []
