"""A batch is a folder: batch.json, replaced atomically after every change, and the folders its tasks use.

A batch whose process was killed continues: finished tasks stay finished, running tasks resume from their
runs. A task works in a folder, in a separate git worktree, or in the demo agent's project. A worktree has a
branch that starts where the tasks it needs ended; its work is committed there.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from switchgear._agents.demo import make_repository
from switchgear._core.errors import SwitchgearError
from switchgear._measure.git_command import (
    Deadline,
    GitError,
    find_repository,
    run_git,
)
from switchgear._measure.worktrees import add_worktree
from switchgear._run.batch.model import SATISFIED, Progress, Status, Task
from switchgear._run.interrupt import Interrupt
from switchgear._run.record import (
    LONGEST_FILE,
    RunFolder,
    RunUnreadable,
    append_json,
    ids_in,
    is_alive,
    keep_out_of_git,
    matching,
    new_id,
    process_began,
    runs_root,
    write_json,
)
from switchgear._run.run_lock import is_held
from switchgear._run.state import RunState, short_task

SCHEMA = 1
BATCHES = "batches"
LAST = "last"
WHOLE_TASKS = 200
"""Up to this many tasks, batch.json is replaced after every change."""


class BatchUnreadable(SwitchgearError):
    """A batch that does not exist, cannot be read or cannot be resumed: its id, and why."""

    args: tuple[str, str]

    def __str__(self) -> str:
        return f"batch {self.args[0]!r} {self.args[1]}"


class BatchState(NamedTuple):
    """What batch.json holds."""

    id: str
    file: str
    """The file of tasks, absolute."""
    folder: str
    """The working directory of the command: the default folder of tasks."""
    progress: dict[str, Progress]
    forces: int = 0
    """How often a policy closed the circuit of spawning agents by force."""
    end: str | None = None


class BatchFolder:
    """The files of one batch. Written by the process that runs it, read by any."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journal = self._added = self._forces = 0
        """The number of the journal, its number of lines, and `forces` as saved in batch.json."""

    @property
    def id(self) -> str:
        return self.path.name

    def write(self, kept: BatchState, changed: str | None = None) -> None:
        """Replace batch.json; in a large batch, only append the task that changed to the journal."""
        few = len(kept.progress) <= WHOLE_TASKS or self._added >= len(kept.progress)
        if changed is not None and self._journal and not few and kept.forces == self._forces:
            change = [changed, kept.progress[changed].dump()]
            append_json(self.path / f"changes-{self._journal}.jsonl", change, sync=True)
            self._added += 1
            return
        self._journal = (self._journal or self._last_journal()) + 1
        self._added, self._forces = 0, kept.forces
        write_json(
            self.path / "batch.json",
            {
                "schema": SCHEMA,
                **kept._asdict(),
                "progress": {name: each.dump() for name, each in kept.progress.items()},
                "journal": self._journal,
                "pid": os.getpid(),
                "pid_began": process_began(os.getpid()),
            },
        )
        for old in self.path.glob("changes-*.jsonl"):
            if old.name != f"changes-{self._journal}.jsonl":
                old.unlink(missing_ok=True)

    def _last_journal(self) -> int:
        """The number of the journal that an earlier process of this batch wrote."""
        try:
            return int(json.loads((self.path / "batch.json").read_bytes()).get("journal", 0))
        except (OSError, ValueError, AttributeError, TypeError):
            return 0

    def read(self) -> tuple[BatchState, bool]:
        """The content of batch.json, and whether its process is running. Raises `BatchUnreadable`."""
        try:
            with (self.path / "batch.json").open(encoding="utf-8") as file:
                saved = json.loads(file.read(LONGEST_FILE))
            if not isinstance(saved["schema"], int) or saved["schema"] > SCHEMA:
                raise BatchUnreadable(self.id, "was written by a newer Switchgear")
            progress = {name: Progress.load(each) for name, each in saved["progress"].items()}
            progress.update(self._changes(int(saved.get("journal", 0))))
            known = {key: saved[key] for key in BatchState._fields if key in saved}
            runs = is_alive(saved) and is_held(self.path / "lock") is not False
            return BatchState(**{**known, "progress": progress}), runs
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BatchUnreadable(self.id, f"cannot be read: {error}") from error

    def _changes(self, journal: int) -> Iterator[tuple[str, Progress]]:
        """The changes since batch.json was written; a truncated line is skipped."""
        with contextlib.suppress(FileNotFoundError):
            for line in (self.path / f"changes-{journal}.jsonl").read_bytes().splitlines():
                with contextlib.suppress(ValueError):
                    name, values = json.loads(line)
                    yield name, Progress.load(values)


