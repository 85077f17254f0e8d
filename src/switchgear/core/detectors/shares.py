"""A share of the last N calls: what failure rate and slow calls have in common."""

import math
from typing import Any

from switchgear.core import record
from switchgear.core.detectors.base import LAST_CHANCE, Detector, Measure, plural
from switchgear.core.types import Signal
from switchgear.core.window import CountWindow


class ShareOfCalls(Detector):
    """Trips when more than `threshold` of the last `window` calls are hits, strictly.

    So `threshold` is below 1: no share is more than all. Until `min_calls` calls are in the window
    it only warns: the hits are held against what would trip by then. Subclasses say what a hit is.
    """

    # A hit lengthens the window by one and what is needed by one at most, so below 1 the heat never
    # falls; anything else makes it fall, or leaves it. Only when it begins to judge may it jump.

    __slots__ = ()
    window: int
    threshold: float
    min_calls: int

    def _set_share(self, window: int, threshold: float, min_calls: int | None) -> None:
        owner = type(self).__name__
        window = record.whole(f"{owner}.window", window)
        least = window if min_calls is None else record.whole(f"{owner}.min_calls", min_calls)
        if least > window:
            raise ValueError(
                f"{owner}.min_calls is {least}: it must not be above window, which is {window}"
            )
        share = record.fraction(f"{owner}.threshold", threshold)
        self._set(window=window, threshold=share, min_calls=least)

    def start(self) -> CountWindow:
        """An empty window."""
        return CountWindow()

    def fold(self, memory: CountWindow, signal: Signal, now_s: float) -> CountWindow:
        """Note each signal that is a call, and whether it is a hit."""
        del now_s
        hit = self._hit(signal)
        if hit is None:
            return memory
        return memory.push(hit=hit, count=signal.count, size=self.window)

    def judges_after(self, memory: CountWindow, signal: Signal, now_s: float) -> int:
        """What is missing to `min_calls`; without a hit, what is not one cannot make it hot."""
        del now_s
        if not memory.hits or memory.total >= self.min_calls or self._hit(signal) is None:
            return 0
        return self.min_calls - memory.total

    def heat(self, memory: CountWindow, now_s: float) -> float:
        """The hits against the fewest that are more than the threshold."""
        del now_s
        if memory.total < self.min_calls:
            return min(LAST_CHANCE, memory.hits / self._fewest(self.min_calls))
        return memory.hits / self._fewest(memory.total)

    def _fewest(self, total: int) -> int:
        """The fewest hits that are more than the threshold."""
        # Rounded: 0.29 * 100 is 28.999999999999996, and 29 of 100 is not more than 0.29.
        return math.floor(round(self.threshold * total, 9)) + 1

    def reason(self, memory: CountWindow, now_s: float) -> str:
        """The share in words."""
        del now_s
        total, hits = memory.total, memory.hits
        if total < self.min_calls:
            limit = (
                f"threshold {self.threshold:.0%}, judges from {plural(self.min_calls, 'call')} on"
            )
            return f"{hits} of {plural(total, 'call')} {self._verb()} ({limit})"
        return (
            f"{hits} of the last {total} calls {self._verb()} "
            f"({hits / total:.0%}, threshold {self.threshold:.0%})"
        )

    def measure(self, memory: CountWindow, now_s: float) -> Measure:
        """The share of hits."""
        del now_s
        return Measure(memory.hits / memory.total if memory.total else 0.0, self.threshold, "share")

    def _hit(self, signal: Signal) -> bool | None:
        """Whether the signal is a hit; `None`: it is no evidence of that kind."""
        raise NotImplementedError

    def _verb(self) -> str:
        """What the hits did."""
        raise NotImplementedError

    def dump(self, memory: CountWindow) -> list[Any]:
        """The window's bits."""
        return memory.dump()

    def load(self, data: Any) -> CountWindow:
        """The inverse of `dump`; a smaller window keeps the youngest calls."""
        return CountWindow.load(data, self.window)
