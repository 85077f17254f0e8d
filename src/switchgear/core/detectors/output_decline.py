"""Outputs that get shorter and stay short: an agent that has given up without saying so (seed 000)."""

from typing import Any, ClassVar

from switchgear.core import record
from switchgear.core.detectors.base import LAST_CHANCE, Detector, Measure, plural
from switchgear.core.detectors.outputs import BASELINE, DECLINED, NEEDED, Outputs, median
from switchgear.core.types import Signal


class OutputDecline(Detector):
    """Trips when the output stays under `threshold` (default 0.7) of the baseline's length.

    The baseline is the median of the iterations before that were not under it themselves, the
    last 20, and needs `min_iterations` (3). One output under it is the last warning, a second in
    a row trips.

    >>> OutputDecline().reason(Outputs((900, 90), (1000, 1200, 900), low=1), now_s=0.0)
    'output of 90 characters, 9% of the usual 1000 (threshold 70%)'
    """

    __slots__ = ("threshold", "min_iterations")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "output_decline"
    threshold: float
    min_iterations: int

    def __init__(self, threshold: float = DECLINED, min_iterations: int = NEEDED) -> None:
        least = record.whole("OutputDecline.min_iterations", min_iterations)
        if least > BASELINE:
            raise ValueError(
                f"OutputDecline.min_iterations is {least}: it must not be above {BASELINE}, the "
                "most that the baseline has"
            )
        share = record.fraction("OutputDecline.threshold", threshold, low_open=True, whole_too=True)
        self._set(threshold=share, min_iterations=least)

    def start(self) -> Outputs:
        """No output yet."""
        return Outputs()

    def fold(self, memory: Outputs, signal: Signal, now_s: float) -> Outputs:
        """Judge each output that was measured by those before it."""
        del now_s
        if signal.output_chars is None:
            return memory
        steps = min(signal.count, BASELINE)
        for _ in range(steps):
            memory = memory.push(
                signal.output_chars, share=self.threshold, needed=self.min_iterations
            )
        return memory.settled(signal.count - steps)

    def heat(self, memory: Outputs, now_s: float) -> float:
        """One low output warns, two trip."""
        del now_s
        return LAST_CHANCE if memory.low == 1 else memory.low / 2

    def reason(self, memory: Outputs, now_s: float) -> str:
        """The last output against its baseline."""
        del now_s
        outputs = len(memory.baseline)
        if outputs < self.min_iterations:
            return f"{outputs} of the {self.min_iterations} outputs needed to judge"
        chars, middle = memory.latest[-1], median(memory.baseline)
        share = f"{chars / middle:.0%}" if middle else "all"
        return (
            f"output of {plural(chars, 'character')}, {share} of the usual {middle:g} "
            f"(threshold {self.threshold:.0%})"
        )

    def measure(self, memory: Outputs, now_s: float) -> Measure:
        """Short outputs in a row."""
        del now_s
        return Measure(memory.low, 2, "outputs")

    def dump(self, memory: Outputs) -> list[Any]:
        """The lengths, and the row of low ones."""
        return memory.dump()

    def load(self, data: Any) -> Outputs:
        """The inverse of `dump`."""
        return Outputs.load(data)
