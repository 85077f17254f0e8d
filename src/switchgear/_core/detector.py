"""What every detector is: a value that folds signals into a small memory and judges it."""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from switchgear._core.types import Signal
from switchgear._core.values import Value

Memory = Any  # what a detector remembers: immutable, bounded, its own business


class Measure(NamedTuple):
    """What a detector compares, in numbers."""

    value: float
    threshold: float
    """It trips when the value reaches or exceeds this; the heat is exact."""
    unit: str
    """Such as `failures`, `share` (0 to 1), `s` or `micros` (millionths of a dollar)."""


class Detector(Value):
    """Base of the detectors.

    Laws, checked by tests for all detectors in the registry: it can trip from its own fields; it
    abstains on `None`; folding n equal signals equals folding one with count n; under equal signals
    its heat moves in one direction, except when it begins to judge; its memory is bounded;
    `load` restores what `dump` returns.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """The name in configuration, wire form and messages."""
    admit: float = 0.0
    """The share of calls still admitted after this detector trips: 0 cuts."""
    advice: ClassVar[str] = ""
    """Advice to an agent when it is hot; empty: none."""
    needs_successes: ClassVar[bool] = True
    """Whether a success that is reported late could change its judgement. If not, it trips a shared
    circuit without waiting for the reports of other processes."""
    slow_from_s: ClassVar[float | None] = None
    """The detector treats durations up to this one the same; `None`: it ignores durations."""

    @classmethod
    def kinds(cls) -> "Iterator[type[Detector]]":
        """Every subclass with a `kind`: the detectors that a policy can have."""
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
        """How hot it is at `now_s`: 0 calm, 1 trips."""
        raise NotImplementedError

    def reason(self, memory: Memory, now_s: float) -> str:
        """The evidence in words, with the threshold."""
        raise NotImplementedError

    def measure(self, memory: Memory, now_s: float) -> Measure | None:
        """The evidence in numbers; `None`: it has none that can be compared."""
        del memory, now_s
        return None

    def judges_after(self, memory: Memory, signal: Signal, now_s: float) -> int:
        """After how many more such signals it begins to judge, and may be hot at once.

        0: it judges already, abstains, or has no evidence.
        """
        del memory, signal, now_s
        return 0

    def objection(self, signal: Signal) -> str | None:
        """Why a probe with these facts has failed although it reports success, if it has."""
        del signal
        return None

    def recovered(self, memory: Memory) -> Memory:
        """The memory after a recovery: empty, unless something outlasts a trip."""
        del memory
        return self.start()

    def probed(self, memory: Memory, signal: Signal, now_s: float) -> Memory:
        """The memory after a probe that failed: the same, unless every failure is to be kept."""
        del signal, now_s
        return memory

    def dump(self, memory: Memory) -> Any:
        """The memory as JSON values."""
        raise NotImplementedError

    def load(self, data: Any) -> Memory:
        """The inverse of `dump`. Raises ValueError on what it never dumped."""
        raise NotImplementedError


LAST_CHANCE = 0.999
"""As hot as it gets without tripping: the next step decides."""
