"""Runs: how successes of a closed circuit are counted without a lock, and folded in later.

A closed circuit admits everyone, so asking it can wait; and successes of calls that were not
slow are all alike, so telling them can wait too. Each takes a ticket, which is one step of a C
iterator and therefore atomic; whoever finds no ticket left folds the whole run as one signal.
A failure folds the run before itself, so the order of evidence is exact. Draining an iterator
ends it for good: a call that comes back to a run that was taken away finds no ticket, reports
itself under the run's permit, and so is judged, or late, like any other. Nothing is counted
twice and nothing is lost.
"""

import math
from collections.abc import Iterator
from itertools import repeat

from switchgear.core.types import Permit

TICKETS = 64
FOLD_EVERY_S = 1.0
"""How old a run may become when its policy takes times: older, and its time would be wrong."""


class Run:
    """Successes under one permit. Tickets may be taken by any thread; the rest needs the owner."""

    __slots__ = ("due_s", "permit", "plain", "tickets")

    def __init__(self, permit: Permit) -> None:
        self.permit = permit
        self.tickets: Iterator[None] = repeat(None, TICKETS)
        self.due_s = math.inf
        self.plain: type | None = None
        """The type of the last result that was no coroutine or generator, to check it once."""

    def drain(self) -> int:
        """End the iterator and say how many tickets had been taken."""
        return TICKETS - sum(1 for _ in self.tickets)

    def refill(self, due_s: float) -> None:
        """Hand out tickets again."""
        self.tickets = repeat(None, TICKETS)
        self.due_s = due_s
