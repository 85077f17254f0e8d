"""`with breaker:` and `async with breaker:` guard a block, one per task and thread."""

import asyncio
import contextvars
import threading
from collections.abc import Iterator

import pytest

from stress.crew import in_time, together
from switchgear import CircuitBreaker, Rejected
from switchgear.errors import WrongContext
from switchgear.testing import FakeClock


def trip(breaker: CircuitBreaker) -> None:
    while breaker.state == "closed":
        with pytest.raises(ConnectionError), breaker:
            raise ConnectionError("down")


def test_a_block_gives_the_breaker_and_counts_as_one_call() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    with breaker as entered:
        assert entered is breaker
        assert breaker.totals.succeeded == 0
    assert breaker.totals.succeeded == 1


def test_five_failing_blocks_open_the_circuit_and_the_sixth_is_not_entered() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    trip(breaker)
    assert breaker.totals.failed == 5
    with pytest.raises(Rejected), breaker:
        pytest.fail("a refused block must not run")


def test_a_block_swallows_no_exception() -> None:
    breaker, error = CircuitBreaker("api", clock=FakeClock()), ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught, breaker:
        raise error
    assert caught.value is error


def test_blocks_of_one_breaker_nest() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    with breaker, breaker:
        with pytest.raises(ConnectionError), breaker:
            raise ConnectionError
        assert breaker.totals.failed == 1
    assert breaker.totals.succeeded == 2


def test_blocks_of_different_breakers_nest_in_any_order() -> None:
    first, second = CircuitBreaker("a", clock=FakeClock()), CircuitBreaker("b", clock=FakeClock())
    with first, second, first:
        pass
    assert first.totals.succeeded == 2
    assert second.totals.succeeded == 1
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert first.totals.succeeded == 3
    assert second.totals.succeeded == 2


def test_inside_a_probe_a_second_block_is_refused_and_the_probe_goes_on() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", clock=clock)
    trip(breaker)
    clock.advance(60.0)
    with breaker:
        with pytest.raises(Rejected), breaker:
            pytest.fail("a refused block must not run")
        assert breaker.state == "half_open"
    assert breaker.state == "closed"


def test_a_refused_block_leaves_the_blocks_around_it_in_order() -> None:
    clock = FakeClock()
    outer, inner = CircuitBreaker("outer", clock=clock), CircuitBreaker("inner", clock=clock)
    trip(inner)
    with outer, pytest.raises(Rejected), inner:
        pytest.fail("a refused block must not run")
    assert outer.totals.succeeded == 1
    assert inner.totals.succeeded == 0


def test_tasks_are_inside_at_the_same_time_each_with_its_own_outcome() -> None:
    breaker = CircuitBreaker("api", threshold=1000, clock=FakeClock())

    async def main() -> None:
        inside, everybody = 0, asyncio.Event()

        async def work(number: int) -> None:
            nonlocal inside
            async with breaker:
                inside += 1
                if inside == 16:
                    everybody.set()
                await everybody.wait()
                if number % 4 == 0:
                    raise ConnectionError

        async with asyncio.timeout(10):
            await asyncio.gather(*(work(n) for n in range(16)), return_exceptions=True)

    asyncio.run(main())
    assert breaker.totals.succeeded == 12
    assert breaker.totals.failed == 4


def test_threads_are_inside_at_the_same_time_each_with_its_own_outcome() -> None:
    breaker = CircuitBreaker("api", threshold=1000, clock=FakeClock())
    everybody = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            with breaker:
                everybody.wait(10)
                if number % 4 == 0:
                    raise ConnectionError
        except ConnectionError:
            pass

    together(*(lambda n=n: work(n) for n in range(8)))
    assert breaker.totals.succeeded == 6
    assert breaker.totals.failed == 2


def test_a_task_started_inside_a_block_has_blocks_of_its_own() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", clock=clock)

    async def child() -> None:
        async with breaker:
            await asyncio.sleep(0)

    async def main() -> None:
        async with breaker, asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(child())

    asyncio.run(main())
    assert breaker.totals.succeeded == 3


def test_a_cancelled_block_is_no_evidence_and_leaves_its_place() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", clock=clock)
    trip(breaker)
    clock.advance(60.0)

    async def main() -> None:
        entered = asyncio.Event()

        async def probe() -> None:
            async with breaker:
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(probe())
        await entered.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())
    assert breaker.state == "half_open"
    with breaker:
        pass
    assert breaker.state == "closed"


def test_leaving_a_block_in_another_thread_is_an_error_that_names_the_way_out() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    breaker.__enter__()
    with pytest.raises(WrongContext) as raised:
        in_time(lambda: breaker.__exit__(None, None, None))
    assert str(raised.value) == (
        "the block 'with' circuit 'api' was left in another thread or task than the one that "
        "entered it; guard the call with breaker.call or @breaker instead"
    )


def test_leaving_a_block_that_was_never_entered_is_an_error() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    with pytest.raises(WrongContext):
        breaker.__exit__(None, None, None)
    assert breaker.totals.succeeded == 0


def test_a_block_is_left_once_and_then_forgotten() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    with breaker:
        pass
    with pytest.raises(WrongContext):
        breaker.__exit__(None, None, None)
    assert breaker.totals.succeeded == 1


def test_a_probe_left_in_another_context_does_not_wedge_the_circuit() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", clock=clock)
    trip(breaker)
    clock.advance(60.0)
    breaker.__enter__()
    with pytest.raises(WrongContext):
        contextvars.Context().run(breaker.__exit__, None, None, None)
    with pytest.raises(Rejected):
        breaker.call(int)
    clock.advance(60.0)
    assert breaker.call(int) == 0
    assert breaker.state == "closed"


def test_leaving_in_another_context_does_not_hide_the_exception_of_the_block() -> None:
    breaker, error = CircuitBreaker("api", clock=FakeClock()), ConnectionError("mine")

    def block() -> Iterator[None]:
        with breaker:
            yield

    entered = block()
    contextvars.Context().run(next, entered)
    with pytest.raises((WrongContext, ConnectionError)) as raised:
        entered.throw(error)  # type: ignore[attr-defined]
    assert error in {raised.value, raised.value.__context__}
