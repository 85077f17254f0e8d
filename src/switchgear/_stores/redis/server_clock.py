"""The server's clock, read without asking it: clients whose own clocks differ agree on the time."""

import math
import time
from collections.abc import Callable

from switchgear._system.fork_lock import ForkSafeLock

STALE_S = 10.0
"""After how long a worse measurement replaces a better one: clocks drift."""
GUESSES_S = 3600.0
"""How old a guess may be that is told to the server."""


class ServerClock:
    """Seconds since the epoch on the server: our monotonic clock plus what every answer tells.

    Until the first answer it is this machine's wall clock. From then on it never runs backwards.
    Thread-safe.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._lock = ForkSafeLock()
        self._offset_s: float | None = None
        self._error_s = 0.0
        self._learnt_s = 0.0
        self._last_s = 0.0
        self._guessed_s = -math.inf

    @property
    def is_set(self) -> bool:
        """Whether the server has answered yet."""
        return self._offset_s is not None

    def is_guess(self, now_s: float) -> bool:
        """Whether this time is from our own clock, because the server has not answered yet."""
        return self._offset_s is None and self._guessed_s - GUESSES_S <= now_s <= self._guessed_s

    def corrected(self, guess_s: float) -> float:
        """What a guess would have been, had we known the server's clock by then."""
        return guess_s + self() - self._wall()

    def learn(self, server_s: float, asked_s: float, answered_s: float) -> None:
        """The server said it was `server_s` at some time between two readings of our clock."""
        error_s = (answered_s - asked_s) / 2
        offset_s = server_s - (asked_s + answered_s) / 2
        with self._lock.taken():
            known = self._offset_s
            if (
                known is None
                or error_s <= self._error_s
                or answered_s - self._learnt_s >= STALE_S
                or abs(offset_s - known) > error_s + self._error_s
            ):
                self._offset_s, self._error_s, self._learnt_s = offset_s, error_s, answered_s

    def __call__(self) -> float:
        """The time on the server."""
        with self._lock.taken():
            if self._offset_s is None:
                self._guessed_s = self._wall()
                return self._guessed_s
            self._last_s = max(self._last_s, self._monotonic() + self._offset_s)
            return self._last_s
