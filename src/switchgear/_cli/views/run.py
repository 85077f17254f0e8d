"""A run at a terminal: a screen that is drawn while it goes on, and what is left of it at the end.

While it goes on it is drawn on a screen of its own (see `live_screen.py`); how it ended is printed
on the normal one.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from rich.text import Text

from switchgear._agents.events import StreamEvent
from switchgear._cli.views.live_screen import LiveScreen
from switchgear._cli.views.run_board import Notebook
from switchgear._cli.views.run_picture import Size, last_picture, picture
from switchgear._cli.views.screen import Screen
from switchgear._cli.views.text import clean
from switchgear._run.view import LineView, RunView
from switchgear._stuck.messages import Option

if TYPE_CHECKING:
    from switchgear._run.dependencies import Choose
    from switchgear._run.result import RunResult

COPIED = ("  kept: ", "  report: ", "  receipt: ", "  continue: ")
"""Lines that are not broken by us, so that what is in them can be copied."""


@contextmanager
def run_view(*, as_json: bool, stopping: Callable[[], int]) -> Iterator[RunView]:
    """The view that fits: a live screen at a terminal, plain lines anywhere else.

    `stopping` tells how often somebody asked the run to stop.
    """
    if as_json:
        yield LineView(sys.stderr)
        return
    screen = Screen()
    if not screen.console.is_terminal or screen.console.is_dumb_terminal:
        yield LineView(sys.stdout)
        return
    view = LiveView(screen, stopping)
    try:
        yield view
    finally:
        view.close()


def chooser(view: RunView, wait_s: float) -> "Choose | None":
    """Asks a person at this view what to do about a stuck agent; `None`: nobody is there."""
    from switchgear._cli.views.choice import ask, is_attended  # noqa: PLC0415  only of some runs

    if not isinstance(view, LiveView) or not is_attended():
        return None

    def choose(block: str, options: tuple[Option, ...]) -> str | None:
        with view.paused():
            return ask(block, options, wait_s)

    return choose


class LiveView(RunView):
    """Draws a run on a terminal. Told by the run's thread; a thread of its own draws."""

    def __init__(
        self,
        screen: Screen,
        stopping: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen = screen
        self._notebook = Notebook(clock, stopping)
        self._live = LiveScreen(screen, self.frame)

    def started(self, run: dict[str, Any]) -> None:
        """From now on it is drawn."""
        self._notebook.started(run)
        self._live.begin()

    def paused(self) -> AbstractContextManager[None]:
        """The normal screen meanwhile, to ask somebody something."""
        return self._live.paused()

    def waiting(self, why: str, left_s: float) -> None:
        """A countdown."""
        self._notebook.waiting(why, left_s)
        self._live.news()

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        """Its number."""
        self._notebook.iteration_started(number, run)
        self._live.news()

    def event(self, event: StreamEvent) -> None:
        """What the agent does."""
        self._notebook.event(event)
        self._live.news()

    def validating(self, command: str) -> None:
        """The command."""
        self._notebook.validating(command)
        self._live.news()

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        """What was measured."""
        self._notebook.iteration_ended(facts, run)
        self._live.news()

    def noted(self, text: str) -> None:
        """The note."""
        self._notebook.noted(text)
        self._live.news()

    def ended(self, result: "RunResult") -> None:
        """The last frame and the summary, on the normal screen."""
        self.close()
        board, screen = self._notebook.board(), self._screen
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
            elif not _is_in(frame, line.removeprefix("  evidence: ")):
                screen.line(Text(clean(line, 2000)), indent=4)

    def close(self) -> None:
        """Leave the live screen, whatever happened. May be called again."""
        self._live.close()

    def size(self) -> Size:
        """The terminal as it is now."""
        console = self._screen.console
        return Size(self._screen.width or 80, max(console.height, 1), self._screen.signs)

    def frame(self) -> Text:
        """The live screen as it should be now."""
        lines = picture(self._notebook.board(), self.size())
        return Text("\n", no_wrap=True, overflow="crop").join(lines)


def _is_in(frame: list[Text], evidence: str) -> bool:
    """Whether the line of a detector says it already, and in full."""
    return any(line.plain.endswith(f"  {evidence}") for line in frame)
