"""Policy violations: trips when an absolute rule is broken."""

from typing import Any, ClassVar

from switchgear._core import values
from switchgear._core.detector import Detector, Measure
from switchgear._core.types import Signal

LONGEST = 300
"""Characters kept of the rule that was broken."""


class Violation(Detector):
    """Trips at the first broken rule, until the circuit is reset.

    >>> violation = Violation()
    >>> violation.heat(violation.fold(None, Signal(violation="rule force-push"), 0.0), 0.0)
    1.0
    """

    __slots__ = ()
    kind: ClassVar[str] = "violation"
    needs_successes: ClassVar[bool] = False

    def __init__(self) -> None:
        """Take no settings."""

    def start(self) -> None:
        """No rule is broken."""

    def fold(self, memory: str | None, signal: Signal, now_s: float) -> str | None:
        return memory if not signal.violation or not signal.count else signal.violation[:LONGEST]

    def heat(self, memory: str | None, now_s: float) -> float:
        return 0.0 if memory is None else 1.0

    def reason(self, memory: str | None, now_s: float) -> str:
        return "no rule is broken" if memory is None else memory

    def objection(self, signal: Signal) -> str | None:
        return f"broke a rule: {signal.violation[:LONGEST]}" if signal.violation else None

    def recovered(self, memory: str | None) -> str | None:
        """The broken rule: only a reset clears it."""
        return memory

    def measure(self, memory: str | None, now_s: float) -> Measure:
        return Measure(0 if memory is None else 1, 1, "violations")

    def dump(self, memory: str | None) -> str | None:
        return memory

    def load(self, data: Any) -> str | None:
        return None if data is None else values.check_text("the broken rule", data)[:LONGEST]
