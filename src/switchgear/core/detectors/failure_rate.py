"""The share of failures among the last calls (seed 003: success rate under 0.5 over 20)."""

from typing import ClassVar

from switchgear.core.detectors.shares import ShareOfCalls
from switchgear.core.types import Signal
from switchgear.core.window import CountWindow


class FailureRate(ShareOfCalls):
    """Trips when more than `threshold` (default 0.5) of the last `window` calls (20) failed.

    Strictly: at exactly half it does not. Judges from `min_calls` calls on (default: the window
    must be full).

    >>> FailureRate(window=4).reason(CountWindow().push(hit=True, count=4, size=4), 0.0)
    '4 of the last 4 calls failed (100%, threshold 50%)'
    """

    __slots__ = ("window", "threshold", "min_calls")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "failure_rate"

    def __init__(
        self, window: int = 20, threshold: float = 0.5, min_calls: int | None = None
    ) -> None:
        self._set_share(window, threshold, min_calls)

    def fold(self, memory: CountWindow, signal: Signal, now_s: float) -> CountWindow:
        """Note each success and failure."""
        del now_s
        if signal.ok is None:
            return memory
        return memory.push(hit=not signal.ok, count=signal.count, size=self.window)

    def _verb(self) -> str:
        return "failed"
