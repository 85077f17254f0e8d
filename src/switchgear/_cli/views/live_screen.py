"""A screen that is drawn while something goes on: by a thread of its own, on its own timer.

So it lives while nobody says anything, and a terminal that is slow or stopped holds up no work. It
is the alternate screen, which survives being resized.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.live import Live
from rich.text import Text

from switchgear._cli.views.screen import Screen

TICK_S = 0.25
QUICKEST_S = 0.05
"""However much happens, it is not drawn more often."""
PATIENCE_S = 2.0
"""How long the end waits for the last drawing."""


class LiveScreen:
    """Draws what `frame` gives, until it is closed. Begun, paused and closed by one thread at a time."""

    def __init__(self, screen: Screen, frame: Callable[[], Text]) -> None:
        self._screen = screen
        self._frame = frame
        self._live = self._new_screen()
        self._over = threading.Event()
        self._news = threading.Event()
        self._thread: threading.Thread | None = None

    problem: str | None = None
    """Why it is not drawn any more; the work goes on all the same."""

    def begin(self) -> None:
        """From now on it is drawn."""
        self._thread = threading.Thread(target=self._draw, name="switchgear-view", daemon=True)
        self._thread.start()

    def news(self) -> None:
        """Something happened: draw it soon."""
        self._news.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The normal screen meanwhile, to ask somebody something."""
        self.close()
        try:
            yield
        finally:
            self._over.clear()
            self._live = self._new_screen()
            self.begin()

    def close(self) -> None:
        """Leave the live screen, whatever happened. May be called again."""
        self._over.set()
        self._news.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(PATIENCE_S)

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
                while not self._over.is_set():
                    self._news.clear()
                    self._live.refresh()
                    self._over.wait(QUICKEST_S)
                    self._news.wait(TICK_S - QUICKEST_S)
                # tmux gives the lines of a screen that grew to the normal one: let them be empty.
                self._screen.console.clear()
        except Exception as error:  # noqa: BLE001  observers cannot hurt the observed
            self.problem = f"the live view failed: {type(error).__name__}: {error}"
