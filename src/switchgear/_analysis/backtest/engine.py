"""Reads all runs of all files in several processes, which return findings but no texts.

The number of pending jobs is bounded, so memory does not grow with the files. The rows come in the order of
the files, for any number of processes.
"""

import json
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from switchgear._agents.recordings.formats import FORMATS, find, recognise, runs_in
from switchgear._agents.recordings.recording import (
    RecordedRun,
    RecordingFile,
    RecordingTally,
    UnreadableRecording,
)
from switchgear._analysis.backtest.outcomes import OutcomeSources
from switchgear._analysis.backtest.replay import Named, RunRow, judge
from switchgear._core.errors import SwitchgearError

_MAX_BYTES = 64 * 1024 * 1024
_LISTS = {"resolved_ids": True, "unresolved_ids": False, "empty_patch_ids": False}


class OutcomesUnreadable(SwitchgearError):
    """A file of outcomes that cannot be used. `args` are its path, and the reason."""

    args: tuple[str, str]

    def __str__(self) -> str:
        return (
            f"outcomes {self.args[0]!r}: {self.args[1]}; it must be a JSON object of ids and "
            "true or false, or a SWE-bench report with resolved_ids"
        )


def read_outcomes(path: str) -> dict[str, bool]:
    """Whether each run was solved, by id. Raises `OutcomesUnreadable`."""
    try:
        with Path(path).open("rb") as file:
            value = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or "is not valid JSON"
        raise OutcomesUnreadable(path, why) from error
    found = _outcomes(value) if isinstance(value, dict) else {}
    if not found:
        raise OutcomesUnreadable(path, "contains no outcomes")
    return found


def _outcomes(value: dict[str, Any]) -> dict[str, bool]:
    if "resolved_ids" in value:
        return {key: solved for name, solved in _LISTS.items() for key in _texts(value.get(name))}
    return {key: solved for key, solved in value.items() if isinstance(solved, bool)}


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


T = TypeVar("T")

_BATCH_LINES, _BATCH_BYTES = 16, 4 * 1024 * 1024
_SMALL_BYTES = 2 * 1024 * 1024
"""Files of less than this in total are read in this process: starting others takes longer."""


class BacktestBroken(SwitchgearError):
    """A process that read recordings died. `args` has the reason, as far as known."""

    args: tuple[str]

    def __str__(self) -> str:
        return (
            f"a process that read recordings died ({self.args[0]}): most likely memory ran "
            "out; try --jobs 1, or fewer files"
        )


class Job(NamedTuple):
    """A file, or lines of a file with one run per line."""

    path: str
    lines: tuple[bytes, ...] | None = None
    first_line: int = 1


class Recordings(NamedTuple):
    """The files to read, and how to read them."""

    paths: tuple[str, ...]
    outcomes: Mapping[str, bool] = {}
    force: str | None = None
    """The name of the format of all files; `None`: it is recognised for each file."""
    jobs: int | None = None
    """The number of processes; `None`: one for each core."""
    progress: Callable[[int, int], object] | None = None
    """Called with the bytes read so far and the bytes of all files; each pass begins at 0."""
    labels: Mapping[str, bool | None] = {}
    """Outcomes labelled by a person, by the keys of `outcomes.label_key`."""
    least_confidence: float | None = None
    """The confidence from which an inferred outcome counts; `None`: nothing is inferred."""


class Judging(NamedTuple):
    """The task of a backtest: judges each run by each policy."""

    policies: tuple[Named, ...]
    pictures: bool = False

    def row(self, run: RecordedRun) -> RunRow:
        return judge(run, self.policies, pictures=self.pictures)


def each_run(
    read: Recordings, task: Callable[[RecordedRun], T], tally: RecordingTally
) -> Iterator[T]:
    """Yields the result of a task for each run. `tally` is complete after the last one.

    The task runs in other processes, so it must be picklable. Raises `BacktestBroken`.
    """
    files = list(find(read.paths, tally))
    count = read.jobs or _cores()
    jobs = _jobs(files, read.force, tally)
    sources = OutcomeSources(read.labels, read.outcomes, read.least_confidence)
    runner = JobRunner(sources, read.force, task)
    done = _Progress(files, read.progress)
    if count <= 1 or _is_small(files, read.jobs):
        for job in jobs:
            found, seen = runner.run(job)
            tally.add(seen)
            done.add(job)
            yield from found
    else:
        yield from _in_processes(jobs, runner, tally, count, done)
    done.all()


