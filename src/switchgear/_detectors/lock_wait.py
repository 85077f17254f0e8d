"""Long waits for locks that other processes hold (default: over 60 s)."""

from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.detector import LAST_CHANCE, Detector, Measure
from switchgear._core.types import Signal
from switchgear._text.formats import span


class LockWait(Detector):
    """Trips when the last wait for a lock took `limit_s` seconds (60) or longer.

    Only the last wait counts: a short one means that the resource is free again. A probe that
    waited too long counts as failed.

    >>> LockWait().reason(75.0, now_s=0.0)
    'waited 75 s (threshold 60 s)'
    """

    __slots__ = ("limit_s",)
    kind: ClassVar[str] = "lock_wait"
    needs_successes: ClassVar[bool] = False
    limit_s: float

    def __init__(self, limit_s: float = 60.0) -> None:
        self._set(limit_s=values.check_seconds("LockWait.limit_s", limit_s))

    def start(self) -> float:
        """No wait so far."""
        return 0.0

    def fold(self, memory: float, signal: Signal, now_s: float) -> float:
        """The last wait."""
        del now_s
        return memory if signal.waited_s is None or not signal.count else max(0.0, signal.waited_s)

    def heat(self, memory: float, now_s: float) -> float:
        """The wait divided by the limit."""
        del now_s
        if memory >= self.limit_s:
            return memory / self.limit_s
        return LAST_CHANCE * memory / self.limit_s

    def reason(self, memory: float, now_s: float) -> str:
        """The wait in words."""
        del now_s
        return f"waited {span(memory)} (threshold {span(self.limit_s)})"

    def objection(self, signal: Signal) -> str | None:
        """A probe that waited too long counts as failed."""
        if signal.waited_s is None or signal.waited_s < self.limit_s:
            return None
        return f"waited {span(signal.waited_s)} (threshold {span(self.limit_s)})"

    def measure(self, memory: float, now_s: float) -> Measure:
        """The last wait."""
        del now_s
        return Measure(memory, self.limit_s, "s")

    def dump(self, memory: float) -> float:
        """The seconds."""
        return memory

    def load(self, data: Any) -> float:
        """The inverse of `dump`; raises ValueError for other data."""
        return values.check_at_least("the last wait", data, 0.0)
