"""All runs of all files, on several processes: the texts stay there, only findings come back.

What is under way is bounded, so memory does not grow with what is read. The rows come in the order
of the files, whatever the number of processes.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from switchgear.backtest.outcomes import with_outcome
from switchgear.backtest.replay import Named, judge
from switchgear.backtest.rows import Row
from switchgear.errors import SwitchgearError
from switchgear.recordings.files import Source, Unreadable
from switchgear.recordings.finding import find
from switchgear.recordings.formats import FORMATS, recognise, runs_in
from switchgear.recordings.recorded import Tally

_BATCH_LINES, _BATCH_BYTES = 16, 4 * 1024 * 1024
_SMALL_BYTES = 2 * 1024 * 1024
"""Less than this in all is read here: starting processes takes longer."""


class BacktestBroken(SwitchgearError):
    """A process that read recordings has died. `why` says what is known of it."""

    args: tuple[str]

    def __str__(self) -> str:
        return (
            f"a process that read recordings has died ({self.args[0]}): most likely memory ran "
            "out; try --jobs 1, or fewer files"
        )


class Job(NamedTuple):
    """A file, or some lines of one in which each line is a run by itself."""

    path: str
    lines: tuple[bytes, ...] | None = None
    first_line: int = 1


class Settings(NamedTuple):
    """What is asked of the runs."""

    policies: tuple[Named, ...]
    outcomes: Mapping[str, bool] = {}
    force: str | None = None
    """The name of a format that all files are taken to have."""
    pictures: bool = False


def backtest(
    paths: Sequence[str], settings: Settings, tally: Tally, *, jobs: int | None = None
) -> Iterator[Row]:
    """The rows of all runs below the paths. `tally` is complete when the last one has come.

    `jobs` is the number of processes; default: one for each core. Raises `BacktestBroken`.
    """
    files = list(find(paths, tally))
    count = jobs or len(os.sched_getaffinity(0))
    if count <= 1 or _is_small(files, jobs):
        for job in _jobs(files, settings.force, tally):
            rows, seen = work(settings, job)
            tally.add(seen)
            yield from rows
        return
    yield from _in_processes(_jobs(files, settings.force, tally), settings, tally, count)


def work(settings: Settings, job: Job) -> tuple[list[Row], Tally]:
    """The rows of one job, and what was met on the way."""
    tally = Tally()
    source = Source(job.path, job.lines, job.first_line)
    tally.files += job.first_line == 1
    rows = [
        judge(with_outcome(run, settings.outcomes), settings.policies, pictures=settings.pictures)
        for run in runs_in(source, tally, settings.force)
    ]
    return rows, tally


def _in_processes(
    jobs: Iterable[Job], settings: Settings, tally: Tally, count: int
) -> Iterator[Row]:
    # Not by fork: whoever calls us may have threads.
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        under_way: deque[Future[tuple[list[Row], Tally]]] = deque()
        try:
            for job in jobs:
                under_way.append(pool.submit(work, settings, job))
                if len(under_way) > 2 * count + 2:
                    yield from _taken(under_way.popleft(), tally)
            while under_way:
                yield from _taken(under_way.popleft(), tally)
        except BrokenProcessPool as error:
            raise BacktestBroken(str(error)) from error
        finally:
            for left in under_way:
                left.cancel()


def _taken(done: "Future[tuple[list[Row], Tally]]", tally: Tally) -> list[Row]:
    rows, seen = done.result()
    tally.add(seen)
    return rows


def _jobs(files: Iterable[str], force: str | None, tally: Tally) -> Iterator[Job]:
    for path in files:
        source = Source(path)
        if Path(path).is_dir() or not _is_per_line(source, force):
            yield Job(path)
        else:
            yield from _batches(source, tally)


def _is_per_line(source: Source, force: str | None) -> bool:
    """Whether the file has several lines, each of them a run."""
    try:
        if not (FORMATS[force] if force else recognise(source)).per_line:
            return False
        return len(source.head()) > 1 and "[]" not in source.head()[0]
    except Unreadable:
        return False


def _batches(source: Source, tally: Tally) -> Iterator[Job]:
    lines: list[bytes] = []
    first, size = 1, 0
    try:
        for number, line in enumerate(source.raw_lines(tally, ""), 1):
            lines.append(line)
            size += len(line)
            if len(lines) >= _BATCH_LINES or size >= _BATCH_BYTES:
                yield Job(source.path, tuple(lines), first)
                lines, first, size = [], number + 1, 0
    except Unreadable as problem:
        tally.problem(source.path, str(problem))
    if lines:
        yield Job(source.path, tuple(lines), first)


def _is_small(files: Sequence[str], jobs: int | None) -> bool:
    if jobs is not None:
        return False
    size = 0
    for path in files[:1000]:
        try:
            size += Path(path).stat().st_size * (20 if path.endswith(".gz") else 1)
        except OSError:
            continue
    return size < _SMALL_BYTES and len(files) < 1000
