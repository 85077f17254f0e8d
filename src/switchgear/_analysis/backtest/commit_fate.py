"""What became of a commit that a recorded session made: kept, rewritten, reverted or gone."""

from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from switchgear._agents.recordings.recording import FIRST_DATE_S
from switchgear._measure.git_command import Deadline, GitError, find_repository, run_git

_GIT_S = 3.0
_SHORT_SUBJECT = 10
"""A commit is not searched for by a shorter subject: others have the same."""
_BRANCHES = ("refs/heads", "refs/remotes")
_LOOKED_THROUGH = 2000
"""Commits that are compared by the time of their author."""

Git = Callable[..., str]


class Fate(StrEnum):
    UNKNOWN = "unknown"
    """There is no repository that could show it."""
    KEPT = "kept"
    REWRITTEN = "rewritten"
    """Amended, rebased or squashed: a later commit has its author and time, or its subject."""
    REVERTED = "reverted"
    DROPPED = "dropped"
    """The repository has it, on no branch."""
    LOST = "lost"
    """The repository does not have it: it was removed, or made in another repository."""


class CommitFate(NamedTuple):
    fate: Fate
    commit: str = ""
    """The commit that holds its work now, or that reverted it."""


def fate_of(folder: str, commit: str, subject: str, at_s: float | None) -> CommitFate:
    """What became of a commit, in the repository of a folder. `at_s`: when it was made."""
    deadline = Deadline(_GIT_S)
    try:
        repository = find_repository(Path(folder)) if folder.startswith("/") else None
        if repository is None:
            return CommitFate(Fate.UNKNOWN)

        def git(*words: str) -> str:
            words = ("--git-dir", str(repository.git_dir), *words)
            return run_git(repository.top, words, deadline=deadline).strip()

        name = ""
        with suppress(GitError):  # it is no object of the repository any longer
            name = git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
        if name and git("for-each-ref", "--count=1", f"--contains={name}", *_BRANCHES):
            undone_by = _revert_of(git, name)
            return CommitFate(Fate.REVERTED if undone_by else Fate.KEPT, undone_by or name)
        if not name and git("rev-parse", "--is-shallow-repository") == "true":
            return CommitFate(Fate.UNKNOWN)
        now = (_same_author_and_time(git, name) if name else "") or _same_subject(
            git, subject, at_s
        )
        if now:
            return CommitFate(Fate.REWRITTEN, now)
        return CommitFate(Fate.DROPPED if name else Fate.LOST)
    except (GitError, OSError, ValueError):
        return CommitFate(Fate.UNKNOWN)


def _revert_of(git: Git, name: str) -> str:
    """The commit on a branch that reverted this one, and was not reverted itself; empty: none."""
    by = _search(git, f"This reverts commit {name}", f"^{name}")
    return by if by and not _search(git, f"This reverts commit {by}", f"^{by}") else ""


def _same_author_and_time(git: Git, name: str) -> str:
    """The commit on a branch with the author and author's time of this one: `--amend` and rebases keep them."""
    known = git("show", "--no-patch", "--format=%at %ae", name)
    since = f"--since={int(known.partition(' ')[0]) - 60}"
    most = f"--max-count={_LOOKED_THROUGH}"
    newer = ("--branches", "--remotes", "--not", name)  # two commits of one second are not the same
    found = git("log", since, most, "--format=%H %at %ae", *newer)
    rows = (line.partition(" ") for line in found.splitlines())
    return next((commit for commit, _, rest in rows if rest == known), "")


def _same_subject(git: Git, subject: str, at_s: float | None) -> str:
    since = [f"--since={int(at_s) - 60}"] if at_s is not None and at_s > FIRST_DATE_S else []
    return "" if len(subject) < _SHORT_SUBJECT else _search(git, subject, *since)


def _search(git: Git, text: str, *options: str) -> str:
    """The newest commit on a branch whose message contains a text; empty: none."""
    sought = ("--fixed-strings", f"--grep={text}", "--max-count=1", "--format=%H")
    return git("log", "--branches", "--remotes", *options, *sought)
