"""Failures within a stretch of time, whatever succeeded in between (default: 3 in 60 s)."""

from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.detector import Detector, Measure
from switchgear._core.types import Signal
from switchgear._core.window import TimeQueue
from switchgear._text.formats import plural, span


class ConsecutiveFailures(Detector):
    """Trips after `threshold` failures (default 5) without a success between them.

    >>> ConsecutiveFailures(threshold=3).reason(2, now_s=0.0)
    '2 failures in a row (threshold 3)'
    """

    __slots__ = ("threshold",)
    kind: ClassVar[str] = "consecutive_failures"
    threshold: int

    def __init__(self, threshold: int = 5) -> None:
        self._set(threshold=values.check_int("ConsecutiveFailures.threshold", threshold))

    def start(self) -> int:
        """No failures yet."""
        return 0

    def fold(self, memory: int, signal: Signal, now_s: float) -> int:
        """A success ends the row, a failure lengthens it."""
        del now_s
        if signal.ok is None or not signal.count:
            return memory
        return 0 if signal.ok else memory + signal.count

    def heat(self, memory: int, now_s: float) -> float:
        """The row's length against the threshold."""
        del now_s
        return memory / self.threshold

    def reason(self, memory: int, now_s: float) -> str:
        """The row's length in words."""
        del now_s
        return f"{plural(memory, 'failure')} in a row (threshold {self.threshold})"

    def measure(self, memory: int, now_s: float) -> Measure:
        """The row."""
        del now_s
        return Measure(memory, self.threshold, "failures")

    def dump(self, memory: int) -> int:
        """The row's length."""
        return memory

    def load(self, data: Any) -> int:
        """The inverse of `dump`."""
        return values.check_int("failures in a row", data, least=0)


class FailuresInWindow(Detector):
    """Trips at `threshold` failures (default 3) within `window_s` seconds (default 60).

    A failure leaves the window when exactly `window_s` seconds have passed. Only the last
    `threshold` times are kept: older ones cannot change the result.

    A failure within `apart_s` seconds (default 0) of the last that counted does not, unless it took
    as long as that itself: calls that fail together and quickly count as one, because calls that
    succeed take longer.

    >>> FailuresInWindow().reason(TimeQueue(2, (10.0, 20.0)), now_s=65.0)
    '2 failures in 60 s (threshold 3)'
    """

    __slots__ = ("threshold", "window_s", "apart_s")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "failures_in_window"
    threshold: int
    window_s: float
    apart_s: float

    def __init__(self, threshold: int = 3, window_s: float = 60.0, apart_s: float = 0.0) -> None:
        self._set(
            threshold=values.check_int("FailuresInWindow.threshold", threshold),
            window_s=values.check_seconds("FailuresInWindow.window_s", window_s),
            apart_s=values.check_number("FailuresInWindow.apart_s", apart_s),
        )
        if self.apart_s < 0.0 or self.apart_s * (self.threshold - 1) >= self.window_s:
            rule = "it must not be below 0, and so short that all of them fit into window_s"
            raise ValueError(f"FailuresInWindow.apart_s is {apart_s!r}: {rule}")

    def start(self) -> TimeQueue:
        """No failures yet."""
        return TimeQueue()

    def fold(self, memory: TimeQueue, signal: Signal, now_s: float) -> TimeQueue:
        """Remember the time of each failure; expired times are dropped, also by a success."""
        if signal.ok is None or not signal.count:
            return memory
        memory = memory.drop_until(now_s - self.window_s)
        if signal.ok:
            return memory
        if (signal.seconds or 0.0) >= self.apart_s:
            return self._kept(memory.push(now_s, min(signal.count, self.threshold)))
        too_soon = memory.length and now_s - memory.nth(memory.length - 1) < self.apart_s
        return memory if too_soon else self._kept(memory.push(now_s, 1))

    def heat(self, memory: TimeQueue, now_s: float) -> float:
        """The failures still inside the window against the threshold."""
        return self._inside(memory, now_s) / self.threshold

    def reason(self, memory: TimeQueue, now_s: float) -> str:
        """The failures still inside the window in words."""
        inside = plural(self._inside(memory, now_s), "failure")
        apart = f", {span(self.apart_s)} apart" if self.apart_s else ""
        return f"{inside} in {span(self.window_s)}{apart} (threshold {self.threshold})"

    def _inside(self, memory: TimeQueue, now_s: float) -> int:
        return memory.later_than(now_s - self.window_s)

    def _kept(self, memory: TimeQueue) -> TimeQueue:
        extra = memory.length - self.threshold
        return memory.drop(extra) if extra > 0 else memory

    def measure(self, memory: TimeQueue, now_s: float) -> Measure:
        """The failures still inside the window."""
        return Measure(self._inside(memory, now_s), self.threshold, "failures")

    def dump(self, memory: TimeQueue) -> list[float]:
        """The times of the failures, oldest first."""
        return memory.dump()

    def load(self, data: Any) -> TimeQueue:
        """The inverse of `dump`; what a smaller threshold has no use for is dropped."""
        return self._kept(TimeQueue.load(data))
