"""Many calls and no file changed by any: an agent that is busy and gets nowhere (seed 002)."""

from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.detector import Detector, Measure, plural
from switchgear._core.types import Signal


class ToolFlood(Detector):
    """Trips when more than `threshold` calls (default 20) have come since a file last changed.

    Whatever was called. A call whose files were not measured counts like one that changed none.

    >>> ToolFlood().reason(25, now_s=0.0)
    '25 calls without a file change (more than 20 trips)'
    """

    __slots__ = ("threshold",)
    kind: ClassVar[str] = "tool_flood"
    threshold: int

    def __init__(self, threshold: int = 20) -> None:
        self._set(threshold=values.whole("ToolFlood.threshold", threshold))

    def start(self) -> int:
        """No call yet."""
        return 0

    def fold(self, memory: int, signal: Signal, now_s: float) -> int:
        """A change of files begins anew; a call without one is one more."""
        del now_s
        if signal.files_changed and signal.count:
            return 0
        called = signal.step is not None and signal.step.tool
        return memory + signal.count if called else memory

    def heat(self, memory: int, now_s: float) -> float:
        """The calls against the first that is too many."""
        del now_s
        return memory / (self.threshold + 1)

    def reason(self, memory: int, now_s: float) -> str:
        """The calls in words."""
        del now_s
        return f"{plural(memory, 'call')} without a file change (more than {self.threshold} trips)"

    def measure(self, memory: int, now_s: float) -> Measure:
        """The calls, and the first that is too many."""
        del now_s
        return Measure(memory, self.threshold + 1, "calls")

    def dump(self, memory: int) -> int:
        """The calls."""
        return memory

    def load(self, data: Any) -> int:
        """The inverse of `dump`; raises ValueError for what it never dumped."""
        return values.whole("calls without a file change", data, least=0)
