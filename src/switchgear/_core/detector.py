"""The base class of detectors: a value that folds signals into a small memory and evaluates it."""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from switchgear._core.types import Signal
from switchgear._core.values import Value

Memory = Any  # the memory of a detector: immutable, bounded, private to the detector


class Measure(NamedTuple):
    """The numbers that a detector compares."""

    value: float
    threshold: float
    """The detector trips when the value reaches this."""
    unit: str
    """Such as `failures`, `share` (0 to 1), `s` or `micros` (millionths of a dollar)."""


class Detector(Value):
    """Base of the detectors.

    Laws, checked by tests for all detectors in the registry: it can trip from its own fields; it
    abstains on `None`; folding n equal signals equals folding one with count n; under equal signals
    its heat moves in one direction, except when it begins to evaluate; its memory is bounded;
    `load` restores what `dump` returns.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """The name in configuration, wire form and messages."""
    admit: float = 0.0
    """The share of calls still admitted after this detector trips; 0: none."""
    advice: ClassVar[str] = ""
    """Advice to the agent when the detector is hot; empty: none."""
    needs_successes: ClassVar[bool] = True
    """Whether a success that is reported late could change its reading. If not, it trips a shared
    circuit without waiting for the reports of other processes."""
    slow_from_s: ClassVar[float | None] = None
    """The detector treats durations up to this one the same; `None`: it ignores durations."""

    @classmethod
    def kinds(cls) -> "Iterator[type[Detector]]":
        """All subclasses that define a `kind`, including subclasses of subclasses."""
        for each in cls.__subclasses__():
            if "kind" in vars(each):
                yield each
            yield from each.kinds()

    def start(self) -> Memory:
        """The memory of a new circuit."""
        raise NotImplementedError

    def fold(self, memory: Memory, signal: Signal, now_s: float) -> Memory:
        """The memory after this signal."""
        raise NotImplementedError

    def heat(self, memory: Memory, now_s: float) -> float:
        """The heat at `now_s`: 0 is calm, 1 trips."""
        raise NotImplementedError

    def reason(self, memory: Memory, now_s: float) -> str:
        """The evidence in words, with the threshold."""
        raise NotImplementedError

    def measure(self, memory: Memory, now_s: float) -> Measure | None:
        """The evidence in numbers; `None`: there is no number to compare."""
        return None

    def judges_after(self, memory: Memory, signal: Signal, now_s: float) -> int:
        """How many more signals like this one it needs before it begins to evaluate and may trip at once.

        0: it evaluates already, abstains, or has no evidence.
        """
        return 0

    def objection(self, signal: Signal) -> str | None:
        """Why a probe with these facts counts as failed although it reports success; `None`: it does not."""
        return None

    def recovered(self, memory: Memory) -> Memory:
        """The memory after a recovery: empty by default."""
        return self.start()

    def probed(self, memory: Memory, signal: Signal, now_s: float) -> Memory:
        """The memory after a failed probe: unchanged by default."""
        return memory

    def dump(self, memory: Memory) -> Any:
        """The memory as JSON values."""
        raise NotImplementedError

    def load(self, data: Any) -> Memory:
        """The inverse of `dump`. Raises ValueError for other data."""
        raise NotImplementedError


LAST_CHANCE = 0.999
"""The highest heat that does not trip: a maximum, or a factor for a share of the threshold."""
