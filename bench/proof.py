"""Verifies that each adapter guards, in the same run, before anything is measured.

A benchmark of breakers is worthless if one of them is configured so that it never trips: its number
would be that of an unguarded function. So each must first trip on real failures, and then refuse
with its own exception and without entering the function.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.floors import UpstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.library import Function, Guard, Library

# More failures than any of the settings used here should need.
PATIENCE = 100


class NotGuardingError(Exception):
    """A breaker that should guard does not, so its numbers would be wrong."""


class Proof(NamedTuple):
    """How many failures a library let through before it refused."""

    library: str
    way: str
    failures: int


class Upstream:
    """A function that can be made to fail, and that counts how often it was entered."""

    def __init__(self) -> None:
        self.healthy = True
        self.entered = 0

    def enter(self) -> str:
        self.entered += 1
        if not self.healthy:
            raise UpstreamError("529 overloaded")
        return "through"

    def function(self) -> Function:
        # A plain function: one peer refuses to decorate bound methods.
        def call() -> str:
            return self.enter()

        return call

    def coroutine_function(self) -> Function:
        async def call() -> str:
            return self.enter()

        return call


def tripped(library: Library, guard: Guard) -> Function:
    """A guarded function whose circuit is open by real failures."""
    upstream = Upstream()
    guarded = guard(upstream.function())
    trip(library, upstream, guarded)
    return guarded


def tripped_async(library: Library, guard: Guard) -> Function:
    """The same for coroutine functions; in a loop, because one peer needs it to trip."""
    upstream = Upstream()
    guarded = guard(upstream.coroutine_function())
    with asyncio.Runner() as runner:
        trip(library, upstream, lambda: runner.run(guarded()))
    return guarded


def prove(library: Library) -> Iterator[Proof]:
    """Trip every kind of guard the library offers; raise if one does not guard."""
    for way in ("in_a_row", "by_rate"):
        guard: Guard | None = getattr(library, way)
        if guard is not None:
            upstream = Upstream()
            failures = _prove(library, upstream, guard(upstream.function()))
            yield Proof(library.distribution, way, failures)
    if library.in_a_row_async is not None:
        upstream = Upstream()
        guarded = library.in_a_row_async(upstream.coroutine_function())
        with asyncio.Runner() as runner:
            failures = _prove(library, upstream, lambda: runner.run(guarded()))
        yield Proof(library.distribution, "in_a_row_async", failures)


def _prove(library: Library, upstream: Upstream, call: Callable[[], Any]) -> int:
    if call() != "through" or upstream.entered != 1:
        raise NotGuardingError(f"{library.distribution} lost the result of a healthy call")
    return trip(library, upstream, call)


def trip(library: Library, upstream: Upstream, call: Callable[[], Any]) -> int:
    """Fail until refused; the number of failures it took.

    Raises: NotGuardingError after `PATIENCE` failures.
    """
    upstream.healthy = False
    for failures in range(PATIENCE):
        entered_before = upstream.entered
        try:
            call()
        except Exception as error:
            # Some raise their refusal already for the failure that trips them: that call got in.
            if isinstance(error, library.refusal) and upstream.entered == entered_before:
                return failures
    raise NotGuardingError(f"{library.distribution} did not refuse after {PATIENCE} failures")
