"""Rate limits: trips when a failure carries a Retry-After."""

from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.detector import Detector, Measure
from switchgear._core.types import Signal
from switchgear._text.formats import plural


class RetryAfter(Detector):
    """Trips after `threshold` failures in a row (default 1) with a `Retry-After`.

    A failure without a wait neither counts nor resets the count; a success resets it. The
    circuit then stays open for the requested time (see `Cooldown`).

    >>> RetryAfter().reason(1, now_s=0.0)
    '1 response with Retry-After in a row (threshold 1)'
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
        """Count a failure with a Retry-After; reset the count at a success."""
        del now_s
        if signal.ok is None or not signal.count:
            return memory
        if signal.ok:
            return 0
        has_wait = signal.retry_after_s is not None and signal.retry_after_s > 0
        return memory + signal.count if has_wait else memory

    def heat(self, memory: int, now_s: float) -> float:
        """The count divided by the threshold."""
        del now_s
        return memory / self.threshold

    def reason(self, memory: int, now_s: float) -> str:
        """The count and the threshold in words."""
        del now_s
        responses = plural(memory, "response")
        return f"{responses} with Retry-After in a row (threshold {self.threshold})"

    def measure(self, memory: int, now_s: float) -> Measure:
        """The count and the threshold."""
        del now_s
        return Measure(memory, self.threshold, "requests")

    def dump(self, memory: int) -> int:
        """The count."""
        return memory

    def load(self, data: Any) -> int:
        """The inverse of `dump`; raises ValueError for other data."""
        return values.check_int("requests to wait", data, least=0)
