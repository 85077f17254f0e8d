"""The share of slow calls among those of the last seconds, by a fixed limit."""

from typing import ClassVar

from switchgear.core import record
from switchgear.core.detectors.base import span
from switchgear.core.detectors.shares_in_time import ShareInTime
from switchgear.core.types import Signal


class SlowCallShare(ShareInTime):
    """Trips when at least `threshold` (0.5) of the calls of the last `window_s` seconds were slow.

    Slow is longer than `slow_s` seconds. Judges once `min_calls` calls (10) are in the window (60 s);
    before, it only warns. `admit` is the share of calls let through after the trip: 0 (the default)
    cuts. A probe that is slow has failed.

    >>> SlowCallShare(slow_s=10.0).objection(Signal(ok=True, seconds=12.0))
    'took 12 s, longer than 10 s'
    """

    __slots__ = ("slow_s", "window_s", "threshold", "min_calls", "admit")  # noqa: RUF023
    kind: ClassVar[str] = "slow_call_share"
    slow_s: float

    def __init__(
        self,
        slow_s: float,
        window_s: float = 60.0,
        threshold: float = 0.5,
        min_calls: int = 10,
        admit: float = 0.0,
    ) -> None:
        self._set(
            slow_s=record.seconds("SlowCallShare.slow_s", slow_s),
            admit=record.fraction("SlowCallShare.admit", admit),
        )
        self._set_share(window_s, threshold, min_calls)

    @property
    def slow_from_s(self) -> float:  # type: ignore[override]  # fixed for the class elsewhere
        """The limit, or a slice of the window if that is shorter."""
        return min(self.slow_s, super().slow_from_s)

    def _hit(self, signal: Signal) -> bool | None:
        return None if signal.seconds is None else signal.seconds > self.slow_s

    def _verb(self) -> str:
        return f"took longer than {span(self.slow_s)}"

    def objection(self, signal: Signal) -> str | None:
        """A slow probe has failed."""
        if signal.seconds is None or signal.seconds <= self.slow_s:
            return None
        return f"took {span(signal.seconds)}, longer than {span(self.slow_s)}"
