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
from switchgear._cli.views.circuits import STYLES, heat_style
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

RECENT_LINES, HISTORY, TREND_BARS = 40, 200, 60
"""How many lines of activity, iterations and notes are kept, and how many bars a trend has."""


class Note(NamedTuple):
    """A note about the run, or about one or more consecutive iterations."""

    text: str
    first: int | None = None
    last: int | None = None

    def __str__(self) -> str:
        if self.first is None:
            return self.text
        which = f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"
        return f"iteration {which}: {self.text}"


class RunSnapshot(NamedTuple):
    """The state of a run for one drawing. Immutable."""

    run: dict[str, Any]
    """The content of run.json."""
    number: int = 0
    """The number of the current or last iteration; 0: none yet."""
    busy: bool = False
    """Whether an iteration is in progress."""
    activity: str = "starting"
    ended: tuple[dict[str, Any], ...] = ()
    """The finished iterations, as in iterations.jsonl."""
    notes: tuple[Note, ...] = ()
    recent: tuple[str, ...] = ()
    last_error: str = ""
    nudge: str = ""
    # `RunTracker.snapshot` sets the fields below, which depend on the time or are counted elsewhere.
    activity_s: float = 0.0
    """How long the activity has lasted."""
    used_s: float = 0.0
    """The elapsed time of the run, over all its processes."""
    left_s: float | None = None
    """The time that remains; `None`: no limit."""
    waits_s: float | None = None
    """The remaining wait; `None`: it does not wait."""
    spent_micros: int = 0
    unknown_prices: int = 0
    stopping: int = 0
    """Number of requests to stop."""


class RunTracker(RunView):
    """Collects what happens in a run. Written by one thread, read by another."""

    def __init__(self, clock: Callable[[], float], stopping: Callable[[], int]) -> None:
        self._clock = clock
        self._stopping = stopping
        self._lock = threading.Lock()
        self._snapshot = RunSnapshot({"options": {}, "state": {}, "readings": []})
        self._updated_s = self._began_s = self._activity_since_s = clock()
        self._used_before_s = 0.0
        self._waits_until_s: float | None = None
        self._costs: dict[str | None, int | None] = {}

    @contextmanager
    def _mark_changed(self) -> Iterator[None]:
        with self._lock:
            yield
        self.redraw()

    def redraw(self) -> None:
        """Called after each change; a view that draws overrides it."""

    def started(self, run: dict[str, Any]) -> None:
        with self._mark_changed():
            self._update(run)
            self._began_s, self._used_before_s = self._updated_s, run["state"]["seconds"]

    def waiting(self, why: str, left_s: float) -> None:
        with self._mark_changed():
            self._waits_until_s = self._clock() + left_s
            self._set_activity(f"waiting {one_line(why)}")

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        with self._mark_changed():
            self._update(run, number=number, busy=True, nudge=_nudge(run))
            self._costs.clear()
            self._set_activity("starting the agent")

    def validating(self, command: str) -> None:
        with self._mark_changed():
            self._set_activity(f"validation: {one_line(command)}")

    def event(self, event: StreamEvent) -> None:
        with self._mark_changed():
            if isinstance(event, Usage):
                self._costs[event.model] = event.cost_micros
            elif isinstance(event, ToolStarted):
                self._set_activity(f"{one_line(event.tool, 60)} {one_line(event.arguments)}")
            elif isinstance(event, ToolStep):
                how = "?" if event.ok is None else "ok" if event.ok else "failed"
                call = f"{one_line(event.tool, 60)} {one_line(event.arguments, 200)}"
                self._add_recent(f"{call}: {how}", gist(event.error) if event.error else None)
                self._set_activity("the agent is working")
            elif isinstance(event, TextOutput | Question):
                self._set_activity("the agent is working")
                if line := one_line(event.text):
                    self._add_recent(line)
            elif isinstance(event, AgentError):
                self._add_recent(f"{event.kind}: {one_line(event.text)}", event.text)

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        number = facts["number"]
        with self._mark_changed():
            history = (*self._snapshot.ended, facts)[-HISTORY:]
            self._update(run, number=number, busy=False, ended=history, nudge=_nudge(run))
            self._costs.clear()
            self._add_recent(f"iteration {number}: {_iteration_line(facts)}", facts["error"])
            for note in facts["notes"]:
                self._add_note(note, number)
            self._set_activity("deciding what to do next")

    def noted(self, text: str) -> None:
        with self._mark_changed():
            self._add_note(text)

    def snapshot(self) -> RunSnapshot:
        now_s = self._clock()
        with self._lock:
            snapshot, waits_until_s = self._snapshot, self._waits_until_s
            state, left_s = snapshot.run["state"], snapshot.run.get("time_left_s")
            return snapshot._replace(
                activity_s=now_s - self._activity_since_s,
                used_s=self._used_before_s + now_s - self._began_s,
                left_s=None if left_s is None else max(left_s - (now_s - self._updated_s), 0.0),
                waits_s=None if waits_until_s is None else max(waits_until_s - now_s, 0.0),
                spent_micros=state.get("spent_micros", 0) + sum(filter(None, self._costs.values())),
                unknown_prices=state.get("unknown_prices", 0),
                stopping=self._stopping(),
            )

    def _update(self, run: dict[str, Any], **changes: Any) -> None:
        self._snapshot, self._updated_s = self._snapshot._replace(run=run, **changes), self._clock()

    def _add_recent(self, line: str, error: str | None = None) -> None:
        """Add a line of activity; `error` becomes the last error."""
        recent = (*self._snapshot.recent, line)[-RECENT_LINES:]
        last = one_line(error) if error else self._snapshot.last_error
        self._snapshot = self._snapshot._replace(recent=recent, last_error=last)

    def _set_activity(self, what: str) -> None:
        if not what.startswith("waiting"):
            self._waits_until_s = None
        if what != self._snapshot.activity:
            self._snapshot = self._snapshot._replace(activity=what)
            self._activity_since_s = self._clock()

    def _add_note(self, text: str, number: int | None = None) -> None:
        """Add a note; if it repeats the note of the previous iteration, extend that one."""
        note = Note(one_line(text, 600), number, number)
        self._add_recent(f"note: {note}")
        *before, last = self._snapshot.notes or (Note(""),)
        if number is not None and (note.text, number - 1) == (last.text, last.last):
            notes = (*before, last._replace(last=number))
        else:
            notes = (*self._snapshot.notes, note)[-HISTORY:]
        self._snapshot = self._snapshot._replace(notes=notes)


