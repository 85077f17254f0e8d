"""A lock that neither a fork nor a finalizer can turn into a deadlock, and threads for event loops."""

import os
from _thread import RLock  # the base of `threading`, which hooks do not import
from _weakref import ref
from collections.abc import Callable
from typing import TypeVar

# ruff: noqa: PLC0415  `asyncio` is imported only by programs with an event loop

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """Run `work` in a thread without blocking the event loop, and return its result.

    If the task is cancelled, it still waits for `work`. Then `undo` receives the result, or the
    exception that `work` raised becomes the cause of the `CancelledError`.
    """
    import asyncio
    from contextvars import copy_context

    # A future and not a task: the end of a loop cancels all tasks, and must not cancel this work.
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
"""A dictionary, because it takes half the memory of a set."""
_forget = _locks.pop
"""Looked up once: a bound method for each lock would take as much memory as its weak reference."""


class ForkSafeLock(RLock):  # type: ignore[misc]  # final in the stubs, not in CPython
    """A mutex for short sections that run no user code: `with lock: …`.

    Fork copies a held lock but not the thread that would release it, so a child frees the locks that
    other threads of its parent held. Sections replace the state that they protect with one assignment,
    so the child finds it consistent.

    Finalizers and signal handlers can run inside a section and enter the same code again. Code that
    can be re-entered checks `is_mine` first and postpones the work: sections are never nested.
    """

    __slots__ = ()

    is_mine = RLock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001  as Condition does
    """Whether the calling thread is inside the section."""

    def __init__(self) -> None:
        _locks[ref(self, _forget)] = None


def _free_locks() -> None:
    """In a forked child, free all locks except those that its only thread holds itself."""
    for lock_ref in _locks.copy():  # the copy is made in C, so no finalizer can interrupt it
        lock = lock_ref()
        if lock is not None and not lock.is_mine():
            lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001  as `threading` does


os.register_at_fork(after_in_child=_free_locks)
