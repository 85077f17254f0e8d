"""What is written once for blocking and for async callers: a generator of steps, and its two drivers.

A step is something that may block: `(function, coroutine function, *arguments)`. It is yielded, and its
result is sent in; its exception is raised where it was yielded.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

from switchgear._system.threads import run_in_thread

T = TypeVar("T")
Steps = Generator[tuple[Any, ...], Any, T]


def in_thread(
    work: Callable[[], T], undo: Callable[[T], object] | None = None
) -> tuple[Callable[[], T], Any]:
    """A step that async callers do in a thread; `undo` has its result if they are cancelled."""
    return work, partial(run_in_thread, work, undo)


def drive(steps: Steps[T]) -> T:
    """Do the steps, and return what the generator returns."""
    try:
        work, _, *arguments = next(steps)
        while True:
            try:
                result = work(*arguments)
            except BaseException as error:  # noqa: BLE001  the generator decides what it means
                work, _, *arguments = steps.throw(error)
            else:
                work, _, *arguments = steps.send(result)
    except StopIteration as done:
        value: T = done.value
        return value


async def adrive(steps: Steps[T]) -> T:
    """`drive` without blocking the event loop."""
    try:
        _, work, *arguments = next(steps)
        while True:
            try:
                result = await work(*arguments)
            except BaseException as error:  # noqa: BLE001
                _, work, *arguments = steps.throw(error)
            else:
                _, work, *arguments = steps.send(result)
    except StopIteration as done:
        value: T = done.value
        return value
