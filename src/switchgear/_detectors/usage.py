"""What an agent consumes: money (in a window, in total, against its usual rate) and its context window."""

import math
from typing import Any, ClassVar, NamedTuple

from switchgear._core import values
from switchgear._core.detector import LAST_CHANCE, Detector, Measure
from switchgear._core.types import Signal
from switchgear._core.window import TimeWindow
from switchgear._text.formats import Money, dollars, micros_of, span


class Spend(Detector):
    """Trips when the cost of the last `window_s` seconds (60) reaches `threshold` (1.0) of the cap.

    The cap is `hard_cap_micros`, in millionths of a dollar. Time is resolved to a thirtieth of the
    window; money is exact. Signals without a cost change nothing.

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
        self,
        hard_cap_micros: int | None = None,
        threshold: float = 1.0,
        window_s: float = 60.0,
        *,
        hard_cap: Money | str | None = None,
    ) -> None:
        cap = micros_of("hard_cap", hard_cap, hard_cap_micros)
        self._set(
            hard_cap_micros=values.check_int("Spend.hard_cap_micros", cap),
            threshold=values.check_positive("Spend.threshold", threshold),
            window_s=values.check_window_s("Spend.window_s", window_s),
        )
        if math.isinf(self.threshold * self.hard_cap_micros):
            raise ValueError(f"Spend.threshold is {threshold!r}: times the cap it must be finite")

    @property
    def limit_micros(self) -> int:
        """The spend at which it trips, in whole micro-dollars."""
        # Rounded first: 0.29 * 100 is 28.999999999999996.
        return max(1, math.ceil(round(self.threshold * self.hard_cap_micros, 6)))

    def start(self) -> TimeWindow:
        return TimeWindow()

    def fold(self, memory: TimeWindow, signal: Signal, now_s: float) -> TimeWindow:
        """Add the cost to the window: each micro-dollar counts as one."""
        cost = signal.cost_micros
        if cost is None or cost <= 0 or not signal.count:
            return memory
        return memory.at(now_s, self.window_s).push(hit=False, count=cost * signal.count)

    def heat(self, memory: TimeWindow, now_s: float) -> float:
        return memory.at(now_s, self.window_s).total / self.limit_micros

    def reason(self, memory: TimeWindow, now_s: float) -> str:
        spent = memory.at(now_s, self.window_s).total
        cap = dollars(self.hard_cap_micros)
        return f"{dollars(spent)} spent in {span(self.window_s)} (threshold {self.threshold:g} of {cap})"

    def measure(self, memory: TimeWindow, now_s: float) -> Measure:
        return Measure(memory.at(now_s, self.window_s).total, self.limit_micros, "micros")

    def dump(self, memory: TimeWindow) -> dict[str, Any]:
        return memory.dump_with(self.window_s)

    def load(self, data: Any) -> TimeWindow:
        return TimeWindow.load_with("what was spent", data, self.window_s)


class TotalCost(Detector):
    """Trips when the total cost is above `threshold` (1.5) times the budget.

    The budget is `budget_micros`, in millionths of a dollar. The total does not fall with time;
    only a reset clears it.

    >>> TotalCost(budget_micros=2_000_000).reason(3_000_000, now_s=0.0)
    '$3.00 spent of $2.00 (threshold 1.5 of it, and more)'
    """

    __slots__ = ("budget_micros", "threshold")
    kind: ClassVar[str] = "total_cost"
    needs_successes: ClassVar[bool] = False
    budget_micros: int
    threshold: float

    def __init__(
        self,
        budget_micros: int | None = None,
        threshold: float = 1.5,
        *,
        budget: Money | str | None = None,
    ) -> None:
        micros = micros_of("budget", budget, budget_micros)
        self._set(
            budget_micros=values.check_int("TotalCost.budget_micros", micros),
            threshold=values.check_positive("TotalCost.threshold", threshold),
        )
        if math.isinf(self.threshold * self.budget_micros):
            raise ValueError(
                f"TotalCost.threshold is {threshold!r}: times the budget it must be finite"
            )

    @property
    def limit_micros(self) -> int:
        """The highest total that does not trip."""
        # Rounded first: 0.29 * 100 is 28.999999999999996.
        return math.floor(round(self.threshold * self.budget_micros, 6))

    def start(self) -> int:
        return 0

    def fold(self, memory: int, signal: Signal, now_s: float) -> int:
        return memory + max(0, signal.cost_micros or 0) * signal.count

    def heat(self, memory: int, now_s: float) -> float:
        """The total divided by the lowest total that trips."""
        return memory / (self.limit_micros + 1)

    def reason(self, memory: int, now_s: float) -> str:
        budget = dollars(self.budget_micros)
        return f"{dollars(memory)} spent of {budget} (threshold {self.threshold:g} of it, and more)"

    def recovered(self, memory: int) -> int:
        """The total: only a reset clears it."""
        return memory

    def measure(self, memory: int, now_s: float) -> Measure:
        return Measure(memory, self.limit_micros + 1, "micros")

    def dump(self, memory: int) -> int:
        return memory

    def load(self, data: Any) -> int:
        return values.check_int("what was spent", data, least=0)


class SpendHistory(NamedTuple):
    """The start of spending, the total, and the spend within the window."""

    began_s: float | None = None
    total_micros: int = 0
    recent: TimeWindow = TimeWindow()
    last_s: float | None = None
    """When the last cost was recorded."""


class SpendVelocity(Detector):
    """Trips when money is spent `factor` (5) times as fast as before, compared with the session's own baseline.

    The rate of the last `window_s` seconds (300) is compared with the rate of the time before, which
    must be at least as long. At least `least_micros` (500,000: $0.50), or `least="$0.50"`, must be
    spent in the window, so that a cheap start does not trip it. Signals without a cost change nothing.

    >>> velocity, memory = SpendVelocity(window_s=60.0), SpendHistory()
    >>> for minute in range(4):
    ...     memory = velocity.fold(memory, Signal(cost_micros=100_000), 60.0 * minute)
    >>> velocity.heat(velocity.fold(memory, Signal(cost_micros=900_000), 200.0), 200.0) >= 1.0
    True
    """

    __slots__ = ("factor", "least_micros", "window_s")
    kind: ClassVar[str] = "spend_velocity"
    needs_successes: ClassVar[bool] = False
    factor: float
    window_s: float
    least_micros: int

    def __init__(
        self,
        factor: float = 5.0,
        window_s: float = 300.0,
        least_micros: int = 500_000,
        *,
        least: Money | str | None = None,
    ) -> None:
        if least is not None:
            given = None if least_micros == 500_000 else least_micros
            least_micros = micros_of("least", least, given) or 0
        self._set(
            factor=values.check_at_least("SpendVelocity.factor", factor, 1.0),
            window_s=values.check_window_s("SpendVelocity.window_s", window_s),
            least_micros=values.check_int("SpendVelocity.least_micros", least_micros),
        )

    def start(self) -> SpendHistory:
        return SpendHistory()

    def fold(self, memory: SpendHistory, signal: Signal, now_s: float) -> SpendHistory:
        cost = signal.cost_micros
        if cost is None or cost <= 0 or not signal.count:
            return memory
        spent = cost * signal.count
        began_s = now_s if memory.began_s is None else memory.began_s
        recent = memory.recent.at(now_s, self.window_s).push(hit=False, count=spent)
        last_s = now_s if memory.last_s is None else max(now_s, memory.last_s)
        return SpendHistory(began_s, memory.total_micros + spent, recent, last_s)

    def heat(self, memory: SpendHistory, now_s: float) -> float:
        """The rate divided by `factor` times the earlier rate; limited by the share of the minimum amount."""
        recent, usual = self._rates(memory, now_s)
        if usual <= 0.0:
            return 0.0
        enough = recent * self.window_s / self.least_micros
        return min(enough, recent / (self.factor * usual))

    def reason(self, memory: SpendHistory, now_s: float) -> str:
        recent, usual = self._rates(memory, now_s)
        now = f"{_per_minute(recent)} in the last {span(self.window_s)}"
        held = f"(threshold {self.factor:g} times the usual"
        return (
            f"{now} {held} {_per_minute(usual)})"
            if usual > 0.0
            else f"{now} {held}: not known yet)"
        )

    def measure(self, memory: SpendHistory, now_s: float) -> Measure:
        """The spend in the window, and the amount that trips."""
        recent, usual = self._rates(memory, now_s)
        limit = max(self.least_micros, self.factor * usual * self.window_s)
        return Measure(round(recent * self.window_s), round(limit), "micros")

    def _rates(self, memory: SpendHistory, now_s: float) -> tuple[float, float]:
        """Micro-dollars per second: within the window, and before it (0: no baseline yet)."""
        recent = memory.recent.at(now_s, self.window_s).total
        rate = recent / self.window_s
        if memory.began_s is None or memory.last_s is None:
            return rate, 0.0
        now_s = max(now_s, memory.last_s)
        before_s = now_s - self.window_s - memory.began_s
        if before_s < self.window_s:
            return rate, 0.0
        return rate, (memory.total_micros - recent) / before_s

    def dump(self, memory: SpendHistory) -> dict[str, Any]:
        return {
            "began_s": memory.began_s,
            "last_s": memory.last_s,
            "total_micros": memory.total_micros,
            **memory.recent.dump_with(self.window_s),
        }

    def load(self, data: Any) -> SpendHistory:
        """The inverse of `dump`; the slices of another window are dropped."""
        keys = {"began_s", "last_s", "total_micros", "window_s", "slices"}
        if not isinstance(data, dict) or data.keys() != keys:
            raise ValueError(f"what was spent is {data!r}: it must have {', '.join(sorted(keys))}")
        total = values.check_int("total_micros", data["total_micros"], least=0)
        began_s, last_s = data["began_s"], data["last_s"]
        if (began_s is None) != (last_s is None):
            raise ValueError(f"began_s is {began_s!r} and last_s {last_s!r}: both or none")
        began_s = None if began_s is None else values.check_number("began_s", began_s)
        last_s = None if last_s is None else values.check_number("last_s", last_s)
        window = {name: data[name] for name in ("window_s", "slices")}
        recent = TimeWindow.load_with("what was spent", window, self.window_s)
        return SpendHistory(began_s, total, recent, last_s)


def _per_minute(micros_a_second: float) -> str:
    return f"{dollars(round(micros_a_second * 60))}/min"


EXACT = 9
"""Decimals of a rate, because 0.2 - 0.15 is more than 0.05 in binary floating point."""


class Burn(NamedTuple):
    """The start of the current period, and the rate of the last one."""

    since_s: float | None = None
    used: float = 0.0
    """The share of the context window in use at the start."""
    per_minute: float = 0.0


class ContextBurn(Detector):
    """Trips when more than `per_minute` of the context window (default 0.05) is used per minute.

    Measured over consecutive periods of at least `window_s` seconds (default 60); only the last
    period counts. If less is in use than before, the agent has compacted its context, and the
    measurement restarts.

    >>> ContextBurn().reason(Burn(60.0, 0.2, per_minute=0.08), now_s=0.0)
    '8.0% of the context window a minute (more than 5% trips)'
    """

    __slots__ = ("per_minute", "window_s")
    kind: ClassVar[str] = "context_burn"
    per_minute: float
    window_s: float

    def __init__(self, per_minute: float = 0.05, window_s: float = 60.0) -> None:
        self._set(
            per_minute=values.check_fraction("ContextBurn.per_minute", per_minute, low_open=True),
            window_s=values.check_window_s("ContextBurn.window_s", window_s),
        )

    def start(self) -> Burn:
        return Burn()

    def fold(self, memory: Burn, signal: Signal, now_s: float) -> Burn:
        """Evaluate a period that is long enough, and begin the next one."""
        used = signal.context_used
        if used is None or not signal.count:
            return memory
        if memory.since_s is None or used < memory.used:
            return Burn(now_s, used)
        elapsed_s = now_s - memory.since_s
        if elapsed_s < self.window_s:
            return memory
        return Burn(now_s, used, round((used - memory.used) * 60.0 / elapsed_s, EXACT))

    def heat(self, memory: Burn, now_s: float) -> float:
        """The rate divided by the limit; just below 1 at exactly the limit."""
        share = memory.per_minute / self.per_minute
        return share if memory.per_minute > self.per_minute else LAST_CHANCE * share

    def reason(self, memory: Burn, now_s: float) -> str:
        rate = f"{memory.per_minute:.1%} of the context window a minute"
        return f"{rate} (more than {self.per_minute * 100:g}% trips)"

    def measure(self, memory: Burn, now_s: float) -> Measure:
        return Measure(memory.per_minute, self.per_minute, "share per minute")

    def dump(self, memory: Burn) -> list[Any]:
        return list(memory)

    def load(self, data: Any) -> Burn:
        since_s, used, rate = values.check_list("the use of the context", data, 3)
        if since_s is None:
            if (used, rate) != (0.0, 0.0):
                raise ValueError(f"{data!r} measures from no time")
            return Burn()
        return Burn(
            values.check_number("the time of the first measure", since_s),
            values.check_number("the share in use", used),
            values.check_at_least("the rate", rate, 0.0),
        )
