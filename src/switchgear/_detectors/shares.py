"""The share of calls that failed or took too long, among the last calls or the last seconds."""

import math
from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.detector import LAST_CHANCE, Detector, Measure
from switchgear._core.types import Signal
from switchgear._core.window import SLICES, CountWindow, TimeWindow
from switchgear._text.formats import plural, span


class CallShare(Detector):
    """Compares the share of hits in a window with `threshold`; below `min_calls` calls it only warns.

    A hit is a failed call or, if the detector `counts_slow_calls`, one that took longer than `slow_s`.
    """

    __slots__ = ()
    _counts_slow_calls: ClassVar[bool] = False
    slow_s: float
    threshold: float
    min_calls: int

    def judges_after(self, memory: Any, signal: Signal, now_s: float) -> int:
        """The number of calls missing to `min_calls`; 0 without a hit in the window, or without evidence."""
        now = self._window(memory, now_s)
        if not now.hits or self._hit(signal) is None:
            return 0
        return max(0, self.min_calls - now.total)

    def heat(self, memory: Any, now_s: float) -> float:
        """The number of hits divided by the lowest number that trips."""
        now = self._window(memory, now_s)
        if now.total < self.min_calls:
            return min(LAST_CHANCE, now.hits / self._fewest(self.min_calls))
        return now.hits / self._fewest(now.total)

    def reason(self, memory: Any, now_s: float) -> str:
        now = self._window(memory, now_s)
        verb = f"took longer than {span(self.slow_s)}" if self._counts_slow_calls else "failed"
        limit = f"threshold {self.threshold:.0%}"
        if now.total < self.min_calls:
            details = f"{limit}, from {plural(self.min_calls, 'call')} on"
        else:
            details = f"{now.hits / now.total:.0%}, {limit}"
        return f"{now.hits} of {self._calls(now.total)} {verb} ({details})"

    def objection(self, signal: Signal) -> str | None:
        """A slow probe counts as failed."""
        if not self._counts_slow_calls or signal.seconds is None or signal.seconds <= self.slow_s:
            return None
        return f"took {span(signal.seconds)}, longer than {span(self.slow_s)}"

    def measure(self, memory: Any, now_s: float) -> Measure:
        now = self._window(memory, now_s)
        return Measure(now.hits / now.total if now.total else 0.0, self.threshold, "share")

    def _hit(self, signal: Signal) -> bool | None:
        """Whether the signal is a hit; `None`: it is no evidence for this detector."""
        if self._counts_slow_calls:
            return None if signal.seconds is None else signal.seconds > self.slow_s
        return None if signal.ok is None else not signal.ok

    def _window(self, memory: Any, now_s: float) -> CountWindow | TimeWindow:
        """The calls that count now."""
        raise NotImplementedError

    def _fewest(self, total: int) -> int:
        """The lowest number of hits among `total` calls that trips."""
        raise NotImplementedError

    def _calls(self, total: int) -> str:
        """The calls of the window in words."""
        raise NotImplementedError


class ShareInTime(CallShare):
    """Trips when at least `threshold` of the calls of the last `window_s` seconds are hits.

    Time is resolved to a thirtieth of the window.
    """

    __slots__ = ()
    window_s: float

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
    def slow_from_s(self) -> float:  # type: ignore[override]  # a class variable in the base class
        """A slice of the window, or `slow_s` if that is shorter.

        The time of a success matters to this detector: successes are reported within this time, and
        a longer call is recorded separately.
        """
        slice_s = self.window_s / SLICES
        return min(self.slow_s, slice_s) if self._counts_slow_calls else slice_s

    def start(self) -> TimeWindow:
        return TimeWindow()

    def fold(self, memory: TimeWindow, signal: Signal, now_s: float) -> TimeWindow:
        hit = self._hit(signal)
        if hit is None or not signal.count:
            return memory
        return memory.at(now_s, self.window_s).push(hit=hit, count=signal.count)

    def dump(self, memory: TimeWindow) -> dict[str, Any]:
        return memory.dump_with(self.window_s)

    def load(self, data: Any) -> TimeWindow:
        return TimeWindow.load_with("the memory of a share", data, self.window_s)

    def _window(self, memory: TimeWindow, now_s: float) -> TimeWindow:
        return memory.at(now_s, self.window_s)

    def _fewest(self, total: int) -> int:
        # Rounded: 0.07 * 100 is 7.000000000000001, and 7 of 100 do reach 0.07.
        return max(1, math.ceil(round(self.threshold * total, 9)))

    def _calls(self, total: int) -> str:
        return f"{plural(total, 'call')} in {span(self.window_s)}"


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
    _counts_slow_calls: ClassVar[bool] = True

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


