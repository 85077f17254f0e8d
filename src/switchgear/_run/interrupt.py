"""Signals to a run, and waits that a signal ends.

The first signal ends what is running gracefully, the second at once. Even if something hangs, the process
exits `LIMIT_S` after the first signal. The agent ends with it, because its pipe to the supervisor closes.
"""

import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple, Protocol

from switchgear._run.view import RunView
from switchgear._system.clock import AWAKE, Clock

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LIMIT_S = 60.0
"""Seconds from the first signal within which the process must end, saving included."""
IMPATIENT_S = 1.0
"""Seconds after the second signal from which a third one ends the process at once."""
INTERRUPTED = 130


class Stoppable(Protocol):
    """A process that can be ended from a signal handler."""

    def stop(self) -> None:
        """End it gracefully."""

    def kill(self) -> None:
        """End it at once."""


class Interrupt:
    """Counts the requests to stop and passes them on to what is running. One per run.

    The signal handler takes no lock and raises nothing: the loop checks `asked` where it can stop.
    """

    def __init__(self) -> None:
        self.asked: int = 0
        """The number of requests."""
        self.by: str = ""
        """The name of the first signal."""
        self._running: Stoppable | None = None
        self._second_s: float | None = None
        self._alarm = -1

    def ask(self, by: str = "SIGINT") -> None:
        """Request a stop: the first request ends what is running gracefully, the second at once."""
        self.asked += 1
        self.by = self.by or by
        if (running := self._running) is not None:
            (running.stop if self.asked == 1 else running.kill)()

    @contextmanager
    def watching(self, process: Stoppable) -> Iterator[None]:
        """Within the context, requests to stop end this process; an earlier request does so at the start."""
        self._running = process
        if self.asked:
            process.stop()
        try:
            yield
        finally:
            self._running = None

    @contextmanager
    def installed(self) -> Iterator["Interrupt"]:
        """Within the context, signals count as requests to stop. For the main thread only."""
        before: dict[signal.Signals, Any] = {}
        try:
            for number in SIGNALS:
                # A process started with nohup ignores hang-ups.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, self._handle)
            with _last_resort() as self._alarm:
                yield self
        finally:
            self._alarm = -1
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        now_s = time.monotonic()
        if self._second_s is not None and now_s - self._second_s >= IMPATIENT_S:
            os._exit(INTERRUPTED)
        if self.asked == 1:
            self._second_s = now_s
        if self._alarm >= 0:
            with suppress(OSError):
                os.write(self._alarm, b"!")
        self.ask(signal.Signals(number).name)


@contextmanager
def _last_resort() -> Iterator[int]:
    """Yields a file descriptor. After a write to it, the process exits unless the context ends within `LIMIT_S`."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    done = threading.Event()

    def guard() -> None:
        select.select([reading], [], [])
        if not done.is_set() and not done.wait(LIMIT_S):
            text = f"switchgear: still running {LIMIT_S:.0f} s after the signal; exiting now"
            with suppress(OSError):
                os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{text}\n".encode())
            os._exit(INTERRUPTED)

    thread = threading.Thread(target=guard, name="switchgear-last-resort", daemon=True)
    thread.start()
    try:
        yield writing
    finally:
        done.set()
        os.write(writing, b".")
        thread.join()
        os.close(writing)
        os.close(reading)


SLICE_S = 0.2


class Time(NamedTuple):
    clock: Clock = AWAKE
    """For durations: monotonic, and stops while the process is suspended."""
    wall: Clock = time.time
    """For dates: seconds since the epoch."""
    sleep: Callable[[float], None] = time.sleep
    took: Callable[[float, float], None] = AWAKE.record_wait
    """Called after each sleep with its actual and its intended seconds."""


def wait(why: str, seconds: float, *, on: Time, view: RunView, interrupt: Interrupt) -> bool:
    """Sleep and show the remaining time each second. Returns False if interrupted."""
    until_s = on.clock() + seconds
    shown = None
    while not interrupt.asked:
        left_s = until_s - on.clock()
        if left_s <= 0:
            return True
        if math.ceil(left_s) != shown:
            shown = math.ceil(left_s)
            view.waiting(why, float(shown))
        slice_s, before_s = min(SLICE_S, left_s), on.clock()
        on.sleep(slice_s)
        now_s = on.clock()
        on.took(now_s - before_s, slice_s)
        until_s -= now_s - on.clock()  # the wait continued while the process was suspended
    return False
