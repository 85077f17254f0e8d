"""The minimum cost in Python: no breaker that is a wrapper can be faster.

Also the guarded functions. They do nothing, so that only the guard is measured.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.library import Function

ONE_SLEEP_S = 0.05


class FloorRefusedError(Exception):
    """What the refusing floor raises."""


class UpstreamError(Exception):
    """What the failing functions raise."""


def succeed() -> None:
    """A call that costs nothing."""


async def succeed_async() -> None:
    """A call that costs nothing, awaited."""


def fail() -> None:
    raise UpstreamError("529 overloaded")


async def fail_async() -> None:
    raise UpstreamError("529 overloaded")


def sleep() -> None:
    """A call that waits outside the interpreter lock, as a network call does."""
    time.sleep(ONE_SLEEP_S)


def bare(function: Function) -> Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def bare_async(function: Function) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


def refusing() -> Function:
    def wrapper(*_args: Any, **_kwargs: Any) -> Any:
        raise FloorRefusedError("circuit 'bench' is open")

    return wrapper


def refusing_async() -> Function:
    async def wrapper(*_args: Any, **_kwargs: Any) -> Any:
        raise FloorRefusedError("circuit 'bench' is open")

    return wrapper
