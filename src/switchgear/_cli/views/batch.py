"""A batch at a terminal: a table of its tasks that is drawn while they run; elsewhere plain lines."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

from rich.text import Text

from switchgear._cli.views.run import RunSnapshot, RunTracker, one_line
from switchgear._cli.views.terminal import (
    LiveScreen,
    Screen,
    column_widths,
    fitted,
    fitting_view,
    table_line,
)
from switchgear._cli.views.text import UNICODE, clean, plural
from switchgear._run.batch.model import SATISFIED, BatchEnd, Progress, Status
from switchgear._run.batch.view import BatchLineView, BatchView, task_status
from switchgear._run.formats import UNKNOWN, spend
from switchgear._run.result import RunResult
from switchgear._run.view import RunView
from switchgear._text.formats import duration, elapsed

HEAD = ("TASK", "END", "ITERATIONS", "TIME", "SPEND", "CHECKPOINT")
_NUMBERS = (2, 3, 4)
"""Columns that are aligned to the right."""
_SHORTEST_NAME = 8


def table(progress: Mapping[str, Progress], width: int | None = None) -> list[str]:
    """A line for each task; below it, why the task is not done, or how to merge its branch.

    If the table is wider than `width`, checkpoints are below the tasks and long names are cut.
    """
    rows = [_row(name, each) for name, each in progress.items()]
    widths = column_widths([HEAD, *rows])
    below = width is not None and sum(widths) + 2 * (len(HEAD) - 1) > width
    if below:
        widths = column_widths([row[:-1] for row in (HEAD, *rows)], width, {0: _SHORTEST_NAME})
    lines = [table_line(HEAD[: len(widths)], widths, UNICODE, _NUMBERS)]
    for row, each in zip(rows, progress.values(), strict=True):
        lines.append(table_line(row[: len(widths)], widths, UNICODE, _NUMBERS))
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


def summary_lines(
    batch: str, end: BatchEnd, progress: Mapping[str, Progress], resume: str
) -> list[str]:
    """How the batch ended, and the command that continues it."""
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
    """The result that `--json` prints."""
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
                **{key: value for key, value in each.dump().items() if key not in _INTERNAL_KEYS},
            }
            for name, each in progress.items()
        ],
        "resume": None if end.code == 0 else resume,
        "notes": list(notes),
    }


_INTERNAL_KEYS = ("digest", "earlier_micros")


NOTES = 200
"""Messages that are kept for the screen."""
STYLES = {
    Status.RUNNING: "bold cyan",
    Status.DONE: "green",
    Status.PARTIAL: "yellow",
    Status.FAILED: "bold red",
    Status.SKIPPED: "red",
    Status.BLOCKED: "red",
    Status.INTERRUPTED: "yellow",
}


def batch_view(*, as_json: bool, stopping: Callable[[], int]) -> AbstractContextManager[BatchView]:
    """The view of a batch; `stopping` returns the number of requests to stop."""
    return fitting_view(BatchLineView, lambda screen: BatchTable(screen, stopping), as_json=as_json)


class _TaskView(RunTracker):
    """Tracks the run of a task. Called by the task's thread; redraws the table after larger changes."""

    def __init__(self, table: "BatchTable", name: str, stopping: Callable[[], int]) -> None:
        super().__init__(table.clock, stopping)
        self._table, self._name = table, name

    def started(self, run: dict[str, Any]) -> None:
        super().started(run)
        self._table.redraw()

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        super().iteration_started(number, run)
        self._table.redraw()

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        super().iteration_ended(facts, run)
        self._table.redraw()

    def noted(self, text: str) -> None:
        self._table.message(f"[{self._name}] {text}")

    def ended(self, result: RunResult) -> None:
        self._table.message(f"[{self._name}] {result.exit_reason}: {result.reason}")


