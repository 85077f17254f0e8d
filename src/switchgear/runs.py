"""Runs: how successes of a closed circuit are counted without a lock, and folded in later.

A closed circuit admits everyone, so asking it can wait; and successes of calls that were not
slow are all alike, so telling them can wait too. Each takes a ticket, which is one step of a C
iterator and therefore atomic; whoever finds no ticket left folds the whole run as one signal.
Failures and readers fold the run before themselves, so the order of evidence is exact.

When the circuit leaves its generation, the run is ended by taking its remaining tickets away: a
call that comes back later finds none, reports itself under the run's permit, and is late like
any other. Nothing is counted twice and nothing is lost.
"""

from collections.abc import Iterator
from itertools import repeat
from operator import length_hint

from switchgear.core.types import Permit

TICKETS = 4096
FOLD_EVERY_S = 1.0
"""How old a run may become when its policy takes times: older, and its time would be wrong.

Never older than the shortest slow call, either: then a call that ends before the run is due,
as it was when the call began, cannot have been slow, and comparing with `due_s` is enough.
"""


class Run:
    """Successes under one permit. Any thread may take tickets; counting needs the owner's lock."""

    __slots__ = ("counted", "due_s", "owed", "permit", "plain", "tickets")

    def __init__(self, permit: Permit, due_s: float) -> None:
        self.permit = permit
        self.tickets: Iterator[None] = repeat(None, TICKETS)
        self.counted = 0
        self.owed = 0
        """What was counted and put off until the next count."""
        self.due_s = due_s
        self.plain: type | None = None
        """The type of the last result that was no coroutine or generator, to check it once."""

    @property
    def is_pending(self) -> bool:
        """Whether there is anything to count."""
        return length_hint(self.tickets) + self.counted < TICKETS or self.owed > 0

    def count(self) -> int:
        """How many tickets were taken since the last count; hands out new ones if all were."""
        left = length_hint(self.tickets)
        taken = TICKETS - left - self.counted
        owed, self.owed = self.owed, 0
        self.counted += taken
        if not left:
            self.tickets, self.counted = repeat(None, TICKETS), 0
        return taken + owed

    def put_off(self, more: int) -> None:
        """Count now and tell at the next count, with `more` that found no ticket."""
        self.owed = self.count() + more

    def end(self) -> int:
        """The last count. What comes back after it finds no ticket."""
        left = len(list(self.tickets))  # taken by C code, each exactly once: by us or by a call
        taken = TICKETS - left - self.counted + self.owed
        self.counted, self.owed = TICKETS, 0
        return taken
