"""One exception that passes several guards of the same breaker counts once."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest

from depth import for_each
from switchgear import CircuitBreaker, Panel, Signal
from switchgear._breaker import nesting
from switchgear.testing import FakeClock
from unit.shapes import ALL, Shape

every_outer = pytest.mark.parametrize("outer", ALL, ids=lambda shape: shape.__name__)
every_inner = for_each("inner", ALL)


def down() -> None:
    raise ConnectionError("down")


def new_breaker() -> CircuitBreaker:
    return CircuitBreaker("api", threshold=9999, clock=FakeClock())


@every_inner
@every_outer
def test_an_exception_counts_once_in_any_combination_of_guards(outer: Shape, inner: Shape) -> None:
    breaker = new_breaker()
    for calls in range(1, 4):
        with pytest.raises(ConnectionError):
            outer(breaker, lambda: inner(breaker, down))
        assert breaker.totals.failed == calls


@every_outer
def test_one_exception_object_that_is_raised_again_counts_in_every_call(outer: Shape) -> None:
    breaker, error = new_breaker(), ConnectionError("one object")

    def fails() -> None:
        raise error

    for calls in range(1, 6):
        with suppress(ConnectionError):
            outer(breaker, fails)
        assert breaker.totals.failed == calls


def test_a_block_in_a_loop_counts_one_exception_object_every_time() -> None:
    breaker, error = new_breaker(), ConnectionError("one object")
    for _ in range(5):
        with suppress(ConnectionError), breaker:
            raise error
    assert breaker.totals.failed == 5


def test_a_mock_that_raises_one_exception_object_counts_every_time() -> None:
    breaker, client = new_breaker(), Mock(side_effect=ConnectionError("one object"))
    guarded = breaker(client)
    for _ in range(5):
        with suppress(ConnectionError):
            guarded()
    assert breaker.totals.failed == 5


def test_three_guards_are_one_failure() -> None:
    breaker = new_breaker()
    with pytest.raises(ConnectionError), breaker:
        breaker.call(breaker.call, breaker(down))
    assert breaker.totals.failed == 1


def test_two_blocks_in_one_function_are_one_failure() -> None:
    breaker = new_breaker()
    with pytest.raises(ConnectionError), breaker, breaker:
        down()
    assert breaker.totals.failed == 1


def test_a_function_with_a_block_in_it_is_one_failure() -> None:
    breaker = new_breaker()

    @breaker
    def guarded() -> None:
        with breaker:
            down()

    for calls in range(1, 4):
        with pytest.raises(ConnectionError):
            guarded()
        assert breaker.totals.failed == calls


def test_an_exception_that_is_re_raised_on_its_way_is_one_failure() -> None:
    breaker = new_breaker()

    def middle() -> None:
        try:
            breaker.call(down)
        except ConnectionError as error:
            raise error

    with pytest.raises(ConnectionError):
        breaker.call(middle)
    assert breaker.totals.failed == 1


def test_another_exception_raised_from_it_counts_too() -> None:
    breaker = new_breaker()

    def middle() -> None:
        try:
            breaker.call(down)
        except ConnectionError as error:
            raise RuntimeError("wrapped") from error

    with pytest.raises(RuntimeError):
        breaker.call(middle)
    assert breaker.totals.failed == 2


def test_an_error_that_is_handled_and_occurs_again_counts_each_time() -> None:
    breaker = new_breaker()

    def tries_twice() -> None:
        for _ in range(2):
            with suppress(ConnectionError):
                breaker.call(down)
        down()

    with pytest.raises(ConnectionError):
        breaker.call(tries_twice)
    assert breaker.totals.failed == 3


def test_a_retry_that_raises_the_last_result_is_one_failure_an_attempt() -> None:
    breaker = new_breaker()

    def retrying() -> None:
        for _ in range(3):
            attempt: Future[None] = Future()
            try:
                breaker.call(down)
            except ConnectionError as error:
                attempt.set_exception(error)
        attempt.result()

    with pytest.raises(ConnectionError):
        breaker.call(retrying)
    assert breaker.totals.failed == 3


def test_two_breakers_count_each() -> None:
    outer, inner = new_breaker(), new_breaker()
    for _ in range(20):
        with suppress(ConnectionError), outer:
            inner.call(down)
        with suppress(ConnectionError):
            outer.call(inner.call, down)
    assert (outer.totals.failed, inner.totals.failed) == (40, 40)


async def adown() -> None:
    await asyncio.sleep(0)
    raise ConnectionError("down")


async def in_a_task(guarded: Callable[[], Any]) -> None:
    await asyncio.create_task(guarded())


async def in_a_group_of_tasks(guarded: Callable[[], Any]) -> None:
    await asyncio.gather(guarded())


async def awaited(guarded: Callable[[], Any]) -> None:
    await guarded()


@pytest.mark.parametrize("middle", [awaited, in_a_task, in_a_group_of_tasks])
def test_an_exception_counts_once_across_tasks(middle: Callable[..., Any]) -> None:
    breaker = new_breaker()

    async def main() -> None:
        for calls in range(1, 4):
            with pytest.raises(ConnectionError):
                await breaker.acall(middle, lambda: breaker.acall(adown))
            assert breaker.totals.failed == calls

    asyncio.run(main())


def test_one_object_raised_again_in_coroutines_counts_at_every_call() -> None:
    breaker, error = new_breaker(), ConnectionError("one object")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise error

    async def main() -> None:
        for _ in range(4):
            with suppress(ConnectionError):
                await breaker.acall(fails)

    asyncio.run(main())
    assert breaker.totals.failed == 4


def test_an_exception_counts_once_across_threads() -> None:
    breaker = new_breaker()

    async def offloaded() -> None:
        await asyncio.to_thread(breaker.call, down)

    with ThreadPoolExecutor(1) as pool:

        def middle() -> None:
            pool.submit(breaker.call, down).result()

        for calls in range(1, 4):
            with pytest.raises(ConnectionError):
                breaker.call(middle)
            assert breaker.totals.failed == calls
    with pytest.raises(ConnectionError):
        asyncio.run(breaker.acall(offloaded))
    assert breaker.totals.failed == 4


def test_an_exception_inside_a_probe_counts_once_for_the_probe() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    breaker.record(Signal(ok=False))
    clock.advance(60.0)
    with pytest.raises(ConnectionError):
        breaker.call(breaker.call, down)
    assert (breaker.state, breaker.totals.failed) == ("open", 2)


def test_an_exception_counts_once_for_permits_of_a_panel() -> None:
    with Panel("memory:") as panel:
        breaker = panel.breaker("api")
        error = ConnectionError("one object")
        for calls in range(1, 4):
            with pytest.raises(ConnectionError), panel.ask_all(["api"]):
                breaker.call(down)
            assert breaker.totals.failed == calls
        with pytest.raises(ConnectionError), panel.ask_all(["api"]):
            raise error
        with pytest.raises(ConnectionError), panel.ask_all(["api"]):
            raise error
        assert breaker.totals.failed == 5


def test_the_memory_of_blocks_is_bounded() -> None:
    breaker = new_breaker()
    for _ in range(1000):
        with suppress(ConnectionError), breaker:
            down()
    assert len(nesting._exited_blocks) <= 256


def test_a_success_by_exception_counts_once_too() -> None:
    breaker = CircuitBreaker("api", success_if=LookupError, clock=FakeClock())

    def missing() -> None:
        raise LookupError("404")

    with pytest.raises(LookupError):
        breaker.call(breaker.call, missing)
    assert breaker.totals.succeeded == 1
