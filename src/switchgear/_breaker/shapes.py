"""Guards every kind of callable as it runs: functions, coroutines, awaitables, generators and streams.

Calling a coroutine function only creates a coroutine: counting this as a success would guard
nothing. Therefore the result of a guarded function is inspected, and an awaitable or generator is
replaced by a guarded one.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
)
from functools import partial
from types import (
    AsyncGeneratorType,
    CodeType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
)
from typing import TYPE_CHECKING, Any, Self

from switchgear._breaker.nesting import await_in_probe, call_in_probe
from switchgear._core.errors import Rejected
from switchgear._core.types import Permit, Signal

if TYPE_CHECKING:
    from switchgear._breaker.circuit_breaker import CircuitBreaker


LAZY = frozenset({AsyncGeneratorType, CoroutineType, GeneratorType})
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200  # the code flags of `inspect`


def lazy_code(function: Any) -> CodeType | None:
    """The code of a coroutine or generator function, which only creates its result; `None` for others."""
    while isinstance(function, partial):
        function = function.func
    if type(function) is not FunctionType and type(function) is not MethodType:
        function = getattr(type(function), "__call__", None)  # noqa: B004  an object may have a lazy one
    if type(function) is MethodType:
        function = function.__func__
    if type(function) is not FunctionType:
        return None
    code = function.__code__
    return code if code.co_flags & (_GENERATOR | _COROUTINE | _ASYNC_GENERATOR) else None


def call_lazily(
    breaker: "CircuitBreaker",
    function: Callable[..., Any],
    code: CodeType,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The guarded coroutine or generator of the function with this code: it acquires a permit when it runs."""
    if code.co_flags & _COROUTINE:
        return _copy_name(breaker._acall(function, args, kwargs), code.co_name, code.co_qualname)
    guard: Callable[..., Any] = (
        guarded_generator if code.co_flags & _GENERATOR else guarded_async_generator
    )
    return _copy_name(guard(breaker, function)(*args, **kwargs), code.co_name, code.co_qualname)


class UnstartedCall:
    """A coroutine or generator that has not started, with its permit if it has one.

    If it never starts (refused, cancelled, dropped), its permit is returned, and it is closed so
    that Python does not warn about a coroutine that was never awaited.
    """

    __slots__ = ("_breaker", "_lazy", "_permit")

    def __init__(self, breaker: "CircuitBreaker", lazy: Any, permit: Permit | None) -> None:
        self._breaker = breaker
        self._lazy = lazy
        self._permit = permit

    def enter(self) -> Permit | None:
        """The permit that it already has, or a new one."""
        permit, self._permit = self._permit, None
        return self._breaker.enter_or_fall_back() if permit is None else permit

    async def aenter(self) -> Permit | None:
        permit, self._permit = self._permit, None
        return await self._breaker.aenter_or_fall_back() if permit is None else permit

    def start(self, *_: Any, **__: Any) -> Any:
        """The coroutine or generator, to be run now."""
        lazy, self._lazy = self._lazy, None
        return lazy

    def __del__(self) -> None:
        if type(self._lazy) is CoroutineType:
            self._lazy.close()
        if self._permit is not None:
            self._breaker.record(Signal(), self._permit)


