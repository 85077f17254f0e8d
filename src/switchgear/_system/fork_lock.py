"""A lock that neither a fork nor a finalizer can turn into a deadlock."""

import os
from _thread import RLock, allocate_lock  # of which `threading` is made: a hook starts no thread
from typing import Any

_forks = 0
_renewing = allocate_lock()


def _forked() -> None:
    global _forks, _renewing  # noqa: PLW0603  a process has one number of forks
    _forks += 1
    _renewing = allocate_lock()


os.register_at_fork(after_in_child=_forked)


class ForkSafeLock:
    """A mutex for short sections that run no user code: `with lock.taken(): …`.

    Fork copies a held lock but not the thread that would release it. What our locks protect is
    replaced by one assignment, so the child may take a fresh lock and find everything whole.

    The garbage collector and signal handlers run in the middle of anything, so in the middle of
    such a section too, and what they run may come back here. Whoever could be that one asks
    `is_mine` first and leaves the work for later: sections are never nested.
    """

    __slots__ = ("_forks", "_mutex")

    def __init__(self) -> None:
        self._mutex: Any = RLock()
        self._forks = _forks

    def taken(self) -> Any:
        """The mutex itself: entering it is one step of C code, which no signal can divide."""
        if self._forks != _forks:
            self._renew()
        return self._mutex

    def is_mine(self) -> bool:
        """Whether this very thread is inside a section."""
        return self._forks == _forks and bool(self._mutex._is_owned())  # noqa: SLF001  Condition uses it

    def _renew(self) -> None:
        with _renewing:
            if self._forks != _forks:
                # In this order: who sees the new number must find the new mutex.
                self._mutex = RLock()
                self._forks = _forks
