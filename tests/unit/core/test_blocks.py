"""`with breaker:` and `async with breaker:` guard a block, one per task and thread."""

import asyncio
import contextvars
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack
from typing import Any

import pytest

from stress.crew import in_time, together
from switchgear import CircuitBreaker, Rejected
from switchgear._core.errors import WrongContext
from switchgear.testing import FakeClock
from timeouts import LIMIT_S


def trip(breaker: CircuitBreaker) -> None:
    while breaker.state == "closed":
        with pytest.raises(ConnectionError), breaker:
            raise ConnectionError("down")


def test_a_block_returns_the_breaker_and_counts_as_one_call() -> None:
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


def test_beside_a_probe_a_second_block_is_refused_and_the_probe_continues() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", clock=clock)
    trip(breaker)
    clock.advance(60.0)
    with breaker:
        with pytest.raises(Rejected):
            in_time(breaker.__enter__)
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


def test_tasks_run_in_blocks_at_the_same_time_each_with_its_own_outcome() -> None:
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


def test_threads_run_in_blocks_at_the_same_time_each_with_its_own_outcome() -> None:
    breaker = CircuitBreaker("api", threshold=1000, clock=FakeClock())
    everybody = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            with breaker:
                everybody.wait(LIMIT_S)
                if number % 4 == 0:
                    raise ConnectionError
        except ConnectionError:
            pass

    together(*(lambda n=n: work(n) for n in range(8)))
    assert breaker.totals.succeeded == 6
    assert breaker.totals.failed == 2


def test_a_task_started_inside_a_block_has_its_own_blocks() -> None:
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


def test_a_cancelled_block_is_not_evidence_and_frees_the_probe() -> None:
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


def test_leaving_a_block_in_another_thread_is_an_error_that_names_the_solution() -> None:
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


def test_a_probe_left_in_another_context_does_not_block_the_circuit() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", clock=clock)
    trip(breaker)
    clock.advance(60.0)
    breaker.__enter__()
    with pytest.raises(WrongContext):
        contextvars.Context().run(lambda: breaker.__exit__(None, None, None))
    with pytest.raises(Rejected):
        in_time(lambda: breaker.call(int))
    clock.advance(60.0)
    assert breaker.call(int) == 0
    assert breaker.state == "closed"


def test_leaving_by_hand_in_another_context_does_not_hide_the_exception_of_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    breaker, error = CircuitBreaker("api", clock=FakeClock()), ConnectionError("mine")
    breaker.__enter__()
    in_time(lambda: breaker.__exit__(ConnectionError, error, None))
    in_time(lambda: asyncio.run(breaker.__aexit__(ConnectionError, error, None)))
    assert [record.message for record in caplog.records] == [str(WrongContext("api"))] * 2


def held(breaker: CircuitBreaker) -> Generator[None]:
    with breaker:
        yield


async def aheld(breaker: CircuitBreaker) -> AsyncGenerator[None]:
    async with breaker:
        yield


def test_leaving_in_another_context_does_not_hide_the_exception_of_the_block() -> None:
    breaker, error = CircuitBreaker("api", clock=FakeClock()), ConnectionError("mine")
    block = held(breaker)
    contextvars.Context().run(next, block)
    with pytest.raises(ConnectionError) as raised:
        block.throw(error)
    assert raised.value is error
    assert raised.value.__context__ is None
    assert breaker.totals.failed == 1


def test_an_async_block_left_by_another_task_records_its_outcome() -> None:
    breaker, error = CircuitBreaker("api", clock=FakeClock()), ConnectionError("mine")

    async def main() -> None:
        good, bad = aheld(breaker), aheld(breaker)
        for block in (good, bad):
            await asyncio.ensure_future(anext(block))
        with pytest.raises(StopAsyncIteration):
            await asyncio.ensure_future(anext(good))
        with pytest.raises(ConnectionError):
            await asyncio.ensure_future(bad.athrow(error))

    asyncio.run(main())
    assert (breaker.totals.succeeded, breaker.totals.failed) == (1, 1)


def test_blocks_that_are_left_elsewhere_are_not_kept_for_ever() -> None:
    class Canary(CircuitBreaker):
        __slots__ = ()

    alive = list[weakref.ref[Canary]]()
    for _ in range(3):
        breaker = Canary("api", clock=FakeClock())
        alive.append(weakref.ref(breaker))
        block = held(breaker)
        next(block)
        in_time(block.close)
        del block, breaker
    with CircuitBreaker("other", clock=FakeClock()):
        pass
    assert [ref() for ref in alive] == [None, None, None]


# Blocks that are not left in the order in which they were entered


def with_an_old_block_and_a_probe(
    hold: Callable[[CircuitBreaker], Any],
) -> tuple[CircuitBreaker, Any, Any]:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    old = hold(breaker)
    trip(breaker)
    clock.advance(60.0)
    return breaker, old, hold(breaker)


def started(breaker: CircuitBreaker) -> Generator[None]:
    block = held(breaker)
    next(block)
    return block


def stacked(breaker: CircuitBreaker) -> ExitStack:
    stack = ExitStack()
    stack.enter_context(breaker)
    return stack


def test_an_old_block_that_ends_during_a_probe_is_stale_and_the_probe_decides() -> None:
    breaker, old, probe = with_an_old_block_and_a_probe(started)
    assert next(old, "ended") == "ended"
    assert (breaker.state, breaker.totals.late) == ("half_open", 1)
    with pytest.raises(OSError, match="probe"):
        probe.throw(OSError("probe"))
    assert (breaker.state, breaker.totals.failed) == ("open", 2)


def test_an_old_block_that_fails_after_the_probe_changes_nothing() -> None:
    breaker, old, probe = with_an_old_block_and_a_probe(started)
    assert next(probe, "ended") == "ended"
    assert breaker.state == "closed"
    with pytest.raises(OSError, match="old"):
        old.throw(OSError("old"))
    assert (breaker.state, breaker.totals.late) == ("closed", 1)


@pytest.mark.parametrize("first_out", ["old", "probe"])
def test_none_of_several_indistinguishable_stacks_decides_and_the_next_call_probes(
    first_out: str,
) -> None:
    breaker, old, probe = with_an_old_block_and_a_probe(stacked)
    for stack in (old, probe) if first_out == "old" else (probe, old):
        stack.close()
        assert breaker.state == "half_open"
    assert breaker.totals.late == 2
    with pytest.raises(OSError), breaker:
        raise OSError
    assert breaker.state == "open"


def test_a_single_exit_stack_behaves_like_a_block() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    trip(breaker)
    clock.advance(60.0)
    stack = stacked(breaker)
    assert breaker.state == "half_open"
    stack.close()
    assert breaker.state == "closed"
