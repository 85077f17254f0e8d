"""A stream is one call, from its first item to its last; closing it early is not a failure."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from switchgear import CircuitBreaker, Policy, Rejected, detectors
from switchgear.testing import FakeClock
from unit.shapes import driven


def counts(breaker: CircuitBreaker) -> dict[str, int]:
    return {name: n for name, n in breaker.totals._asdict().items() if n}


def numbers(upto: int) -> Generator[int, Any, str]:
    yield from range(upto)
    return "done"


async def anumbers(upto: int) -> AsyncGenerator[int]:
    for n in range(upto):
        yield n


def broken(after: int) -> Iterator[int]:
    yield from range(after)
    raise ConnectionError("the stream broke")


async def abroken(after: int) -> AsyncGenerator[int]:
    for n in range(after):
        yield n
    raise ConnectionError("the stream broke")


def probing(clock: FakeClock) -> CircuitBreaker:
    """A breaker whose next call is a probe."""
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    with pytest.raises(ConnectionError):
        list(breaker(broken)(0))
    clock.advance(60.0)
    return breaker


# Synchronous streams


def test_the_permit_is_acquired_when_the_first_item_is_requested_and_not_before() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    stream = breaker(numbers)(3)
    breaker.hold_open(by="ann", why="test")
    with pytest.raises(Rejected):
        next(stream)
    assert counts(breaker) == {"refused": 1}


def test_an_unread_stream_is_not_a_call() -> None:
    clock = FakeClock()
    breaker = probing(clock)
    breaker(numbers)(3).close()
    del clock
    assert counts(breaker) == {"failed": 1}
    assert list(breaker(numbers)(1)) == [0]
    assert breaker.state == "closed"


def test_the_outcome_is_recorded_when_the_last_item_was_read_and_not_before() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    stream = breaker(numbers)(2)
    assert [next(stream), next(stream)] == [0, 1]
    assert counts(breaker) == {}
    with pytest.raises(StopIteration) as end:
        next(stream)
    assert end.value.value == "done"
    assert counts(breaker) == {"succeeded": 1}


def test_a_stream_that_breaks_after_many_items_is_one_failure() -> None:
    breaker, items = CircuitBreaker("api", clock=FakeClock()), list[int]()
    with pytest.raises(ConnectionError):
        items.extend(breaker(broken)(5))
    assert counts(breaker) == {"failed": 1}


def test_a_probe_stream_holds_the_probe_until_it_ends() -> None:
    breaker = probing(FakeClock())
    stream = breaker(numbers)(2)
    assert next(stream) == 0
    with pytest.raises(Rejected, match="a probe is under way"):
        next(breaker(numbers)(2))
    assert list(stream) == [1]
    assert breaker.state == "closed"


@pytest.mark.parametrize("how", ["close", "drop"])
def test_closing_a_stream_early_is_not_a_failure_and_frees_the_probe(how: str) -> None:
    breaker = probing(FakeClock())
    stream = breaker(numbers)(5)
    assert next(stream) == 0
    if how == "close":
        stream.close()
    del stream
    assert counts(breaker) == {"failed": 1, "ignored": 1}
    assert breaker.state == "half_open"
    assert list(breaker(numbers)(1)) == [0]
    assert breaker.state == "closed"


def test_a_stream_in_a_garbage_cycle_frees_the_probe_when_it_is_collected() -> None:
    breaker = probing(FakeClock())
    stream: Any = breaker(numbers)(5)
    next(stream)
    cycle = [stream]
    cycle.append(cycle)
    del stream, cycle
    gc.collect()
    assert counts(breaker) == {"failed": 1, "ignored": 1}


def test_values_and_exceptions_reach_the_producer_as_in_a_bare_generator() -> None:
    def echo() -> Generator[object, object, str]:
        got: object = "start"
        while got != "stop":
            try:
                got = yield got
            except LookupError as error:
                got = error
        return "stopped"

    stream = CircuitBreaker("api", clock=FakeClock())(echo)()
    error = LookupError("thrown in")
    assert next(stream) == "start"
    assert stream.send("sent") == "sent"
    assert stream.throw(error) is error
    with pytest.raises(StopIteration) as end:
        stream.send("stop")
    assert end.value.value == "stopped"


def test_a_context_manager_of_a_guarded_generator_receives_the_exception_of_its_block() -> None:
    breaker, seen = CircuitBreaker("api", clock=FakeClock()), list[BaseException]()

    @contextmanager
    @breaker
    def session() -> Iterator[str]:
        try:
            yield "session"
        except ValueError as error:
            seen.append(error)
            raise

    error = ValueError("in the block")
    with pytest.raises(ValueError, match="in the block") as raised, session() as name:
        assert name == "session"
        raise error
    assert raised.value is error
    assert seen == [error]
    assert counts(breaker) == {"ignored": 1}


def test_an_async_context_manager_of_a_guarded_generator_receives_it_too() -> None:
    breaker, error = CircuitBreaker("api", clock=FakeClock()), ValueError("in the block")

    @asynccontextmanager
    @breaker
    async def session() -> AsyncGenerator[str]:
        yield "session"

    async def main() -> None:
        async with session():
            raise error

    with pytest.raises(ValueError, match="in the block") as raised:
        driven(main())
    assert raised.value is error
    assert counts(breaker) == {"ignored": 1}


def test_a_stream_called_with_wrong_arguments_leaks_no_permit() -> None:
    breaker = probing(FakeClock())
    wrong: Callable[..., Any] = breaker(numbers)
    with pytest.raises(TypeError, match="unexpected keyword"):
        next(wrong(nonsense=1))
    assert breaker.state == "open"
    assert counts(breaker) == {"failed": 2}


def test_only_the_time_of_the_producer_counts_for_a_stream() -> None:
    clock = FakeClock()
    slow = detectors.SlowCalls(slow_s=10.0, window=1, threshold=0.0)
    breaker = CircuitBreaker("api", policy=Policy([slow]), clock=clock)

    def items() -> Iterator[int]:
        for n in range(3):
            clock.advance(3.0)
            yield n

    for _ in breaker(items)():
        clock.advance(100.0)
    assert breaker.state == "closed"

    def slow_items() -> Iterator[int]:
        for n in range(3):
            clock.advance(4.0)
            yield n

    list(breaker(slow_items)())
    assert breaker.state == "open"


# Asynchronous streams


def test_an_async_stream_is_one_call_too() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())

    async def main() -> None:
        stream = breaker(anumbers)(2)
        assert [await anext(stream), await anext(stream)] == [0, 1]
        assert counts(breaker) == {}
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert counts(breaker) == {"succeeded": 1}
        with pytest.raises(ConnectionError):
            _ = [item async for item in breaker(abroken)(3)]
        assert counts(breaker) == {"succeeded": 1, "failed": 1}

    driven(main())


def test_closing_an_async_stream_early_is_not_a_failure_and_frees_the_probe() -> None:
    breaker, closed = probing(FakeClock()), list[str]()

    async def items() -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append("closed")

    async def main() -> None:
        stream = breaker(items)()
        assert await anext(stream) == 1
        await stream.aclose()

    driven(main())
    assert closed == ["closed"]
    assert counts(breaker) == {"failed": 1, "ignored": 1}
    assert breaker.state == "half_open"


def test_closing_an_async_stream_waits_until_its_producer_has_cleaned_up() -> None:
    breaker, log = CircuitBreaker("api", clock=FakeClock()), list[str]()

    @breaker
    async def items() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            log.append("cleaned up")

    async def main() -> None:
        stream = items()
        await anext(stream)
        await stream.aclose()
        log.append("closed")

    asyncio.run(main())
    assert log == ["cleaned up", "closed"]
    assert counts(breaker) == {"ignored": 1}


def test_an_async_stream_left_by_break_is_closed_by_its_loop_and_frees_the_probe() -> None:
    breaker = probing(FakeClock())

    async def main() -> None:
        async for _ in breaker(anumbers)(5):
            break

    asyncio.run(main())
    assert counts(breaker) == {"failed": 1, "ignored": 1}
    assert breaker.state == "half_open"


def test_a_cancelled_async_stream_is_not_evidence_and_frees_the_probe() -> None:
    breaker = probing(FakeClock())

    @breaker
    async def hangs() -> AsyncGenerator[int]:
        yield 1
        await asyncio.Event().wait()

    async def main() -> None:
        first = asyncio.Event()

        async def read() -> None:
            async for _ in hangs():
                first.set()

        task = asyncio.create_task(read())
        await first.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())
    assert counts(breaker) == {"failed": 1, "ignored": 1}
    assert breaker.state == "half_open"


def test_values_and_exceptions_reach_an_async_producer_too() -> None:
    async def echo() -> AsyncGenerator[object, object]:
        got: object = "start"
        while got != "stop":
            try:
                got = yield got
            except LookupError as error:
                got = error

    async def main() -> None:
        stream = CircuitBreaker("api", clock=FakeClock())(echo)()
        error = LookupError("thrown in")
        assert await anext(stream) == "start"
        assert await stream.asend("sent") == "sent"
        assert await stream.athrow(error) is error
        with pytest.raises(StopAsyncIteration):
            await stream.asend("stop")

    driven(main())


def test_an_async_stream_called_with_wrong_arguments_leaks_no_permit() -> None:
    breaker = probing(FakeClock())
    wrong: Callable[..., Any] = breaker(anumbers)
    with pytest.raises(TypeError, match="unexpected keyword"):
        driven(wrong(nonsense=1).__anext__())
    assert breaker.state == "open"
    assert counts(breaker) == {"failed": 2}


def test_only_the_time_of_the_producer_counts_for_an_async_stream() -> None:
    clock = FakeClock()
    slow = detectors.SlowCalls(slow_s=10.0, window=1, threshold=0.0)
    breaker = CircuitBreaker("api", policy=Policy([slow]), clock=clock)

    @breaker
    async def items(step_s: float) -> AsyncGenerator[int]:
        for n in range(3):
            clock.advance(step_s)
            yield n

    async def read(step_s: float) -> None:
        async for _ in items(step_s):
            clock.advance(100.0)

    driven(read(3.0))
    assert breaker.state == "closed"
    driven(read(4.0))
    assert breaker.state == "open"


# What the consumer throws in


def session() -> Generator[str]:
    yield "session"


def cleaned_up() -> Generator[str]:
    try:
        yield "session"
    except ValueError as error:
        raise ConnectionError("could not clean up") from error


async def asession() -> AsyncGenerator[str]:
    yield "session"


async def acleaned_up() -> AsyncGenerator[str]:
    try:
        yield "session"
    except ValueError as error:
        raise ConnectionError("could not clean up") from error


def thrown_into(breaker: CircuitBreaker, function: Any, *error: Any) -> None:
    """Throw into the guarded stream after its first item."""
    stream = breaker(function)()
    if hasattr(stream, "athrow"):

        async def throw() -> None:
            await anext(stream)
            await stream.athrow(*error)

        driven(throw())
    else:
        next(stream)
        stream.throw(*error)


@pytest.mark.parametrize("function", [session, asession])
@pytest.mark.parametrize("error", [(ValueError("mine"),), (ValueError,)])
def test_an_exception_that_the_consumer_throws_in_and_gets_back_is_not_evidence(
    function: Any, error: tuple[Any]
) -> None:
    breaker = probing(FakeClock())
    with pytest.raises(ValueError):
        thrown_into(breaker, function, *error)
    assert breaker.state == "half_open"
    assert counts(breaker) == {"failed": 1, "ignored": 1}
    assert breaker.call(int) == 0


@pytest.mark.parametrize("function", [cleaned_up, acleaned_up])
def test_an_exception_that_the_stream_raises_instead_is_evidence(function: Any) -> None:
    breaker = probing(FakeClock())
    with pytest.raises(ConnectionError):
        thrown_into(breaker, function, ValueError("mine"))
    assert counts(breaker) == {"failed": 2}


def test_the_body_of_a_with_block_does_not_decide_about_its_guarded_context_manager() -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    manager = contextmanager(breaker(session))
    for _ in range(3):
        with pytest.raises(ValueError, match="mine"), manager():
            raise ValueError("mine")
    assert counts(breaker) == {"ignored": 3}
