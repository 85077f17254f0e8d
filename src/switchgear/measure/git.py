"""The states of a git repository as trees: made with an index of our own, seen by nobody else.

`git add -A` on a private index and `git write-tree` give one hash for everything in the working
folder that is not ignored, whether committed or not. The user's index, branches and stash are
never touched; only a checkpoint leaves a reference, under `refs/switchgear/`.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from switchgear.measure.tree import Change

EXCLUDE_OURS = ":(exclude,top,glob)**/.switchgear/**"
TIMEOUT_S = 120.0


class GitError(Exception):
    """A git command failed: what it was and what it said."""


class Git:
    """The git command in one repository. Reads nothing from the terminal, asks nobody anything."""

    def __init__(self, top: Path, git_dir: Path) -> None:
        self.top = top
        self.git_dir = git_dir

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """The repository that a folder is in; `None` if it is in none, or git is missing."""
        if shutil.which("git") is None:
            return None
        asked = ["rev-parse", "--show-toplevel", "--absolute-git-dir"]
        try:
            found = run_git(folder, asked).splitlines()
        except GitError:
            return None
        return cls(Path(found[0]), Path(found[1])) if len(found) == 2 else None

    def __call__(self, *arguments: str, index: Path | None = None) -> str:
        """What the command prints. Raises `GitError`."""
        return run_git(self.top, arguments, index=index)


class GitTree:
    """The working folder of a repository. A mark is the hash of a git tree."""

    def __init__(self, git: Git, folder: Path, notes: Path) -> None:
        self._git = git
        self._folder = folder
        self._index = notes / "index"
        notes.mkdir(parents=True, exist_ok=True)
        self._copy_users_index()

    def mark(self) -> str:
        """The state now, ignored files and our own folder left out."""
        self._git("add", "--all", "--", ".", EXCLUDE_OURS, index=self._index)
        return self._git("write-tree", index=self._index).strip()

    def change(self, before: str, after: str) -> "Change":
        """What differs between two marks."""
        from switchgear.measure.tree import Change  # noqa: PLC0415  it opens us

        if before == after:
            return Change()
        listed = self._git("diff-tree", "-r", "-z", "--no-renames", "--name-status", before, after)
        fields = listed.split("\0")[:-1]
        kinds: dict[str, list[str]] = {"A": [], "M": [], "D": []}
        for kind, path in zip(fields[::2], fields[1::2], strict=True):
            kinds.get(kind, kinds["M"]).append(path)
        return Change(tuple(kinds["A"]), tuple(kinds["M"]), tuple(kinds["D"]))

    def keep(self, mark: str, name: str, message: str) -> str:
        """Commit the state on a private reference, and say how to look at it."""
        parent = self._head()
        commit = self._git(
            "-c",
            "user.name=switchgear",
            "-c",
            "user.email=switchgear@localhost",
            "commit-tree",
            mark,
            *(("-p", parent) if parent else ()),
            "-m",
            message,
        ).strip()
        reference = f"refs/switchgear/{name}"
        self._git("update-ref", reference, commit)
        return f"git diff HEAD {reference}"

    def _head(self) -> str | None:
        try:
            return self._git("rev-parse", "--verify", "--quiet", "HEAD").strip() or None
        except GitError:
            return None  # a repository without a commit

    def _copy_users_index(self) -> None:
        """Begin with what git already knows of the files, so that it need not read them all."""
        theirs = self._git.git_dir / "index"
        if not self._index.exists() and theirs.exists():
            shutil.copyfile(theirs, self._index)


def run_git(
    folder: Path, arguments: "list[str] | tuple[str, ...]", index: Path | None = None
) -> str:
    """Run git without any of the caller's git variables, hooks or editors. Raises `GitError`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false", *arguments]
    try:
        done = subprocess.run(  # noqa: S603  the arguments are ours
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(f"git {arguments[0]} in {folder}: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise GitError(f"git {arguments[0]} in {folder}: {said}")
    return done.stdout.decode(errors="surrogateescape")