def batches_root(start: Path) -> Path:
    """The folder with the batches of a project: beside its runs."""
    return runs_root(start).parent / BATCHES


def new_batch(root: Path, now_s: float | None = None) -> BatchFolder:
    """Create the folder of a new batch. Ids sort by time."""
    path = root / new_id(now_s)
    keep_out_of_git(root.parent)
    path.mkdir(mode=0o700, parents=True)
    return BatchFolder(path)


def batches_of(root: Path, file: str) -> list[BatchFolder]:
    """The batches of a file, the newest last, without unreadable ones."""
    found = []
    for name in ids_in(root):
        folder = BatchFolder(root / name)
        with contextlib.suppress(BatchUnreadable):
            if folder.read()[0].file == file:
                found.append(folder)
    return found


def find_batch(root: Path, name: str, file: str) -> BatchFolder:
    """A batch by its id, by the beginning or the end of its id, or the `last` one of a file."""
    if name == LAST:
        if mine := batches_of(root, file):
            return mine[-1]
        raise BatchUnreadable(LAST, f"does not exist: no batch of {file} was started")
    found = matching(ids_in(root), name)
    if len(found) == 1:
        return BatchFolder(root / found[0])
    if found:
        raise BatchUnreadable(name, f"matches {len(found)} batches: {', '.join(found[:5])}")
    raise BatchUnreadable(name, f"is not in {root}")


def with_run_state(progress: Progress, runs: Path) -> Progress:
    """The progress, updated from the task's run.

    The run may have continued after the batch was last saved: until its process was killed, or because
    it was resumed manually. Its cost counts, and if the run is completed, the task is done.
    """
    if progress.run is None or progress.status in SATISFIED:
        return progress
    try:
        saved = RunFolder(runs / progress.run).read()
        state = RunState.load(saved["state"])
    except (RunUnreadable, ValueError, TypeError, AttributeError):
        return progress  # the run had not started
    end = saved.get("end") or {}
    progress = progress.with_state(state)
    if not end.get("success"):
        return progress
    checkpoint = end.get("checkpoint") or {}
    how = checkpoint.get("how") if checkpoint.get("changed") else None
    return progress._replace(
        status=Status.DONE, reason=str(end.get("reason")), exit_reason="completed", checkpoint=how
    )


def resumed_progress(
    kept: Mapping[str, Progress], tasks: Sequence[Task], *, failed_too: bool
) -> tuple[dict[str, Progress], list[str]]:
    """The progress of a resumed batch for the current tasks, and notes about the differences.

    Done tasks stay done. Tasks that ran, or were interrupted or blocked, wait again; failed and skipped
    tasks only with `failed_too`.
    """
    notes: list[str] = []
    progress: dict[str, Progress] = {}
    failed = {Status.FAILED, Status.SKIPPED}
    again = {Status.RUNNING, Status.INTERRUPTED, Status.BLOCKED, *(failed if failed_too else ())}
    for task in tasks:
        old = kept.get(task.name)
        if old is None:
            notes.append(f"{task.name} is new in the file")
            progress[task.name] = Progress(digest=task.digest)
            continue
        if old.digest != task.digest:
            done = "; it is not repeated" if old.status in SATISFIED else ""
            notes.append(f"{task.name} was changed in the file{done}")
        if old.status in again:
            attempts = 0 if old.status in failed else old.attempts
            old = old._replace(status=Status.WAITING, reason="", blocked_by=None, attempts=attempts)
        if old.status is Status.WAITING:
            old = old._replace(digest=task.digest)
            begun_in_worktree = old.branch is not None
            if old.folder is not None and not task.is_demo and begun_in_worktree != task.worktree:
                where = "a worktree" if task.worktree else "its own folder"
                notes.append(f"{task.name} works in {where} now, and starts from scratch")
                old = old.from_scratch()._replace(folder=None, branch=None)
        progress[task.name] = old
    notes += [
        f"{name} is no longer in the file, and is left out" for name in kept if name not in progress
    ]
    return progress, notes


WORKTREE_S = 600.0
"""Time limit in seconds for creating a worktree, and for committing the work in it."""
MAX_PART_BYTES = 180
"""Maximum bytes of one part: with git's suffixes it still fits into a file name of 255 bytes."""
_NOT_ALLOWED = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\]\\/@{}'\"`$&|;<>()!#%]|\.{2,}|^[-.]|\.$|\.lock$", re.IGNORECASE
)