class GuardedAwaitable:
    """A guarded future, task or other awaitable: awaiting it is the call.

    An object that is used with `async with` instead, such as a request of some clients, is guarded
    when it is entered. All other attributes are those of the awaitable.
    """

    __slots__ = ("_args", "_awaitable", "_breaker", "_kwargs", "_unstarted")

    def __init__(
        self,
        breaker: "CircuitBreaker",
        unstarted: UnstartedCall,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._breaker = breaker
        self._unstarted: UnstartedCall | None = unstarted
        self._awaitable = unstarted.start()
        self._args = args
        self._kwargs = kwargs

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting: Generator[Any, Any, Any] = self._guarded(
            lambda *_, **__: self._awaitable
        ).__await__()
        return waiting

    async def __aenter__(self) -> Any:
        return await self._guarded(lambda *_, **__: self._awaitable.__aenter__())

    async def __aexit__(self, *error: object) -> Any:
        return await self._awaitable.__aexit__(*error)

    def __aiter__(self) -> AsyncIterator[Any]:
        items: AsyncIterator[Any] = guard_items(self._breaker, self._awaitable)
        return items

    def __getattr__(self, name: str) -> Any:
        return getattr(self._awaitable, name)

    def __repr__(self) -> str:
        return f"<{self._awaitable!r} guarded by circuit {self._breaker.name!r}>"

    def _guarded(self, start: Callable[..., Any]) -> Any:
        """An awaitable that is guarded the first time; awaiting the same object again is not another call."""
        unstarted, self._unstarted = self._unstarted, None
        if unstarted is None:
            return start()
        return self._breaker._acall(start, self._args, self._kwargs, unstarted.aenter)


def guard_lazy(
    breaker: "CircuitBreaker",
    lazy: Any,
    permit: Permit | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """A guarded coroutine or generator in place of the bare one that a function returned."""
    unstarted = UnstartedCall(breaker, lazy, permit)
    if type(lazy) not in LAZY:
        return GuardedAwaitable(breaker, unstarted, args, kwargs)
    if type(lazy) is CoroutineType:
        guarded: Any = breaker._acall(unstarted.start, args, kwargs, unstarted.aenter)
    elif type(lazy) is GeneratorType:
        guarded = guarded_generator(breaker, unstarted.start, unstarted.enter)(*args, **kwargs)
    else:
        guarded = guarded_async_generator(breaker, unstarted.start, unstarted.aenter)(
            *args, **kwargs
        )
    return _copy_name(guarded, lazy.__name__, lazy.__qualname__)


def _copy_name(lazy: Any, name: str, qualname: str) -> Any:
    """Give a coroutine or generator the name of the guarded function, which Python's warnings show."""
    lazy.__name__, lazy.__qualname__ = name, qualname
    return lazy


def wrapper(breaker: "CircuitBreaker", function: Callable[..., Any]) -> Callable[..., Any]:
    """The guarded function, in the fastest form for its kind and for the breaker's policy."""
    # A process that guards only with `call` never needs this import.
    import inspect  # noqa: PLC0415

    method = getattr(function, "__call__", None)  # noqa: B004  an object may have an async one
    for is_kind, wrap in (
        (inspect.isasyncgenfunction, guarded_async_generator),
        (inspect.isgeneratorfunction, guarded_generator),
        (inspect.iscoroutinefunction, _guarded_coroutine),
    ):
        if is_kind(function) or is_kind(method):
            return wrap(breaker, function)
    if not breaker.takes_time or breaker._failure_if_result is not None:
        return _guarded(breaker, function)
    if breaker._wall is None:
        return _guarded_timed(breaker, function)
    return _guarded_timed_and_shared(breaker, function)


def _guarded(breaker: "CircuitBreaker", function: Callable[..., Any]) -> Callable[..., Any]:
    """`breaker.call` inlined, which saves a method call. Few free variables, because each slows every call."""

    def guarded(*args: Any, **kwargs: Any) -> Any:
        run = breaker._fast
        if run is None:
            refused = breaker._count_refusal() if breaker._fallback is None else None
            if refused is not None:
                raise Rejected(*refused)
            return breaker._call(function, args, kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            breaker.failed(run.permit, error, None)
            raise
        if type(result) is run.plain:
            for _ in run.tickets:
                return result
        return breaker._finish(run, result, args, kwargs)

    return guarded


def _guarded_timed(breaker: "CircuitBreaker", function: Callable[..., Any]) -> Callable[..., Any]:
    """`_guarded` for a policy that uses durations."""
    clock = breaker._clock

    def guarded(*args: Any, **kwargs: Any) -> Any:
        run = breaker._timed
        if run is None:
            refused = breaker._count_refusal() if breaker._fallback is None else None
            if refused is not None:
                raise Rejected(*refused)
            return breaker._call(function, args, kwargs)
        due_s = run.due_s
        started_s = clock()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            breaker.failed(run.permit, error, breaker.seconds_since(started_s))
            raise
        if type(result) is not run.plain:
            if type(result) in LAZY or hasattr(type(result), "__await__"):
                return guard_lazy(breaker, result, None, args, kwargs)
            run.plain = type(result)
        try:
            if clock() < due_s:
                for _ in run.tickets:
                    return result
        except Exception:  # noqa: BLE001  the clock failed
            breaker.log_trouble()
        breaker.succeeded(run.permit, breaker.seconds_since(started_s))
        return result

    return guarded


def _guarded_timed_and_shared(
    breaker: "CircuitBreaker", function: Callable[..., Any]
) -> Callable[..., Any]:
    """`_guarded_timed` for a shared circuit: with a run that is due, `_call` checks the store if necessary.

    That does not depend on whether changes are pushed when the function is decorated, which may change
    at any time.
    """
    clock, timed = breaker._clock, _guarded_timed(breaker, function)

    def guarded(*args: Any, **kwargs: Any) -> Any:
        run = breaker._run
        if run is not None and clock() >= run.due_s:
            return breaker._call(function, args, kwargs)
        return timed(*args, **kwargs)

    return guarded


def _guarded_coroutine(
    breaker: "CircuitBreaker", function: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        run = breaker._fast
        if run is None:
            refused = breaker._count_refusal() if breaker._fallback is None else None
            if refused is not None:
                raise Rejected(*refused)
            return await breaker._acall(function, args, kwargs)
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            await breaker.afailed(run.permit, error, None)
            raise
        if type(result) in LAZY:
            return guard_lazy(breaker, result, None, args, kwargs)
        for _ in run.tickets:
            return result
        await breaker._afold_run(run, more=1)
        return result

    return guarded


Enter = Callable[[], Permit | None]
AsyncEnter = Callable[[], Awaitable[Permit | None]]


def guarded_generator(
    breaker: "CircuitBreaker",
    function: Callable[..., Generator[Any, Any, Any]],
    enter: Enter | None = None,
) -> Callable[..., Generator[Any, Any, Any]]:
    """The generator function with a breaker around it; `enter` acquires the permit."""
    enter = enter or breaker.enter_or_fall_back

    def guarded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        permit = enter()
        if permit is None:
            return (yield from breaker.fall_back(args, kwargs))
        stream = _TimedGenerator(breaker, permit)
        try:
            result = yield from stream.of(function(*args, **kwargs))
        except BaseException as error:
            if stream.reraised_thrown:
                breaker.give_back(permit)
            else:
                breaker.failed(permit, error, stream.seconds)
            raise
        breaker.succeeded(permit, stream.seconds)
        return result

    return guarded


class _TimedStream:
    """A generator of either kind, and the time that its producer has taken so far."""

    __slots__ = ("_breaker", "_generator", "_permit", "_seconds", "reraised_thrown")

    _generator: Any

    def __init__(self, breaker: "CircuitBreaker", permit: Permit) -> None:
        self._breaker = breaker
        self._permit = permit
        self._seconds = 0.0
        self.reraised_thrown = False
        """Whether the generator raised the exception that was thrown into it: no evidence of its own."""

    def of(self, generator: Any) -> Self:
        self._generator = generator
        return self

    @property
    def seconds(self) -> float | None:
        return self._seconds if self._breaker.takes_time else None


class _TimedGenerator(_TimedStream):
    """For generators: `yield from` goes through it."""

    __slots__ = ()

    def __iter__(self) -> "_TimedGenerator":
        return self

    def __next__(self) -> Any:
        return self._timed(self._generator.send, None)

    def send(self, value: Any) -> Any:
        return self._timed(self._generator.send, value)

    def throw(self, *error: Any) -> Any:
        # The error may be a type, value and traceback: contextlib of Python 3.11 throws them.
        try:
            return self._timed(self._generator.throw, *error)
        except BaseException as raised:
            self.reraised_thrown = any(raised is part or type(raised) is part for part in error)
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
    """The async generator function with a breaker around it; `enter` acquires the permit."""
    enter = enter or breaker.aenter_or_fall_back

    async def guarded(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        permit = await enter()
        if permit is None:
            instead = breaker.fall_back(args, kwargs)
            async for item in instead if hasattr(instead, "__aiter__") else _one_by_one(instead):
                yield item
            return
        stream = _TimedAsyncGenerator(breaker, permit)
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
                except BaseException as error:  # noqa: BLE001  thrown in, and passed to the stream
                    thrown = error
                item = await stream.advance(sent, thrown)
        except BaseException as error:
            thrown = None  # a frame that holds its own exception would outlive the call
            if stream.reraised_thrown:
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
        return guarded_generator(breaker, _iterate)(items)
    raise TypeError(
        f"circuit {breaker.name!r} cannot guard {items!r} as a stream: it is not iterable; for one "
        "call use breaker.call(function, ...)"
    )


def _iterate(items: Iterable[Any]) -> Generator[Any, Any, None]:
    for item in items:  # noqa: UP028  `yield from` would close the stream, which belongs to the caller
        yield item


async def _each_async(items: AsyncIterable[Any]) -> AsyncGenerator[Any, Any]:
    async for item in items:
        yield item


_END = object()


async def _one_by_one(items: Iterable[Any]) -> AsyncGenerator[Any, Any]:
    """The items of a fallback that is not async, such as a plain list."""
    for item in items:
        yield item


class _TimedAsyncGenerator(_TimedStream):
    """For async generators, for which Python has no `yield from`."""

    __slots__ = ()

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
            self.reraised_thrown = raised is thrown
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
