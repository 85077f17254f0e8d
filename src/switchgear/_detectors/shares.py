"""The share of calls that failed or took too long, among the last calls or the last seconds."""

import math
from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.detector import LAST_CHANCE, Detector, Measure
from switchgear._core.types import Signal
from switchgear._core.window import SLICES, CountWindow, TimeWindow
from switchgear._text.formats import plural, span


class ShareInTime(Detector):
    """Trips when at least `threshold` of the calls of the last `window_s` seconds are hits.

    It needs `min_calls` calls in the window; before, it only warns: the hits are compared with the
    number that would then trip. Time is resolved to a thirtieth of the window. Subclasses define
    what a hit is.
    """

    __slots__ = ()
    window_s: float
    threshold: float
    min_calls: int

    def _set_share(self, window_s: float, threshold: float, min_calls: int) -> None:
        owner = type(self).__name__
        self._set(
            window_s=values.check_window_s(f"{owner}.window_s", window_s),
            threshold=values.check_fraction(
                f"{owner}.threshold", threshold, low_open=True, whole_too=True
            ),
            min_calls=values.check_int(f"{owner}.min_calls", min_calls),
        )

    @property
    def slow_from_s(self) -> float:  # type: ignore[override]  # fixed for the class elsewhere
        """A slice of the window.

        The time of a success matters here: unreported successes are never older than this, and a
        longer call is recorded separately.
        """
        return self.window_s / SLICES

    def start(self) -> TimeWindow:
        """An empty window."""
        return TimeWindow()

    def fold(self, memory: TimeWindow, signal: Signal, now_s: float) -> TimeWindow:
        """Count each call, and whether it is a hit."""
        hit = self._hit(signal)
        if hit is None or not signal.count:
            return memory
        return memory.at(now_s, self.window_s).push(hit=hit, count=signal.count)

    def judges_after(self, memory: TimeWindow, signal: Signal, now_s: float) -> int:
        """The number of calls missing to `min_calls`; 0 if neither the window nor the signal has a hit."""
        if self._hit(signal) is None:
            return 0
        now = memory.at(now_s, self.window_s)
        return max(0, self.min_calls - now.total) if now.hits else 0

    def heat(self, memory: TimeWindow, now_s: float) -> float:
        """The hits divided by the fewest that reach the threshold."""
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
        """The verb for hits in the reason, such as "failed"."""
        raise NotImplementedError

    def dump(self, memory: TimeWindow) -> dict[str, Any]:
        """The slices, and the window that defines their length."""
        return {"window_s": self.window_s, "slices": memory.dump()}

    def load(self, data: Any) -> TimeWindow:
        """The inverse of `dump`; the slices of another window are dropped."""
        if not isinstance(data, dict) or data.keys() != {"window_s", "slices"}:
            raise ValueError(f"the memory of a share is {data!r}: it must have window_s and slices")
        window_s = values.check_seconds("window_s", data["window_s"])
        memory = TimeWindow.load(data["slices"])
        return memory if window_s == self.window_s else TimeWindow()


class FailureShare(ShareInTime):
    """Trips when at least `threshold` (0.5) of the calls of the last `window_s` seconds (60) failed.

    It needs `min_calls` calls (10) in the window; before, it only warns.

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


class SlowCallShare(ShareInTime):
    """Trips when at least `threshold` (0.5) of the calls of the last `window_s` seconds were slow.

    Slow is longer than `slow_s` seconds. It needs `min_calls` calls (10) in the window (60 s);
    before, it only warns. `admit` is the share of calls admitted after the trip; 0 (the default) is
    none. A slow probe counts as failed.

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
            slow_s=values.check_seconds("SlowCallShare.slow_s", slow_s),
            admit=values.check_fraction("SlowCallShare.admit", admit),
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
        """A slow probe counts as failed."""
        if signal.seconds is None or signal.seconds <= self.slow_s:
            return None
        return f"took {span(signal.seconds)}, longer than {span(self.slow_s)}"


class ShareOfCalls(Detector):
    """Trips when more than `threshold` of the last `window` calls are hits, strictly.

    So `threshold` is below 1: no share is more than all. Until `min_calls` calls are in the window
    it only warns: the hits are compared with the number that would then trip. Subclasses define
    what a hit is.
    """

    # A hit extends the window by one and the needed hits by at most one, so below 1 the heat never
    # falls; other calls lower it or leave it unchanged. It can jump only when it begins to
    # evaluate.

    __slots__ = ()
    window: int
    threshold: float
    min_calls: int

    def _set_share(self, window: int, threshold: float, min_calls: int | None) -> None:
        owner = type(self).__name__
        window = values.check_int(f"{owner}.window", window)
        least = window if min_calls is None else values.check_int(f"{owner}.min_calls", min_calls)
        if least > window:
            raise ValueError(
                f"{owner}.min_calls is {least}: it must not be above window, which is {window}"
            )
        share = values.check_fraction(f"{owner}.threshold", threshold)
        self._set(window=window, threshold=share, min_calls=least)

    def start(self) -> CountWindow:
        """An empty window."""
        return CountWindow()

    def fold(self, memory: CountWindow, signal: Signal, now_s: float) -> CountWindow:
        """Count each call, and whether it is a hit."""
        del now_s
        hit = self._hit(signal)
        if hit is None:
            return memory
        return memory.push(hit=hit, count=signal.count, size=self.window)

    def judges_after(self, memory: CountWindow, signal: Signal, now_s: float) -> int:
        """The number of calls missing to `min_calls`; 0 if neither the window nor the signal has a hit."""
        del now_s
        if not memory.hits or memory.total >= self.min_calls or self._hit(signal) is None:
            return 0
        return self.min_calls - memory.total

    def heat(self, memory: CountWindow, now_s: float) -> float:
        """The hits divided by the fewest that exceed the threshold."""
        del now_s
        if memory.total < self.min_calls:
            return min(LAST_CHANCE, memory.hits / self._fewest(self.min_calls))
        return memory.hits / self._fewest(memory.total)

    def _fewest(self, total: int) -> int:
        """The fewest hits that exceed the threshold."""
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
        raise NotImplementedError

    def dump(self, memory: CountWindow) -> list[Any]:
        """The window's bits."""
        return memory.dump()

    def load(self, data: Any) -> CountWindow:
        """The inverse of `dump`; a smaller window keeps the youngest calls."""
        return CountWindow.load(data, self.window)


class FailureRate(ShareOfCalls):
    """Trips when more than `threshold` (default 0.5) of the last `window` calls (20) failed.

    At exactly half it does not trip. It needs `min_calls` calls (default: a full window).

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


class SlowCalls(ShareOfCalls):
    """Trips when more than `threshold` (default 0.5) of the last `window` calls (20) were slow.

    Slow is longer than `slow_s` seconds. `admit` is the share of calls admitted after the trip: 0
    (the default) is none, 0.25 is a quarter. A slow probe counts as failed.

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
            slow_s=values.check_seconds("SlowCalls.slow_s", slow_s),
            admit=values.check_fraction("SlowCalls.admit", admit),
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
        """A slow probe counts as failed."""
        if signal.seconds is None or signal.seconds <= self.slow_s:
            return None
        return f"took {span(signal.seconds)}, longer than {span(self.slow_s)}"
