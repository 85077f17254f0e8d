"""A batch at a terminal: a table of its tasks that is drawn while they run; elsewhere plain lines."""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from switchgear._agents.events import StreamEvent
from switchgear._cli.views.run import Board, Notebook, one_line
from switchgear._cli.views.terminal import LiveScreen, Screen, fitted
from switchgear._cli.views.text import UNICODE, clean, plural
from switchgear._run.batch.model import SATISFIED, BatchEnd, Progress, Status
from switchgear._run.batch.view import BatchLineView, BatchView, task_status
from switchgear._run.formats import UNKNOWN, spend
from switchgear._run.view import RunView
from switchgear._text.formats import duration, elapsed

if TYPE_CHECKING:
    from switchgear._run.result import RunResult
    from switchgear._run.state import Choose
    from switchgear._stuck.messages import Option

HEAD = ("TASK", "END", "ITERATIONS", "TIME", "SPEND", "CHECKPOINT")
_NUMBERS = (2, 3, 4)
"""Columns that are read from the right."""
_SHORTEST = 8
"""How short a name may become."""


def table(progress: Mapping[str, Progress], width: int | None = None) -> list[str]:
    """The summary: a line for each task, and below it why it is not done.

    Where it is wider than `width`, the checkpoints are below the tasks, and long names are cut.
    """
    rows = [_row(name, each) for name, each in progress.items()]
    widths = [max(cell_len(row[at]) for row in (HEAD, *rows)) for at in range(len(HEAD))]
    below = width is not None and sum(widths) + 2 * (len(HEAD) - 1) > width
    if below:
        widths = widths[:-1]
        rest = sum(widths[1:]) + 2 * (len(widths) - 1)
        widths[0] = min(widths[0], max((width or 0) - rest, _SHORTEST))
    lines = [_line(HEAD[: len(widths)], widths)]
    for row, (_, each) in zip(rows, progress.items(), strict=True):
        cells = (fitted(row[0], widths[0], UNICODE), *row[1 : len(widths)])
        lines.append(_line(cells, widths))
        if below and each.checkpoint:
            lines.append(f"  {row[-1]}")
        if each.status not in SATISFIED and each.reason:
            lines.append(f"  {clean(each.reason, 600)}")
        if each.branch is not None and each.status in SATISFIED:
            lines.append(f"  git merge {clean(each.branch)}")
    return lines


