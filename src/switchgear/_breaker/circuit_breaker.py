"""The call breaker: functions, coroutines, streams and blocks, guarded by one circuit."""

import math
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Sequence,
)
from functools import lru_cache, wraps
from types import CoroutineType, TracebackType
from typing import Any, ParamSpec, Self, TypeVar, cast, overload

from switchgear._breaker.blocks import enter_block, leave_block, left_elsewhere, note_counted
from switchgear._breaker.evidence import ExceptionTest
from switchgear._breaker.nesting import await_in_probe, call_in_probe
from switchgear._breaker.outcome import OutcomeBreaker
from switchgear._breaker.streams import guard_items
from switchgear._breaker.tickets import Run
from switchgear._breaker.wrappers import LAZY, call_lazily, guard_lazy, lazy_code, wrapper
from switchgear._core import values
from switchgear._core.errors import Rejected
from switchgear._core.policy import Policy
from switchgear._core.recovery import Cooldown
from switchgear._core.types import Permit
from switchgear._detectors import ConsecutiveFailures
from switchgear._sinks.dispatch import CallHook, Sink
from switchgear._stores.base import Remembers
from switchgear._system.clock import Clock, monotonic


def classic(threshold: int = 5, base_timeout: float = 60.0, max_timeout: float = 300.0) -> Policy:
    """Consecutive failures, then a cooldown. Raises ValueError when a number is out of range."""
    return _classic(*_checked(threshold, base_timeout, max_timeout))


def _checked(threshold: int, base_timeout: float, max_timeout: float) -> tuple[int, float, float]:
    values.whole("CircuitBreaker.threshold", threshold)
    base_timeout = values.seconds("CircuitBreaker.base_timeout", base_timeout)
    max_timeout = values.seconds("CircuitBreaker.max_timeout", max_timeout)
    if base_timeout > max_timeout:
        raise ValueError(
            f"CircuitBreaker.base_timeout is {base_timeout:g}: it must not be above max_timeout, "
            f"which is {max_timeout:g}"
        )
    return threshold, base_timeout, max_timeout


@lru_cache(maxsize=256)
def _classic(threshold: int, base_timeout: float, max_timeout: float) -> Policy:
    """The policy of seed 004; shared, so that ten thousand breakers hold it once."""
    return Policy([ConsecutiveFailures(threshold)], Cooldown(base_timeout, max_timeout))


