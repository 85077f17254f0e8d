"""Money spent within a stretch of time, against a cap (seed 003: the budget breaker)."""

import math
from typing import Any, ClassVar

from switchgear.core import record
from switchgear.core.detectors.base import Detector, Measure, span
from switchgear.core.money import dollars
from switchgear.core.types import Signal
from switchgear.core.window import TimeWindow


class Spend(Detector):
    """Trips when what was spent in `window_s` seconds (60) reaches `threshold` (1.0) of the cap.

    The cap is `hard_cap_micros`, in millionths of a dollar. Time is resolved to a thirtieth of the
    window; money is exact. What costs nothing, or was not measured, changes nothing.

    >>> spend = Spend(hard_cap_micros=2_000_000)
    >>> spend.heat(spend.fold(spend.start(), Signal(cost_micros=500_000), 0.0), 0.0)
    0.25
    """

    __slots__ = ("hard_cap_micros", "threshold", "window_s")
    kind: ClassVar[str] = "spend"
    needs_successes: ClassVar[bool] = False
    hard_cap_micros: int
    threshold: float
    window_s: float

    def __init__(
        self, hard_cap_micros: int, threshold: float = 1.0, window_s: float = 60.0
    ) -> None:
        self._set(
            hard_cap_micros=record.whole("Spend.hard_cap_micros", hard_cap_micros),
            threshold=record.positive("Spend.threshold", threshold),
            window_s=record.window("Spend.window_s", window_s),
        )
        if math.isinf(self.threshold * self.hard_cap_micros):
            raise ValueError(f"Spend.threshold is {threshold!r}: times the cap it must be finite")

    @property
    def limit_micros(self) -> int:
        """The spend at which it trips; a part of a micro-dollar cannot be spent."""
        # Rounded first: 0.29 * 100 is 28.999999999999996.
        return max(1, math.ceil(round(self.threshold * self.hard_cap_micros, 6)))

    def start(self) -> TimeWindow:
        """Nothing spent."""
        return TimeWindow()

    def fold(self, memory: TimeWindow, signal: Signal, now_s: float) -> TimeWindow:
        """Each micro-dollar is one more in the window."""
        cost = signal.cost_micros
        if cost is None or cost <= 0 or not signal.count:
            return memory
        return memory.at(now_s, self.window_s).push(hit=False, count=cost * signal.count)

    def heat(self, memory: TimeWindow, now_s: float) -> float:
        """What was spent against what may be."""
        return memory.at(now_s, self.window_s).total / self.limit_micros

    def reason(self, memory: TimeWindow, now_s: float) -> str:
        """What was spent, in dollars."""
        spent = memory.at(now_s, self.window_s).total
        cap = dollars(self.hard_cap_micros)
        return f"{dollars(spent)} spent in {span(self.window_s)} (threshold {self.threshold:g} of {cap})"

    def measure(self, memory: TimeWindow, now_s: float) -> Measure:
        """What was spent."""
        return Measure(memory.at(now_s, self.window_s).total, self.limit_micros, "micros")

    def dump(self, memory: TimeWindow) -> dict[str, Any]:
        """The slices, and the window that gives them their length."""
        return {"window_s": self.window_s, "slices": memory.dump()}

    def load(self, data: Any) -> TimeWindow:
        """The inverse of `dump`; under another window the slices mean nothing and are let go."""
        if not isinstance(data, dict) or data.keys() != {"window_s", "slices"}:
            raise ValueError(f"what was spent is {data!r}: it must have window_s and slices")
        window_s = record.seconds("window_s", data["window_s"])
        memory = TimeWindow.load(data["slices"])
        return memory if window_s == self.window_s else TimeWindow()
