"""The context window fills up fast: a sign that an agent will soon forget its task."""

from typing import Any, ClassVar, NamedTuple

from switchgear._core import values
from switchgear._core.detector import LAST_CHANCE, Detector, Measure
from switchgear._core.types import Signal

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

    Measured over consecutive periods of at least `window_s` seconds (default 60); the
    last one counts. If less is in use than before, the agent has compacted, and the measurement restarts.

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
