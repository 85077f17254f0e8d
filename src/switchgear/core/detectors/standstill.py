"""How long a loop has stood still: the memory of `NoProgress`."""

from typing import Any, NamedTuple, Self

from switchgear.core import record
from switchgear.core.detectors.outputs import Outputs


class Standstill(NamedTuple):
    """Iterations without progress, and what the next one is held against."""

    iterations: int = 0
    """Without progress, in a row."""
    best_tests: int | None = None
    progress_at_s: float | None = None
    """When the last progress was measured, in seconds since the epoch, if that was told."""
    outputs: Outputs = Outputs()

    def dump(self) -> list[Any]:
        """The fields."""
        return [self.iterations, self.best_tests, self.progress_at_s, self.outputs.dump()]

    @classmethod
    def load(cls, data: Any) -> Self:
        """The inverse of `dump`; raises ValueError on anything else."""
        iterations, best, at_s, outputs = record.row("a standstill", data, 4)
        return cls(
            record.whole("iterations without progress", iterations, least=0),
            None if best is None else record.whole("the most tests passing", best, least=0),
            None if at_s is None else record.number("the time of progress", at_s),
            Outputs.load(outputs),
        )
