"""No tool call for a while: the agent hangs, waits or only thinks."""

from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.detector import LAST_CHANCE, Detector, Measure
from switchgear._core.types import Signal
from switchgear._text.formats import span


class Silence(Detector):
    """Trips when there was no tool call for more than `limit_s` seconds (default 120).

    A silent agent sends no signals, so a watcher records one with `idle_s`. Any call ends the silence.

    >>> Silence().reason(150.0, now_s=0.0)
    'no tool call for 150 s (more than 120 s trips)'
    """

    __slots__ = ("limit_s",)
    kind: ClassVar[str] = "silence"
    limit_s: float

    def __init__(self, limit_s: float = 120.0) -> None:
        self._set(limit_s=values.check_seconds("Silence.limit_s", limit_s))

    def start(self) -> float:
        """Not silent."""
        return 0.0

    def fold(self, memory: float, signal: Signal, now_s: float) -> float:
        """The silence that a watcher measured; a call ends it."""
        del now_s
        if not signal.count:
            return memory
        if signal.idle_s is not None:
            return float(signal.idle_s)
        return 0.0 if signal.step is not None and signal.step.tool else memory

    def heat(self, memory: float, now_s: float) -> float:
        """The silence divided by the limit; just below 1 at exactly the limit."""
        del now_s
        share = memory / self.limit_s
        return share if memory > self.limit_s else LAST_CHANCE * share

    def reason(self, memory: float, now_s: float) -> str:
        """The silence in words."""
        del now_s
        return f"no tool call for {span(round(memory))} (more than {span(self.limit_s)} trips)"

    def measure(self, memory: float, now_s: float) -> Measure:
        """The silence."""
        del now_s
        return Measure(memory, self.limit_s, "s")

    def dump(self, memory: float) -> float:
        """The seconds."""
        return memory

    def load(self, data: Any) -> float:
        """The inverse of `dump`; raises ValueError for other data."""
        return values.check_at_least("seconds of silence", data, 0.0)