def _nudge(run: dict[str, Any]) -> str:
    return one_line(evidence_of(run["state"].get("nudge") or ""), 1000)


def one_line(text: str, longest: int = 300) -> str:
    """The text as one line without control characters."""
    return clean(" ".join(text[: 4 * longest].split()), longest)


def _iteration_line(facts: dict[str, Any]) -> str:
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
"""A rank and a line: if there are too many lines, those with the highest rank are left out first."""


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


def live_lines(snapshot: RunSnapshot, size: Size) -> list[Text]:
    rows = [
        *_head(snapshot, size),
        (7, Text()),
        *_detectors(snapshot, size),
        (6, Text()),
        *_state_lines(snapshot, size),
        (8, Text()),
        *_activity_lines(snapshot, size),
    ]
    foot = (
        "Ctrl-C: stop gracefully"
        if size.narrow
        else "Ctrl-C: stop gracefully; Ctrl-C again: stop now; the work is kept"
    )
    rows.append((5, Text(foot, "dim")))
    spare = size.height - len(rows)
    if spare > 0:
        indent = " " * (2 if size.narrow else size.label)
        rows[-1:-1] = [(9, Text(indent + text, "dim")) for text in snapshot.recent[-spare:]]
    while len(rows) > size.height:
        last_ranked = max(range(len(rows)), key=lambda place: (rows[place][0], place))
        del rows[last_ranked]
    return [cut(text, size) for _, text in rows]