class _Progress:
    """Counts the bytes read so far. A compressed file counts with its size on disk."""

    def __init__(self, files: Sequence[str], report: Callable[[int, int], object] | None) -> None:
        self._report = report
        self._left = {} if report is None else {path: _size(path) for path in files}
        self._total = sum(self._left.values())
        self._done = 0
        self._path = ""
        if report is not None:
            report(0, self._total)

    def add(self, job: Job) -> None:
        """Count a finished job; the first job of another file completes the previous file."""
        if self._report is None:
            return
        if self._path != job.path:
            self._done += self._left.pop(self._path, 0)
            self._path = job.path
        left = self._left.get(job.path, 0)
        part = left if job.lines is None else min(left, sum(map(len, job.lines)))
        self._left[job.path] = left - part
        self._done += part
        self._report(self._done, self._total)

    def all(self) -> None:
        if self._report is not None:
            self._report(self._total, self._total)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


class JobRunner(NamedTuple):
    """Performs jobs, in this or another process."""

    outcomes: OutcomeSources
    force: str | None
    task: Callable[[RecordedRun], Any]

    def run(self, job: Job) -> tuple[list[Any], RecordingTally]:
        """The results of the task for the runs of a job, and what was counted while reading them."""
        tally = RecordingTally()
        source = RecordingFile(job.path, job.lines, job.first_line)
        tally.files += job.first_line == 1
        runs = runs_in(source, tally, self.force)
        return [self.task(self.outcomes.resolved(run)) for run in runs], tally


def _in_processes(
    jobs: Iterable[Job], runner: JobRunner, tally: RecordingTally, count: int, done: _Progress
) -> Iterator[Any]:
    # Do not fork: the caller may have threads.
    spawning = get_context("spawn")
    with ProcessPoolExecutor(count, spawning, _ignore_interrupts) as pool:
        pending: deque[tuple[Job, Future[tuple[list[Any], RecordingTally]]]] = deque()

        def next_results() -> list[Any]:
            job, future = pending.popleft()
            found, seen = future.result()
            tally.add(seen)
            done.add(job)
            return found

        try:
            for job in jobs:
                pending.append((job, pool.submit(runner.run, job)))
                if len(pending) > 2 * count + 2:
                    yield from next_results()
            while pending:
                yield from next_results()
        except BrokenProcessPool as error:
            raise BacktestBroken(str(error)) from error
        finally:
            for _, future in pending:
                future.cancel()


def _ignore_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal; the parent handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _jobs(files: Iterable[str], force: str | None, tally: RecordingTally) -> Iterator[Job]:
    for path in files:
        source = RecordingFile(path)
        if Path(path).is_dir() or not _is_per_line(source, force):
            yield Job(path)
        else:
            yield from _batches(source, tally)


def _is_per_line(source: RecordingFile, force: str | None) -> bool:
    """Whether the file has several lines, each with a run."""
    try:
        if not (FORMATS[force] if force else recognise(source)).per_line:
            return False
        return len(source.head()) > 1 and "[]" not in source.head()[0]
    except UnreadableRecording:
        return False


def _batches(source: RecordingFile, tally: RecordingTally) -> Iterator[Job]:
    lines: list[bytes] = []
    first, size = 1, 0
    try:
        for number, line in enumerate(source.raw_lines(tally, ""), 1):
            lines.append(line)
            size += len(line)
            if len(lines) >= _BATCH_LINES or size >= _BATCH_BYTES:
                yield Job(source.path, tuple(lines), first)
                lines, first, size = [], number + 1, 0
    except UnreadableRecording as problem:
        tally.problem(source.path, str(problem))
    if lines:
        yield Job(source.path, tuple(lines), first)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_small(files: Sequence[str], jobs: int | None) -> bool:
    if jobs is not None or len(files) >= 1000:
        return False
    sizes = (_size(path) * (20 if path.endswith(".gz") else 1) for path in files)
    return sum(sizes) < _SMALL_BYTES
