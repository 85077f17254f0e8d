"""The 95th percentile of latency against a baseline (default: over 3 times the baseline within 300 s)."""

import math
from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.detector import Detector, Measure
from switchgear._core.types import Signal
from switchgear._core.window import TimeWindow
from switchgear._text.formats import span


class LatencyP95(Detector):
    """Trips when the p95 of the last `window_s` seconds (300) is over `multiplier` (3) baselines.

    `baseline_s` is the p95 in normal operation. The p95 is exact (nearest rank): it is over the
    limit when more than 5 % of the calls are, so it only counts these. It needs `min_calls` (20)
    calls; time is resolved to a thirtieth of the window. `admit` is the share of calls admitted
    after the trip: 0 is none, 0.5 (the default) halves the load. A probe over the limit counts as
    failed.

    >>> LatencyP95(baseline_s=90.0).limit_s
    270.0
    """

    __slots__ = ("baseline_s", "multiplier", "window_s", "min_calls", "admit")  # noqa: RUF023
    kind: ClassVar[str] = "latency_p95"
    baseline_s: float
    multiplier: float
    window_s: float
    min_calls: int

    def __init__(
        self,
        baseline_s: float,
        multiplier: float = 3.0,
        window_s: float = 300.0,
        min_calls: int = 20,
        admit: float = 0.5,
    ) -> None:
        self._set(
            baseline_s=values.check_seconds("LatencyP95.baseline_s", baseline_s),
            multiplier=values.check_at_least("LatencyP95.multiplier", multiplier, 1.0),
            window_s=values.check_window_s("LatencyP95.window_s", window_s),
            min_calls=values.check_int("LatencyP95.min_calls", min_calls),
            admit=values.check_fraction("LatencyP95.admit", admit),
        )
        if math.isinf(self.limit_s):
            raise ValueError(
                f"LatencyP95.baseline_s is {baseline_s!r}: times multiplier, {multiplier!r}, it must "
                "be a finite number of seconds"
            )

    @property
    def limit_s(self) -> float:
        """The p95 above which it trips, in seconds."""
        return self.baseline_s * self.multiplier

    @property
    def slow_from_s(self) -> float:  # type: ignore[override]  # fixed for the class elsewhere
        """The limit."""
        return self.limit_s

    def start(self) -> TimeWindow:
        """An empty window."""
        return TimeWindow()

    def fold(self, memory: TimeWindow, signal: Signal, now_s: float) -> TimeWindow:
        """Count each call with a measured duration."""
        if signal.seconds is None or not signal.count:
            return memory
        over = signal.seconds > self.limit_s
        return memory.at(now_s, self.window_s).push(hit=over, count=signal.count)

    def judges_after(self, memory: TimeWindow, signal: Signal, now_s: float) -> int:
        """The number of calls missing to `min_calls`; 0 without a call over the limit."""
        if signal.seconds is None:
            return 0
        now = memory.at(now_s, self.window_s)
        return max(0, self.min_calls - now.total) if now.hits else 0

    def heat(self, memory: TimeWindow, now_s: float) -> float:
        """The calls over the limit divided by the number that puts the p95 over it."""
        now = memory.at(now_s, self.window_s)
        return 0.0 if now.total < self.min_calls else now.hits / (now.total // 20 + 1)

    def reason(self, memory: TimeWindow, now_s: float) -> str:
        """The calls over the limit in words."""
        now = memory.at(now_s, self.window_s)
        if now.total < self.min_calls:
            return f"{now.total} of the {self.min_calls} calls needed to judge"
        return (
            f"{now.hits} of {now.total} calls in {span(self.window_s)} took longer than "
            f"{span(self.limit_s)} ({self.multiplier:g} x baseline), {now.total // 20} may"
        )

    def objection(self, signal: Signal) -> str | None:
        """A probe over the limit counts as failed."""
        if signal.seconds is None or signal.seconds <= self.limit_s:
            return None
        return f"took {span(signal.seconds)}, longer than {span(self.limit_s)}"

    def measure(self, memory: TimeWindow, now_s: float) -> Measure:
        """The share of calls over the limit; more than 5 % put the p95 over it."""
        now = memory.at(now_s, self.window_s)
        return Measure(now.hits / now.total if now.total else 0.0, 0.05, "share")

    def dump(self, memory: TimeWindow) -> dict[str, Any]:
        """The slices, and the window that defines their length."""
        return {"window_s": self.window_s, "slices": memory.dump()}

    def load(self, data: Any) -> TimeWindow:
        """The inverse of `dump`; the slices of another window are dropped."""
        if not isinstance(data, dict) or data.keys() != {"window_s", "slices"}:
            raise ValueError(f"the memory of a p95 is {data!r}: it must have window_s and slices")
        window_s = values.check_seconds("window_s", data["window_s"])
        memory = TimeWindow.load(data["slices"])
        return memory if window_s == self.window_s else TimeWindow()
