"""A time limit for measuring and saving that can be shortened, or ended at once, from a signal handler."""

import os
import signal
import subprocess
import time
from contextlib import suppress

GENTLE_S = 20.0
"""What is left of a limit, at most, once somebody asked to stop."""


class TimeIsUp(Exception):
    """The time limit is over, or the work was cancelled."""


class Deadline:
    """Seconds that a piece of work may take, over all the processes that it starts.

    Used by one thread; `stop` and `kill` may be called from a signal handler.
    """

    def __init__(self, seconds: float) -> None:
        self._until_s = time.monotonic() + seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False
        self._whole: Deadline | None = None

    def part(self, seconds: float) -> "Deadline":
        """A limit for a part of the work: so many seconds, and never more than is left of the whole."""
        part = Deadline(seconds)
        part._whole = self
        return part

    @property
    def cancelled(self) -> bool:
        """Whether the work was given up."""
        return self._is_cancelled or (self._whole is not None and self._whole.cancelled)

    def stop(self) -> None:
        """Finish soon."""
        self._until_s = min(self._until_s, time.monotonic() + GENTLE_S)

    def kill(self) -> None:
        """Give up at once."""
        self._is_cancelled = True
        self._until_s = 0.0
        if self._process is not None:
            kill_group(self._process)

    @property
    def left_s(self) -> float:
        """Seconds that are left, never negative."""
        left_s = max(0.0, self._until_s - time.monotonic())
        return left_s if self._whole is None else min(left_s, self._whole.left_s)

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.left_s <= 0

    def watch(self, process: subprocess.Popen[bytes] | None) -> None:
        """The process that is to be killed when the work is cancelled; `None`: none now."""
        self._process = process
        if self._whole is not None:
            self._whole.watch(process)
        if process is not None and self.cancelled:
            kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a session of its own, with everything in its group."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
