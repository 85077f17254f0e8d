"""Long waits: for a lock (default: over 60 s), and for an agent's next tool call (over 120 s)."""

from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.detector import LAST_CHANCE, Detector, Measure
from switchgear._core.types import Signal
from switchgear._text.formats import span


class LockWait(Detector):
    """Trips when the last wait for a lock took `limit_s` seconds (60) or longer.

    Only the last wait counts: a short one means that the resource is free again. A probe that
    waited too long counts as failed.

    >>> LockWait().reason(75.0, now_s=0.0)
    'waited 75 s (threshold 60 s)'
    """

    __slots__ = ("limit_s",)
    kind: ClassVar[str] = "lock_wait"
    needs_successes: ClassVar[bool] = False
    limit_s: float

    def __init__(self, limit_s: float = 60.0) -> None:
        self._set(limit_s=values.check_seconds("LockWait.limit_s", limit_s))

    def start(self) -> float:
        return 0.0

    def fold(self, memory: float, signal: Signal, now_s: float) -> float:
        return memory if signal.waited_s is None or not signal.count else max(0.0, signal.waited_s)

    def heat(self, memory: float, now_s: float) -> float:
        if memory >= self.limit_s:
            return memory / self.limit_s
        return LAST_CHANCE * memory / self.limit_s

    def reason(self, memory: float, now_s: float) -> str:
        return f"waited {span(memory)} (threshold {span(self.limit_s)})"

    def objection(self, signal: Signal) -> str | None:
        if signal.waited_s is None or signal.waited_s < self.limit_s:
            return None
        return f"waited {span(signal.waited_s)} (threshold {span(self.limit_s)})"

    def measure(self, memory: float, now_s: float) -> Measure:
        return Measure(memory, self.limit_s, "s")

    def dump(self, memory: float) -> float:
        return memory

    def load(self, data: Any) -> float:
        return values.check_at_least("the last wait", data, 0.0)


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
        return 0.0

    def fold(self, memory: float, signal: Signal, now_s: float) -> float:
        """The silence that a watcher measured; a call ends it."""
        if not signal.count:
            return memory
        if signal.idle_s is not None:
            return float(signal.idle_s)
        return 0.0 if signal.step is not None and signal.step.tool else memory

    def heat(self, memory: float, now_s: float) -> float:
        """The silence divided by the limit; just below 1 at exactly the limit."""
        share = memory / self.limit_s
        return share if memory > self.limit_s else LAST_CHANCE * share

    def reason(self, memory: float, now_s: float) -> str:
        return f"no tool call for {span(round(memory))} (more than {span(self.limit_s)} trips)"

    def measure(self, memory: float, now_s: float) -> Measure:
        return Measure(memory, self.limit_s, "s")

    def dump(self, memory: float) -> float:
        return memory

    def load(self, data: Any) -> float:
        return values.check_at_least("seconds of silence", data, 0.0)
