"""Why a loop is stopped, in the words of seeds 000 and 001."""

from typing import Any

from switchgear.core.detectors import (
    ConsecutiveFailures,
    Detector,
    NoProgress,
    OutputDecline,
    SameError,
)
from switchgear.core.detectors.base import LAST_CHANCE, plural
from switchgear.core.policy import Policy
from switchgear.core.types import Circuit, Phase


def trip_words(policy: Policy, circuit: Circuit, now_s: float) -> str | None:
    """What seed 001 shows behind "Circuit breaker tripped: "; `None`: nothing is that hot."""
    cause = _cause(policy, circuit, now_s)
    if cause is None:
        return None
    detector, memory = cause
    if isinstance(detector, SameError):
        worst = detector.worst(memory)
        times = plural(0 if worst is None else worst.times, "time")
        return f"Same error repeated {times} (threshold: {detector.threshold})"
    return _words(detector, memory, circuit, now_s)


def decision_words(policy: Policy, circuit: Circuit, now_s: float) -> str | None:
    """What seed 000 gives as the reason of a decision; `None`: nothing is that hot."""
    cause = _cause(policy, circuit, now_s)
    if cause is None:
        return None
    detector, memory = cause
    if isinstance(detector, SameError):
        worst = detector.worst(memory)
        text = "" if worst is None else worst.text
        return f'Same error repeated {plural(detector.threshold, "time")}: "{text}"'
    return _words(detector, memory, circuit, now_s)


def failures_in_a_row(row: int, circuit: Circuit) -> int:
    """With the retries that failed, which are in the row and not in the detector's memory."""
    return row + circuit.outage.failed_probes


def _cause(policy: Policy, circuit: Circuit, now_s: float) -> tuple[Detector, Any] | None:
    """The first detector that trips, or that is at its last chance while the circuit is so."""
    needed = LAST_CHANCE if circuit.phase is Phase.TRIPPING else 1.0
    for detector, memory in zip(policy.detectors, circuit.memories, strict=True):
        if detector.heat(memory, now_s) >= needed:
            return detector, memory
    return None


def _words(detector: Detector, memory: Any, circuit: Circuit, now_s: float) -> str:
    if isinstance(detector, ConsecutiveFailures):
        row = plural(failures_in_a_row(memory, circuit), "consecutive failure")
        return f"{row} (threshold: {detector.threshold})"
    if isinstance(detector, NoProgress):
        row = plural(memory.iterations, "iteration")
        return f"No progress in {row} (threshold: {detector.threshold})"
    reason = detector.reason(memory, now_s)
    return f"Output declined: {reason}" if isinstance(detector, OutputDecline) else reason
