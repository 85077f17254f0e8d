"""What happened to a commit after a recorded session: kept, rewritten, reverted or lost."""

from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from switchgear._agents.recordings.recording import MIN_EPOCH_S
from switchgear._measure.git_command import Deadline, GitError, find_repository, run_git

_GIT_S = 3.0
_MIN_SUBJECT = 10
"""Characters: a shorter subject may be that of many commits, so it is not searched for."""
_BRANCHES = ("refs/heads", "refs/remotes")
_MAX_COMPARED = 2000
"""Maximum number of commits whose author and time are compared."""

Git = Callable[..., str]


class Fate(StrEnum):
    UNKNOWN = "unknown"
    """There is no repository to check."""
    KEPT = "kept"
    REWRITTEN = "rewritten"
    """Amended, rebased or squashed: a later commit has its author and time, or its subject."""
    REVERTED = "reverted"
    DROPPED = "dropped"
    """The repository has it, but on no branch."""
    LOST = "lost"
    """The repository does not have it: it was removed, or was made in another repository."""


class CommitFate(NamedTuple):
    fate: Fate
    commit: str = ""
    """The commit that now contains the work, or that reverted it."""


def fate_of(folder: str, commit: str, subject: str, at_s: float | None) -> CommitFate:
    """What happened to a commit in the repository of a folder. `at_s`: when it was made."""
    deadline = Deadline(_GIT_S)
    try:
        repository = find_repository(Path(folder)) if folder.startswith("/") else None
        if repository is None:
            return CommitFate(Fate.UNKNOWN)

        def git(*words: str) -> str:
            words = ("--git-dir", str(repository.git_dir), *words)
            return run_git(repository.top, words, deadline=deadline).strip()

        name = ""
        with suppress(GitError):  # the repository no longer has it
            name = git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
        if name and git("for-each-ref", "--count=1", f"--contains={name}", *_BRANCHES):
            reverted_by = _revert_of(git, name)
            return CommitFate(Fate.REVERTED if reverted_by else Fate.KEPT, reverted_by or name)
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
    """The commit on a branch with the author and author time of this one, which `--amend` and rebases keep."""
    time_and_author = git("show", "--no-patch", "--format=%at %ae", name)
    since = f"--since={int(time_and_author.partition(' ')[0]) - 60}"
    limit = f"--max-count={_MAX_COMPARED}"
    # `--not`: an older commit of the same second is another one.
    newer = ("--branches", "--remotes", "--not", name)
    found = git("log", since, limit, "--format=%H %at %ae", *newer)
    rows = (line.partition(" ") for line in found.splitlines())
    return next((commit for commit, _, rest in rows if rest == time_and_author), "")


def _same_subject(git: Git, subject: str, at_s: float | None) -> str:
    since = [f"--since={int(at_s) - 60}"] if at_s is not None and at_s > MIN_EPOCH_S else []
    return "" if len(subject) < _MIN_SUBJECT else _search(git, subject, *since)


def _search(git: Git, text: str, *options: str) -> str:
    """The newest commit on a branch whose message contains a text; empty: none."""
    search = ("--fixed-strings", f"--grep={text}", "--max-count=1", "--format=%H")
    return git("log", "--branches", "--remotes", *options, *search)
