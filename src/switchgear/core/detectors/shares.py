"""A share of the last N calls: what failure rate and slow calls have in common."""

import math
from typing import Any

from switchgear.core import record
from switchgear.core.detectors.base import Detector
from switchgear.core.types import Reading
from switchgear.core.window import CountWindow


class ShareOfCalls(Detector):
    """Trips when more than `threshold` of the last `window` calls are hits, strictly.

    Silent until `min_calls` calls are in the window. Subclasses say what a hit is.
    """

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
        share = record.fraction(f"{owner}.threshold", threshold, low_open=False, high_open=False)
        self._set(window=window, threshold=share, min_calls=least)

    def start(self) -> CountWindow:
        """An empty window."""
        return CountWindow()

    def _read_share(self, memory: CountWindow, verb: str) -> Reading:
        total, hits = memory.total, memory.hits
        if total < self.min_calls:
            return Reading(0.0, f"{total} of the {self.min_calls} calls needed to judge")
        # The fewest hits that are more than the threshold; rounded, because 0.29 × 100 is
        # 28.999999999999996 in binary and 29 of 100 is not more than 0.29.
        needed = math.floor(round(self.threshold * total, 9)) + 1
        return Reading(
            hits / needed,
            f"{hits} of the last {total} calls {verb} "
            f"({hits / total:.0%}, threshold {self.threshold:.0%})",
        )

    def dump(self, memory: CountWindow) -> list[Any]:
        """The window's bits."""
        return memory.dump()

    def load(self, data: Any) -> CountWindow:
        """The inverse of `dump`; a smaller window keeps the youngest calls."""
        return CountWindow.load(data).fit(self.window)
