"""Failures in a row (default: 5), within a time window (default: 3 in 60 s), or with a Retry-After."""

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
        return 0

    def fold(self, memory: int, signal: Signal, now_s: float) -> int:
        if signal.ok is None or not signal.count:
            return memory
        return 0 if signal.ok else memory + signal.count

    def heat(self, memory: int, now_s: float) -> float:
        return memory / self.threshold

    def reason(self, memory: int, now_s: float) -> str:
        return f"{plural(memory, 'failure')} in a row (threshold {self.threshold})"

    def measure(self, memory: int, now_s: float) -> Measure:
        return Measure(memory, self.threshold, "failures")

    def dump(self, memory: int) -> int:
        return memory

    def load(self, data: Any) -> int:
        return values.check_int("failures in a row", data, least=0)


class FailuresInWindow(Detector):
    """Trips at `threshold` failures (default 3) within `window_s` seconds (default 60).

    A failure leaves the window when exactly `window_s` seconds have passed. Only the last
    `threshold` times are kept: older ones cannot change the result.

    A failure within `apart_s` seconds (default 0) of the last counted failure does not count,
    unless the call itself took that long: calls that fail quickly and together count as one.

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
        return TimeQueue()

    def fold(self, memory: TimeQueue, signal: Signal, now_s: float) -> TimeQueue:
        """Remember the time of each failure; expired times are dropped, also by a success."""
        if signal.ok is None or not signal.count:
            return memory
        memory = memory.drop_until(now_s - self.window_s)
        if signal.ok:
            return memory
        if (signal.seconds or 0.0) >= self.apart_s:
            return self._drop_excess(memory.push(now_s, min(signal.count, self.threshold)))
        too_soon = memory.length and now_s - memory.nth(memory.length - 1) < self.apart_s
        return memory if too_soon else self._drop_excess(memory.push(now_s, 1))

    def heat(self, memory: TimeQueue, now_s: float) -> float:
        return self._inside(memory, now_s) / self.threshold

    def reason(self, memory: TimeQueue, now_s: float) -> str:
        inside = plural(self._inside(memory, now_s), "failure")
        apart = f", {span(self.apart_s)} apart" if self.apart_s else ""
        return f"{inside} in {span(self.window_s)}{apart} (threshold {self.threshold})"

    def _inside(self, memory: TimeQueue, now_s: float) -> int:
        return memory.later_than(now_s - self.window_s)

    def _drop_excess(self, memory: TimeQueue) -> TimeQueue:
        extra = memory.length - self.threshold
        return memory.drop(extra) if extra > 0 else memory

    def measure(self, memory: TimeQueue, now_s: float) -> Measure:
        return Measure(self._inside(memory, now_s), self.threshold, "failures")

    def dump(self, memory: TimeQueue) -> list[float]:
        """The times of the failures, oldest first."""
        return memory.dump()

    def load(self, data: Any) -> TimeQueue:
        """The inverse of `dump`; times that a smaller threshold does not need are dropped."""
        return self._drop_excess(TimeQueue.load(data))


class RetryAfter(Detector):
    """Trips after `threshold` failures in a row (default 1) with a `Retry-After`.

    A failure without a wait neither counts nor resets the count; a success resets it. The
    circuit then stays open for the requested time (see `Cooldown`).

    >>> RetryAfter().reason(1, now_s=0.0)
    '1 response with Retry-After in a row (threshold 1)'
    """

    __slots__ = ("threshold",)
    kind: ClassVar[str] = "retry_after"
    threshold: int

    def __init__(self, threshold: int = 1) -> None:
        self._set(threshold=values.check_int("RetryAfter.threshold", threshold))

    @property
    def needs_successes(self) -> bool:  # type: ignore[override]  # a class variable in the base class
        """Whether a success between two responses matters."""
        return self.threshold > 1

    def start(self) -> int:
        return 0

    def fold(self, memory: int, signal: Signal, now_s: float) -> int:
        if signal.ok is None or not signal.count:
            return memory
        if signal.ok:
            return 0
        has_wait = signal.retry_after_s is not None and signal.retry_after_s > 0
        return memory + signal.count if has_wait else memory

    def heat(self, memory: int, now_s: float) -> float:
        return memory / self.threshold

    def reason(self, memory: int, now_s: float) -> str:
        responses = plural(memory, "response")
        return f"{responses} with Retry-After in a row (threshold {self.threshold})"

    def measure(self, memory: int, now_s: float) -> Measure:
        return Measure(memory, self.threshold, "requests")

    def dump(self, memory: int) -> int:
        return memory

    def load(self, data: Any) -> int:
        return values.check_int("requests to wait", data, least=0)
