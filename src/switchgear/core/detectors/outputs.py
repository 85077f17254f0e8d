"""How long the outputs of a loop are: what output decline and recovering output have in common."""

from typing import Any, NamedTuple, Self

from switchgear.core import record

BASELINE = 20
"""How many outputs make the baseline, at most."""
NEEDED = 3
"""How many outputs the baseline needs by default."""
DECLINED = 0.7
"""Under this share of the baseline the output has declined, by default."""


class Outputs(NamedTuple):
    """The lengths of a loop's outputs, in characters, oldest first."""

    latest: tuple[int, ...] = ()
    baseline: tuple[int, ...] = ()
    """Those of the latest that were not low: a decline must not become the standard."""
    low: int = 0
    """How many in a row were under the baseline."""

    def push(self, chars: int, *, share: float, needed: int) -> "Outputs":
        """One output more; low if it is under `share` of the baseline's median."""
        latest, baseline = (*self.latest, chars)[-BASELINE:], self.baseline
        # Rounded: 0.7 * 3 is 2.0999999999999996.
        if len(baseline) >= needed and chars < round(share * median(baseline), 9):
            return Outputs(latest, baseline, self.low + 1)
        return Outputs(latest, (*baseline, chars)[-BASELINE:], 0)

    def settled(self, more: int) -> "Outputs":
        """After so many more equal to the last `BASELINE`, which change nothing but the row."""
        return self._replace(low=self.low + more) if self.low else self

    def has_recovered_from(self, before: "Outputs") -> bool:
        """Whether the output is long again, after it was low."""
        return bool(before.low) and not self.low

    def dump(self) -> list[Any]:
        """The fields."""
        return [list(self.latest), list(self.baseline), self.low]

    @classmethod
    def load(cls, data: Any) -> Self:
        """The inverse of `dump`; raises ValueError on anything else."""
        latest, baseline, low = record.row("the outputs", data, 3)
        low = record.whole("low outputs in a row", low, least=0)
        loaded = cls(_lengths("the latest", latest), _lengths("the baseline", baseline), low)
        if max(len(loaded.latest), len(loaded.baseline)) > BASELINE:
            raise ValueError(f"at most {BASELINE} outputs are remembered")
        if bool(loaded.latest) is not bool(loaded.baseline):
            raise ValueError("outputs have a baseline as soon as there is one")
        if low and not loaded.latest:
            raise ValueError(f"no output cannot have been low {low} times")
        return loaded


def median(lengths: tuple[int, ...]) -> float:
    """The middle one, or the mean of the two in the middle."""
    ordered = sorted(lengths)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _lengths(field: str, data: Any) -> tuple[int, ...]:
    return tuple(record.whole("a length", chars, least=0) for chars in record.row(field, data))
