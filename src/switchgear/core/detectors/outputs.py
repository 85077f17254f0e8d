"""How long the outputs of a loop are: what output decline and recovering output have in common."""

from typing import Any, NamedTuple, Self

from switchgear.core import record

BASELINE = 20
"""How many iterations make the baseline, at most: the last ones before the one that is judged."""
NEEDED = 3
"""How many iterations the baseline needs by default."""
DECLINED = 0.7
"""Under this share of the baseline the output has declined, by default."""


class Outputs(NamedTuple):
    """The latest lengths of a loop's output, and how many in a row were under the baseline."""

    lengths: tuple[int, ...] = ()
    """In characters, oldest first: the one judged last, and its baseline before it."""
    low: int = 0

    def push(self, chars: int, *, share: float, needed: int) -> "Outputs":
        """One iteration more; low if it is under `share` of the baseline's median."""
        baseline = self.lengths[-BASELINE:]
        is_low = len(baseline) >= needed and chars < limit(baseline, share)
        return Outputs((*baseline, chars), self.low + 1 if is_low else 0)

    def has_recovered_from(self, before: "Outputs") -> bool:
        """Whether the output grew out of being low; a baseline that sank to it is no recovery."""
        return bool(before.low) and not self.low and self.lengths[-1] > before.lengths[-1]

    def dump(self) -> list[Any]:
        """The lengths, and the row of low ones."""
        return [list(self.lengths), self.low]

    @classmethod
    def load(cls, data: Any) -> Self:
        """The inverse of `dump`; raises ValueError on anything else."""
        lengths, low = record.row("the outputs", data, 2)
        chars = tuple(
            record.whole("a length", length, least=0) for length in record.row("lengths", lengths)
        )
        if len(chars) > BASELINE + 1:
            raise ValueError(f"at most {BASELINE + 1} lengths are remembered, not {len(chars)}")
        low = record.whole("low outputs in a row", low, least=0)
        if low and not chars:
            raise ValueError(f"no output cannot have been low {low} times")
        return cls(chars, low)


def limit(baseline: tuple[int, ...], share: float) -> float:
    """The length under which an output is low; the baseline must not be empty."""
    # Rounded: 0.7 * 3 is 2.0999999999999996.
    return round(share * median(baseline), 9)


def median(lengths: tuple[int, ...]) -> float:
    """The middle one, or the mean of the two in the middle."""
    ordered = sorted(lengths)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
