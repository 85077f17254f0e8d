"""A lock that neither a fork nor a finalizer can turn into a deadlock; work in a thread beside an event loop."""

import os
from _thread import RLock  # of which `threading` is made: a hook starts no thread
from _weakref import ref
from collections.abc import Callable
from typing import TypeVar

# ruff: noqa: PLC0415  no event loop, no import

T = TypeVar("T")


async def beside(work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """What `work` returns, from a thread.

    If the task is cancelled, `undo` receives the result, and what `work` raised becomes the cause of the
    `CancelledError`.
    """
    import asyncio
    from contextvars import copy_context

    # No task of its own: the end of a loop cancels all tasks, and must not cancel this one.
    done = asyncio.get_running_loop().run_in_executor(None, copy_context().run, work)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError as cancelled:
        while not done.done():
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:  # again: it is being handled
                continue
        error = done.exception()
        if error is not None:
            raise cancelled from error
        if undo is not None:
            undo(done.result())
        raise


_locks: "dict[ref[ForkSafeLock], None]" = {}
"""Half the size of a set."""
_forget = _locks.pop
"""One for all: a method that is looked up for each lock takes as much memory as its reference."""


class ForkSafeLock(RLock):  # type: ignore[misc]  # final in the stubs, not in CPython
    """A mutex for short sections that run no user code: `with lock: …`.

    Fork copies a held lock but not the thread that would release it, so a child frees the locks that
    other threads of its parent held. What our locks protect is replaced by one assignment, so the
    child finds everything whole.

    The garbage collector and signal handlers run in the middle of anything, so in the middle of
    such a section too, and what they run may come back here. Code that could be re-entered checks
    `is_mine` first and leaves the work for later: sections are never nested.
    """

    __slots__ = ()

    is_mine = RLock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001  as Condition does
    """Whether this very thread is inside a section."""

    def __init__(self) -> None:
        _locks[ref(self, _forget)] = None


def _free_locks() -> None:
    """In a forked child, which has one thread: a section that this thread has entered continues."""
    for found in _locks.copy():  # a copy in C: no finalizer comes in the middle of it
        lock = found()
        if lock is not None and not lock.is_mine():
            lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001  as `threading` does


os.register_at_fork(after_in_child=_free_locks)
