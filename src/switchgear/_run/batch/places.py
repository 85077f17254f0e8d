"""Where tasks work: a folder, a git worktree of their own, or the stand-in's throw-away project.

A worktree has a branch. It begins where the tasks that it needs ended, and what it did is committed
there, so that whoever needs it finds it, and the user merges it when they like.
"""

import contextlib
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path

from switchgear._agents.demo import make_repository
from switchgear._measure.git_command import Git, GitError, run_git
from switchgear._run.batch.model import Progress, Task

LONGEST_BYTES = 180
"""Of one part: with git's own suffixes it still fits into a file name of 255 bytes."""
_NOT_ALLOWED = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\]\\/@{}'\"`$&|;<>()!#%]|\.{2,}|^[-.]|\.$|\.lock$", re.IGNORECASE
)


def branch_parts(names: Iterable[str]) -> dict[str, str]:
    """For each name a part of a branch name that is valid, and differs from all others by more than case.

    A name that is valid by itself stays as it is, unless it differs from an earlier one only in case.

    >>> branch_parts(["parser", "Parser", "v1..v2"])
    {'parser': 'parser', 'Parser': 'Parser-35f2953e', 'v1..v2': 'v1-v2-ab7737d5'}
    """
    parts: dict[str, str] = {}
    used: set[str] = set()
    for name in sorted(
        names, key=lambda name: (_valid(name) != name, name != name.casefold(), name)
    ):
        part = _valid(name)
        if part != name or _folded(part) in used:
            part = f"{part}-{blake2b(name.encode(errors='surrogateescape'), digest_size=4).hexdigest()}"
        used.add(_folded(part))
        parts[name] = part
    return parts


def _valid(name: str) -> str:
    part = unicodedata.normalize("NFC", name)
    before = None
    while before != part:  # taking a suffix away may leave another one
        before, part = part, _NOT_ALLOWED.sub("-", part)
        while len(part.encode(errors="replace")) > LONGEST_BYTES:
            part = part[:-1]
    return part.strip("-") or "task"


def _folded(part: str) -> str:
    return unicodedata.normalize("NFC", part.casefold())


class PlaceTrouble(Exception):
    """A task has no place to work; the sentence says why."""


class Places:
    """The places of one batch. Used by one thread.

    `home` is the batch's folder, `base` where tasks work that name no folder, `names` those of all
    tasks: they must not share a branch.
    """

    def __init__(self, home: Path, base: Path, names: Iterable[str] = ()) -> None:
        self._home = home
        self._base = base
        self._parts = branch_parts(names)

    def tree_of(self, task: Task) -> str | None:
        """The working tree that the task changes; `None`: it has one of its own."""
        if task.worktree or task.is_demo:
            return None
        folder = self._folder(task)
        git = Git.find(folder)
        return str((folder if git is None else git.top).resolve())

    def give(self, task: Task, progress: Progress, others: Mapping[str, Progress]) -> Progress:
        """The task's progress with its place, made if it is not there. Raises `PlaceTrouble`."""
        if progress.folder is not None and Path(progress.folder).is_dir():
            return progress
        if task.is_demo:
            folder = self._home / "demo" / f"{task.name}-{progress.attempts + 1}"
            try:
                if folder.exists():  # a process began to make it, and did not live to say so
                    shutil.rmtree(folder)
                make_repository(folder)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise PlaceTrouble(f"the stand-in's project could not be made: {error}") from error
            return progress._replace(folder=str(folder))
        if not task.worktree:
            folder = self._folder(task)
            if not folder.is_dir():
                raise PlaceTrouble(f"the folder {folder} is not there any more")
            return progress._replace(folder=str(folder))
        needed = [others[need].branch for need in task.needs]
        return self._worktree(task, progress, [branch for branch in needed if branch])

    def take_back(self, task: Task, progress: Progress) -> Progress:
        """For a new start: a place of the task's own is given up, anybody else's is left as it is."""
        if task.worktree and progress.branch is not None:
            with contextlib.suppress(GitError, PlaceTrouble):
                top = self._top(task)
                run_git(top, ["worktree", "remove", "--force", str(self._tree(top, task))])
                run_git(top, ["branch", "-D", progress.branch])
        if task.worktree or task.is_demo:
            return progress._replace(folder=None, branch=None)
        return progress

    def keep(self, task: Task, progress: Progress) -> str | None:
        """Commit what was done in a worktree. Returns what went wrong, if anything did."""
        if not task.worktree or progress.folder is None:
            return None
        tree = Path(progress.folder)
        problem = None
        try:
            try:
                run_git(tree, ["add", "--all", ":/"])
            except GitError as error:  # such as a repository inside that has no commit yet
                problem = f"not everything was committed to {progress.branch}: {error}"
                with contextlib.suppress(GitError):
                    run_git(tree, ["add", "--all", "--ignore-errors", ":/"])
            if run_git(tree, ["status", "--porcelain", "--untracked-files=no"]).strip():
                first = " ".join(task.words.split())[:60]
                _commit(tree, ["commit", "--quiet", "-m", f"{task.name}: {first}"])
        except GitError as error:
            return f"what was done could not be committed to {progress.branch}: {error}"
        return problem

    def _worktree(self, task: Task, progress: Progress, needed: list[str]) -> Progress:
        top = self._top(task)
        inside = self._folder(task).resolve().relative_to(top.resolve())
        branch = f"switchgear/{self._home.name}/{self._part(task)}"
        tree = self._tree(top, task)
        try:
            if not tree.is_dir():  # else a process made it that did not live to say so
                start = needed[0] if needed else "HEAD"
                run_git(top, ["worktree", "add", "--quiet", "-b", branch, str(tree), start])
        except GitError as error:
            raise PlaceTrouble(f"no worktree could be made: {error}") from error
        for other in needed[1:]:
            try:
                _commit(tree, ["merge", "--quiet", "--no-edit", other])
            except GitError as error:
                raise PlaceTrouble(
                    f"the work of {needed[0]} and {other} cannot be merged; do so in {tree}: {error}"
                ) from error
        return progress._replace(folder=str(tree / inside), branch=branch)

    def _tree(self, top: Path, task: Task) -> Path:
        """Beside the repository: our own folder in it is closed to agents, by the rules of hooks."""
        return top.parent / f"{top.name}-trees" / self._home.name / self._part(task)

    def _part(self, task: Task) -> str:
        """The task's part of the names of its branch and its worktree."""
        return self._parts.get(task.name) or branch_parts([task.name])[task.name]

    def _folder(self, task: Task) -> Path:
        return self._base if task.cwd is None else Path(task.cwd)

    def _top(self, task: Task) -> Path:
        git = Git.find(self._folder(task))
        if git is None:
            raise PlaceTrouble(f"{self._folder(task)} is no git repository: it has no worktrees")
        return git.top


def _commit(tree: Path, arguments: list[str]) -> None:
    """A commit by the user, or by us where git does not know who that is."""
    try:
        run_git(tree, ["config", "user.email"])
        who = []
    except GitError:
        who = ["-c", "user.name=switchgear", "-c", "user.email=switchgear@localhost"]
    run_git(tree, [*who, *arguments])
