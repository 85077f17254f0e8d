"""What is to happen when, soonest first: seconds in a heap, and what is in each of them in a list.

One heap of all that a large fleet has before it is spread over more memory than a processor has at
hand, and each step through it waits for that memory. Of the seconds there are few, and in one
second there is little. For the same reason an entry is one tuple and nothing else.
"""

from bisect import insort_right
from collections.abc import Callable
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

Entry = tuple[Any, ...]
"""When, what, and what it is given."""
_time = itemgetter(0)


class Agenda:
    """Entries come out by time, and in the order they came where the time is the same.

    Nothing may be put before what came out last.
    """

    __slots__ = ("_later", "_now", "_place", "_second", "_seconds")

    def __init__(self) -> None:
        self._now: list[Entry] = []
        """The entries of the second that is under way, in order."""
        self._place = 0
        """How many of them have come out."""
        self._second = -1
        self._seconds: list[int] = []
        self._later: dict[int, list[Entry]] = {}
        """The entries of later seconds, as they came."""

    def put(self, at_s: float, work: Callable[..., Any], *given: Any) -> None:
        """Something is to happen at that time."""
        entry = (at_s, work, *given)
        second = int(at_s)
        if second == self._second:
            insort_right(self._now, entry, self._place, key=_time)
        elif second in self._later:
            self._later[second].append(entry)
        else:
            self._later[second] = [entry]
            heappush(self._seconds, second)

    def next(self) -> Entry | None:
        """What is to happen next, taken out; `None`: nothing any more."""
        if self._place == len(self._now):
            if not self._seconds:
                return None
            self._second = heappop(self._seconds)
            self._now = sorted(self._later.pop(self._second), key=_time)
            self._place = 0
        self._place += 1
        return self._now[self._place - 1]
