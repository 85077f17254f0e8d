"""Work that may wait for a store, done beside the event loop and always to its end.

A thread cannot be cancelled: what it takes for a task that was cancelled meanwhile, a reservation or
a lock, would have no owner. So a task that is cancelled waits for its thread and gives back what came.
"""

from collections.abc import Callable
from typing import TypeVar

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
