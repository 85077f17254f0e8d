"""The git command, run so that neither the environment nor the repository can redirect it.

An agent may write anything into a repository's configuration: filters, monitors, hooks, aliases. Our
own repository (see git_base.py) has none of these. In the user's repository, settings that would run a
program are switched off.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from switchgear._system.files import read_regular

STOPPING_S = 20.0
"""Seconds to which a request to stop shortens a time limit."""


class TimeIsUp(Exception):
    """The time limit was reached, or the work was cancelled."""


class Deadline:
    """A time limit for a piece of work, including all processes that it starts.

    Used by one thread; `stop` and `kill` may be called from a signal handler.
    """

    def __init__(self, seconds: float) -> None:
        self._until_s = time.monotonic() + seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False
        self._whole: Deadline | None = None

    def part(self, seconds: float) -> "Deadline":
        """A limit for a part of the work: `seconds`, but at most what is left of this limit."""
        part = Deadline(seconds)
        part._whole = self
        return part

    @property
    def cancelled(self) -> bool:
        return self._is_cancelled or (self._whole is not None and self._whole.cancelled)

    def stop(self) -> None:
        self._until_s = min(self._until_s, time.monotonic() + STOPPING_S)

    def kill(self) -> None:
        self._is_cancelled = True
        self._until_s = 0.0
        if self._process is not None:
            kill_group(self._process)

    @property
    def left_s(self) -> float:
        """The remaining seconds, never negative."""
        left_s = max(0.0, self._until_s - time.monotonic())
        return left_s if self._whole is None else min(left_s, self._whole.left_s)

    @property
    def is_over(self) -> bool:
        return self.left_s <= 0

    def watch(self, process: subprocess.Popen[bytes] | None) -> None:
        """Set the process to kill when the work is cancelled; `None`: there is none now."""
        self._process = process
        if self._whole is not None:
            self._whole.watch(process)
        if process is not None and self.cancelled:
            kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its own session, with its whole group."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


TIMEOUT_S = 120.0
CHECK_S = 1.0
"""Seconds between checks whether the time limit of a running command was shortened."""
_QUIET = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.quotePath=false", "gc.auto=0"),
    *("maintenance.auto=false", "commit.gpgSign=false", "core.alternateRefsCommand="),
    "log.showSignature=false",
)


class GitError(Exception):
    """A git command failed: the command and its message."""


class Repository(NamedTuple):
    """The folders of a repository: its working folder, its git folder, and the git folder that worktrees share."""

    top: Path
    git_dir: Path
    common_dir: Path

    @property
    def objects(self) -> Path:
        return self.common_dir / "objects"


def find_repository(folder: Path) -> Repository | None:
    """The repository that contains a folder, found by its `.git`; `None`: there is none.

    Does not run git, which refuses folders of other users (`safe.directory`) and obeys untrusted
    configuration.
    """
    here = folder.resolve()
    for top in (here, *here.parents):
        found = repository_at(top)
        if found is not None:
            return found
    return None


def repository_at(top: Path) -> Repository | None:
    """The repository whose working folder this is; `None`: it is not one."""
    git_dir = top / ".git"
    try:
        if git_dir.is_file():
            content = read_regular(git_dir, 4096).decode(errors="surrogateescape")
            if not content.startswith("gitdir:"):
                return None
            git_dir = (top / content.removeprefix("gitdir:").strip()).resolve()
        if not (git_dir / "HEAD").is_file():
            return None
        common = git_dir / "commondir"
        shared = git_dir
        if common.is_file():
            content = read_regular(common, 4096).decode(errors="surrogateescape").strip()
            shared = (git_dir / content).resolve()
        is_whole = (shared / "objects").is_dir() and (shared / "refs").is_dir()
    except (OSError, ValueError):
        return None
    return Repository(top, git_dir, shared) if is_whole else None


def is_behind_link(top: Path, path: str) -> bool:
    """Whether a parent folder of the path is a link, so that the path is not part of the project."""
    return any((top / folder).is_symlink() for folder in list(Path(path).parents)[:-1])


_OPERATIONS = {
    "MERGE_HEAD": "a merge",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or `git am`",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick or a revert of several commits",
    "BISECT_LOG": "a bisection",
}


def in_progress(git: Repository, deadline: Deadline | None = None) -> str | None:
    """An unfinished operation of the user or conflicts, and what to do; `None`: there are none."""
    if operation := operation_of(git):
        return operation
    if run_git(git.top, ("ls-files", "--unmerged", "-z"), deadline=deadline):
        return conflicts_in(git.top)
    return None


def operation_of(git: Repository) -> str | None:
    """An unfinished operation of the user, and what to do; `None`: there is none."""
    for name, what in _OPERATIONS.items():
        if (git.git_dir / name).exists():
            return f"{what} is in progress in {git.top}; finish or abort it first"
    return None


def conflicts_in(top: Path) -> str:
    """What to do about conflicts in an index."""
    return f"the index of {top} has conflicts; resolve them first"


class Git(NamedTuple):
    """The git command in the user's repository. Never prompts or reads from the terminal."""

    top: Path
    git_dir: Path

    def __call__(self, *arguments: str, index: Path | None = None, stdin: str = "") -> str:
        """Run the command, and return its output. Raises `GitError`."""
        env = None if index is None else {"GIT_INDEX_FILE": str(index)}
        return run_git(self.top, arguments, stdin=stdin, env=env)


def clean_environment() -> dict[str, str]:
    """The environment without variables that redirect git, and with those that prevent prompts and locks."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return inherited | {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "LC_ALL": "C",
    }


def run_git(
    folder: Path,
    arguments: Sequence[str],
    *,
    stdin: str | bytes = b"",
    env: Mapping[str, str] | None = None,
    deadline: Deadline | None = None,
    complaints: list[str] | None = None,
) -> str:
    """Run a git command, and return its output. Raises `GitError`, also at the time limit.

    The standard error of a successful command is added to `complaints`.
    """
    deadline = deadline or Deadline(TIMEOUT_S)
    environment = clean_environment() | dict(env or {})
    settings = (word for setting in _QUIET for word in ("-c", setting))
    pairs = pairwise(("", *arguments))
    command = next(word for before, word in pairs if "-c" not in {before, word})
    what = f"git {command} in {folder}"
    if deadline.is_over:
        raise GitError(f"{what}: no time was left for it")
    try:
        process = subprocess.Popen(  # noqa: S603  the arguments are ours
            ["git", *settings, *arguments],  # noqa: S607  the user's git
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise GitError(f"{what}: {error}") from error
    with process:
        deadline.watch(process)
        try:
            data = stdin if isinstance(stdin, bytes) else stdin.encode(errors="surrogateescape")
            out, stderr = _communicate(process, data, deadline)
        except BaseException as error:
            kill_group(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise GitError(f"{what}: it did not end in time") from None
            raise
        finally:
            deadline.watch(None)
    complaint = stderr.decode(errors="replace").strip()
    if process.returncode:
        raise GitError(f"{what}: {complaint or f'exit code {process.returncode}'}")
    if complaints is not None:
        complaints.append(complaint)
    return out.decode(errors="surrogateescape")


def _communicate(
    process: "subprocess.Popen[bytes]", data: bytes | None, deadline: Deadline
) -> tuple[bytes, bytes]:
    """The standard output and error of a process. A request to stop may shorten the time limit meanwhile."""
    limit = deadline.part(TIMEOUT_S)
    while True:
        try:
            return process.communicate(data, timeout=min(limit.left_s, CHECK_S))
        except subprocess.TimeoutExpired:
            if limit.is_over:
                raise
            data = None  # `communicate` has kept the rest of the input
