"""A clock for spans that leaves out the time in which this process was suspended.

A laptop that sleeps, a paused container, SIGSTOP: meanwhile nothing was read, so silence and limits
must not count it. The system's monotonic clock stops while the machine sleeps, but not while only
the process is stopped. That shows where we wait: a wait of a second that took a minute was no wait.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SLACK_S = 5.0
"""A wait that takes so much longer than it was to be is a suspension, not a busy machine."""


class AwakeClock:
    """Seconds on a clock that never runs backwards and stands still while we are suspended."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._suspended_s = 0.0

    def __call__(self) -> float:
        """The time now, in seconds."""
        return self._clock() - self._suspended_s

    @contextmanager
    def waiting(self, at_most_s: float) -> Iterator[None]:
        """A wait that is to take so many seconds at most; what it takes beyond is left out."""
        began_s = self._clock()
        try:
            yield
        finally:
            self.took(self._clock() - began_s, at_most_s)

    def took(self, seconds: float, at_most_s: float) -> None:
        """A wait that was to take `at_most_s` took so long."""
        if seconds > at_most_s + SLACK_S:
            self._suspended_s += seconds - at_most_s


AWAKE = AwakeClock()
"""The one of this process."""
