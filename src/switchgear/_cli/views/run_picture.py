"""The live view of a run as lines: a pure function of what is known and of the terminal's size.

The most important things are always there: the lamp, the iteration, the hottest detector, what
happens now. Where there is less room, the others go first.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from switchgear._cli.views.run_board import TREND, Board, Ended, one_line
from switchgear._cli.views.screen import NARROW, wrapped
from switchgear._cli.views.status_table import STYLES
from switchgear._cli.views.text import ASCII, Signs, bar, percent, plural, words
from switchgear._core.types import Phase
from switchgear._run.formats import passing, spent
from switchgear._text.money import dollars

MARKS = {"worked": "✓", "completed": "✓", "failed": "✗", "unproven": "?", "provider": "!"}
ASCII_MARKS = {"worked": "+", "completed": "+", "failed": "x", "unproven": "?", "provider": "!"}
OUTCOME_STYLES = {"worked": "green", "completed": "bold green", "failed": "red"}
LEVELS, ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.-=+*#"
NAMES = {"consecutive_failures": "failures in a row"}
SHORT_NAMES = {
    "consecutive_failures": "failures",
    "output_decline": "decline",
    "told the agent": "told",
    "next prompt": "next",
}
_LABEL = 19
_NARROW_LABEL = 12


class Row(NamedTuple):
    """A line and how dear it is: where there is no room, the highest rank goes first."""

    rank: int
    text: Text


class Size(NamedTuple):
    """How much room there is, and what can be drawn in it."""

    width: int
    height: int
    signs: Signs

    @property
    def narrow(self) -> bool:
        """Whether a line holds only the most important things."""
        return self.width < NARROW

    @property
    def label(self) -> int:
        """The columns of what stands at the left."""
        return _NARROW_LABEL if self.narrow else _LABEL

    @property
    def bar(self) -> int:
        """The columns of a bar."""
        return 8 if self.narrow else 12


def picture(board: Board, size: Size) -> list[Text]:
    """The lines of the live screen, at most as many as there is room for."""
    rows = [
        *_head(board, size),
        Row(7, Text()),
        *_detectors(board, size),
        Row(6, Text()),
        *_standing(board, size),
        Row(8, Text()),
        *_now(board, size),
    ]
    foot = (
        "Ctrl-C ends it"
        if size.narrow
        else "Ctrl-C ends it gently, twice at once; the work is kept"
    )
    rows.append(Row(5, Text(foot, "dim")))
    spare = size.height - len(rows)
    if spare > 0:
        rows[-1:-1] = _recent(board, size, spare)
    while len(rows) > size.height:
        worst = max(range(len(rows)), key=lambda place: (rows[place].rank, place))
        del rows[worst]
    return [cut(row.text, size) for row in rows]


def last_picture(board: Board, size: Size) -> list[Text]:
    """What is left on the screen at the end: how each iteration went, what the detectors hold."""
    lines = [row.text for row in _head(board, size, over=True)]
    room = 12
    shown = board.ended[-room:]
    if len(shown) < len(board.ended):
        lines.append(Text(f"  {size.signs.dots} {len(board.ended) - len(shown)} earlier", "dim"))
    for ended in shown:
        line = Text.assemble("  ", _mark(ended, size.signs), f" {ended.number:>3}  ")
        lines.append(line.append(ended.line))
    notes = (
        part
        for note in board.notes[-room:]
        for part in wrapped(Text(f"  note: {note}", "dim"), size.width, 4)
    )
    detectors = [row.text for row in _detectors(board, size)] if board.ended else []
    # A note may end in what to do about it: it is not cut.
    return [*(cut(line, size) for line in lines), *notes, *(cut(line, size) for line in detectors)]


def _head(board: Board, size: Size, *, over: bool = False) -> list[Row]:
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
    rows = [Row(0, line)]
    for who in (f"{agent} on {one_line(str(run.get('circuit', '')), 100)}", agent):
        gap = size.width - cell_len(line.plain) - cell_len(who)
        if gap >= 2:
            line.append(" " * gap).append(who, "dim")
            break
    task = Text(one_line(str(run.get("task", "")), 500))
    return [*rows, Row(3, task)]


def _detectors(board: Board, size: Size) -> list[Row]:
    readings: list[dict[str, Any]] = list(board.run.get("readings", ()))
    hottest = max(readings, key=lambda each: each["heat"], default=None)
    rows = []
    for each in readings:
        heat, style = each["heat"], heat_style(each["heat"])
        line = label(each["kind"], size)
        line.append(bar(heat, size.bar, size.signs), style).append(f" {percent(heat):>4}", style)
        if not size.narrow:
            line.append(f"  {one_line(each['reason'])}")
        rows.append(Row(1 if each is hottest else 4, line))
        if size.narrow and each is hottest and heat > 0:
            rows.append(Row(2, Text(f"  {one_line(each['reason'])}")))
    return rows


def _standing(board: Board, size: Size) -> list[Row]:
    rows = [Row(3, _outcomes(board, size)), Row(2, _money(board, size)), Row(2, _time(board, size))]
    tests = [each.tests for each in board.ended]
    if any(each is not None for each in tests):
        last_run = next(each for each in reversed(board.ended) if each.tests is not None)
        line = label("tests", size).append(trend(tests, size), "cyan")
        rows.append(Row(4, line.append(f" {passing(last_run.tests or 0, last_run.tests_total)}")))
    outputs = [each.output_chars for each in board.ended]
    if any(each is not None for each in outputs):
        last = next(each for each in reversed(outputs) if each is not None)
        line = label("output", size).append(trend(outputs, size), "cyan")
        rows.append(Row(4, line.append(f" {plural(last, 'character')}")))
    if board.last_error:
        rows.append(Row(2, label("last error", size).append(board.last_error, "red")))
    if board.nudge and (board.busy or board.run.get("phase") != "open"):
        told = "told the agent" if board.busy else "next prompt"
        text = board.nudge
        rows.append(Row(2, label(told, size).append(text, "yellow")))
    return rows


def _outcomes(board: Board, size: Size) -> Text:
    line = label("iterations", size)
    room = max(size.width - size.label - 2, 1)
    for ended in board.ended[-room:]:
        line.append_text(_mark(ended, size.signs))
    if board.busy:
        line.append(">" if size.signs is ASCII else "▸", "bold")
    return line


def _mark(ended: Ended, signs: Signs) -> Text:
    marks = ASCII_MARKS if signs is ASCII else MARKS
    style = OUTCOME_STYLES.get(ended.outcome, "yellow")
    return Text(marks.get(ended.outcome, signs.dot), style)


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


def _time(board: Board, size: Size) -> Text:
    line = label("time", size).append(clock(board.used_s))
    left = "no time limit" if board.left_s is None else f"{clock(board.left_s)} left"
    return line.append(f", {left}")


def _now(board: Board, size: Size) -> list[Row]:
    if board.stopping:
        words_ = "stopping: the agent ends" if board.stopping == 1 else "stopping at once"
        return [Row(0, label("now", size).append(words_, "bold yellow"))]
    line = label("now", size)
    if board.waits_s is not None:
        return [Row(0, line.append(f"{clock(board.waits_s)} {board.doing}", "bold yellow"))]
    # The seconds stand first: however narrow it is, one sees that it is alive.
    return [Row(0, line.append(f"{clock(board.doing_s)} ", "bold").append(board.doing))]


def _recent(board: Board, size: Size, room: int) -> list[Row]:
    return [
        Row(9, Text(" " * size.label + text if not size.narrow else f"  {text}", "dim"))
        for text in board.recent[-room:]
    ]


def label(name: str, size: Size) -> Text:
    """What stands at the left of a line."""
    names = SHORT_NAMES if size.narrow else NAMES
    shown = names.get(name) or one_line(words(name), 40)
    # Assembled, so that what is appended is not dim as well.
    return Text.assemble((set_cell_size(set_cell_size(shown, size.label - 1), size.label), "dim"))


def heat_style(heat: float) -> str:
    """The colour of a heat."""
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