def branch_parts(names: Iterable[str]) -> dict[str, str]:
    """A valid part of a branch name for each name; all parts differ by more than case.

    A name that is already valid is not changed, unless it differs from an earlier one only in case.

    >>> branch_parts(["parser", "Parser", "v1..v2"])
    {'parser': 'parser', 'Parser': 'Parser-35f2953e', 'v1..v2': 'v1-v2-ab7737d5'}
    """
    parts: dict[str, str] = {}
    used: set[str] = set()
    for name in sorted(
        names, key=lambda name: (_valid(name) != name, name != name.casefold(), name)
    ):
        part = _valid(name)
        if part != name or _fold_case(part) in used:
            part = f"{part}-{blake2b(name.encode(errors='surrogateescape'), digest_size=4).hexdigest()}"
        used.add(_fold_case(part))
        parts[name] = part
    return parts


def _valid(name: str) -> str:
    part = unicodedata.normalize("NFC", name)
    before = None
    while before != part:  # removing a suffix may expose another one
        before, part = part, _NOT_ALLOWED.sub("-", part)
        while len(part.encode(errors="replace")) > MAX_PART_BYTES:
            part = part[:-1]
    return part.strip("-") or "task"


def _fold_case(part: str) -> str:
    return unicodedata.normalize("NFC", part.casefold())


class TaskFolderError(Exception):
    pass


class TaskFolders:
    """The folders of one batch's tasks. Used by one thread.

    `home` is the folder of the batch, `base` the working folder of tasks without `cwd`. `names` are the names of
    all tasks, which must not share a branch.
    """

    def __init__(self, home: Path, base: Path, names: Iterable[str] = ()) -> None:
        self._home = home
        self._base = base
        self._parts = branch_parts(names)

    def tree_of(self, task: Task) -> str | None:
        """The working tree that the task changes; `None`: a separate one."""
        if task.worktree or task.is_demo:
            return None
        folder = self._folder(task)
        found = find_repository(folder)
        return str(folder.resolve() if found is None else found.top)

    def prepare(
        self,
        task: Task,
        progress: Progress,
        others: Mapping[str, Progress],
        interrupt: Interrupt | None = None,
    ) -> Progress:
        """The task's progress with its folder, created if needed. Raises `TaskFolderError`."""
        if progress.folder is not None and Path(progress.folder).is_dir():
            return progress
        if task.is_demo:
            folder = self._home / "demo" / f"{task.name}-{progress.attempts + 1}"
            try:
                if folder.exists():  # left by a killed process
                    shutil.rmtree(folder)
                make_repository(folder)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise TaskFolderError(
                    f"the demo agent's project could not be created: {error}"
                ) from error
            return progress._replace(folder=str(folder))
        if not task.worktree:
            folder = self._folder(task)
            if not folder.is_dir():
                raise TaskFolderError(f"the folder {folder} no longer exists")
            return progress._replace(folder=str(folder))
        needed = [branch for need in task.needs if (branch := others[need].branch)]
        deadline = Deadline(WORKTREE_S)
        with (interrupt or Interrupt()).watching(deadline):
            return self._worktree(task, progress, needed, deadline)

    def discard(self, task: Task, progress: Progress) -> Progress:
        """Remove the task's own folder for a new start; shared folders stay."""
        if task.worktree and progress.branch is not None:
            with contextlib.suppress(GitError, TaskFolderError):
                top = self._top(task)
                run_git(top, ["worktree", "remove", "--force", str(self._tree(top, task))])
                run_git(top, ["branch", "-D", progress.branch])
        if task.worktree or task.is_demo:
            return progress._replace(folder=None, branch=None)
        return progress

    def commit(
        self, task: Task, progress: Progress, interrupt: Interrupt | None = None
    ) -> str | None:
        """Commit the work in a task's worktree. Returns the problem, if there is one."""
        # A task that started in the user's own folder, before the file gave it a worktree, has no branch.
        if not task.worktree or progress.folder is None or progress.branch is None:
            return None
        tree, deadline = Path(progress.folder), Deadline(WORKTREE_S)
        interrupt = interrupt or Interrupt()
        with interrupt.watching(deadline):
            if interrupt.asked > 1:
                deadline.kill()  # --resume commits it
            return _commit_all(tree, task, progress.branch, deadline)

    def _worktree(
        self, task: Task, progress: Progress, needed: list[str], deadline: Deadline
    ) -> Progress:
        top = self._top(task)
        inside = self._folder(task).resolve().relative_to(top.resolve())
        branch = f"switchgear/{self._home.name}/{self._part(task)}"
        tree = self._tree(top, task)
        try:
            if not tree.is_dir():  # else left by a killed process
                start = needed[0] if needed else "HEAD"
                add_worktree(top, tree, branch, start, deadline)
        except GitError as error:
            raise TaskFolderError(f"no worktree could be created: {error}") from error
        for other in needed[1:]:
            try:
                _commit(tree, ["merge", "--quiet", "--no-edit", other], deadline)
            except GitError as error:
                raise TaskFolderError(
                    f"the work of {needed[0]} and {other} cannot be merged automatically; merge it in {tree}: {error}"
                ) from error
        return progress._replace(folder=str(tree / inside), branch=branch)

    def _tree(self, top: Path, task: Task) -> Path:
        """The task's worktree: beside the repository, because hook rules keep agents out of its `.switchgear`."""
        return top.parent / f"{top.name}-trees" / self._home.name / self._part(task)

    def _part(self, task: Task) -> str:
        """The task's part of the names of its branch and its worktree."""
        return self._parts.get(task.name) or branch_parts([task.name])[task.name]

    def _folder(self, task: Task) -> Path:
        return self._base if task.cwd is None else Path(task.cwd)

    def _top(self, task: Task) -> Path:
        found = find_repository(self._folder(task))
        if found is None:
            folder = self._folder(task)
            raise TaskFolderError(f"{folder} is not a git repository, so it has no worktrees")
        return found.top


