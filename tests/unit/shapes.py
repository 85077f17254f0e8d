"""Every shape in which a call can be guarded, as a table: what holds for one must hold for all.

A shape guards one call of a function that takes nothing, runs it to its end, and gives back what
it gave or raises what it raised. Coroutines are driven by hand: the functions never wait, and an
event loop would keep frames alive that the tests want to see die.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Any, TypeVar

from switchgear import CircuitBreaker

T = TypeVar("T")
Function = Callable[[], Any]
Shape = Callable[[CircuitBreaker, Function], Any]


def driven(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("the coroutine waits for something")


def last(stream: Iterable[Any]) -> Any:
    """The last item of a stream that is read to its end."""
    item = None
    for item in stream:  # noqa: B007
        pass
    return item


async def alast(stream: AsyncGenerator[Any, Any]) -> Any:
    """The last item of an async stream that is read to its end."""
    item = None
    async for item in stream:  # noqa: B007
        pass
    return item


def call(breaker: CircuitBreaker, function: Function) -> Any:
    return breaker.call(function)


def acall(breaker: CircuitBreaker, function: Function) -> Any:
    async def coroutine() -> Any:
        return function()

    return driven(breaker.acall(coroutine))


def acall_of_a_function(breaker: CircuitBreaker, function: Function) -> Any:
    return driven(breaker.acall(function))


def decorated(breaker: CircuitBreaker, function: Function) -> Any:
    @breaker
    def guarded() -> Any:
        return function()

    return guarded()


def decorated_coroutine(breaker: CircuitBreaker, function: Function) -> Any:
    @breaker
    async def guarded() -> Any:
        return function()

    return driven(guarded())


def decorated_generator(breaker: CircuitBreaker, function: Function) -> Any:
    @breaker
    def guarded() -> Generator[Any]:
        yield function()

    return last(guarded())


def decorated_async_generator(breaker: CircuitBreaker, function: Function) -> Any:
    @breaker
    async def guarded() -> AsyncGenerator[Any]:
        yield function()

    return driven(alast(guarded()))


def decorated_method(breaker: CircuitBreaker, function: Function) -> Any:
    class Provider:
        @breaker
        def complete(self) -> Any:
            return function()

    return Provider().complete()


def decorated_coroutine_method(breaker: CircuitBreaker, function: Function) -> Any:
    class Provider:
        @breaker
        async def complete(self) -> Any:
            return function()

    return driven(Provider().complete())


def decorated_under_staticmethod(breaker: CircuitBreaker, function: Function) -> Any:
    class Provider:
        @staticmethod
        @breaker
        def complete() -> Any:
            return function()

    return Provider.complete()


def decorated_staticmethod(breaker: CircuitBreaker, function: Function) -> Any:
    class Provider:
        @breaker
        @staticmethod
        def complete() -> Any:
            return function()

    return Provider().complete()


def decorated_under_classmethod(breaker: CircuitBreaker, function: Function) -> Any:
    class Provider:
        @classmethod
        @breaker
        def complete(cls) -> Any:
            return function()

    return Provider.complete()


def decorated_classmethod(breaker: CircuitBreaker, function: Function) -> Any:
    class Provider:
        @breaker
        @classmethod
        def complete(cls) -> Any:
            return function()

    return Provider.complete()


def decorated_object(breaker: CircuitBreaker, function: Function) -> Any:
    class Provider:
        def __call__(self) -> Any:
            return function()

    return breaker(Provider())()


def decorated_async_object(breaker: CircuitBreaker, function: Function) -> Any:
    class Provider:
        async def __call__(self) -> Any:
            return function()

    return driven(breaker(Provider())())


def decorated_partial(breaker: CircuitBreaker, function: Function) -> Any:
    return breaker(partial(function))()


def decorated_partial_of_a_coroutine(breaker: CircuitBreaker, function: Function) -> Any:
    async def complete(_: str) -> Any:
        return function()

    return driven(breaker(partial(complete, "prompt"))())


def call_of_a_coroutine_function(breaker: CircuitBreaker, function: Function) -> Any:
    async def coroutine() -> Any:
        return function()

    return driven(breaker.call(coroutine))


def call_of_a_generator_function(breaker: CircuitBreaker, function: Function) -> Any:
    def generator() -> Generator[Any]:
        yield function()

    return last(breaker.call(generator))


def call_of_an_async_generator_function(breaker: CircuitBreaker, function: Function) -> Any:
    async def generator() -> AsyncGenerator[Any]:
        yield function()

    return driven(alast(breaker.call(generator)))


def decorated_function_that_returns_a_coroutine(breaker: CircuitBreaker, function: Function) -> Any:
    async def coroutine() -> Any:
        return function()

    def returns_it() -> Any:
        return coroutine()

    return driven(breaker(returns_it)())


class Awaitable:
    """An awaitable that is not a coroutine, like the futures of an event loop."""

    def __init__(self, function: Function) -> None:
        self._function = function

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from ()
        return self._function()


async def awaited(awaitable: Any) -> Any:
    return await awaitable


def call_of_a_function_that_returns_an_awaitable(
    breaker: CircuitBreaker, function: Function
) -> Any:
    return driven(awaited(breaker.call(lambda: Awaitable(function))))


def decorated_function_that_returns_an_awaitable(
    breaker: CircuitBreaker, function: Function
) -> Any:
    @breaker
    def guarded() -> Any:
        return Awaitable(function)

    return driven(awaited(guarded()))


def acall_of_a_coroutine_that_returns_a_stream(breaker: CircuitBreaker, function: Function) -> Any:
    async def generator() -> AsyncGenerator[Any]:
        yield function()

    async def coroutine() -> AsyncGenerator[Any]:
        return generator()

    async def read() -> Any:
        return await alast(await breaker.acall(coroutine))

    return driven(read())


def decorated_coroutine_that_returns_a_stream(breaker: CircuitBreaker, function: Function) -> Any:
    def generator() -> Generator[Any]:
        yield function()

    @breaker
    async def guarded() -> Generator[Any]:
        return generator()

    return last(driven(guarded()))


class Stream:
    """The stream object of an SDK: an iterator that is not a generator."""

    def __init__(self, function: Function) -> None:
        self._left = [function]

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Any:
        if not self._left:
            raise StopIteration
        return self._left.pop()()


class AsyncStream(Stream):
    __iter__ = None  # type: ignore[assignment]

    def __aiter__(self) -> "AsyncStream":
        return self

    async def __anext__(self) -> Any:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()()


def stream_object(breaker: CircuitBreaker, function: Function) -> Any:
    return last(breaker.stream(Stream(function)))


def async_stream_object(breaker: CircuitBreaker, function: Function) -> Any:
    return driven(alast(breaker.stream(AsyncStream(function))))


def block(breaker: CircuitBreaker, function: Function) -> Any:
    with breaker:
        return function()


def async_block(breaker: CircuitBreaker, function: Function) -> Any:
    async def coroutine() -> Any:
        async with breaker:
            return function()

    return driven(coroutine())


BLOCKS = (block, async_block)
CALLS = (
    call,
    acall,
    acall_of_a_function,
    decorated,
    decorated_coroutine,
    decorated_generator,
    decorated_async_generator,
    decorated_method,
    decorated_coroutine_method,
    decorated_under_staticmethod,
    decorated_staticmethod,
    decorated_under_classmethod,
    decorated_classmethod,
    decorated_object,
    decorated_async_object,
    decorated_partial,
    decorated_partial_of_a_coroutine,
    call_of_a_coroutine_function,
    call_of_a_generator_function,
    call_of_an_async_generator_function,
    decorated_function_that_returns_a_coroutine,
    call_of_a_function_that_returns_an_awaitable,
    decorated_function_that_returns_an_awaitable,
    acall_of_a_coroutine_that_returns_a_stream,
    decorated_coroutine_that_returns_a_stream,
    stream_object,
    async_stream_object,
)
ALL = (*CALLS, *BLOCKS)
