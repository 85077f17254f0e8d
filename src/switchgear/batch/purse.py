"""The money of a batch: what a task may spend is set aside before it begins. Pure.

What is spent and what is set aside are never more than the budget, however many tasks run.
"""

from typing import NamedTuple


class Purse(NamedTuple):
    """What the batch may spend, in whole micro-dollars. Immutable."""

    limit_micros: int | None = None
    """`None`: what it takes."""
    spent_micros: int = 0
    reserved_micros: int = 0
    """Set aside for the tasks that run."""

    @property
    def left_micros(self) -> int | None:
        """What can still be set aside; `None`: no limit."""
        if self.limit_micros is None:
            return None
        return max(0, self.limit_micros - self.spent_micros - self.reserved_micros)

    def grant(self, wanted_micros: int | None, sharers: int) -> int | None:
        """How much a task gets; 0: nothing now, `None`: no limit.

        `wanted_micros` is its own limit, `sharers` are the tasks that could begin now: one without
        a limit of its own gets its share. One that wants more than is left waits for what others
        may give back, and gets the rest when there is nobody left to wait for.

        >>> Purse(9).grant(None, 3), Purse(9, 2, 3).grant(8, 1), Purse(9, 2).grant(8, 1)
        (3, 0, 7)
        """
        left = self.left_micros
        if left is None:
            return wanted_micros
        if wanted_micros is None:
            return -(-left // max(1, sharers))
        if wanted_micros > left and self.reserved_micros:
            return 0
        return min(wanted_micros, left)
