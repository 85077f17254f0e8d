"""Streaming answers: a generator is one call, from its first item to its last.

Leave is asked when the first item is wanted, and the outcome is told when the stream ends.
Closing it early is no evidence, and gives the permit back. The time taken is the producer's:
while the consumer holds an item, the clock stands still.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from switchgear.guards.call import CircuitBreaker


def guarded_generator(
    breaker: "CircuitBreaker", function: Callable[..., Generator[Any, Any, Any]]
) -> Callable[..., Generator[Any, Any, Any]]:
    """The generator function with a breaker around it."""

    def guarded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        permit = breaker.enter_or_fall_back()
        if permit is None:
            return (yield from breaker.fall_back(args, kwargs))
        stream = _Timed(function(*args, **kwargs), breaker)
        try:
            result = yield from stream
        except BaseException as error:
            breaker.failed(permit, error, stream.seconds)
            raise
        breaker.succeeded(permit, stream.seconds)
        return result

    return guarded


class _Timed:
    """A generator that measures the time its producer takes; `yield from` goes through it."""

    __slots__ = ("_breaker", "_generator", "_seconds")

    def __init__(self, generator: Generator[Any, Any, Any], breaker: "CircuitBreaker") -> None:
        self._generator = generator
        self._breaker = breaker
        self._seconds = 0.0

    @property
    def seconds(self) -> float | None:
        return self._seconds if self._breaker.takes_time else None

    def __iter__(self) -> "_Timed":
        return self

    def __next__(self) -> Any:
        return self._timed(self._generator.send, None)

    def send(self, value: Any) -> Any:
        return self._timed(self._generator.send, value)

    def throw(self, error: BaseException) -> Any:
        return self._timed(self._generator.throw, error)

    def close(self) -> None:
        self._generator.close()

    def _timed(self, advance: Callable[[Any], Any], value: Any) -> Any:
        started_s = self._breaker.stopwatch()
        try:
            return advance(value)
        finally:
            self._seconds += self._breaker.stopwatch() - started_s


def guarded_async_generator(
    breaker: "CircuitBreaker", function: Callable[..., AsyncGenerator[Any, Any]]
) -> Callable[..., AsyncGenerator[Any, Any]]:
    """The async generator function with a breaker around it."""

    async def guarded(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        permit = breaker.enter_or_fall_back()
        if permit is None:
            async for item in breaker.fall_back(args, kwargs):
                yield item
            return
        stream = _AsyncTimed(function(*args, **kwargs), breaker)
        try:
            item = await stream.advance(None, None)
            while item is not _END:
                sent = thrown = None
                try:
                    sent = yield item
                except GeneratorExit:
                    await stream.close()
                    raise
                except BaseException as error:  # noqa: BLE001  thrown in: the stream's business
                    thrown = error
                item = await stream.advance(sent, thrown)
        except BaseException as error:
            thrown = None  # a frame that holds its own exception would outlive the call
            breaker.failed(permit, error, stream.seconds)
            raise
        breaker.succeeded(permit, stream.seconds)

    return guarded


_END = object()


class _AsyncTimed:
    """What `_Timed` is, for an async generator; Python has no `yield from` for those."""

    __slots__ = ("_breaker", "_generator", "_seconds")

    def __init__(self, generator: AsyncGenerator[Any, Any], breaker: "CircuitBreaker") -> None:
        self._generator = generator
        self._breaker = breaker
        self._seconds = 0.0

    @property
    def seconds(self) -> float | None:
        return self._seconds if self._breaker.takes_time else None

    async def advance(self, sent: Any, thrown: BaseException | None) -> Any:
        """The next item, or `_END`."""
        started_s = self._breaker.stopwatch()
        try:
            if thrown is None:
                return await self._generator.asend(sent)
            return await self._generator.athrow(thrown)
        except StopAsyncIteration:
            return _END
        finally:
            thrown = None
            self._seconds += self._breaker.stopwatch() - started_s

    async def close(self) -> None:
        await self._generator.aclose()
