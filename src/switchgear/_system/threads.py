"""A lock that neither a fork nor a finalizer can turn into a deadlock; work in a thread beside an event loop."""

import os
from _thread import RLock, allocate_lock  # of which `threading` is made: a hook starts no thread
from collections.abc import Callable
from typing import Any, TypeVar

# ruff: noqa: PLC0415  no event loop, no import

T = TypeVar("T")


async def beside(work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """What `work` returns, from a thread. Cancelled: `undo` has what it returned, if it did."""
    import asyncio
    from contextvars import copy_context

    # No task of its own: the end of a loop cancels all tasks, and must not cancel this one.
    done = asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        while not done.done():
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:  # once more: it is being seen to
                continue
        if undo is not None and done.exception() is None:
            undo(done.result())
        raise


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
