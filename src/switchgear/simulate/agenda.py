"""What is to happen when, soonest first: seconds in a heap, and what is in each of them in another.

One heap of all that a large fleet has before it is spread over more memory than a processor has at
hand, and each step through it waits for that memory. Of the seconds there are few, and in one
second there is little.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

Entry = tuple[float, int, Callable[..., None], tuple[Any, ...]]
"""When, the number in which order it was put there, what, and what it is given."""


class Agenda:
    """Entries come out by time, and in the order they came where the time is the same.

    Nothing may be put before what came out last.
    """

    __slots__ = ("_count", "_later", "_now", "_second", "_seconds")

    def __init__(self) -> None:
        self._count = 0
        self._now: list[Entry] = []
        """The entries of the second that is under way."""
        self._second = -1
        self._seconds: list[int] = []
        self._later: dict[int, list[Entry]] = {}

    def put(self, at_s: float, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
        """Something is to happen at that time."""
        self._count += 1
        entry = (at_s, self._count, work, given)
        second = int(at_s)
        if second == self._second:
            heappush(self._now, entry)
        elif second in self._later:
            self._later[second].append(entry)
        else:
            self._later[second] = [entry]
            heappush(self._seconds, second)

    def next(self) -> Entry | None:
        """What is to happen next, taken out; `None`: nothing any more."""
        if not self._now:
            if not self._seconds:
                return None
            self._second = heappop(self._seconds)
            self._now = self._later.pop(self._second)
            heapify(self._now)
        return heappop(self._now)