P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class CircuitBreaker(OutcomeBreaker):
    """Guards calls: forwards them while all is well, refuses them with `Rejected` when not.

    - `name`: what is guarded, for messages and logs. Required.
    - `threshold` (5): consecutive failures before the circuit opens.
    - `base_timeout` (60.0), `max_timeout` (300.0): seconds to wait before one probe is let
      through; a failed probe doubles the wait, up to the maximum; a success resets it.
    - `policy`: instead of those three, any detectors and recovery: `Policy([...], Cooldown(...))`.
    - `fallback`: called with the same arguments instead of the refused call.
    - `failure_if`: which exceptions are failures: types or a predicate. Default: every
      `Exception`. Others are no evidence.
    - `failure_if_result`: a predicate on the result; true means that the call failed after all.
    - `ignore`: exceptions that are no evidence: types or a predicate.
    - `success_if`: exceptions that prove the service alive, such as a 404: types or a predicate.
      They count as successes. `ignore` comes before it, and it before `failure_if`.
    - `on_call`: a function, or several, called with a `Call` after each call and each refusal.
    - `clock`: seconds, monotonic. `sinks`: called with each `Event`.
    - `store`, `wall`: set by `Panel.breaker(…)`, for a circuit that processes share.

    Cancellation, KeyboardInterrupt, GeneratorExit and the `Rejected` of another circuit are never
    evidence; an ExceptionGroup is what its members are. An exception that passes two guards of one
    breaker counts once. Raises ValueError when an argument is out
    of range. Thread-safe, task-safe, fork-safe; pickles with its state. No lock is held while a
    guarded function runs. A guarded function may call another that the same breaker guards: each
    success counts, and what runs inside a probe is part of it.

    >>> breaker = CircuitBreaker("anthropic", threshold=5, base_timeout=60.0, max_timeout=300.0)
    >>> breaker.call(max, 1, 2), breaker.state
    (2, <Phase.CLOSED: 'closed'>)
    """

    __slots__ = ("_fast", "_timed")

    def __init__(
        self,
        name: str,
        threshold: int = 5,
        base_timeout: float = 60.0,
        max_timeout: float = 300.0,
        *,
        policy: Policy | None = None,
        fallback: Callable[..., Any] | None = None,
        failure_if: ExceptionTest = Exception,
        failure_if_result: Callable[[Any], bool] | None = None,
        ignore: ExceptionTest = (),
        success_if: ExceptionTest = (),
        on_call: CallHook | Sequence[CallHook] = (),
        clock: Clock = monotonic,
        sinks: tuple[Sink, ...] | list[Sink] = (),
        store: Remembers | None = None,
        wall: Clock | None = None,
    ) -> None:
        numbers = (threshold, base_timeout, max_timeout)
        if policy is None:
            policy = classic(*numbers)
        elif numbers != (5, 60.0, 300.0):
            raise ValueError(
                f"CircuitBreaker.policy is given, and threshold is {threshold!r}, base_timeout "
                f"{base_timeout!r}, max_timeout {max_timeout!r}: they belong into the policy then"
            )
        self._fast: Run | None = None
        """The run, where a bare call needs neither clock nor predicate; else `None`."""
        self._timed: Run | None = None
        """The run, where a call needs no more than the clock; else `None`."""
        super().__init__(
            name,
            policy,
            fallback=fallback,
            failure_if=failure_if,
            failure_if_result=failure_if_result,
            ignore=ignore,
            success_if=success_if,
            on_call=on_call,
            clock=clock,
            sinks=sinks,
            store=store,
            wall=wall,
        )

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function, guarded. Raises what it raises, or `Rejected`.

        If it returns a coroutine, another awaitable or a generator, the result is that, guarded:
        await or iterate it. For other streams see `stream`.
        """
        run = self._fast
        if run is None:
            refused = self._refused() if self._fallback is None else None
            if refused is not None:
                raise Rejected(*refused)
            return cast("T", self._call(function, args, kwargs))
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            self.failed(run.permit, error, None)
            raise
        if type(result) is not run.plain:
            if type(result) in LAZY or hasattr(type(result), "__await__"):
                return cast("T", guard_lazy(self, result, None, args, kwargs))
            run.plain = type(result)
        for _ in run.tickets:
            return result
        self._fold_run(run, more=1)
        return result

    async def acall(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call and await the coroutine function, guarded. Raises what it raises, or `Rejected`.

        If what it gives is a generator or async generator, the result is that, guarded: iterate it.
        """
        run = self._fast
        if run is None:
            refused = self._refused() if self._fallback is None else None
            if refused is not None:
                raise Rejected(*refused)
            return cast("T", await self._acall(function, args, kwargs))
        try:
            pending: Any = function(*args, **kwargs)
            if type(pending) is CoroutineType or hasattr(pending, "__await__"):
                pending = await pending
        except BaseException as error:
            await self.afailed(run.permit, error, None)
            raise
        if type(pending) in LAZY:
            return cast("T", guard_lazy(self, pending, None, args, kwargs))
        for _ in run.tickets:
            return cast("T", pending)
        await self._afold_run(run, more=1)
        return cast("T", pending)

    def __call__(self, function: F) -> F:
        """Decorate a function, coroutine function, generator, async generator or method."""
        if isinstance(function, staticmethod | classmethod):
            return cast("F", type(function)(self(function.__func__)))
        if isinstance(function, type) or not callable(function):
            raise TypeError(
                f"circuit {self.name!r} cannot guard {function!r}: decorate a function or a "
                "method; for one call use breaker.call(function, ...)"
            )
        guarded: Any = wraps(function)(wrapper(self, function))
        guarded.breaker = self
        return cast("F", guarded)

    @overload
    def stream(self, items: Iterable[T]) -> Generator[T]: ...
    @overload
    def stream(self, items: AsyncIterable[T]) -> AsyncGenerator[T]: ...
    def stream(self, items: Any) -> Any:
        """The items of a stream, guarded as one call from the first to the last.

        For the stream objects of SDKs, which are no generators; `async for` theirs. The request that
        made one is guarded apart: `breaker.stream(breaker.call(client.create, stream=True))`. A
        decorated generator that does both is one call. Close the stream yourself, as ever.
        """
        return guard_items(self, items)

    def __enter__(self) -> Self:
        frame = sys._getframe().f_back  # noqa: SLF001  there is no other way to know a block
        enter_block(self, self.enter(), self.stopwatch(), frame)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        block = leave_block(self, sys._getframe().f_back)  # noqa: SLF001
        if block is None:
            left_elsewhere(self, error)
        elif error is None:
            self.succeeded(block.permit, self.seconds_since(block.started_s))
        else:
            if block.has_passed(error) and not block.permit.probe:
                self.give_back(block.permit)
            else:
                self.failed(block.permit, error, self.seconds_since(block.started_s))
            note_counted(block, error)

    async def __aenter__(self) -> Self:
        frame = sys._getframe().f_back  # noqa: SLF001
        enter_block(self, await self.aenter(), self.stopwatch(), frame)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        block = leave_block(self, sys._getframe().f_back)  # noqa: SLF001
        if block is None:
            left_elsewhere(self, error)
        elif error is None:
            await self.asucceeded(block.permit, self.seconds_since(block.started_s))
        else:
            if block.has_passed(error) and not block.permit.probe:
                await self.agive_back(block.permit)
            else:
                await self.afailed(block.permit, error, self.seconds_since(block.started_s))
            note_counted(block, error)

    def _set_run(self, run: Run | None) -> None:
        bare = self._slow_from_s is None and self._failure_if_result is None and not self._polls
        self._fast = run if bare and not self._on_call else None
        self._timed = None if self._on_call else run
        super()._set_run(run)  # last: an interrupt before it is mended by the next message

    def _call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The call in full: any phase, any policy, with fallback and predicates."""
        run = self._fresh_run()
        if run is None:
            return self._call_with_leave(function, args, kwargs)
        looked_at = self._failure_if_result is not None or self._on_call
        due_s = -math.inf if looked_at else run.due_s
        started_s = self._clock()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            self.failed(run.permit, error, self.seconds_since(started_s))
            raise
        if type(result) in LAZY or hasattr(type(result), "__await__"):
            return guard_lazy(self, result, None, args, kwargs)
        try:
            if self._clock() < due_s:
                for _ in run.tickets:
                    return result
        except Exception:  # noqa: BLE001  the clock's own trouble
            self.log_trouble()
        self.returned(run.permit, result, self.seconds_since(started_s))
        return result

    def _call_with_leave(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The call while the circuit is not simply closed."""
        if (code := lazy_code(function)) is not None:
            return call_lazily(self, function, code, args, kwargs)
        permit = self.enter_or_fall_back()
        if permit is None:
            return self.fall_back(args, kwargs)
        started_s = self.stopwatch()
        try:
            if permit.probe:
                result = call_in_probe(self, permit, function, args, kwargs)
            else:
                result = function(*args, **kwargs)
        except BaseException as error:
            self.failed(permit, error, self.seconds_since(started_s))
            raise
        if type(result) in LAZY or hasattr(type(result), "__await__"):
            return guard_lazy(self, result, permit, args, kwargs)
        self.returned(permit, result, self.seconds_since(started_s))
        return result

    async def _acall(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        enter: Callable[[], Awaitable[Permit | None]] | None = None,
    ) -> Any:
        """What `_call` is, awaiting what the function gives; `enter` asks for leave."""
        permit = await (enter or self.aenter_or_fall_back)()
        if permit is None:
            instead = self.fall_back(args, kwargs)
            return await instead if hasattr(instead, "__await__") else instead
        started_s = self.stopwatch()
        try:
            if permit.probe:
                result = await await_in_probe(self, permit, function, args, kwargs)
            else:
                result = function(*args, **kwargs)
                if hasattr(result, "__await__"):
                    result = await result
        except BaseException as error:
            await self.afailed(permit, error, self.seconds_since(started_s))
            raise
        if type(result) in LAZY:
            return guard_lazy(self, result, permit, args, kwargs)
        await self.areturned(permit, result, self.seconds_since(started_s))
        return result
