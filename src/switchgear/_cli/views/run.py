"""A run in the terminal: a live screen while it runs, a summary when it ends.

The live screen uses the alternate screen (see `terminal.py`); the summary is printed on the normal one.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from switchgear._agents.events import (
    AgentError,
    Question,
    StreamEvent,
    TextOutput,
    ToolStarted,
    ToolStep,
    Usage,
)
from switchgear._cli.views.circuits import STYLES
from switchgear._cli.views.terminal import (
    NARROW,
    LiveScreen,
    Screen,
    fitting_view,
    wrapped,
)
from switchgear._cli.views.text import ASCII, Signs, bar, clean, plural, words
from switchgear._core.types import Phase
from switchgear._run import formats
from switchgear._run.formats import passing, spent
from switchgear._run.result import RunResult
from switchgear._run.view import LineView, RunView, evidence_of
from switchgear._text.fingerprint import gist
from switchgear._text.formats import dollars, percent

RECENT = 40
HISTORY = 200
TREND = 60


class Note(NamedTuple):
    """Something to know: of the run, or of iterations that follow each other."""

    text: str
    first: int | None = None
    last: int | None = None

    def __str__(self) -> str:
        if self.first is None:
            return self.text
        which = f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"
        return f"iteration {which}: {self.text}"


class Board(NamedTuple):
    """All that is known of a run, for one drawing. Immutable."""

    run: dict[str, Any]
    number: int = 0
    """Of the iteration that runs or ran last; 0: none yet."""
    busy: bool = False
    """Whether an iteration runs."""
    doing: str = "starting"
    ended: tuple[dict[str, Any], ...] = ()
    """The iterations that are over, as iterations.jsonl has them."""
    notes: tuple[Note, ...] = ()
    recent: tuple[str, ...] = ()
    last_error: str = ""
    nudge: str = ""
    # What changes with time alone, or is counted elsewhere: `Notebook.board` adds it.
    doing_s: float = 0.0
    """How long it has been doing that."""
    used_s: float = 0.0
    """The time used in all."""
    left_s: float | None = None
    """What is left of the time; `None`: no end."""
    waits_s: float | None = None
    """How long it still waits; `None`: it does not."""
    spent_micros: int = 0
    unknown_prices: int = 0
    stopping: int = 0
    """Number of requests to stop."""


class Notebook(RunView):
    """Keeps what the view receives. Written by one thread, read by another."""

    def __init__(self, clock: Callable[[], float], stopping: Callable[[], int]) -> None:
        self._clock = clock
        self._stopping = stopping
        self._lock = threading.Lock()
        self._board = Board({"options": {}, "state": {}, "readings": []})
        self._told_s = self._began_s = self._since_s = clock()
        self._used_before_s = 0.0
        self._waits_until_s: float | None = None
        self._costs: dict[str | None, int | None] = {}

    @contextmanager
    def _mark_changed(self) -> Iterator[None]:
        with self._lock:
            yield
        self.news()

    def news(self) -> None:
        """Called after each change."""

    def started(self, run: dict[str, Any]) -> None:
        with self._mark_changed():
            self._take(run)
            self._began_s, self._used_before_s = self._told_s, run["state"]["seconds"]

    def waiting(self, why: str, left_s: float) -> None:
        with self._mark_changed():
            self._waits_until_s = self._clock() + left_s
            self._do(f"waiting {one_line(why)}")

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        with self._mark_changed():
            self._take(run, number=number, busy=True, nudge=_nudge(run))
            self._costs.clear()
            self._do("starting the agent")

    def validating(self, command: str) -> None:
        with self._mark_changed():
            self._do(f"validation: {one_line(command)}")

    def event(self, event: StreamEvent) -> None:
        with self._mark_changed():
            if isinstance(event, Usage):
                self._costs[event.model] = event.cost_micros
            elif isinstance(event, ToolStarted):
                self._do(f"{one_line(event.tool, 60)} {one_line(event.arguments)}")
            elif isinstance(event, ToolStep):
                how = "?" if event.ok is None else "ok" if event.ok else "failed"
                call = f"{one_line(event.tool, 60)} {one_line(event.arguments, 200)}"
                self._add(f"{call}: {how}", gist(event.error) if event.error else None)
                self._do("the agent is working")
            elif isinstance(event, TextOutput | Question):
                self._do("the agent is working")
                if line := one_line(event.text):
                    self._add(line)
            elif isinstance(event, AgentError):
                self._add(f"{event.kind}: {one_line(event.text)}", event.text)

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        number = facts["number"]
        with self._mark_changed():
            history = (*self._board.ended, facts)[-HISTORY:]
            self._take(run, number=number, busy=False, ended=history, nudge=_nudge(run))
            self._costs.clear()
            self._add(f"iteration {number}: {_ended_line(facts)}", facts["error"])
            for note in facts["notes"]:
                self._note(note, number)
            self._do("deciding what to do next")

    def noted(self, text: str) -> None:
        with self._mark_changed():
            self._note(text)

    def board(self) -> Board:
        now_s = self._clock()
        with self._lock:
            board, waits_until_s = self._board, self._waits_until_s
            state, left_s = board.run["state"], board.run.get("time_left_s")
            return board._replace(
                doing_s=now_s - self._since_s,
                used_s=self._used_before_s + now_s - self._began_s,
                left_s=None if left_s is None else max(left_s - (now_s - self._told_s), 0.0),
                waits_s=None if waits_until_s is None else max(waits_until_s - now_s, 0.0),
                spent_micros=state.get("spent_micros", 0) + sum(filter(None, self._costs.values())),
                unknown_prices=state.get("unknown_prices", 0),
                stopping=self._stopping(),
            )

    def _take(self, run: dict[str, Any], **changes: Any) -> None:
        self._board, self._told_s = self._board._replace(run=run, **changes), self._clock()

    def _add(self, line: str, error: str | None = None) -> None:
        """Add a line to the recent ones; `error` becomes the last error."""
        recent = (*self._board.recent, line)[-RECENT:]
        last = one_line(error) if error else self._board.last_error
        self._board = self._board._replace(recent=recent, last_error=last)

    def _do(self, what: str) -> None:
        if not what.startswith("waiting"):
            self._waits_until_s = None
        if what != self._board.doing:
            self._board, self._since_s = self._board._replace(doing=what), self._clock()

    def _note(self, text: str, number: int | None = None) -> None:
        """Add a note; one that repeats the note of the iteration before is counted with it."""
        note = Note(one_line(text, 600), number, number)
        self._add(f"note: {note}")
        *before, last = self._board.notes or (Note(""),)
        if number is not None and (note.text, number - 1) == (last.text, last.last):
            notes = (*before, last._replace(last=number))
        else:
            notes = (*self._board.notes, note)[-HISTORY:]
        self._board = self._board._replace(notes=notes)


def _nudge(run: dict[str, Any]) -> str:
    return one_line(evidence_of(run["state"].get("nudge") or ""), 1000)


def one_line(text: str, longest: int = 300) -> str:
    """A text of the agent, as one line without control characters."""
    return clean(" ".join(text[: 4 * longest].split()), longest)


def _ended_line(facts: dict[str, Any]) -> str:
    nudged = ["nudged"] if facts["nudge"] else []
    return one_line(", ".join([*formats.iteration(facts), *nudged]))


MARKS = {"worked": "✓", "completed": "✓", "failed": "✗", "unproven": "?", "provider": "!"}
ASCII_MARKS = {"worked": "+", "completed": "+", "failed": "x", "unproven": "?", "provider": "!"}
OUTCOME_STYLES = {"worked": "green", "completed": "bold green", "failed": "red"}
LEVELS, ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.-=+*#"
NAMES = {"consecutive_failures": "failures in a row"}
SHORT_NAMES = {
    "consecutive_failures": "failures",
    "output_decline": "decline",
    "sent to agent": "sent",
    "next prompt": "next",
}
_LABEL = 19
_NARROW_LABEL = 12


Ranked = tuple[int, Text]
"""A line and its rank: if there is too little space, the highest rank is left out first."""


class Size(NamedTuple):
    """The size of the screen, and which symbols it can show."""

    width: int
    height: int
    signs: Signs

    @property
    def narrow(self) -> bool:
        """Whether a line holds only the most important things."""
        return self.width < NARROW

    @property
    def label(self) -> int:
        return _NARROW_LABEL if self.narrow else _LABEL

    @property
    def bar(self) -> int:
        return 8 if self.narrow else 12


def picture(board: Board, size: Size) -> list[Text]:
    rows = [
        *_head(board, size),
        (7, Text()),
        *_detectors(board, size),
        (6, Text()),
        *_state_lines(board, size),
        (8, Text()),
        *_activity_lines(board, size),
    ]
    foot = (
        "Ctrl-C ends it"
        if size.narrow
        else "Ctrl-C: stop gracefully; Ctrl-C again: stop now; the work is kept"
    )
    rows.append((5, Text(foot, "dim")))
    spare = size.height - len(rows)
    if spare > 0:
        indent = " " * (2 if size.narrow else size.label)
        rows[-1:-1] = [(9, Text(indent + text, "dim")) for text in board.recent[-spare:]]
    while len(rows) > size.height:
        worst = max(range(len(rows)), key=lambda place: (rows[place][0], place))
        del rows[worst]
    return [cut(text, size) for _, text in rows]


def last_picture(board: Board, size: Size) -> list[Text]:
    """What is left on the screen at the end: how each iteration went, what the detectors hold."""
    lines = [text for _, text in _head(board, size, over=True)]
    room = 12
    shown = board.ended[-room:]
    if len(shown) < len(board.ended):
        lines.append(Text(f"  {size.signs.dots} {len(board.ended) - len(shown)} earlier", "dim"))
    for facts in shown:
        line = Text.assemble("  ", _mark(facts, size.signs), f" {facts['number']:>3}  ")
        lines.append(line.append(_ended_line(facts)))
    notes = (
        part
        for note in board.notes[-room:]
        for part in wrapped(Text(f"  note: {note}", "dim"), size.width, 4)
    )
    detectors = [text for _, text in _detectors(board, size)] if board.ended else []
    # A note may end in what to do about it: it is not cut.
    return [*(cut(line, size) for line in lines), *notes, *(cut(line, size) for line in detectors)]


def _head(board: Board, size: Size, *, over: bool = False) -> list[Ranked]:
    run = board.run
    phase = str(run.get("phase", "closed"))
    known = phase in set(Phase)
    lamps = {"open": size.signs.open, "half_open": size.signs.half_open}
    lamp = f"{lamps.get(phase, size.signs.closed)} {words(one_line(phase, 20))}"
    shadow = " [shadow]" if run["options"].get("shadow") else ""
    line = Text.assemble((lamp + shadow, STYLES[Phase(phase)] if known else ""), "  ")
    limit = run["options"].get("max_iterations")
    if board.number:
        most = "" if limit is None else f" of {limit + run['state'].get('lost', 0)}"
        counted = plural(board.number, "iteration") if over else f"iteration {board.number}{most}"
        line.append(counted, "bold")
        heat = run.get("heat", 0.0)
        line.append(f"  heat {percent(heat)}", heat_style(heat))
    else:
        line.append("before the first iteration")
    agent = one_line(str(run.get("agent", "")), 60)
    rows = [(0, line)]
    for who in (f"{agent} on {one_line(str(run.get('circuit', '')), 100)}", agent):
        gap = size.width - cell_len(line.plain) - cell_len(who)
        if gap >= 2:
            line.append(" " * gap).append(who, "dim")
            break
    task = Text(one_line(str(run.get("task", "")), 500))
    return [*rows, (3, task)]


def _detectors(board: Board, size: Size) -> list[Ranked]:
    readings: list[dict[str, Any]] = list(board.run.get("readings", ()))
    hottest = max(readings, key=lambda each: each["heat"], default=None)
    rows = []
    for each in readings:
        heat, style = each["heat"], heat_style(each["heat"])
        line = label(each["kind"], size)
        line.append(bar(heat, size.bar, size.signs), style).append(f" {percent(heat):>4}", style)
        if not size.narrow:
            line.append(f"  {one_line(each['reason'])}")
        rows.append((1 if each is hottest else 4, line))
        if size.narrow and each is hottest and heat > 0:
            rows.append((2, Text(f"  {one_line(each['reason'])}")))
    return rows


def _state_lines(board: Board, size: Size) -> list[Ranked]:
    left = "no time limit" if board.left_s is None else f"{clock(board.left_s)} left"
    rows = [
        (3, _outcomes(board, size)),
        (2, _money(board, size)),
        (2, label("time", size).append(f"{clock(board.used_s)}, {left}")),
    ]
    if tested := [each for each in board.ended if each["tests_passing"] is not None]:
        last = tested[-1]
        shown = passing(last["tests_passing"], formats.tests_total(last))
        bars = trend([each["tests_passing"] for each in board.ended], size)
        rows.append((4, label("tests", size).append(bars, "cyan").append(f" {shown}")))
    outputs = [each["output_chars"] for each in board.ended]
    if lengths := [each for each in outputs if each is not None]:
        line = label("output", size).append(trend(outputs, size), "cyan")
        rows.append((4, line.append(f" {plural(lengths[-1], 'character')}")))
    if board.last_error:
        rows.append((2, label("last error", size).append(board.last_error, "red")))
    if board.nudge and (board.busy or board.run.get("phase") != "open"):
        title = "sent to agent" if board.busy else "next prompt"
        rows.append((2, label(title, size).append(board.nudge, "yellow")))
    return rows


def _outcomes(board: Board, size: Size) -> Text:
    line = label("iterations", size)
    room = max(size.width - size.label - 2, 1)
    for facts in board.ended[-room:]:
        line.append_text(_mark(facts, size.signs))
    if board.busy:
        line.append(">" if size.signs is ASCII else "▸", "bold")
    return line


def _mark(facts: dict[str, Any], signs: Signs) -> Text:
    marks, outcome = ASCII_MARKS if signs is ASCII else MARKS, facts["outcome"]
    return Text(marks.get(outcome, signs.dot), OUTCOME_STYLES.get(outcome, "yellow"))


def _money(board: Board, size: Size) -> Text:
    budget = board.run.get("may_spend_micros")
    line = label("spend", size)
    if budget:
        share = board.spent_micros / budget
        line.append(bar(share, size.bar, size.signs), heat_style(share)).append(" ")
    line.append(
        spent(board.spent_micros, board.unknown_prices), "yellow" if board.unknown_prices else ""
    )
    return line.append(", no budget" if budget is None else f" of {dollars(budget)}")


def _activity_lines(board: Board, size: Size) -> list[Ranked]:
    if board.stopping:
        words_ = (
            "stopping: waiting for the agent to end" if board.stopping == 1 else "stopping at once"
        )
        return [(0, label("now", size).append(words_, "bold yellow"))]
    line = label("now", size)
    if board.waits_s is not None:
        return [(0, line.append(f"{clock(board.waits_s)} {board.doing}", "bold yellow"))]
    # The seconds stand first: however narrow it is, one sees that it is alive.
    return [(0, line.append(f"{clock(board.doing_s)} ", "bold").append(board.doing))]


def label(name: str, size: Size) -> Text:
    names = SHORT_NAMES if size.narrow else NAMES
    shown = names.get(name) or one_line(words(name), 40)
    # Assembled, so that what is appended is not dim as well.
    return Text.assemble((set_cell_size(set_cell_size(shown, size.label - 1), size.label), "dim"))


def heat_style(heat: float) -> str:
    return "bold red" if heat >= 1 else "yellow" if heat >= 0.6 else "green"


def clock(seconds: float) -> str:
    """`0:07`, `12:34`, `1:02:03`.

    >>> clock(7.9), clock(3723)
    ('0:07', '1:02:03')
    """
    minutes, rest = divmod(int(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def trend(values: Sequence[int | None], size: Size) -> str:
    """The values as a row of small bars, the newest last."""
    levels = ASCII_LEVELS if size.signs is ASCII else LEVELS
    room = min(TREND, max(size.width - size.label - 24, 4))
    shown = values[-room:]
    most = max((each for each in shown if each is not None), default=0) or 1
    return "".join(
        " " if each is None else levels[round(max(each, 0) / most * (len(levels) - 1))]
        for each in shown
    )


def cut(text: Text, size: Size) -> Text:
    """A line that fits; what is left out is shown by dots."""
    if cell_len(text.plain) <= size.width:
        return text
    text = text.copy()
    room = max(size.width - len(size.signs.dots), 1)
    text.truncate(room, overflow="crop")
    space = text.plain.rfind(" ")
    if space > room * 2 // 3:  # behind a word, where that leaves most of the line
        text = text[:space]
    text.rstrip()
    return text.append(size.signs.dots)


COPIED = ("  kept: ", "  report: ", "  receipt: ", "  continue: ")
"""Lines without wrapping, so that they can be copied."""


def run_view(*, as_json: bool, stopping: Callable[[], int]) -> AbstractContextManager[RunView]:
    """The view of a run; `stopping` returns the number of requests to stop."""
    return fitting_view(LineView, lambda screen: LiveView(screen, stopping), as_json=as_json)


class LiveView(Notebook):
    """Draws a run on a terminal. Updated by the run's thread, drawn by its own."""

    def __init__(
        self,
        screen: Screen,
        stopping: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock, stopping)
        self._screen = screen
        self._live = LiveScreen(screen, self.frame)

    def started(self, run: dict[str, Any]) -> None:
        super().started(run)
        self._live.begin()

    def news(self) -> None:
        self._live.news()

    def paused(self) -> AbstractContextManager[None]:
        return self._live.paused()

    def ended(self, result: RunResult) -> None:
        self.close()
        board, screen = self.board(), self._screen
        frame = last_picture(board, self.size())
        for drawn in frame:
            screen.line(drawn)
        screen.line()
        first, *rest = result.text().splitlines()
        screen.line(Text(clean(first, 2000), "bold green" if result.success else "bold red"))
        if self._live.problem is not None:
            screen.line(Text(clean(f"  note: {self._live.problem}")), indent=4)
        for line in rest:
            if line.startswith(COPIED):
                screen.console.print(Text(clean(line, 4000)), soft_wrap=True)
            elif not any(  # unless the line of a detector shows it already, in full
                drawn.plain.endswith(f"  {line.removeprefix('  evidence: ')}") for drawn in frame
            ):
                screen.line(Text(clean(line, 2000)), indent=4)

    def close(self) -> None:
        self._live.close()

    def size(self) -> Size:
        console = self._screen.console
        return Size(self._screen.width or 80, max(console.height, 1), self._screen.signs)

    def frame(self) -> Text:
        lines = picture(self.board(), self.size())
        return Text("\n", no_wrap=True, overflow="crop").join(lines)
