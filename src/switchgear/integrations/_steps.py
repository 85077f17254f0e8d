"""Code for blocking and async callers at once: a generator of steps, and two functions that run it.

A step is an operation that may block: `(function, coroutine function, *arguments)`. The generator yields
it and gets its result, or its exception, back from the `yield`.
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
    """A step that async callers run in a thread; if they are cancelled, `undo` gets its result."""
    return work, partial(run_in_thread, work, undo)


def drive(steps: Steps[T]) -> T:
    """Run the steps, and return the result of the generator."""
    try:
        work, _, *arguments = next(steps)
        while True:
            try:
                result = work(*arguments)
            except BaseException as error:  # noqa: BLE001  the generator handles it
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
