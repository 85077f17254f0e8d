"""The share of failures among the last calls (seed 003: success rate under 0.5 over 20)."""

from typing import ClassVar

from switchgear.core.detectors.shares import ShareOfCalls
from switchgear.core.types import Signal


class FailureRate(ShareOfCalls):
    """Trips when more than `threshold` (default 0.5) of the last `window` calls (20) failed.

    Strictly: at exactly half it does not. Judges from `min_calls` calls on (default: the window
    must be full).

    >>> rate = FailureRate(window=4)
    >>> rate.reason(rate.fold(rate.start(), Signal(ok=False, count=4), 0.0), 0.0)
    '4 of the last 4 calls failed (100%, threshold 50%)'
    """

    __slots__ = ("window", "threshold", "min_calls")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "failure_rate"

    def __init__(
        self, window: int = 20, threshold: float = 0.5, min_calls: int | None = None
    ) -> None:
        self._set_share(window, threshold, min_calls)

    def _hit(self, signal: Signal) -> bool | None:
        return None if signal.ok is None else not signal.ok

    def _verb(self) -> str:
        return "failed"
