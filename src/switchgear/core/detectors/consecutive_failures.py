"""Failures in a row: the classic trip of a call breaker (seed 004)."""

from typing import Any, ClassVar

from switchgear.core import record
from switchgear.core.detectors.base import Detector, Measure, plural
from switchgear.core.types import Signal


class ConsecutiveFailures(Detector):
    """Trips after `threshold` failures (default 5) without a success between them.

    >>> ConsecutiveFailures(threshold=3).reason(2, now_s=0.0)
    '2 failures in a row (threshold 3)'
    """

    __slots__ = ("threshold",)
    kind: ClassVar[str] = "consecutive_failures"
    threshold: int

    def __init__(self, threshold: int = 5) -> None:
        self._set(threshold=record.whole("ConsecutiveFailures.threshold", threshold))

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
        return record.whole("failures in a row", data, least=0)
