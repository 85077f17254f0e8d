"""Signals to the run: once ends what is running gently, twice at once. Nothing is left running."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stoppable(Protocol):
    """A process that can be ended from a signal handler."""

    def stop(self) -> None:
        """End it gently."""

    def kill(self) -> None:
        """End it at once."""


class Interrupt:
    """Counts the requests to stop and passes them on to what is running. One per run.

    Its handler takes no lock and raises nothing: the loop looks at `asked` where it can stop.
    """

    def __init__(self) -> None:
        self.asked = 0
        """How often; 0: go on."""
        self.by = ""
        """The name of the first signal."""
        self._running: Stoppable | None = None

    def ask(self, by: str = "SIGINT") -> None:
        """Stop: what is running ends gently the first time, at once the second."""
        self.asked += 1
        self.by = self.by or by
        running = self._running
        if running is None:
            return
        if self.asked == 1:
            running.stop()
        else:
            running.kill()

    @contextmanager
    def watching(self, process: Stoppable) -> Iterator[None]:
        """Requests that come meanwhile, or came before, end this process."""
        self._running = process
        if self.asked:
            process.stop()
        try:
            yield
        finally:
            self._running = None

    @contextmanager
    def installed(self) -> Iterator["Interrupt"]:
        """Signals are requests meanwhile. To be used in the main thread."""
        before: dict[signal.Signals, Any] = {}
        try:
            for number in SIGNALS:
                # Whoever started us with nohup has said that a hang-up is nothing to us.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, self._handle)
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.ask(signal.Signals(number).name)
