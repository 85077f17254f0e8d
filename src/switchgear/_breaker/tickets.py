"""Counts of one process that are not in the store yet: `SuccessRun`, `SharedEvidence`.

A run counts the successes of a closed circuit without a lock; they are folded in later.

A closed circuit admits every call, so acquiring a permit can be deferred. Successes of calls that were
not slow are all equal, so recording them can be deferred, too. Each success takes a ticket, which is one
step of a C iterator and therefore atomic; the caller that finds no ticket left folds the whole run as
one signal. Failures and readers fold the run first, so the order of evidence is exact.

One success differs from the others: the one that fills a window of calls, with which a detector begins
to evaluate. Therefore a run issues only as many tickets as there are successes before that one, which
finds no ticket and is folded at once.

When the circuit leaves its generation, the run is ended by taking its remaining tickets: a call that
returns later finds none, is recorded under the run's permit, and is stale like any other late result.
Nothing is counted twice and nothing is lost.
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
"""The failure mark before a breaker has asked its store for one."""


class SharedEvidence:
    """Evidence of one breaker on a shared circuit. Changed under the breaker's lock or by one assignment."""

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
        """Until when, on the breaker's clock, the circuit is warm."""
        self.since_s = -math.inf
        """Up to when, on the circuit's clock, this process has reported everything."""
        self.submitted_s = -math.inf
        """When, on the breaker's clock, this process last reported."""
        self.settle_at_s = math.inf
        """When, on the breaker's clock, evidence that waits for other processes is final at the latest."""
        self.failed_s = 0.0
        """The time of the last failure in another process that this process has noticed."""
        self.failure_mark: Callable[[], float] = NO_MARK
        """When the circuit last failed in any process, as far as known without reading the store."""
        self.own: Circuit | None = None
        """The circuit computed from the calls of this process alone."""
        self.isolated = False
        """Whether this process refuses its own calls although the shared circuit is closed."""
        self.remarked_s: float | None = None
        """The next probe, on the circuit's clock, that was last recorded in the shared circuit."""
        self.generation = 0
        """The generation of the shared circuit in which this process was isolated: a reset begins another."""

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
    """Why an isolated process refuses its calls, in words."""
    return f"this process: {reason}; the shared circuit is closed: other processes succeed"


def dates(times: tuple[float, ...]) -> tuple[tuple[float, int], ...]:
    """Pairs of a time and a count; neighbouring times are merged if there are too many."""
    if len(times) <= MOST_DATES:
        return tuple((at_s, 1) for at_s in times)
    size = -(-len(times) // MOST_DATES)
    parts = [times[start : start + size] for start in range(0, len(times), size)]
    return tuple((part[-1], len(part)) for part in parts)


TICKETS = 65536
"""Maximum number of tickets that are issued at once; with this many, folding costs almost nothing per call."""
_ALL = bytes(TICKETS)
"""Tickets are the items of an iterator of bytes: none is faster, and it can be ended in one step."""
UNLIMITED = 2**62
FOLD_EVERY_S = 1.0
"""Maximum age of a run in seconds if its policy uses durations: the times of older successes would be wrong.

A run is also due after the duration of the shortest slow call. Then a call that ends before the
`due_s` of its start cannot have been slow, so comparing with `due_s` is enough.
"""


class SuccessRun:
    """Successes under one permit. Any thread may take tickets; counting needs the lock of the breaker."""

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
        """The times of successes on a warm circuit, which take no tickets: see `Submitter`."""
        self.due_s = due_s
        self.plain: type | None = None
        """The type of the last result that was neither a coroutine nor a generator, to check it only once."""

    @property
    def is_pending(self) -> bool:
        """Whether there is anything to count."""
        taken = length_hint(self.tickets) + self.counted < self.issued
        return taken or self.owed > 0 or bool(self.times)

    @property
    def pending(self) -> int:
        """Number of successes that are counted and not yet folded; may lag behind other threads."""
        taken = self.issued - length_hint(self.tickets) - self.counted
        return taken + self.owed + len(self.times)

    def fits(self, most: int) -> bool:
        """Whether the run can have at most `most` unrecorded successes."""
        return self.issued - self.counted + self.owed + len(self.times) <= most

    def count(self, most: int = UNLIMITED) -> int:
        """Number of tickets taken since the last count; if none are left, new ones are issued.

        `most` limits the sum of the counted successes and the new tickets.
        """
        left = length_hint(self.tickets)
        taken = self.issued - left - self.counted
        owed, self.owed = self.owed, 0
        self.counted += taken
        if not left:
            self._hand_out(most - taken - owed)
        return taken + owed

    def put_off(self, more: int) -> None:
        """Defer the successes so far, and `more` that found no ticket, until the next count."""
        self.owed = self.count() + more

    def end(self) -> int:
        """Count for the last time; calls that end later find no ticket."""
        tickets: Any = self.tickets
        # C code reads how many are left and takes them: no bytecode, and so no other thread, runs in between.
        left, _ = map(call, (tickets.__length_hint__, partial(tickets.__setstate__, TICKETS)))
        taken: int = self.issued - left - self.counted + self.owed + len(self.times)
        self.counted, self.owed, self.times = self.issued, 0, ()
        return taken

    def taken_times(self) -> tuple[float, ...]:
        """Remove and return the times of successes on a warm circuit since the last count."""
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
        # One assignment without a call, so that neither a signal nor another thread can interrupt it.
        self.issued, self.tickets, self.counted = issued, tickets, 0
