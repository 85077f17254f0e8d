"""A clock for time limits that does not count the time in which this process was suspended.

While a laptop sleeps, a container is paused or a process is stopped, no output is read, so limits and
silence must not count that time. The system's monotonic clock stops while the machine sleeps, but not
while only the process is stopped. Waits show it: a wait of one second that took a minute included a
suspension.
"""

import time
from _thread import allocate_lock  # `threading.Lock`; hooks do not import `threading`
from collections.abc import Callable

Clock = Callable[[], float]

monotonic: Clock = time.monotonic


class Shifted:
    """A clock with an offset, so that the time of a pickled breaker continues.

    >>> Shifted(lambda: 5.0, 100.0)()
    105.0
    """

    __slots__ = ("by_s", "clock")

    def __init__(self, clock: Clock, by_s: float) -> None:
        self.clock = clock
        self.by_s = by_s

    def __call__(self) -> float:
        return self.clock() + self.by_s


SLACK_S = 5.0
"""Seconds by which a wait must exceed its planned length to count as a suspension."""


class AwakeClock:
    """Seconds on a clock that stops while the process is suspended. Thread-safe.

    Callers report how long their waits took; a suspension that interrupted several waits counts once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._suspended_s = 0.0
        self._until_s = float("-inf")
        """When the last suspension ended, on the system's clock."""
        self._lock = allocate_lock()

    def __call__(self) -> float:
        return self._clock() - self._suspended_s

    def record_wait(self, seconds: float, at_most_s: float) -> None:
        """Record a wait of `seconds` that has just ended and was planned for at most `at_most_s` seconds."""
        if seconds <= at_most_s + SLACK_S:
            return
        with self._lock:
            now_s = self._clock()
            lost_s = now_s - max(now_s - seconds + at_most_s, self._until_s)
            if lost_s > SLACK_S:
                self._suspended_s += lost_s
                self._until_s = now_s

    def read_after(self, last_s: float, at_most_s: float) -> float:
        """The time now, for a caller that read it at `last_s` and waited at most `at_most_s` seconds since."""
        self.record_wait(self() - last_s, at_most_s)
        return self()


AWAKE = AwakeClock()
"""The clock of this process."""
