"""The terminal: width and color, the live screen, progress bars, and choices."""

import math
import os
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from shutil import get_terminal_size
from types import MappingProxyType
from typing import IO, Any, TypeVar

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.text import Text

from switchgear._cli.options import given
from switchgear._cli.views.text import Signs, clean, say, signs_for
from switchgear._stuck.messages import Option

NARROW = 64
"""Columns below which a line holds only the most important things."""
WIDE = 150
"""Columns from which details are shown in the same line."""


_UNIT = re.compile(r" (?:s|ms|min|h)\b")
_NO_COLUMNS: Mapping[int, int] = MappingProxyType({})


class Screen:
    """Where lines are printed. Used by one thread."""

    def __init__(self) -> None:
        no_color = True if given("no_color") else None
        self.console = Console(
            highlight=False, markup=False, emoji=False, no_color=no_color, legacy_windows=False
        )
        self.signs: Signs = signs_for(self.console.file)

    @property
    def width(self) -> int | None:
        """Columns of the terminal; `None`: unlimited."""
        if self.console.is_terminal:
            # For rich, a dumb terminal always has 80 columns.
            dumb = self.console.is_dumb_terminal
            return max(get_terminal_size().columns if dumb else self.console.width, 20)
        columns = os.environ.get("COLUMNS", "")
        return max(int(columns), 20) if columns.isdecimal() and int(columns) else None

    def line(self, text: Text | str = "", indent: int = 0) -> None:
        for part in wrapped(text if isinstance(text, Text) else Text(text), self.width, indent):
            self.console.print(part, soft_wrap=True)


