"""All that something has cost, against its budget (seed 003: the story-cost breaker)."""

import math
from typing import Any, ClassVar

from switchgear.core import record
from switchgear.core.detectors.base import Detector, Measure
from switchgear.core.money import dollars
from switchgear.core.types import Signal


class TotalCost(Detector):
    """Trips when all that was spent is more than `threshold` (1.5) times the budget, strictly.

    The budget is `budget_micros`, in millionths of a dollar. Nothing is forgotten until the circuit
    is reset: time does not make a story cheaper.

    >>> TotalCost(budget_micros=2_000_000).reason(3_000_000, now_s=0.0)
    '$3.00 spent of $2.00 (threshold 1.5 of it, and more)'
    """

    __slots__ = ("budget_micros", "threshold")
    kind: ClassVar[str] = "total_cost"
    needs_successes: ClassVar[bool] = False
    budget_micros: int
    threshold: float

    def __init__(self, budget_micros: int, threshold: float = 1.5) -> None:
        self._set(
            budget_micros=record.whole("TotalCost.budget_micros", budget_micros),
            threshold=record.positive("TotalCost.threshold", threshold),
        )
        if math.isinf(self.threshold * self.budget_micros):
            raise ValueError(
                f"TotalCost.threshold is {threshold!r}: times the budget it must be finite"
            )

    @property
    def limit_micros(self) -> int:
        """The most that may be spent."""
        # Rounded first: 0.29 * 100 is 28.999999999999996.
        return math.floor(round(self.threshold * self.budget_micros, 6))

    def start(self) -> int:
        """Nothing spent."""
        return 0

    def fold(self, memory: int, signal: Signal, now_s: float) -> int:
        """What it cost is added."""
        del now_s
        return memory + max(0, signal.cost_micros or 0) * signal.count

    def heat(self, memory: int, now_s: float) -> float:
        """What was spent against the least that is too much."""
        del now_s
        return memory / (self.limit_micros + 1)

    def reason(self, memory: int, now_s: float) -> str:
        """What was spent, in dollars."""
        del now_s
        budget = dollars(self.budget_micros)
        return f"{dollars(memory)} spent of {budget} (threshold {self.threshold:g} of it, and more)"

    def recovered(self, memory: int) -> int:
        """What is spent stays spent; only a reset forgets it."""
        return memory

    def measure(self, memory: int, now_s: float) -> Measure:
        """What was spent, and the least that is too much."""
        del now_s
        return Measure(memory, self.limit_micros + 1, "micros")

    def dump(self, memory: int) -> int:
        """The micro-dollars."""
        return memory

    def load(self, data: Any) -> int:
        """The inverse of `dump`; raises ValueError for what it never dumped."""
        if not isinstance(data, int) or isinstance(data, bool) or data < 0:
            raise ValueError(f"what was spent is {data!r}: it must be a whole number of at least 0")
        return data
