"""Where the time of in-process breakers comes from.

The monotonic clock: setting the wall clock forward or back changes nothing. A clock is any
callable that returns seconds and never runs backwards; tests use `switchgear.testing.FakeClock`.
"""

import time
from collections.abc import Callable

Clock = Callable[[], float]

monotonic: Clock = time.monotonic


class Shifted:
    """A clock that shows another time: a pickled breaker's goes on from where it stood.

    >>> Shifted(lambda: 5.0, 100.0)()
    105.0
    """

    __slots__ = ("by_s", "clock")

    def __init__(self, clock: Clock, by_s: float) -> None:
        self.clock = clock
        self.by_s = by_s

    def __call__(self) -> float:
        """The time now, in seconds."""
        return self.clock() + self.by_s
