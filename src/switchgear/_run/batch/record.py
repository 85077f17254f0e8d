"""A batch is a folder: batch.json, put in place whole after every change, and its worktrees.

So a batch whose process was killed goes on where it was: the tasks that were done are done, those
that ran are resumed from their runs.
"""

import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from switchgear._core.errors import SwitchgearError
from switchgear._run.batch.model import SATISFIED, Progress, Status, Task
from switchgear._run.record import (
    LONGEST_FILE,
    RunFolder,
    RunUnreadable,
    is_alive,
    keep_out_of_git,
    process_began,
    put_in_place,
    runs_root,
)
from switchgear._run.run_lock import is_held
from switchgear._run.state import RunState

SCHEMA = 1
BATCHES = "batches"
LAST = "last"


class BatchUnreadable(SwitchgearError):
    """A batch that is not there, cannot be read or cannot be gone on with: its id, and why."""

    args: tuple[str, str]

    def __str__(self) -> str:
        return f"batch {self.args[0]!r} {self.args[1]}"


class Kept(NamedTuple):
    """What batch.json holds."""

    id: str
    file: str
    """The file of tasks, absolute."""
    folder: str
    """Where the command was typed: tasks without a folder of their own work there."""
    progress: dict[str, Progress]
    forces: int = 0
    """How often a policy closed the circuit of spawning agents by force."""
    end: str | None = None


class BatchFolder:
    """The files of one batch. Written by the process that runs it, read by any."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def id(self) -> str:
        """The batch's id."""
        return self.path.name

    def write(self, kept: Kept) -> None:
        """Put batch.json in place."""
        put_in_place(
            self.path / "batch.json",
            {
                "schema": SCHEMA,
                **kept._asdict(),
                "progress": {name: each.dump() for name, each in kept.progress.items()},
                "pid": os.getpid(),
                "pid_began": process_began(os.getpid()),
            },
        )

    def read(self) -> tuple[Kept, bool]:
        """What batch.json holds, and whether its process is still at work. Raises `BatchUnreadable`."""
        try:
            with (self.path / "batch.json").open(encoding="utf-8") as file:
                held = json.loads(file.read(LONGEST_FILE))
            if not isinstance(held["schema"], int) or held["schema"] > SCHEMA:
                raise BatchUnreadable(self.id, "was written by a newer Switchgear")
            progress = {name: Progress.load(each) for name, each in held["progress"].items()}
            known = {key: held[key] for key in Kept._fields if key in held}
            locked = is_held(self.path / "lock")
            return Kept(**{**known, "progress": progress}), is_alive(held) and locked is not False
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BatchUnreadable(self.id, f"cannot be read: {error}") from error


def batches_root(start: Path) -> Path:
    """Where the batches of a project are: beside its runs."""
    return runs_root(start).parent / BATCHES


def new_batch(root: Path, now_s: float | None = None) -> BatchFolder:
    """A folder for a new batch; its id sorts by time."""
    at = datetime.fromtimestamp(time.time() if now_s is None else now_s, UTC)
    path = root / f"{at:%Y%m%d-%H%M%S}-{at.microsecond // 1000:03}{secrets.token_hex(2)}"
    keep_out_of_git(root.parent)
    path.mkdir(mode=0o700, parents=True)
    return BatchFolder(path)


def batches_of(root: Path, file: str) -> list[BatchFolder]:
    """The batches of a file, the newest last; what cannot be read is nobody's."""
    try:
        ids = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError:
        return []
    found = []
    for name in ids:
        folder = BatchFolder(root / name)
        try:
            if folder.read()[0].file == file:
                found.append(folder)
        except BatchUnreadable:
            continue
    return found


def find_batch(root: Path, name: str, file: str) -> BatchFolder:
    """A batch by its id, the beginning or end of it, or the `last` of a file."""
    if name == LAST:
        mine = batches_of(root, file)
        if mine:
            return mine[-1]
        raise BatchUnreadable(LAST, f"is not there: no batch of {file} was begun")
    ids = sorted(each.name for each in root.glob("*") if each.is_dir())
    found = [each for each in ids if name and (each.startswith(name) or each.endswith(name))]
    if len(found) == 1:
        return BatchFolder(root / found[0])
    if found:
        raise BatchUnreadable(name, f"is not one batch but {len(found)}: {', '.join(found[:5])}")
    raise BatchUnreadable(name, f"is not in {root}")


def caught_up(progress: Progress, runs: Path) -> Progress:
    """The progress with what the task's run says of itself.

    The run may have gone on after the last word of the batch: until its process was killed, or
    because somebody resumed it by hand. What it spent is spent, and if it is completed it is done.
    """
    if progress.run is None or progress.status in SATISFIED:
        return progress
    try:
        held = RunFolder(runs / progress.run).read()
        state = RunState.load(held["state"])
    except (RunUnreadable, ValueError, TypeError, AttributeError):
        return progress  # it had not begun
    end = held.get("end") or {}
    progress = progress._replace(
        iterations=state.iterations,
        seconds=round(state.seconds, 3),
        spent_micros=progress.earlier_micros + state.spent_micros,
        unknown_prices=state.unknown_prices,
    )
    if not end.get("success"):
        return progress
    kept = end.get("checkpoint") or {}
    how = kept.get("how") if kept.get("changed") else None
    return progress._replace(
        status=Status.DONE, reason=str(end.get("reason")), exit_reason="completed", checkpoint=how
    )


def taken_up(
    kept: Mapping[str, Progress], tasks: Sequence[Task], *, failed_too: bool
) -> tuple[dict[str, Progress], list[str]]:
    """The progress to go on with, for the tasks as they are now, and what is to be said of it.

    What is done stays done. What ran, was interrupted or blocked waits again; what failed or was
    skipped only if `failed_too`.
    """
    notes: list[str] = []
    progress: dict[str, Progress] = {}
    for task in tasks:
        old = kept.get(task.name)
        if old is None:
            notes.append(f"{task.name} is new in the file")
            progress[task.name] = Progress(digest=task.digest)
            continue
        again = {Status.RUNNING, Status.INTERRUPTED, Status.BLOCKED}
        if failed_too:
            again |= {Status.FAILED, Status.SKIPPED}
        if old.digest != task.digest:
            done = "; it is not repeated" if old.status in {Status.DONE, Status.PARTIAL} else ""
            notes.append(f"{task.name} was changed in the file{done}")
        if old.status in again:
            attempts = 0 if old.status in {Status.FAILED, Status.SKIPPED} else old.attempts
            old = old._replace(status=Status.WAITING, reason="", blocked_by=None, attempts=attempts)
        if old.status is Status.WAITING:
            old = old._replace(digest=task.digest)
        progress[task.name] = old
    gone = [name for name in kept if name not in progress]
    notes += [f"{name} is not in the file any more, and is left out" for name in gone]
    return progress, notes
