"""The share of failures among the calls of the last seconds, as resilience4j and Polly count."""

from typing import ClassVar

from switchgear.core.detectors.shares_in_time import ShareInTime
from switchgear.core.types import Signal


class FailureShare(ShareInTime):
    """Trips when at least `threshold` (0.5) of the calls of the last `window_s` seconds (60) failed.

    Judges once `min_calls` calls (10) are in the window; before, it only warns.

    >>> share = FailureShare(window_s=30.0, threshold=0.5, min_calls=4)
    >>> memory = share.fold(share.start(), Signal(ok=False, count=2), 0.0)
    >>> share.reason(share.fold(memory, Signal(ok=True, count=2), 1.0), 1.0)
    '2 of 4 calls in 30 s failed (50%, threshold 50%)'
    """

    __slots__ = ("window_s", "threshold", "min_calls")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "failure_share"

    def __init__(self, window_s: float = 60.0, threshold: float = 0.5, min_calls: int = 10) -> None:
        self._set_share(window_s, threshold, min_calls)

    def _hit(self, signal: Signal) -> bool | None:
        return None if signal.ok is None else not signal.ok

    def _verb(self) -> str:
        return "failed"
