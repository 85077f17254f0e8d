"""Runs: how successes of a closed circuit are counted without a lock, and folded in later.

A closed circuit admits everyone, so asking it can wait; and successes of calls that were not
slow are all alike, so telling them can wait too. Each takes a ticket, which is one step of a C
iterator and therefore atomic; whoever finds no ticket left folds the whole run as one signal.
Failures and readers fold the run before themselves, so the order of evidence is exact.

One success is not like the others: the one that fills a window of calls, with which a detector
begins to judge. So no more tickets are handed out than there are successes before that one. It
finds none, and is folded at once.

When the circuit leaves its generation, the run is ended by taking its remaining tickets away: a
call that comes back later finds none, reports itself under the run's permit, and is late like
any other. Nothing is counted twice and nothing is lost.
"""

from collections.abc import Iterator
from itertools import repeat
from operator import length_hint

from switchgear._core.types import Permit

TICKETS = 16384
"""At most at once: few enough to take away in 0.1 ms, many enough that folding them costs nothing."""
UNLIMITED = 2**62
FOLD_EVERY_S = 1.0
"""How old a run may become when its policy takes times: older, and its time would be wrong.

Never older than the shortest slow call, either: then a call that ends before the run is due,
as it was when the call began, cannot have been slow, and comparing with `due_s` is enough.
"""


class SuccessRun:
    """Successes under one permit. Any thread may take tickets; counting needs the owner's lock."""

    __slots__ = ("counted", "due_s", "issued", "owed", "permit", "plain", "tickets", "times")
    issued: int
    counted: int
    tickets: Iterator[None]

    def __init__(self, permit: Permit, due_s: float, most: int = UNLIMITED) -> None:
        self.permit = permit
        self._hand_out(most)
        self.owed = 0
        """What was counted and put off until the next count."""
        self.times: tuple[float, ...] = ()
        """When successes on a warm circuit happened, which take no tickets: see `submitter.py`."""
        self.due_s = due_s
        self.plain: type | None = None
        """The type of the last result that was no coroutine or generator, to check it once."""

    @property
    def is_pending(self) -> bool:
        """Whether there is anything to count."""
        taken = length_hint(self.tickets) + self.counted < self.issued
        return taken or self.owed > 0 or bool(self.times)

    @property
    def pending(self) -> int:
        """How many successes were counted and not yet folded; may lag behind other threads."""
        taken = self.issued - length_hint(self.tickets) - self.counted
        return taken + self.owed + len(self.times)

    def fits(self, most: int) -> bool:
        """Whether no more than `most` successes can be in it that nobody has told."""
        return self.issued - self.counted + self.owed + len(self.times) <= most

    def count(self, most: int = UNLIMITED) -> int:
        """How many tickets were taken since the last count; hands out new ones if all were.

        As many as are left of `most` after those that are counted here.
        """
        left = length_hint(self.tickets)
        taken = self.issued - left - self.counted
        owed, self.owed = self.owed, 0
        self.counted += taken
        if not left:
            self._hand_out(most - taken - owed)
        return taken + owed

    def put_off(self, more: int) -> None:
        """Count now and tell at the next count, with `more` that found no ticket."""
        self.owed = self.count() + more

    def end(self) -> int:
        """The last count. What comes back after it finds no ticket."""
        left = len(list(self.tickets))  # taken by C code, each exactly once: by us or by a call
        taken = self.issued - left - self.counted + self.owed + len(self.times)
        self.counted, self.owed, self.times = self.issued, 0, ()
        return taken

    def taken_times(self) -> tuple[float, ...]:
        """When successes happened on a warm circuit since the last count."""
        times, self.times = self.times, ()
        return times

    def take_over(self, ended: "SuccessRun", most: int) -> None:
        """Go on for a run that had too many tickets: owe what it has counted."""
        self.times = ended.taken_times()
        self.owed = ended.end()
        self._hand_out(most - self.owed)

    def _hand_out(self, most: int) -> None:
        issued = max(0, min(most, TICKETS))
        tickets = repeat(None, issued)
        # No call between these: neither a signal nor another thread comes in the middle of them.
        self.issued, self.tickets, self.counted = issued, tickets, 0
