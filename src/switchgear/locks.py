"""A lock that a forked child can use even if another thread of the parent held it."""

import os
import threading

_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603  a process has one number of forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class ForkSafeLock:
    """A mutex for short sections that run no user code. Not re-entrant.

    Fork copies a held lock but not the thread that would release it. What our locks protect is
    replaced by one assignment, so the child may take a fresh lock and find everything whole.
    """

    __slots__ = ("_forks", "_lock")

    def __init__(self) -> None:
        self._forks = _forks
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if self._forks != _forks:
            self._forks, self._lock = _forks, threading.Lock()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
