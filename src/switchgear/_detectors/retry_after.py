"""Rate limits: trips when a failure carries a Retry-After."""

from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.detector import Detector, Measure
from switchgear._core.types import Signal
from switchgear._text.formats import plural


class RetryAfter(Detector):
    """Trips after `threshold` failures in a row (default 1) with a `Retry-After`.

    A failure that names no time neither counts nor resets the count; a success resets it. The
    circuit then stays open for the requested time (see `Cooldown`).

    >>> RetryAfter().reason(1, now_s=0.0)
    '1 request to wait in a row (threshold 1)'
    """

    __slots__ = ("threshold",)
    kind: ClassVar[str] = "retry_after"
    needs_successes: ClassVar[bool] = False
    threshold: int

    def __init__(self, threshold: int = 1) -> None:
        self._set(threshold=values.check_int("RetryAfter.threshold", threshold))

    def start(self) -> int:
        """No Retry-After so far."""
        return 0

    def fold(self, memory: int, signal: Signal, now_s: float) -> int:
        """A failure with a time is one more, a success ends the row."""
        del now_s
        if signal.ok is None or not signal.count:
            return memory
        if signal.ok:
            return 0
        asked = signal.retry_after_s is not None and signal.retry_after_s > 0
        return memory + signal.count if asked else memory

    def heat(self, memory: int, now_s: float) -> float:
        """The requests against the threshold."""
        del now_s
        return memory / self.threshold

    def reason(self, memory: int, now_s: float) -> str:
        """The requests in words."""
        del now_s
        asked = plural(memory, "request")
        return f"{asked} to wait in a row (threshold {self.threshold})"

    def measure(self, memory: int, now_s: float) -> Measure:
        """The row."""
        del now_s
        return Measure(memory, self.threshold, "requests")

    def dump(self, memory: int) -> int:
        """The requests."""
        return memory

    def load(self, data: Any) -> int:
        """The inverse of `dump`; raises ValueError for what it never dumped."""
        return values.check_int("requests to wait", data, least=0)
