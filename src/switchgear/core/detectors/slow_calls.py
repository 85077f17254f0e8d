"""The share of calls that took too long, by a fixed limit."""

from typing import ClassVar

from switchgear.core import record
from switchgear.core.detectors.base import span
from switchgear.core.detectors.shares import ShareOfCalls
from switchgear.core.types import Signal


class SlowCalls(ShareOfCalls):
    """Trips when more than `threshold` (default 0.5) of the last `window` calls (20) were slow.

    Slow is longer than `slow_s` seconds. `admit` is the share of calls let through after the
    trip: 0 (the default) cuts, 0.25 reduces the load to a quarter. A probe that is slow has failed.

    >>> SlowCalls(slow_s=10.0).objection(Signal(ok=True, seconds=12.0))
    'took 12 s, longer than 10 s'
    """

    __slots__ = ("slow_s", "window", "threshold", "min_calls", "admit")  # noqa: RUF023
    kind: ClassVar[str] = "slow_calls"
    slow_s: float

    def __init__(
        self,
        slow_s: float,
        window: int = 20,
        threshold: float = 0.5,
        min_calls: int | None = None,
        admit: float = 0.0,
    ) -> None:
        self._set(
            slow_s=record.seconds("SlowCalls.slow_s", slow_s),
            admit=record.fraction("SlowCalls.admit", admit),
        )
        self._set_share(window, threshold, min_calls)

    @property
    def slow_from_s(self) -> float:  # type: ignore[override]  # fixed for the class elsewhere
        """The limit."""
        return self.slow_s

    def _hit(self, signal: Signal) -> bool | None:
        return None if signal.seconds is None else signal.seconds > self.slow_s

    def _verb(self) -> str:
        return f"took longer than {span(self.slow_s)}"

    def objection(self, signal: Signal) -> str | None:
        """A slow probe has failed."""
        if signal.seconds is None or signal.seconds <= self.slow_s:
            return None
        return f"took {span(signal.seconds)}, longer than {span(self.slow_s)}"
