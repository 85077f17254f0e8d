"""`--commit`: what a validated iteration changed becomes a commit of the user's, with their hooks.

Only paths that the run changed are committed; what else lies in the folder or the index is left
as it is. A commit that is refused is said and is no failure of the iteration.
"""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from switchgear.measure.git_command import Git
from switchgear.measure.tree import OURS
from switchgear.redact import redact

TIMEOUT_S = 600.0
"""Hooks of the user's may run their tests."""
_PLACES = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_NAMESPACE"})
"""Variables that would send us to another repository: we may run inside somebody's hook."""


class Committed(NamedTuple):
    """What became of it."""

    commit: str | None = None
    """Its hash; `None`: there was nothing to commit, or it was refused."""
    problem: str | None = None


def commit_paths(folder: Path, paths: Iterable[str], message: str) -> Committed:
    """Commit these paths, relative to the top of the repository, as far as they differ."""
    git = Git.find(folder)
    if git is None:
        return Committed(problem="nothing was committed: the folder is in no git repository")
    wanted = {path for path in paths if OURS not in Path(path).parts}
    try:
        dirty = _dirty(git.top) & wanted
        if not dirty:
            return Committed()
        listed = "\0".join(sorted(dirty)).encode(errors="surrogateescape")
        named = ("--pathspec-from-file=-", "--pathspec-file-nul")
        _git(git.top, ("add", "--all", *named), listed)
        _git(git.top, ("commit", "--quiet", "-m", message, "--only", *named), listed)
        return Committed(_git(git.top, ("rev-parse", "HEAD")).strip())
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or b"").decode(errors="replace")
        return Committed(problem=f"the commit was refused: {redact(said, 400)}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Committed(problem=f"the commit failed: {redact(str(error), 400)}")


def message_of(task: str, run: str, iteration: int) -> str:
    """The message of a commit: the task in a line, and where it comes from."""
    first = " ".join(task.split())[:60]
    return f"{first}\n\nIteration {iteration} of switchgear run {run}"


def _dirty(top: Path) -> set[str]:
    listed = _git(top, ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all"))
    return {entry[3:] for entry in listed.split("\0") if entry}


def _git(top: Path, arguments: tuple[str, ...], told: bytes = b"") -> str:
    environment = {key: value for key, value in os.environ.items() if key not in _PLACES}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_LITERAL_PATHSPECS": "1"}
    done = subprocess.run(  # noqa: S603  the arguments are ours
        ["git", *arguments],  # noqa: S607  the user's git
        cwd=top,
        env=environment,
        input=told,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return done.stdout.decode(errors="surrogateescape")
