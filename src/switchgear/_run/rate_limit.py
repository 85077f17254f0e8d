"""How often iterations may begin: at most so many an hour, and the next one may be told to wait."""

from collections import deque

from switchgear._core import values

HOUR_S = 3600.0


class Pace:
    """Counts the iterations begun within the last hour. Owned by one run, in one thread.

    >>> pace = Pace(2)
    >>> pace.begin(0.0), pace.begin(10.0), pace.wait_s(20.0)
    (None, None, 3580.0)
    """

    def __init__(self, per_hour: int | None) -> None:
        self._per_hour = None if per_hour is None else values.whole("rate_limit", per_hour)
        self._begun: deque[float] = deque()

    def begin(self, now_s: float) -> None:
        """An iteration begins."""
        self._begun.append(now_s)

    def wait_s(self, now_s: float) -> float:
        """How long the next iteration must wait; 0: not at all."""
        while self._begun and now_s - self._begun[0] >= HOUR_S:
            self._begun.popleft()
        if self._per_hour is None or len(self._begun) < self._per_hour:
            return 0.0
        return self._begun[-self._per_hour] + HOUR_S - now_s