def _row(name: str, progress: Progress) -> tuple[str, ...]:
    end = str(progress.status)
    if progress.status is Status.BLOCKED:
        end = f"blocked by {progress.blocked_by}"
    elif progress.status is Status.FAILED and progress.exit_reason is not None:
        end = f"failed ({progress.exit_reason})"
    begun = progress.attempts > 0
    return (
        clean(name),
        clean(end),
        str(progress.iterations) if begun else "-",
        elapsed(progress.seconds) if begun else "-",
        spend(progress.spent_micros, progress.unknown_prices) if begun else "-",
        clean(progress.checkpoint or "-"),
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        " " * (width - cell_len(cell)) + cell if at in _NUMBERS else set_cell_size(cell, width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def in_words(batch: str, end: BatchEnd, progress: Mapping[str, Progress], resume: str) -> list[str]:
    """The last lines: how it ended, and how to go on."""
    done = sum(each.status in SATISFIED for each in progress.values())
    spent = spend(
        sum(each.spent_micros for each in progress.values()),
        sum(each.unknown_prices for each in progress.values()),
    )
    spent = f"{spent} cost" if spent == UNKNOWN else spent
    lines = [f"batch {batch}: {end.name}: {done} of {plural(len(progress), 'task')} done, {spent}"]
    if end.code:
        failed = any(each.status in {Status.FAILED, Status.SKIPPED} for each in progress.values())
        lines.append(f"  continue: {resume}{' --retry-failed' if failed else ''}")
    return lines


def as_values(
    batch: str, end: BatchEnd, progress: Mapping[str, Progress], notes: Sequence[str], resume: str
) -> dict[str, Any]:
    """The documented result: what `--json` prints."""
    return {
        "batch": batch,
        "success": end.code == 0,
        "end": end.name,
        "exit_code": end.code,
        "reason": end.meaning,
        "cost_micros": sum(each.spent_micros for each in progress.values()),
        "unknown_prices": sum(each.unknown_prices for each in progress.values()),
        "tasks": [
            {
                "name": name,
                **{key: value for key, value in each.dump().items() if key not in _INSIDE},
            }
            for name, each in progress.items()
        ],
        "resume": None if end.code == 0 else resume,
        "notes": list(notes),
    }


_INSIDE = ("digest", "earlier_micros")


NOTES = 200
STYLES = {
    Status.RUNNING: "bold cyan",
    Status.DONE: "green",
    Status.PARTIAL: "yellow",
    Status.FAILED: "bold red",
    Status.SKIPPED: "red",
    Status.BLOCKED: "red",
    Status.INTERRUPTED: "yellow",
}


@contextmanager
def batch_view(*, as_json: bool, stopping: Callable[[], int]) -> Iterator[BatchView]:
    """The view that fits: a live table at a terminal, plain lines anywhere else."""
    if as_json:
        yield BatchLineView(sys.stderr)
        return
    screen = Screen()
    if not screen.console.is_terminal or screen.console.is_dumb_terminal:
        yield BatchLineView(sys.stdout)
        return
    view = BatchTable(screen, stopping)
    try:
        yield view
    finally:
        view.close()


def batch_chooser(view: BatchView, wait_s: float, stopping: Callable[[], int]) -> "Choose | None":
    """Prompts the user in this view; one question at a time."""
    from switchgear._cli.views.terminal import ask, is_attended  # noqa: PLC0415  only of some batches

    if not is_attended():
        return None
    turn = threading.Lock()

    def choose(block: str, options: "tuple[Option, ...]") -> str | None:
        with turn:
            if not isinstance(view, BatchTable):
                return ask(block, options, wait_s, alone="the policy decides", stopped=stopping)
            with view.paused():
                return ask(block, options, wait_s, alone="the policy decides", stopped=stopping)

    return choose


class _TaskView(RunView):
    """Writes the progress of a task's run to its notebook. Called by the task's thread."""

    def __init__(self, notebook: Notebook, table: "BatchTable", name: str) -> None:
        self._notebook, self._table, self._name = notebook, table, name

    def started(self, run: dict[str, Any]) -> None:
        self._notebook.started(run)
        self._table.news()

    def waiting(self, why: str, left_s: float) -> None:
        self._notebook.waiting(why, left_s)

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        self._notebook.iteration_started(number, run)
        self._table.news()

    def event(self, event: StreamEvent) -> None:
        self._notebook.event(event)

    def validating(self, command: str) -> None:
        self._notebook.validating(command)

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        self._notebook.iteration_ended(facts, run)
        self._table.news()

    def noted(self, text: str) -> None:
        self._table.said(f"[{self._name}] {text}")

    def ended(self, result: "RunResult") -> None:
        self._table.said(f"[{self._name}] {result.exit_reason}: {result.reason}")


class BatchTable(BatchView):
    """Draws a batch on a terminal: a line for each task, and the last messages."""

    def __init__(
        self,
        screen: Screen,
        stopping: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen, self._stopping, self._clock = screen, stopping, clock
        self._lock = threading.Lock()
        self._batch = ""
        self._tasks: dict[str, Progress] = {}
        self._notebooks: dict[str, Notebook] = {}
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._waits: tuple[str, float] | None = None
        self._live = LiveScreen(screen, self.frame)

    def began(self, batch: str, names: list[str]) -> None:
        with self._lock:
            self._batch = batch
            self._tasks = {name: self._tasks.get(name, Progress()) for name in names}
        self._live.begin()

    def changed(self, name: str, progress: Progress) -> None:
        with self._lock:
            self._tasks[name] = progress
        self._live.news()

    def run_view(self, name: str) -> RunView:
        notebook = Notebook(self._clock, self._stopping)
        with self._lock:
            self._notebooks[name] = notebook
        return _TaskView(notebook, self, name)

    def said(self, text: str) -> None:
        with self._lock:
            self._notes.extend(one_line(line, 300) for line in text.splitlines() if line.strip())
        self._live.news()

    def waiting(self, why: str, left_s: float) -> None:
        with self._lock:
            self._waits = (one_line(why), self._clock() + left_s)
        self._live.news()

    def news(self) -> None:
        self._live.news()

    def paused(self) -> AbstractContextManager[None]:
        return self._live.paused()

    def close(self) -> None:
        self._live.close()

    def frame(self) -> Text:
        width, height = self._screen.width or 80, max(self._screen.console.height, 4)
        with self._lock:
            tasks, notes = dict(self._tasks), list(self._notes)
            books, waits = dict(self._notebooks), self._waits
        lines = self._head(tasks)
        longest = min(max((len(name) for name in tasks), default=4), max(width // 4, 8))
        rows = [self._row(name, each, books.get(name), longest) for name, each in tasks.items()]
        room = max(height - len(lines) - 3, 1)
        lines += _most_telling(rows, list(tasks.values()), room)
        left_s = 0.0 if waits is None else waits[1] - self._clock()
        if waits is not None and left_s > 0:
            lines.append(Text(f"waiting {duration(left_s)} {waits[0]}", "yellow"))
        free = max(height - len(lines) - 2, 0)
        recent = notes[-free:] if free else []
        lines += [Text(note, "dim") for note in recent]
        ends = (
            "stopping; Ctrl-C again stops at once"
            if self._stopping()
            else ("Ctrl-C stops it gracefully, twice at once; the work is kept")
        )
        lines.append(Text(ends, "dim"))
        for line in lines:
            line.truncate(width, overflow="ellipsis" if self._screen.signs is UNICODE else "crop")
        return Text("\n", no_wrap=True, overflow="crop").join(lines)

    def _head(self, tasks: dict[str, Progress]) -> list[Text]:
        count = dict.fromkeys(Status, 0)
        for each in tasks.values():
            count[each.status] += 1
        parts = ", ".join(f"{number} {status}" for status, number in count.items() if number)
        spent = spend(
            sum(each.spent_micros for each in tasks.values()),
            sum(each.unknown_prices for each in tasks.values()),
        )
        return [Text(f"batch {self._batch}: {parts}; {spent}", "bold"), Text("")]

    def _row(self, name: str, progress: Progress, book: Notebook | None, longest: int) -> Text:
        about = task_status(progress).partition(": ")[2]
        if progress.status is Status.RUNNING and book is not None:
            about = _doing(book.board())
        elif progress.status in {Status.DONE, Status.PARTIAL}:
            cost = spend(progress.spent_micros, progress.unknown_prices)
            about = f"{elapsed(progress.seconds)}, {cost}"
        line = Text(fitted(name, longest, self._screen.signs), "bold")
        line.append(f"  {progress.status:11}", STYLES.get(progress.status, "dim"))
        return line.append(f"  {about}")


def _most_telling(rows: list[Text], tasks: list[Progress], room: int) -> list[Text]:
    """The rows that fit; if there are too many, finished and pending tasks are left out."""
    if len(rows) <= room:
        return rows
    telling = {Status.RUNNING: 0, Status.FAILED: 1, Status.SKIPPED: 1, Status.WAITING: 2}
    order = sorted(range(len(rows)), key=lambda at: (telling.get(tasks[at].status, 3), at))
    shown = sorted(order[: max(room - 1, 1)])
    return [*(rows[at] for at in shown), Text(f"and {len(rows) - len(shown)} more", "dim")]


def _doing(board: Board) -> str:
    """What a running task does now."""
    left = "" if board.left_s is None else f" ({duration(board.left_s)} left)"
    spent = spend(board.spent_micros, board.unknown_prices)
    return f"#{board.number}  {elapsed(board.used_s)}{left}  {spent}  {board.doing}"
