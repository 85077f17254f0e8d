"""Counts of one process that are not in the store yet: `SuccessRun`, `SharedEvidence`.

Runs: how successes of a closed circuit are counted without a lock, and folded in later.

A closed circuit admits every call, so acquiring a permit can be deferred; and successes of calls that
were not slow are all equal, so recording them can be deferred, too. Each takes a ticket, which is one step of a C
iterator and therefore atomic; the caller that finds no ticket left folds the whole run as one signal.
Failures and readers fold the run before themselves, so the order of evidence is exact.

One success is not like the others: the one that fills a window of calls, with which a detector
begins to judge. So no more tickets are handed out than there are successes before that one. It
finds none, and is folded at once.

When the circuit leaves its generation, the run is ended by taking its remaining tickets away: a
call that comes back later finds none, reports itself under the run's permit, and is late like
any other. Nothing is counted twice and nothing is lost.
"""

import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from operator import call, length_hint
from typing import Any

from switchgear._core.evidence import FLOWING
from switchgear._core.types import Circuit, Mode, Permit

WARM_S = 1.0
"""Seconds that a circuit stays warm after a failure; in this time each success has its own time."""
MOST_TIMES = 512
"""Maximum number of successes of a warm circuit that wait to be submitted."""
MOST_DATES = 32
"""Maximum number of different times in one report."""


NO_MARK: Callable[[], float] = partial(float, "inf")
"""The mark of a store that was not read yet."""


class SharedEvidence:
    """The shared evidence of one breaker. Changed under the breaker's lock or by one assignment."""

    __slots__ = (
        "failed_s",
        "failure_mark",
        "generation",
        "isolated",
        "own",
        "process",
        "remarked_s",
        "settle_at_s",
        "since_s",
        "submitted_s",
        "warm_until_s",
    )

    def __init__(self, store: Any) -> None:
        self.process = store.process
        self.warm_until_s = -math.inf
        """Until when, on our own clock, the circuit is warm."""
        self.since_s = -math.inf
        """Up to when, on the circuit's clock, this process has reported everything."""
        self.submitted_s = -math.inf
        """When, on our own clock, it last reported."""
        self.settle_at_s = math.inf
        """When, on our own clock, evidence that waits for others is final at the latest."""
        self.failed_s = 0.0
        """The last failure elsewhere that was noticed."""
        self.failure_mark: Callable[[], float] = NO_MARK
        """When the circuit last failed in any process, as far as known without reading the store."""
        self.own: Circuit | None = None
        """The circuit computed from the calls of this process alone."""
        self.isolated = False
        """Whether this process refuses its own calls although the shared circuit is closed."""
        self.remarked_s: float | None = None
        """The next probe, on the circuit's clock, that was last recorded in the shared circuit."""
        self.generation = 0
        """The generation of the shared circuit in which it isolated itself: a reset begins another."""

    def is_isolated(self, circuit: Circuit) -> bool:
        """Whether this process refuses its own calls although that circuit is closed."""
        return (
            self.isolated
            and circuit.generation == self.generation
            and circuit.phase in FLOWING
            and circuit.mode is Mode.AUTO
        )


def this_process() -> str:
    """The name of this process in remarks, such as `process 17 on web-3`."""
    return f"process {os.getpid()} on {os.uname().nodename}"


def isolation_reason(reason: str) -> str:
    """Why a process refuses on a circuit that is closed for all others."""
    return f"this process: {reason}; the shared circuit is closed: other processes succeed"


def dates(times: tuple[float, ...]) -> tuple[tuple[float, int], ...]:
    """Pairs of a time and a count; neighbouring times are merged if there are too many."""
    if len(times) <= MOST_DATES:
        return tuple((at_s, 1) for at_s in times)
    size = -(-len(times) // MOST_DATES)
    parts = [times[start : start + size] for start in range(0, len(times), size)]
    return tuple((part[-1], len(part)) for part in parts)


TICKETS = 65536
"""Maximum number at once. With this many, folding costs almost nothing per call."""
_ALL = bytes(TICKETS)
"""What tickets are taken from: an iterator of bytes is as fast as any, and can be ended at once."""
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
    tickets: Iterator[int]

    def __init__(self, permit: Permit, due_s: float, most: int = UNLIMITED) -> None:
        self.permit = permit
        self._hand_out(most)
        self.owed = 0
        """Successes that are deferred until the next count."""
        self.times: tuple[float, ...] = ()
        """When successes on a warm circuit happened, which take no tickets: see `Submitter`."""
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
        """Whether it can have at most `most` unrecorded successes."""
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
        """Count now and record at the next count, with `more` that found no ticket."""
        self.owed = self.count() + more

    def end(self) -> int:
        """Count for the last time; calls that end later find no ticket."""
        tickets: Any = self.tickets
        # C code reads how many are left and takes them, with no bytecode and so no other thread in between.
        left, _ = map(call, (tickets.__length_hint__, partial(tickets.__setstate__, TICKETS)))
        taken: int = self.issued - left - self.counted + self.owed + len(self.times)
        self.counted, self.owed, self.times = self.issued, 0, ()
        return taken

    def taken_times(self) -> tuple[float, ...]:
        """When successes happened on a warm circuit since the last count."""
        times, self.times = self.times, ()
        return times

    def take_over(self, ended: "SuccessRun", most: int) -> None:
        """Replace a run that had too many tickets; its counted successes are carried over."""
        self.times = ended.taken_times()
        self.owed = ended.end()
        self._hand_out(most - self.owed)

    def _hand_out(self, most: int) -> None:
        issued = max(0, min(most, TICKETS))
        tickets: Any = iter(_ALL)
        tickets.__setstate__(TICKETS - issued)
        # No call between these lines, so that neither a signal nor another thread can interrupt
        # them.
        self.issued, self.tickets, self.counted = issued, tickets, 0