class BatchTable(BatchView):
    """Draws a batch on a terminal: a line for each task, and the last messages."""

    def __init__(
        self,
        screen: Screen,
        stopping: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen, self._stopping, self.clock = screen, stopping, clock
        self._lock = threading.Lock()
        self._batch = ""
        self._tasks: dict[str, Progress] = {}
        self._trackers: dict[str, RunTracker] = {}
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._waits: tuple[str, float] | None = None
        self._live = LiveScreen(screen, self.frame)

    def started(self, batch: str, names: list[str]) -> None:
        with self._lock:
            self._batch = batch
            self._tasks = {name: self._tasks.get(name, Progress()) for name in names}
        self._live.start()

    def changed(self, name: str, progress: Progress) -> None:
        with self._lock:
            self._tasks[name] = progress
        self._live.redraw()

    def run_view(self, name: str) -> RunView:
        view = _TaskView(self, name, self._stopping)
        with self._lock:
            self._trackers[name] = view
        return view

    def message(self, text: str) -> None:
        with self._lock:
            self._notes.extend(one_line(line, 300) for line in text.splitlines() if line.strip())
        self._live.redraw()

    def waiting(self, why: str, left_s: float) -> None:
        with self._lock:
            self._waits = (one_line(why), self.clock() + left_s)
        self._live.redraw()

    def redraw(self) -> None:
        self._live.redraw()

    def paused(self) -> AbstractContextManager[None]:
        return self._live.paused()

    def close(self) -> None:
        self._live.close()

    def frame(self) -> Text:
        width, height = self._screen.width or 80, max(self._screen.console.height, 4)
        with self._lock:
            tasks, notes = dict(self._tasks), list(self._notes)
            trackers, waits = dict(self._trackers), self._waits
        snapshots = {
            name: trackers[name].snapshot()
            for name, each in tasks.items()
            if each.status is Status.RUNNING and name in trackers
        }
        lines = self._head(tasks, snapshots)
        longest = min(max((len(name) for name in tasks), default=4), max(width // 4, 8))
        shown = _most_relevant(tasks, max(height - len(lines) - 3, 1))
        lines += [self._row(name, tasks[name], snapshots.get(name), longest) for name in shown]
        if len(shown) < len(tasks):
            lines.append(Text(f"and {len(tasks) - len(shown)} more", "dim"))
        left_s = 0.0 if waits is None else waits[1] - self.clock()
        if waits is not None and left_s > 0:
            lines.append(Text(f"waiting {duration(left_s)} {waits[0]}", "yellow"))
        free = max(height - len(lines) - 2, 0)
        recent = notes[-free:] if free else []
        lines += [Text(note, "dim") for note in recent]
        foot = (
            "stopping; Ctrl-C again stops at once"
            if self._stopping()
            else "Ctrl-C: stop gracefully; Ctrl-C again: stop now; the work is kept"
        )
        lines.append(Text(foot, "dim"))
        for line in lines:
            line.truncate(width, overflow="ellipsis" if self._screen.signs is UNICODE else "crop")
        return Text("\n", no_wrap=True, overflow="crop").join(lines)

    def _head(self, tasks: dict[str, Progress], snapshots: dict[str, RunSnapshot]) -> list[Text]:
        count = dict.fromkeys(Status, 0)
        for each in tasks.values():
            count[each.status] += 1
        parts = ", ".join(f"{number} {status}" for status, number in count.items() if number)
        costs = [_cost(each, snapshots.get(name)) for name, each in tasks.items()]
        spent = spend(sum(micros for micros, _ in costs), sum(unknown for _, unknown in costs))
        return [Text(f"batch {self._batch}: {parts}; {spent}", "bold"), Text("")]

    def _row(
        self, name: str, progress: Progress, snapshot: RunSnapshot | None, longest: int
    ) -> Text:
        about = task_status(progress).partition(": ")[2]
        if snapshot is not None:
            about = _activity(snapshot)
        elif progress.status in {Status.DONE, Status.PARTIAL}:
            cost = spend(progress.spent_micros, progress.unknown_prices)
            about = f"{elapsed(progress.seconds)}, {cost}"
        line = Text(fitted(name, longest, self._screen.signs), "bold")
        line.append(f"  {progress.status:11}", STYLES.get(progress.status, "dim"))
        return line.append(f"  {about}")


def _cost(progress: Progress, snapshot: RunSnapshot | None) -> tuple[int, int]:
    """The cost of a task in micro-dollars, with the run in progress, and the number of unknown costs."""
    if snapshot is None:
        return progress.spent_micros, progress.unknown_prices
    micros = max(progress.spent_micros, progress.earlier_micros + snapshot.spent_micros)
    return micros, max(progress.unknown_prices, snapshot.unknown_prices)


_FIRST = ({Status.RUNNING}, {Status.FAILED, Status.SKIPPED}, {Status.WAITING})
"""Which tasks are shown first if there is no room for all of them."""
_LAST = {*Status}.difference(*_FIRST)


def _most_relevant(tasks: Mapping[str, Progress], room: int) -> list[str]:
    """The tasks whose rows fit; if there are too many, finished and pending tasks are left out."""
    if len(tasks) <= room:
        return list(tasks)
    ranked = (
        name
        for statuses in (*_FIRST, _LAST)
        for name, each in tasks.items()
        if each.status in statuses
    )
    shown = {*islice(ranked, max(room - 1, 1))}
    return [name for name in tasks if name in shown]


def _activity(snapshot: RunSnapshot) -> str:
    left = "" if snapshot.left_s is None else f" ({duration(snapshot.left_s)} left)"
    spent = spend(snapshot.spent_micros, snapshot.unknown_prices)
    return f"#{snapshot.number}  {elapsed(snapshot.used_s)}{left}  {spent}  {snapshot.activity}"
