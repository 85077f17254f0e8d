"""What a run may spend, in whole micro-dollars; the next iteration must fit into what is left."""

from typing import NamedTuple

RECENT = 3
"""How many iterations the estimate of the next one looks back."""


class Budget(NamedTuple):
    """What was spent, and on what the estimate rests. Immutable."""

    limit_micros: int | None = None
    """`None`: spend what it takes."""
    spent_micros: int = 0
    recent_micros: tuple[int, ...] = ()
    unknown: int = 0
    """Iterations whose price is not known."""

    def after(self, cost_micros: int | None) -> "Budget":
        """The budget after an iteration."""
        if cost_micros is None:
            return self._replace(unknown=self.unknown + 1)
        return self._replace(
            spent_micros=self.spent_micros + cost_micros,
            recent_micros=(*self.recent_micros, cost_micros)[-RECENT:],
        )

    @property
    def left_micros(self) -> int | None:
        """What is left; `None`: no limit."""
        return None if self.limit_micros is None else self.limit_micros - self.spent_micros

    @property
    def estimate_micros(self) -> int:
        """What the next iteration may cost: as much as the dearest of the last few."""
        return max(self.recent_micros, default=0)

    @property
    def objection(self) -> str | None:
        """Why the next iteration must not begin; `None`: it may."""
        left = self.left_micros
        if left is None:
            return None
        if left <= 0:
            return f"{dollars(self.spent_micros)} of {dollars(self.limit_micros or 0)} are spent"
        if self.estimate_micros > left:
            return (
                f"the next iteration may cost {dollars(self.estimate_micros)}, as a recent one did,"
                f" and {dollars(left)} of {dollars(self.limit_micros or 0)} are left"
            )
        return None


def dollars(micros: int) -> str:
    """`$1.25`, `$0.004`: as few digits as tell it exactly, at least two.

    >>> dollars(1_250_000), dollars(4_000), dollars(-1)
    ('$1.25', '$0.004', '-$0.000001')
    """
    sign = "-" if micros < 0 else ""
    whole, part = divmod(abs(micros), 1_000_000)
    digits = f"{part:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}${whole}.{digits}"