def _commit_all(tree: Path, task: Task, branch: str, deadline: Deadline) -> str | None:
    """Commit everything in a worktree. Returns the problem, if there is one."""
    problem = None
    try:
        try:
            run_git(tree, ["add", "--all", ":/"], deadline=deadline)
        except GitError as error:  # such as a nested repository without a commit
            problem = f"not everything was committed to {branch}: {error}"
            with contextlib.suppress(GitError):
                run_git(tree, ["add", "--all", "--ignore-errors", ":/"], deadline=deadline)
        options = [
            "--branch",
            "--no-renames",
            "--ignore-submodules=none",
            "--untracked-files=normal",
        ]
        listed = run_git(tree, ["status", "--porcelain=v2", "-z", *options], deadline=deadline)
        lines = [line.split(" ", 8) for line in listed.split("\0") if line]
        if any(line[0] in {"1", "u"} and line[1][0] != "." for line in lines):
            message = f"{task.name}: {short_task(task.words)}"
            _commit(tree, ["commit", "--quiet", "-m", message], deadline)
        if ["#", "branch.head", branch] not in lines:
            problem = _move_branch(tree, branch, deadline) or problem
        inside = [line[8] for line in lines if line[0] == "1" and line[2][0] == "S"]
        if inside and problem is None:
            problem = (
                f"{branch} does not contain the changes in nested repositories "
                f"({', '.join(inside[:5])}); they are in {tree}"
            )
    except GitError as error:
        return f"the work could not be committed to {branch}: {error}"
    return problem


def _move_branch(tree: Path, branch: str, deadline: Deadline) -> str | None:
    """Move the branch to HEAD of its worktree, as the agent may have left the branch. Returns why not."""
    reference = f"refs/heads/{branch}"
    head = run_git(tree, ["rev-parse", "--verify", "HEAD^{commit}"], deadline=deadline).strip()
    tip = ""  # the branch was removed or renamed
    with contextlib.suppress(GitError):
        verify = ["rev-parse", "--verify", "--quiet", reference]
        tip = run_git(tree, verify, deadline=deadline).strip()
    if tip == head:
        return None
    why = f"{branch} does not have the work: the agent committed it elsewhere, as {head[:12]},"
    if tip and run_git(tree, ["rev-list", "-n1", tip, f"^{head}"], deadline=deadline):
        return f"{why} without what was on the branch"
    listed = run_git(tree, ["worktree", "list", "--porcelain"], deadline=deadline)
    if f"branch {reference}" in listed.splitlines():
        return f"{why} and another worktree has the branch"
    move = ["update-ref", "--no-deref", "-m", "switchgear: the agent left this branch", reference]
    run_git(tree, [*move, head, tip], deadline=deadline)
    return None


def _commit(tree: Path, arguments: list[str], deadline: Deadline | None = None) -> None:
    """Commit as the user, or as Switchgear if git has no user configured."""
    try:
        run_git(tree, ["config", "user.email"])
        identity = []
    except GitError:
        identity = ["-c", "user.name=switchgear", "-c", "user.email=switchgear@localhost"]
    run_git(tree, [*identity, *arguments], deadline=deadline)
