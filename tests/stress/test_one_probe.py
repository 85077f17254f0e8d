"""One probe at a time, for every caller and every end of the probe, repeatedly.

The probe does not return before everybody else has been refused, so each round proves both: one
was admitted, and all others were turned away while it was inside. Nothing waits by sleeping.
"""

import asyncio
import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from stress.crew import PATIENCE_S, together
from switchgear import CircuitBreaker, Rejected, Signal
from switchgear.testing import FakeClock
from unit.shapes import (
    Shape,
    block,
    call,
    call_of_a_generator_function,
    decorated,
    decorated_coroutine,
    decorated_function_that_returns_a_coroutine,
    decorated_generator,
)

CROWD = 16
ROUNDS = 150
ENDINGS: list[BaseException | None] = [None, ConnectionError(), KeyboardInterrupt()]
SHAPES = [
    call,
    decorated,
    block,
    decorated_generator,
    decorated_coroutine,
    call_of_a_generator_function,
    decorated_function_that_returns_a_coroutine,
]


def ended(breaker: CircuitBreaker, ending: BaseException | None) -> None:
    """Check that the state follows from this end of a probe."""
    expected = {type(None): "closed", ConnectionError: "open", KeyboardInterrupt: "half_open"}
    assert breaker.state == expected[type(ending)]


def make_probing(breaker: CircuitBreaker, clock: FakeClock) -> None:
    """Bring the circuit into a state in which the next call is a probe."""
    if breaker.state == "closed":
        breaker.record(Signal(ok=False))
    clock.advance(300.0)
    assert breaker.state == "half_open"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_exactly_one_of_sixteen_threads_probes(shape: Shape) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    start, finish = threading.Barrier(CROWD), threading.Barrier(CROWD)
    turned_away = threading.Semaphore(0)
    admitted = list[int]()
    ending: BaseException | None = None

    def probe(round_number: int) -> None:
        admitted.append(round_number)
        for _ in range(CROWD - 1):
            assert turned_away.acquire(timeout=PATIENCE_S), "somebody else was let in"
        if ending is not None:
            raise ending

    def caller(number: int) -> None:
        nonlocal ending
        for round_number in range(ROUNDS):
            if number == 0:
                ending = ENDINGS[round_number % len(ENDINGS)]
                make_probing(breaker, clock)
            start.wait(PATIENCE_S)
            try:
                shape(breaker, partial(probe, round_number))
            except Rejected:
                turned_away.release()
            except (ConnectionError, KeyboardInterrupt):
                pass
            finish.wait(PATIENCE_S)
            if number == 0:
                ended(breaker, ending)

    together(*(lambda n=n: caller(n) for n in range(CROWD)))
    assert admitted == list(range(ROUNDS))
    assert breaker.totals.refused == ROUNDS * (CROWD - 1)


def acall(breaker: CircuitBreaker, function: Callable[[], Any]) -> Any:
    return breaker.acall(function)


def adecorated(breaker: CircuitBreaker, function: Callable[[], Any]) -> Any:
    return breaker(function)()


async def ablock(breaker: CircuitBreaker, function: Callable[[], Any]) -> Any:
    async with breaker:
        return await function()


async def astream(breaker: CircuitBreaker, function: Callable[[], Any]) -> None:
    @breaker
    async def items() -> Any:
        yield 1
        yield await function()

    async for _ in items():
        pass


async def called(breaker: CircuitBreaker, function: Callable[[], Any]) -> Any:
    return await breaker.call(function)


@pytest.mark.parametrize("shape", [acall, adecorated, ablock, astream, called])
def test_exactly_one_of_sixteen_tasks_probes(shape: Callable[..., Any]) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    admitted = list[int]()

    async def one_round(round_number: int, ending: BaseException | None) -> None:
        turned_away, everybody = itertools.count(1), asyncio.Event()

        async def probe() -> None:
            admitted.append(round_number)
            await everybody.wait()
            if isinstance(ending, KeyboardInterrupt):
                raise asyncio.CancelledError
            if ending is not None:
                raise ending

        async def caller() -> None:
            try:
                await shape(breaker, probe)
            except Rejected:
                if next(turned_away) == CROWD - 1:
                    everybody.set()

        make_probing(breaker, clock)
        callers = (caller() for _ in range(CROWD))
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*callers, return_exceptions=True)
        ended(breaker, ending)

    async def main() -> None:
        for round_number in range(ROUNDS):
            await one_round(round_number, ENDINGS[round_number % len(ENDINGS)])

    asyncio.run(main())
    assert admitted == list(range(ROUNDS))
    assert breaker.totals.refused == ROUNDS * (CROWD - 1)


def test_a_probe_cancelled_from_outside_returns_its_permit_each_time() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)

    async def main() -> None:
        make_probing(breaker, clock)
        for _ in range(ROUNDS):
            inside = asyncio.Event()

            async def hang(inside: asyncio.Event = inside) -> None:
                inside.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(breaker.acall(hang))
            await inside.wait()
            with pytest.raises(Rejected):
                await breaker.acall(hang)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert breaker.state == "half_open"

    asyncio.run(main())
    assert breaker.totals.ignored == ROUNDS
    assert breaker.call(int) == 0
    assert breaker.state == "closed"
