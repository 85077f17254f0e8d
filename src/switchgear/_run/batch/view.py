"""Views of a batch: every method is optional, and none can change what the batch does.

`BatchLineView` prints plain lines, for pipes and logs; lines of a task begin with its name.
"""

import io
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

from switchgear._run.batch.model import Progress, Status
from switchgear._run.formats import local_time
from switchgear._run.result import RunResult
from switchgear._run.view import Countdown, LineView, RunView
from switchgear._stuck.messages import Option, approximate_duration, one_line
from switchgear._text.formats import duration

_LONGEST = 400


class BatchView:
    """Watches a batch. Called in the thread of the batch; the views of `run_view` in the threads of the tasks."""

    def started(self, batch: str, names: list[str]) -> None:
        """The batch begins or resumes, with these tasks."""

    def changed(self, name: str, progress: Progress) -> None:
        """A task's progress changed."""

    def run_view(self, name: str) -> RunView:
        """The view of a task's run."""
        del name
        return RunView()

    def message(self, text: str) -> None:
        """A message; may have several lines."""

    def waiting(self, why: str, left_s: float) -> None:
        """The batch waits before it starts another task; called about once a second."""


class BatchLineView(BatchView):
    def __init__(
        self, stream: IO[str] | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        self._stream = stream or sys.stdout
        self._wall = wall
        self._lock = threading.Lock()
        self._countdown = Countdown()

    def started(self, batch: str, names: list[str]) -> None:
        self.write(f"batch {batch}: {', '.join(names)}\n")

    def changed(self, name: str, progress: Progress) -> None:
        self.write(f"[{name}] {task_status(progress)}\n")

    def run_view(self, name: str) -> RunView:
        return LineView(_Prefixed(self, name), wall=None)

    def message(self, text: str) -> None:
        """Print a message with its line breaks and spaces; the time precedes the first line only."""
        lines = (
            "".join(sign if sign.isprintable() else " " for sign in line[:_LONGEST]).rstrip()
            for line in text.splitlines()
        )
        self._print([f"{local_time(self._wall())}  " + "\n".join(lines)])

    def waiting(self, why: str, left_s: float) -> None:
        if self._countdown.is_due(why, left_s):
            self.write(f"waiting {duration(left_s)} {why}\n")

    def write(self, text: str) -> None:
        """Print complete lines, each with the local time. Thread-safe."""
        at = local_time(self._wall())
        self._print([f"{at}  {line}" for line in text.splitlines()])

    def _print(self, lines: list[str]) -> None:
        with self._lock:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()


class _Prefixed(io.StringIO):
    """A stream that puts a name before each line. Used by one thread."""

    def __init__(self, lines: BatchLineView, name: str) -> None:
        super().__init__()
        self._lines = lines
        self._front = f"[{name}] "
        self._begun = ""

    def write(self, text: str, /) -> int:
        """Pass on the complete lines."""
        *whole, self._begun = (self._begun + text).split("\n")
        if whole:
            self._lines.write("".join(f"{self._front}{line}\n" for line in whole))
        return len(text)


def task_status(progress: Progress) -> str:
    words = str(progress.status)
    if progress.status is Status.RUNNING:
        limit = "no end" if progress.timeout_s is None else duration(progress.timeout_s)
        again = f", attempt {progress.attempts}" if progress.attempts > 1 else ""
        return f"{words}: run {progress.run}{again}, timeout {limit}"
    return f"{words}: {one_line(progress.reason, _LONGEST)}" if progress.reason else words


def timeout_options(more_s: float) -> tuple[Option, ...]:
    return (
        Option("resume", "Resume", f"Resume with more time ({approximate_duration(more_s)})"),
        Option("accept", "Accept partial", "Accept partial completion"),
        Option("retry", "Retry", "Retry from scratch"),
        Option("skip", "Skip task", "Mark skipped, continue batch"),
    )


def timed_out(name: str, result: RunResult, options: Sequence[Option]) -> str:
    """The block TASK TIMED OUT: what was done, where it is saved, and the options."""
    checkpoint = result.checkpoint
    return "\n".join(
        (
            "TASK TIMED OUT",
            "",
            f"Task: {one_line(name)} ({one_line(result.options.agent_label, 80)})",
            f"Time: {duration(result.options.timeout_s or 0.0)}",
            f"Done: {result.state.work_text()}",
            f"Checkpoint: {'none' if checkpoint is None else one_line(checkpoint.text(), 400)}",
            "",
            "Options:",
            *(f"{f'[{each.label}]':20} - {each.does}" for each in options),
        )
    )