def final_lines(snapshot: RunSnapshot, size: Size) -> list[Text]:
    """The lines that stay on the screen at the end: each iteration, the notes, the detectors."""
    lines = [text for _, text in _head(snapshot, size, is_over=True)]
    room = 12
    shown = snapshot.ended[-room:]
    if len(shown) < len(snapshot.ended):
        lines.append(Text(f"  {size.signs.dots} {len(snapshot.ended) - len(shown)} earlier", "dim"))
    for facts in shown:
        line = Text.assemble("  ", _mark(facts, size.signs), f" {facts['number']:>3}  ")
        lines.append(line.append(_iteration_line(facts)))
    notes = (
        part
        for note in snapshot.notes[-room:]
        for part in wrapped(Text(f"  note: {note}", "dim"), size.width, 4)
    )
    detectors = [text for _, text in _detectors(snapshot, size)] if snapshot.ended else []
    # Notes are not cut: they may end with what to do.
    return [*(cut(line, size) for line in lines), *notes, *(cut(line, size) for line in detectors)]


def _head(snapshot: RunSnapshot, size: Size, *, is_over: bool = False) -> list[Ranked]:
    run = snapshot.run
    phase = str(run.get("phase", "closed"))
    known = phase in set(Phase)
    lamps = {"open": size.signs.open, "half_open": size.signs.half_open}
    lamp = f"{lamps.get(phase, size.signs.closed)} {words(one_line(phase, 20))}"
    shadow = " [shadow]" if run["options"].get("shadow") else ""
    line = Text.assemble((lamp + shadow, STYLES[Phase(phase)] if known else ""), "  ")
    limit = run["options"].get("max_iterations")
    if snapshot.number:
        of = "" if limit is None else f" of {limit + run['state'].get('lost', 0)}"
        current = f"iteration {snapshot.number}{of}"
        counted = plural(snapshot.number, "iteration") if is_over else current
        line.append(counted, "bold")
        heat = run.get("heat", 0.0)
        line.append(f"  heat {percent(heat)}", heat_style(heat))
    else:
        line.append("before the first iteration")
    agent = one_line(str(run.get("agent", "")), 60)
    rows = [(0, line)]
    for at_right in (f"{agent} on {one_line(str(run.get('circuit', '')), 100)}", agent):
        gap = size.width - cell_len(line.plain) - cell_len(at_right)
        if gap >= 2:
            line.append(" " * gap).append(at_right, "dim")
            break
    task = Text(one_line(str(run.get("task", "")), 500))
    return [*rows, (3, task)]


def _detectors(snapshot: RunSnapshot, size: Size) -> list[Ranked]:
    readings: list[dict[str, Any]] = list(snapshot.run.get("readings", ()))
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


def _state_lines(snapshot: RunSnapshot, size: Size) -> list[Ranked]:
    left = "no time limit" if snapshot.left_s is None else f"{clock(snapshot.left_s)} left"
    rows = [
        (3, _outcomes(snapshot, size)),
        (2, _money(snapshot, size)),
        (2, label("time", size).append(f"{clock(snapshot.used_s)}, {left}")),
    ]
    if tested := [each for each in snapshot.ended if each["tests_passing"] is not None]:
        last = tested[-1]
        shown = passing(last["tests_passing"], formats.tests_total(last))
        bars = trend([each["tests_passing"] for each in snapshot.ended], size)
        rows.append((4, label("tests", size).append(bars, "cyan").append(f" {shown}")))
    outputs = [each["output_chars"] for each in snapshot.ended]
    if lengths := [each for each in outputs if each is not None]:
        line = label("output", size).append(trend(outputs, size), "cyan")
        rows.append((4, line.append(f" {plural(lengths[-1], 'character')}")))
    if snapshot.last_error:
        rows.append((2, label("last error", size).append(snapshot.last_error, "red")))
    if snapshot.nudge and (snapshot.busy or snapshot.run.get("phase") != "open"):
        title = "sent to agent" if snapshot.busy else "next prompt"
        rows.append((2, label(title, size).append(snapshot.nudge, "yellow")))
    return rows


def _outcomes(snapshot: RunSnapshot, size: Size) -> Text:
    line = label("iterations", size)
    room = max(size.width - size.label - 2, 1)
    for facts in snapshot.ended[-room:]:
        line.append_text(_mark(facts, size.signs))
    if snapshot.busy:
        line.append(">" if size.signs is ASCII else "▸", "bold")
    return line


def _mark(facts: dict[str, Any], signs: Signs) -> Text:
    marks, outcome = ASCII_MARKS if signs is ASCII else MARKS, facts["outcome"]
    return Text(marks.get(outcome, signs.dot), OUTCOME_STYLES.get(outcome, "yellow"))


