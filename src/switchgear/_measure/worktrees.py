"""Worktrees, added at a cost that does not grow with their number.

`git worktree add` reads all worktrees of the repository: 10 ms for the first one, 60 ms for the thousandth.
This writes the same files, in the order that git does, and lets git check the files out.
"""

import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from switchgear._measure.git_command import (
    Deadline,
    GitError,
    Repository,
    repository_at,
    run_git,
)


def add_worktree(
    top: Path, tree: Path, branch: str, start: str, deadline: Deadline | None = None
) -> None:
    """Add a worktree with a new branch that starts at `start`, or with the existing branch. Raises `GitError`.

    The folder is renamed into place when it is complete, so a kill leaves no partial worktree.
    """
    found = repository_at(top)
    own_settings = ("config.worktree", "info/sparse-checkout")
    if found is None or any((found.git_dir / name).exists() for name in own_settings):
        add = ["worktree", "add", "--quiet", "-b", branch, str(tree), start]
        run_git(top, add, deadline=deadline)
        return
    try:
        _add(found, tree, f"refs/heads/{branch}", start, deadline)
    except OSError as error:
        raise GitError(f"a worktree in {tree}: {error}") from error


def _add(found: Repository, tree: Path, branch: str, start: str, deadline: Deadline | None) -> None:
    # `start` is a commit or a generated name, so it cannot be an option or a range.
    commit = run_git(found.top, ["rev-parse", "--verify", f"{start}^{{commit}}"]).strip()
    try:
        run_git(found.top, ["update-ref", branch, commit, ""])
    except GitError:
        run_git(found.top, ["rev-parse", "--verify", "--quiet", branch])  # it exists: use it
    tree.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(6)
    admin = found.common_dir / "worktrees" / f"switchgear-{token}"
    new = tree.with_name(f".new-{token}")
    try:
        admin.mkdir(parents=True)
        new.mkdir()
        (admin / "locked").write_text("initializing\n")  # or `git worktree prune` may remove it
        (admin / "commondir").write_text("../..\n")
        (admin / "HEAD").write_text(f"ref: {branch}\n")
        (admin / "gitdir").write_text(f"{tree.resolve() / '.git'}\n")
        (new / ".git").write_text(f"gitdir: {admin.resolve()}\n")
        checkout = ["reset", "--quiet", "--hard", "--no-recurse-submodules"]
        run_git(new, checkout, deadline=deadline)
        new.rename(tree)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(admin, ignore_errors=True)
        raise
    with suppress(FileNotFoundError):
        (admin / "locked").unlink()