def wrapped(text: Text, width: int | None, indent: int) -> list[Text]:
    """The text in lines of at most `width` columns; all but the first are indented."""
    if width is None or cell_len(text.plain) <= width:
        return [text]
    indent = min(indent, width * 2 // 3)
    lines: list[Text] = []
    left, room = text, width
    while cell_len(left.plain) > room:
        cut = _break_position(left.plain, room)
        lines.append(_indent(left[:cut], indent if lines else 0))
        left = left[cut:]
        left = left[len(left.plain) - len(left.plain.lstrip(" ")) :]
        room = width - indent
    if left.plain or not lines:
        lines.append(_indent(left, indent if lines else 0))
    return lines


def fitted(text: str, width: int, signs: Signs) -> str:
    """The text in exactly `width` columns; a longer text is shortened in the middle."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    dots = signs.dots if width > cell_len(signs.dots) + 1 else ""
    room = width - cell_len(dots)
    tail = _last_cells(text, room // 2)
    head = set_cell_size(text, room - cell_len(tail))
    return head + dots + tail


def column_widths(
    rows: Iterable[Sequence[str]],
    width: int | None = None,
    shortened: Mapping[int, int] = _NO_COLUMNS,
) -> list[int]:
    """The width of each column of a table that has two spaces between columns.

    If the table is wider than `width`, the columns in `shortened` become narrower, in this order,
    each down to the given number of characters.
    """
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for at, least in shortened.items():
        excess = 0 if width is None else sum(widths) + 2 * (len(widths) - 1) - width
        widths[at] = max(min(widths[at], least), widths[at] - max(excess, 0))
    return widths


def table_line(
    cells: Sequence[str], widths: Sequence[int], signs: Signs, right: Collection[int] = ()
) -> str:
    """A line of a table; the columns in `right` are aligned to the right."""
    padded = [
        " " * (width - cell_len(cell)) + cell if at in right else fitted(cell, width, signs)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def _last_cells(text: str, width: int) -> str:
    start = len(text)
    while start and cell_len(text[start - 1 :]) <= width:
        start -= 1
    return text[start:]


def _break_position(text: str, room: int) -> int:
    """Where to break: after the last word that fits, or inside a word that would leave a wide gap."""
    fits = len(chop_cells(text, room)[0])
    space = fits if text[fits : fits + 1] == " " else text.rfind(" ", 1, fits)
    while space > 0 and _UNIT.match(text, space) and text[space - 1].isdigit():
        space = text.rfind(" ", 1, space)  # "60" and "s" are one word to a reader
    return space if space > room // 3 and text[:space].strip() else max(fits, 1)


def _indent(text: Text, indent: int) -> Text:
    text = Text.assemble(" " * indent, text)
    text.rstrip()
    return text


LONGEST_INTERVAL_S, SHORTEST_INTERVAL_S = 0.25, 0.05
"""Seconds between two drawings: if nothing changes, and however much changes."""
CLOSE_TIMEOUT_S = 2.0
"""How long `LiveScreen.close` waits for the last drawing."""


class LiveScreen:
    """Draws what `frame` returns until it is closed. Started, paused and closed by one thread at a time."""

    def __init__(self, screen: Screen, frame: Callable[[], Text]) -> None:
        self._screen = screen
        self._frame = frame
        self._live = self._new_screen()
        self._closed = threading.Event()
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    problem: str | None = None
    """Why drawing has stopped; the work continues."""

    def start(self) -> None:
        self._thread = threading.Thread(target=self._draw, name="switchgear-view", daemon=True)
        self._thread.start()

    def redraw(self) -> None:
        """Request a drawing soon, because something changed. Does not wait."""
        self._changed.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Show the normal screen in the meantime, for a prompt."""
        self.close()
        try:
            yield
        finally:
            self._closed.clear()
            self._live = self._new_screen()
            self.start()

    def close(self) -> None:
        """Return to the normal screen. Idempotent."""
        self._closed.set()
        self._changed.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(CLOSE_TIMEOUT_S)

    def _new_screen(self) -> Live:
        return Live(
            console=self._screen.console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._frame,
        )

    def _draw(self) -> None:
        try:
            with self._live:
                while not self._closed.is_set():
                    self._changed.clear()
                    self._live.refresh()
                    self._closed.wait(SHORTEST_INTERVAL_S)
                    self._changed.wait(LONGEST_INTERVAL_S - SHORTEST_INTERVAL_S)
                # After a window grew, tmux copies lines of this screen to the normal one: empty them.
                self._screen.console.clear()
        except Exception as error:  # noqa: BLE001  a failed view does not end the run
            self.problem = f"the live view failed: {type(error).__name__}: {error}"


V = TypeVar("V")


@contextmanager
def fitting_view(
    lines: Callable[[IO[str]], V], live: Callable[[Screen], V], *, as_json: bool
) -> Iterator[V]:
    """A live view at a terminal, else plain lines; with `--json`, plain lines on standard error."""
    if as_json:
        yield lines(sys.stderr)
        return
    screen = Screen()
    if not screen.console.is_terminal or screen.console.is_dumb_terminal:
        yield lines(sys.stdout)
    else:
        view: Any = live(screen)
        try:
            yield view
        finally:
            view.close()


POLL_S = 0.2
"""How often to check whether an answer is still needed."""


def is_attended() -> bool:
    """Whether there is a terminal for a prompt."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def parse_choice(text: str, options: Sequence[Option]) -> str | None:
    """The key of the option that the answer stands for, by number or prefix; `None`: none or several.

    >>> parse_choice("2", [Option("wait", "Wait", ""), Option("force", "Force close", "")])
    'force'
    """
    word = text.strip().strip("[]").lower()
    if word.isdecimal() and 1 <= int(word) <= len(options):
        return options[int(word) - 1].key
    found = [each.key for each in options if word and each.key.startswith(word)]
    found = found or [each.key for each in options if word and each.label.lower().startswith(word)]
    return found[0] if len(found) == 1 else None


def ask(
    block: str,
    options: Sequence[Option],
    wait_s: float | None,
    source: int | None = None,
    *,
    otherwise: str = "the escalation decides",
    stopped: Callable[[], int] = int,
) -> str | None:
    """Show the block and prompt for an option; `None`: no answer within `wait_s` seconds.

    `source` is the descriptor to read from; default: standard input. `otherwise` says what happens
    without an answer. The prompt ends without an answer when `stopped` returns more than 0.
    """
    source = sys.stdin.fileno() if source is None else source
    say("\n".join(clean(line, 300) for line in block.splitlines()), err=True)
    until_s = math.inf if wait_s is None else time.monotonic() + wait_s
    names = "/".join(f"{number} {each.key}" for number, each in enumerate(options, 1))
    limit = "" if wait_s is None else f", in {wait_s:g} s {otherwise}"
    while True:
        say(f"What now ({names}{limit})?", err=True)
        line = _read_line(source, until_s, stopped)
        if line is None:
            say("no answer", err=True)
            return None
        key = parse_choice(line, options)
        if key is not None:
            return key
        say(f"{clean(line.strip())!r} is not one of the options", err=True)


def chooser(
    paused: Callable[[], AbstractContextManager[None]],
    wait_s: float,
    otherwise: str = "the escalation decides",
    stopped: Callable[[], int] = int,
) -> Callable[[str, tuple[Option, ...]], str | None] | None:
    """A function that prompts the user, one question at a time; `None`: there is no terminal.

    `paused` hides a live screen meanwhile. The other parameters are those of `ask`.
    """
    if not is_attended():
        return None
    turn = threading.Lock()

    def choose(block: str, options: tuple[Option, ...]) -> str | None:
        with turn, paused():
            return ask(block, options, wait_s, otherwise=otherwise, stopped=stopped)

    return choose


def _read_line(source: int, until_s: float, stopped: Callable[[], int]) -> str | None:
    """Read a line, a byte at a time: `select` does not see what a buffer holds."""
    data = b""
    while not data.endswith(b"\n"):
        left_s = max(0.0, until_s - time.monotonic())
        if not select.select([source], [], [], min(left_s, POLL_S))[0]:
            if left_s <= POLL_S or stopped():
                return None
            continue
        byte = os.read(source, 1)
        if not byte:
            return data.decode(errors="replace") if data else None
        data += byte
    return data.decode(errors="replace")


ProgressReport = Callable[[int, int], object]


@contextmanager
def progress(what: str, *, hidden: bool, passes: int = 1) -> Iterator[ProgressReport | None]:
    """A function to call with the numbers of finished and of all items; `None`: no bar is visible.

    The items are processed `passes` times, and a call with 0 finished items begins the next pass. The
    bar and its estimate cover all passes.
    """
    if hidden or not sys.stderr.isatty():
        yield None
        return
    from rich import progress as bars  # noqa: PLC0415  only for long commands

    bar = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("elapsed, about"),
        bars.TimeRemainingColumn(),
        bars.TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        yield _ProgressBar(bar, what, passes)


class _ProgressBar:
    def __init__(self, bar: Any, what: str, passes: int) -> None:
        self._bar, self._what, self._passes = bar, what, passes
        self._pass = 1
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self._task is None:
            self._task = self._bar.add_task(self._what, total=max(1, total) * self._passes)
        elif done == 0:
            self._pass = min(self._pass + 1, self._passes)
        self._bar.update(self._task, completed=done + total * (self._pass - 1))
