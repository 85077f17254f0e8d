"""A share of the calls of the last seconds: what failure share and slow-call share have in common."""

import math
from typing import Any

from switchgear.core import record
from switchgear.core.detectors.base import LAST_CHANCE, Detector, Measure, plural, span
from switchgear.core.types import Signal
from switchgear.core.window import SLICES, TimeWindow


class ShareInTime(Detector):
    """Trips when at least `threshold` of the calls of the last `window_s` seconds are hits.

    Judges once `min_calls` calls are in the window; before, it only warns: the hits are held
    against what would trip by then. Time is resolved to a thirtieth of the window. Subclasses say
    what a hit is.
    """

    __slots__ = ()
    window_s: float
    threshold: float
    min_calls: int

    def _set_share(self, window_s: float, threshold: float, min_calls: int) -> None:
        owner = type(self).__name__
        self._set(
            window_s=record.window(f"{owner}.window_s", window_s),
            threshold=record.fraction(
                f"{owner}.threshold", threshold, low_open=True, whole_too=True
            ),
            min_calls=record.whole(f"{owner}.min_calls", min_calls),
        )

    @property
    def slow_from_s(self) -> float:  # type: ignore[override]  # fixed for the class elsewhere
        """A slice of the window.

        When a success happened matters here. What may go untold is never older than this, and a
        call that took longer is told by itself.
        """
        return self.window_s / SLICES

    def start(self) -> TimeWindow:
        """An empty window."""
        return TimeWindow()

    def fold(self, memory: TimeWindow, signal: Signal, now_s: float) -> TimeWindow:
        """Note each signal that is a call, and whether it is a hit."""
        hit = self._hit(signal)
        if hit is None or not signal.count:
            return memory
        return memory.at(now_s, self.window_s).push(hit=hit, count=signal.count)

    def judges_after(self, memory: TimeWindow, signal: Signal, now_s: float) -> int:
        """What is missing to `min_calls`; without a hit, what is not one cannot make it hot."""
        if self._hit(signal) is None:
            return 0
        now = memory.at(now_s, self.window_s)
        return max(0, self.min_calls - now.total) if now.hits else 0

    def heat(self, memory: TimeWindow, now_s: float) -> float:
        """The hits against the fewest that reach the threshold."""
        now = memory.at(now_s, self.window_s)
        if now.total < self.min_calls:
            return min(LAST_CHANCE, now.hits / self._fewest(self.min_calls))
        return now.hits / self._fewest(now.total)

    def _fewest(self, total: int) -> int:
        # Rounded: 0.07 * 100 is 7.000000000000001, and 7 of 100 do reach 0.07.
        return max(1, math.ceil(round(self.threshold * total, 9)))

    def reason(self, memory: TimeWindow, now_s: float) -> str:
        """The share in words."""
        now = memory.at(now_s, self.window_s)
        what = f"{now.hits} of {plural(now.total, 'call')} in {span(self.window_s)} {self._verb()}"
        limit = f"threshold {self.threshold:.0%}"
        if now.total < self.min_calls:
            return f"{what} ({limit}, judges from {plural(self.min_calls, 'call')} on)"
        return f"{what} ({now.hits / now.total:.0%}, {limit})"

    def measure(self, memory: TimeWindow, now_s: float) -> Measure:
        """The share of hits."""
        now = memory.at(now_s, self.window_s)
        return Measure(now.hits / now.total if now.total else 0.0, self.threshold, "share")

    def _hit(self, signal: Signal) -> bool | None:
        """Whether the signal is a hit; `None`: it is no evidence of that kind."""
        raise NotImplementedError

    def _verb(self) -> str:
        """What the hits did."""
        raise NotImplementedError

    def dump(self, memory: TimeWindow) -> dict[str, Any]:
        """The slices, and the window that gives them their length."""
        return {"window_s": self.window_s, "slices": memory.dump()}

    def load(self, data: Any) -> TimeWindow:
        """The inverse of `dump`; under another window the slices mean nothing and are let go."""
        if not isinstance(data, dict) or data.keys() != {"window_s", "slices"}:
            raise ValueError(f"the memory of a share is {data!r}: it must have window_s and slices")
        window_s = record.seconds("window_s", data["window_s"])
        memory = TimeWindow.load(data["slices"])
        return memory if window_s == self.window_s else TimeWindow()
