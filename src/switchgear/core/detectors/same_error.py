"""The same error again and again: a loop that applies the same fix without learning (000, 001)."""

from typing import Any, ClassVar

from switchgear.core import record
from switchgear.core.detectors.base import Detector, Measure, plural
from switchgear.core.detectors.error_counts import Errors, Seen
from switchgear.core.fingerprint import FINGERPRINTS
from switchgear.core.types import Signal

SCOPES = ("total", "consecutive")


class SameError(Detector):
    """Trips when one error has come `threshold` times (default 5), whatever came in between.

    Errors are told apart by their `fingerprint`: `"default"` or `"documented"` (seed 001). With
    `scope="consecutive"` another error or a success ends the count. The `remember` most
    frequent errors (32) are kept with a sample of their text; some thousands more are counted
    without one. A recovery forgives the error that caused the trip, no other.

    >>> SameError().reason(Errors((Seen("a3f1", 2, "no such table"),)), now_s=0.0)
    'the same error 2 times (threshold 5): "no such table"'
    """

    __slots__ = ("threshold", "scope", "fingerprint", "remember")  # noqa: RUF023
    kind: ClassVar[str] = "same_error"
    threshold: int
    scope: str
    fingerprint: str
    remember: int

    def __init__(
        self,
        threshold: int = 5,
        scope: str = "total",
        fingerprint: str = "default",
        remember: int = 32,
    ) -> None:
        self._set(
            threshold=record.whole("SameError.threshold", threshold),
            scope=record.one_of("SameError.scope", scope, SCOPES),
            fingerprint=record.one_of("SameError.fingerprint", fingerprint, tuple(FINGERPRINTS)),
            remember=record.whole("SameError.remember", remember),
        )

    def start(self) -> Errors:
        """No errors yet."""
        return Errors()

    def fold(self, memory: Errors, signal: Signal, now_s: float) -> Errors:
        """Count the error of each failure that has one."""
        del now_s
        if signal.ok is None or not signal.count:
            return memory
        if signal.ok:
            return memory.end_row()
        if signal.error is None:
            return memory
        key = FINGERPRINTS[self.fingerprint](signal.error)
        return memory.plus(key, signal.error, signal.count, room=self.remember)

    def worst(self, memory: Errors) -> Seen | None:
        """The error that counts most, as often as it counts; `None`: there was none."""
        if self.scope == "consecutive":
            return memory.last()
        return memory.worst()

    def heat(self, memory: Errors, now_s: float) -> float:
        """Its count against the threshold."""
        del now_s
        worst = self.worst(memory)
        return 0.0 if worst is None else worst.times / self.threshold

    def reason(self, memory: Errors, now_s: float) -> str:
        """Its count and text in words."""
        del now_s
        worst = self.worst(memory)
        if worst is None or not worst.times:
            return f"no error is counted (threshold {self.threshold})"
        in_a_row = " in a row" if self.scope == "consecutive" else ""
        times = f"{plural(worst.times, 'time')}{in_a_row} (threshold {self.threshold})"
        return (
            f'the same error {times}: "{worst.text}"' if worst.text else f"the same error {times}"
        )

    def recovered(self, memory: Errors) -> Errors:
        """Counts outlast a trip, but for the error that reached the threshold."""
        return memory.forgiven(self.threshold)

    def probed(self, memory: Errors, signal: Signal, now_s: float) -> Errors:
        """The error of a failed probe counts like any other."""
        return self.fold(memory, signal, now_s)

    def measure(self, memory: Errors, now_s: float) -> Measure:
        """How often the error came that counts most."""
        del now_s
        worst = self.worst(memory)
        return Measure(0 if worst is None else worst.times, self.threshold, "times")

    def dump(self, memory: Errors) -> list[Any]:
        """The counts."""
        return memory.dump()

    def load(self, data: Any) -> Errors:
        """The inverse of `dump`; what a smaller memory has no room for is forgotten."""
        return Errors.load(data, room=self.remember)