def _money(snapshot: RunSnapshot, size: Size) -> Text:
    budget = snapshot.run.get("may_spend_micros")
    line = label("spend", size)
    if budget:
        share = snapshot.spent_micros / budget
        line.append(bar(share, size.bar, size.signs), heat_style(share)).append(" ")
    line.append(
        spent(snapshot.spent_micros, snapshot.unknown_prices),
        "yellow" if snapshot.unknown_prices else "",
    )
    return line.append(", no budget" if budget is None else f" of {dollars(budget)}")


def _activity_lines(snapshot: RunSnapshot, size: Size) -> list[Ranked]:
    if snapshot.stopping:
        is_graceful = snapshot.stopping == 1
        how = "stopping: waiting for the agent to end" if is_graceful else "stopping at once"
        return [(0, label("now", size).append(how, "bold yellow"))]
    line = label("now", size)
    if snapshot.waits_s is not None:
        return [(0, line.append(f"{clock(snapshot.waits_s)} {snapshot.activity}", "bold yellow"))]
    # The seconds come first: they show progress even on a narrow screen.
    return [(0, line.append(f"{clock(snapshot.activity_s)} ", "bold").append(snapshot.activity))]


def label(name: str, size: Size) -> Text:
    names = SHORT_NAMES if size.narrow else NAMES
    shown = names.get(name) or one_line(words(name), 40)
    # Assembled, so that the style does not apply to what is appended.
    return Text.assemble((set_cell_size(set_cell_size(shown, size.label - 1), size.label), "dim"))


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
    room = min(TREND_BARS, max(size.width - size.label - 24, 4))
    shown = values[-room:]
    most = max((each for each in shown if each is not None), default=0) or 1
    return "".join(
        " " if each is None else levels[round(max(each, 0) / most * (len(levels) - 1))]
        for each in shown
    )


def cut(text: Text, size: Size) -> Text:
    """A line that fits the screen; dots show that it is cut."""
    if cell_len(text.plain) <= size.width:
        return text
    text = text.copy()
    room = max(size.width - len(size.signs.dots), 1)
    text.truncate(room, overflow="crop")
    space = text.plain.rfind(" ")
    if space > room * 2 // 3:  # after a word, if that keeps most of the line
        text = text[:space]
    text.rstrip()
    return text.append(size.signs.dots)


UNWRAPPED = ("  kept: ", "  report: ", "  receipt: ", "  continue: ")
"""Beginnings of lines that are not wrapped, so that they can be copied."""


def run_view(*, as_json: bool, stopping: Callable[[], int]) -> AbstractContextManager[RunView]:
    """The view of a run; `stopping` returns the number of requests to stop."""
    return fitting_view(LineView, lambda screen: LiveView(screen, stopping), as_json=as_json)


class LiveView(RunTracker):
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
        self._live.start()

    def redraw(self) -> None:
        self._live.redraw()

    def paused(self) -> AbstractContextManager[None]:
        return self._live.paused()

    def ended(self, result: RunResult) -> None:
        self.close()
        snapshot, screen = self.snapshot(), self._screen
        frame = final_lines(snapshot, self.size())
        for drawn in frame:
            screen.line(drawn)
        screen.line()
        first, *rest = result.text().splitlines()
        screen.line(Text(clean(first, 2000), "bold green" if result.success else "bold red"))
        if self._live.problem is not None:
            screen.line(Text(clean(f"  note: {self._live.problem}")), indent=4)
        for line in rest:
            if line.startswith(UNWRAPPED):
                screen.console.print(Text(clean(line, 4000)), soft_wrap=True)
            elif not any(  # unless the line of a detector already shows it in full
                drawn.plain.endswith(f"  {line.removeprefix('  evidence: ')}") for drawn in frame
            ):
                screen.line(Text(clean(line, 2000)), indent=4)

    def close(self) -> None:
        self._live.close()

    def size(self) -> Size:
        console = self._screen.console
        return Size(self._screen.width or 80, max(console.height, 1), self._screen.signs)

    def frame(self) -> Text:
        lines = live_lines(self.snapshot(), self.size())
        return Text("\n", no_wrap=True, overflow="crop").join(lines)
