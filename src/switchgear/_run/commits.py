"""`--commit`: commits what a validated iteration changed, as the user and with the user's hooks.

Only paths that the run changed are committed; everything else in the folder or the index is left
as it is. Everything is prepared in a separate index, so a commit that is refused leaves the user's
index as it was. Hooks run in separate processes, within the time of the run, and a signal ends them.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from switchgear._agents.base import FixedCommand
from switchgear._agents.process import AgentProcess, AgentRun, ProcessEnd, SupervisorPool
from switchgear._measure.git_base import STATE_FOLDER
from switchgear._measure.git_command import (
    Deadline,
    GitError,
    Repository,
    find_repository,
    in_progress,
    is_behind_link,
    run_git,
)
from switchgear._run.interrupt import Interrupt
from switchgear._run.state import short_task
from switchgear._text.formats import duration
from switchgear._text.redact import redact

TIMEOUT_S = 600.0
"""Time limit for a commit, whose hooks may run tests; shorter if the run has less time left."""
_REPOSITORY_VARIABLES = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_NAMESPACE"}
)
"""Variables that would select another repository: the run may be inside a git hook."""
_PATHS_FROM_STDIN = ("--pathspec-from-file=-", "--pathspec-file-nul")


class CommitResult(NamedTuple):
    commit: str | None = None
    """Its hash; `None`: there was nothing to commit, or it was refused."""
    problem: str | None = None
    note: str | None = None
    """A remark about a commit that was made."""


class CommitContext(NamedTuple):
    notes: Path
    """The folder for the temporary index."""
    left_s: float | None = None
    """The time that the run has left; `None`: no limit."""
    interrupt: Interrupt | None = None
    supervisors: SupervisorPool | None = None


def commit_paths(
    folder: Path, paths: Iterable[str], message: str, context: CommitContext
) -> CommitResult:
    """Commit these paths, relative to the top of the repository, as far as they differ."""
    git = find_repository(folder)
    if git is None:
        return CommitResult(problem="nothing was committed: the folder is not in a git repository")
    changed = {path for path in paths if STATE_FOLDER not in Path(path).parts}
    seconds = TIMEOUT_S if context.left_s is None else max(1.0, min(context.left_s, TIMEOUT_S))
    deadline = Deadline(seconds)
    try:
        with (context.interrupt or Interrupt()).watching(deadline):  # the user's filters may hang
            refusal = in_progress(git, deadline)
            if refusal is not None:
                return CommitResult(problem=f"nothing was committed: {refusal}")
            status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
            listed = run_git(git.top, (*status, "--ignore-submodules=none"), deadline=deadline)
        dirty = {entry[3:] for entry in listed.split("\0") if entry} & changed
        note = _nested_note(git.top, changed - dirty)
        if not dirty:
            return CommitResult(note=note)
        listed = "".join(f"{path}\0" for path in sorted(dirty))
        index = context.notes / f"commit-index-{os.getpid()}"
        try:
            result = _commit(git, index, listed, message, context, deadline)
        finally:
            for suffix in ("", ".lock"):
                index.with_name(f"{index.name}{suffix}").unlink(missing_ok=True)
        return result._replace(note=result.note or note)
    except (GitError, OSError) as error:
        return CommitResult(problem=f"the commit failed: {redact(str(error), 400)}")


def message_of(task: str, run: str, iteration: int) -> str:
    return f"{short_task(task)}\n\nIteration {iteration} of switchgear run {run}"


def _nested_note(top: Path, paths: set[str]) -> str | None:
    """A note that some paths are in nested repositories, which a commit here cannot contain."""
    found = sorted(
        {
            str(parent)
            for path in paths
            for parent in Path(path).parents
            if parent != Path() and (top / parent / ".git").exists()
        }
    )
    if not found:
        return None
    return (
        f"not committed: changes in nested repositories ({', '.join(found[:5])}); commit them there"
    )


def _commit(  # noqa: PLR0917
    git: Repository,
    index: Path,
    listed: str,
    message: str,
    context: CommitContext,
    deadline: Deadline,
) -> CommitResult:
    with (context.interrupt or Interrupt()).watching(deadline):
        before = _head(git, deadline)
        _write_index(git, index, listed, before, deadline)
    run = _run_commit(git, index, message, context, deadline)
    after = _head(git, Deadline(30.0))
    if after is None or after == before:
        if run.end is ProcessEnd.DEADLINE or deadline.is_over:
            why = f"stopped: its hooks did not end within {duration(run.duration_s)}"
        elif run.end in {ProcessEnd.STOPPED, ProcessEnd.KILLED}:
            why = "stopped by a signal"
        else:
            output = run.tail or run.problem or f"git ended with exit code {run.exit_code}"
            why = f"refused: {redact(output, 400)}"
        return CommitResult(problem=f"the commit was {why}")
    note = None
    if run.end is not ProcessEnd.EXITED or run.exit_code:
        ended = f"failed: {redact(run.tail or run.problem, 300)}"
        if run.end is ProcessEnd.DEADLINE:  # a hook that hangs mostly prints nothing
            ended = f"did not end within {duration(run.duration_s)}"
        note = f"committed, but a hook after the commit {ended}"
    try:
        deadline = Deadline(60.0)
        if before is not None:  # a hook may have added other paths
            diff = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", before, after)
            listed += run_git(git.top, diff, deadline=deadline)
        reset = ("reset", "--quiet", *_PATHS_FROM_STDIN, "HEAD")
        literal = {"GIT_LITERAL_PATHSPECS": "1"}
        run_git(git.top, reset, stdin=listed, env=literal, deadline=deadline)
    except GitError as error:
        note = f"committed, but your index could not be updated: {redact(str(error), 300)}"
    return CommitResult(after, note=note)


def _write_index(
    git: Repository, index: Path, listed: str, head: str | None, deadline: Deadline
) -> None:
    """Create an index of the last commit with these paths as they are in the folder.

    It starts as a copy of the user's index: with its file times, git need not read every file again.
    """
    index.parent.mkdir(parents=True, exist_ok=True)
    users_index, env = git.git_dir / "index", {"GIT_INDEX_FILE": str(index.resolve())}
    if users_index.exists() and head is not None:
        shutil.copy2(users_index, index)
    start = ("read-tree", "--empty") if head is None else ("read-tree", "--reset", head)
    run_git(git.top, start, env=env, deadline=deadline)
    # Unlike `git add`, it also takes paths outside a sparse checkout, and files that became folders.
    paths = listed.split("\0")[:-1]
    removed = {path for path in paths if not _is_file(git.top, path)}
    present = {*paths} - removed
    for options, group in ((("--force-remove",), removed), (("--add", "--replace"), present)):
        arguments = ("update-index", *options, "-z", "--stdin")
        stdin = "".join(f"{path}\0" for path in sorted(group))
        run_git(git.top, arguments, stdin=stdin, env=env, deadline=deadline)


def _is_file(top: Path, path: str) -> bool:
    """Whether there is a file or a link at a path; a folder is not committed by itself."""
    full = top / path
    return (full.is_symlink() or full.is_file()) and not is_behind_link(top, path)


def _run_commit(
    git: Repository, index: Path, message: str, context: CommitContext, deadline: Deadline
) -> AgentRun:
    """Run `git commit` with the user's hooks; at the deadline it ends with every process that they started."""
    environment = {
        key: value for key, value in os.environ.items() if key not in _REPOSITORY_VARIABLES
    }
    environment |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_INDEX_FILE": str(index.resolve()),
    }
    process = AgentProcess(
        FixedCommand(("git", "commit", "--quiet", "-m", message)),
        "",
        git.top,
        env=environment,
        deadline_s=deadline.left_s,
        supervisors=context.supervisors,
    )
    with (context.interrupt or Interrupt()).watching(process):
        return process.run()


def _head(git: Repository, deadline: Deadline) -> str | None:
    try:
        arguments = ("rev-parse", "--verify", "--quiet", "HEAD")
        return run_git(git.top, arguments, deadline=deadline).strip() or None
    except GitError:
        return None
