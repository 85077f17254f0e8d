"""Streaming answers: a generator is one call, from its first item to its last.

Leave is asked when the first item is wanted, and the outcome is told when the stream ends.
Closing it early is no evidence, and gives the permit back; neither is what the consumer throws
into it, if it comes out as it went in: that is the consumer's own failure, like the body of a
`with` whose context manager is a guarded generator. The time taken is the producer's: while the
consumer holds an item, the clock stands still.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from switchgear._breaker.nesting import await_in_probe, call_in_probe
from switchgear._core.types import Permit

if TYPE_CHECKING:
    from switchgear._breaker.circuit_breaker import CircuitBreaker

Enter = Callable[[], Permit | None]
AsyncEnter = Callable[[], Awaitable[Permit | None]]


def guarded_generator(
    breaker: "CircuitBreaker",
    function: Callable[..., Generator[Any, Any, Any]],
    enter: Enter | None = None,
) -> Callable[..., Generator[Any, Any, Any]]:
    """The generator function with a breaker around it; `enter` asks it for leave."""
    enter = enter or breaker.enter_or_fall_back

    def guarded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        permit = enter()
        if permit is None:
            return (yield from breaker.fall_back(args, kwargs))
        stream = _Timed(breaker, permit)
        try:
            result = yield from stream.of(function(*args, **kwargs))
        except BaseException as error:
            if stream.gave_back_what_was_thrown:
                breaker.give_back(permit)
            else:
                breaker.failed(permit, error, stream.seconds)
            raise
        breaker.succeeded(permit, stream.seconds)
        return result

    return guarded


class _Timed:
    """A generator that measures the time its producer takes; `yield from` goes through it."""

    __slots__ = ("_breaker", "_generator", "_permit", "_seconds", "gave_back_what_was_thrown")

    _generator: Generator[Any, Any, Any]

    def __init__(self, breaker: "CircuitBreaker", permit: Permit) -> None:
        self._breaker = breaker
        self._permit = permit
        self._seconds = 0.0
        self.gave_back_what_was_thrown = False

    def of(self, generator: Generator[Any, Any, Any]) -> "_Timed":
        self._generator = generator
        return self

    @property
    def seconds(self) -> float | None:
        return self._seconds if self._breaker.takes_time else None

    def __iter__(self) -> "_Timed":
        return self

    def __next__(self) -> Any:
        return self._timed(self._generator.send, None)

    def send(self, value: Any) -> Any:
        return self._timed(self._generator.send, value)

    def throw(self, *error: Any) -> Any:
        # As type, value and traceback, too: contextlib of Python 3.11 throws so.
        try:
            return self._timed(self._generator.throw, *error)
        except BaseException as raised:
            self.gave_back_what_was_thrown = any(
                raised is part or type(raised) is part for part in error
            )
            raise
        finally:
            del error  # a frame that holds its own exception would outlive the call

    def close(self) -> None:
        self._generator.close()

    def _timed(self, advance: Callable[..., Any], *value: Any) -> Any:
        started_s = self._breaker.stopwatch()
        try:
            if self._permit.probe:
                return call_in_probe(self._breaker, self._permit, advance, value, {})
            return advance(*value)
        finally:
            self._seconds += self._breaker.seconds_since(started_s) or 0.0


def guarded_async_generator(
    breaker: "CircuitBreaker",
    function: Callable[..., AsyncGenerator[Any, Any]],
    enter: AsyncEnter | None = None,
) -> Callable[..., AsyncGenerator[Any, Any]]:
    """The async generator function with a breaker around it; `enter` asks it for leave."""
    enter = enter or breaker.aenter_or_fall_back

    async def guarded(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        permit = await enter()
        if permit is None:
            instead = breaker.fall_back(args, kwargs)
            async for item in instead if hasattr(instead, "__aiter__") else _one_by_one(instead):
                yield item
            return
        stream = _AsyncTimed(breaker, permit)
        try:
            stream.of(function(*args, **kwargs))
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
            if stream.gave_back_what_was_thrown:
                await breaker.agive_back(permit)
            else:
                await breaker.afailed(permit, error, stream.seconds)
            raise
        await breaker.asucceeded(permit, stream.seconds)

    return guarded


def guard_items(breaker: "CircuitBreaker", items: Any) -> Any:
    """The items of any iterable, sync or async, as a guarded generator."""
    if hasattr(items, "__aiter__"):
        return guarded_async_generator(breaker, _each_async)(items)
    if hasattr(items, "__iter__"):
        return guarded_generator(breaker, _each)(items)
    raise TypeError(
        f"circuit {breaker.name!r} cannot guard {items!r} as a stream: it is no iterable; for one "
        "call use breaker.call(function, ...)"
    )


def _each(items: Iterable[Any]) -> Generator[Any, Any, None]:
    for item in items:  # noqa: UP028  `yield from` would close the stream, which is not ours
        yield item


async def _each_async(items: AsyncIterable[Any]) -> AsyncGenerator[Any, Any]:
    async for item in items:
        yield item


_END = object()


async def _one_by_one(items: Iterable[Any]) -> AsyncGenerator[Any, Any]:
    """The items of a fallback that is not async: a plain list serves streams of both kinds."""
    for item in items:
        yield item


class _AsyncTimed:
    """What `_Timed` is, for an async generator; Python has no `yield from` for those."""

    __slots__ = ("_breaker", "_generator", "_permit", "_seconds", "gave_back_what_was_thrown")

    _generator: AsyncGenerator[Any, Any]

    def __init__(self, breaker: "CircuitBreaker", permit: Permit) -> None:
        self._breaker = breaker
        self._permit = permit
        self._seconds = 0.0
        self.gave_back_what_was_thrown = False

    def of(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generator = generator

    @property
    def seconds(self) -> float | None:
        return self._seconds if self._breaker.takes_time else None

    async def advance(self, sent: Any, thrown: BaseException | None) -> Any:
        """The next item, or `_END`."""
        started_s = self._breaker.stopwatch()
        try:
            if self._permit.probe:
                return await self._advance_in_probe(sent, thrown)
            if thrown is None:
                return await self._generator.asend(sent)
            return await self._generator.athrow(thrown)
        except StopAsyncIteration:
            return _END
        except BaseException as raised:
            self.gave_back_what_was_thrown = raised is thrown
            raise
        finally:
            thrown = None
            self._seconds += self._breaker.seconds_since(started_s) or 0.0

    async def _advance_in_probe(self, sent: Any, thrown: BaseException | None) -> Any:
        generator = self._generator
        step: Callable[..., Any] = generator.asend if thrown is None else generator.athrow
        values = (sent if thrown is None else thrown,)
        try:
            return await await_in_probe(self._breaker, self._permit, step, values, {})
        finally:
            del thrown, values

    async def close(self) -> None:
        await self._generator.aclose()