class ShareOfCalls(CallShare):
    """Trips when more than `threshold` of the last `window` calls are hits, strictly.

    Therefore `threshold` is below 1: no share exceeds 1.
    """

    # A hit extends the window by one and the needed hits by at most one, so below 1 the heat never
    # falls; other calls lower it or leave it unchanged. It can jump only when it begins to
    # evaluate.

    __slots__ = ()
    window: int

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
        return CountWindow()

    def fold(self, memory: CountWindow, signal: Signal, now_s: float) -> CountWindow:
        hit = self._hit(signal)
        if hit is None:
            return memory
        return memory.push(hit=hit, count=signal.count, size=self.window)

    def dump(self, memory: CountWindow) -> list[Any]:
        return memory.dump()

    def load(self, data: Any) -> CountWindow:
        """The inverse of `dump`; a smaller window keeps the youngest calls."""
        return CountWindow.load(data, self.window)

    def _window(self, memory: CountWindow, now_s: float) -> CountWindow:
        return memory

    def _fewest(self, total: int) -> int:
        # Rounded: 0.29 * 100 is 28.999999999999996, and 29 of 100 is not more than 0.29.
        return math.floor(round(self.threshold * total, 9)) + 1

    def _calls(self, total: int) -> str:
        return plural(total, "call") if total < self.min_calls else f"the last {total} calls"


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


class SlowCalls(ShareOfCalls):
    """Trips when more than `threshold` (default 0.5) of the last `window` calls (20) were slow.

    Slow is longer than `slow_s` seconds. `admit` is the share of calls admitted after the trip: 0
    (the default) is none, 0.25 is a quarter. A slow probe counts as failed.

    >>> SlowCalls(slow_s=10.0).objection(Signal(ok=True, seconds=12.0))
    'took 12 s, longer than 10 s'
    """

    __slots__ = ("slow_s", "window", "threshold", "min_calls", "admit")  # noqa: RUF023
    kind: ClassVar[str] = "slow_calls"
    _counts_slow_calls: ClassVar[bool] = True

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
    def slow_from_s(self) -> float:  # type: ignore[override]  # a class variable in the base class
        """`slow_s`: shorter calls are all the same."""
        return self.slow_s


class LatencyP95(Detector):
    """Trips when the p95 of the last `window_s` seconds (300) exceeds `multiplier` (3) times the baseline.

    `baseline_s` is the p95 in normal operation, in seconds. The p95 is exact (nearest rank): it
    exceeds the limit when more than 5 % of the calls do, so the detector only counts these. It needs
    `min_calls` (20) calls; time is resolved to a thirtieth of the window. `admit` is the share of
    calls admitted after the trip: 0 is none, 0.5 (the default) halves the load. A probe that exceeds
    the limit counts as failed.

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
    def slow_from_s(self) -> float:  # type: ignore[override]  # a class variable in the base class
        """`limit_s`: shorter calls are all the same."""
        return self.limit_s

    def start(self) -> TimeWindow:
        return TimeWindow()

    def fold(self, memory: TimeWindow, signal: Signal, now_s: float) -> TimeWindow:
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
        now = memory.at(now_s, self.window_s)
        if now.total < self.min_calls:
            return f"{now.total} of the {self.min_calls} calls needed to judge"
        return (
            f"{now.hits} of {now.total} calls in {span(self.window_s)} took longer than "
            f"{span(self.limit_s)} ({self.multiplier:g} x baseline), {now.total // 20} may"
        )

    def objection(self, signal: Signal) -> str | None:
        if signal.seconds is None or signal.seconds <= self.limit_s:
            return None
        return f"took {span(signal.seconds)}, longer than {span(self.limit_s)}"

    def measure(self, memory: TimeWindow, now_s: float) -> Measure:
        """The share of calls over the limit; more than 5 % put the p95 over it."""
        now = memory.at(now_s, self.window_s)
        return Measure(now.hits / now.total if now.total else 0.0, 0.05, "share")

    def dump(self, memory: TimeWindow) -> dict[str, Any]:
        return memory.dump_with(self.window_s)

    def load(self, data: Any) -> TimeWindow:
        return TimeWindow.load_with("the memory of a p95", data, self.window_s)
