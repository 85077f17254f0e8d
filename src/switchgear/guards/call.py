"""The call breaker: functions, coroutines, streams and blocks, guarded by one circuit.

The short wrappers at the end are the hot path. A closed circuit costs them one slot to read and
one ticket to take; everything else happens in the slow paths, which they share.
"""

import math
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import lru_cache, wraps
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any, ParamSpec, Self, TypeVar, cast

from switchgear.breaker import Breaker, Sink, log_exception
from switchgear.clock import Clock, monotonic
from switchgear.core import record
from switchgear.core.detectors import ConsecutiveFailures
from switchgear.core.policy import Policy
from switchgear.core.recovery import Cooldown
from switchgear.core.types import Permit, Signal
from switchgear.errors import Rejected, WrongContext
from switchgear.guards.evidence import (
    ExceptionTest,
    check_test,
    failure,
    is_no_evidence,
    matches,
)
from switchgear.guards.streams import guarded_async_generator, guarded_generator
from switchgear.runs import Run

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_LAZY = frozenset({AsyncGeneratorType, CoroutineType, GeneratorType})
"""Results that have not happened yet: they are guarded when they do."""

_Entry = tuple["CircuitBreaker", Permit, float, Any]
_entered: ContextVar[_Entry | None] = ContextVar("switchgear_entered", default=None)
"""The `with` blocks this task is inside, innermost first, as a linked list."""


class CircuitBreaker(Breaker):
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
    - `clock`: seconds, monotonic. `sinks`: called with each `Event`.

    Cancellation, KeyboardInterrupt, GeneratorExit and the `Rejected` of another circuit are never
    evidence. Raises ValueError when an argument is out of range. Thread-safe, task-safe,
    fork-safe; pickles with its state. No lock is held while a guarded function runs.

    >>> breaker = CircuitBreaker("anthropic", threshold=5, base_timeout=60.0, max_timeout=300.0)
    >>> breaker.call(max, 1, 2), breaker.state
    (2, <Phase.CLOSED: 'closed'>)
    """

    __slots__ = ("_failure_if", "_failure_if_result", "_fallback", "_fast", "_ignore")

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
        clock: Clock = monotonic,
        sinks: tuple[Sink, ...] | list[Sink] = (),
    ) -> None:
        for field, hook in (("fallback", fallback), ("failure_if_result", failure_if_result)):
            if hook is not None and not callable(hook):
                raise ValueError(f"CircuitBreaker.{field} is {hook!r}: it must be callable")
        check_test("CircuitBreaker.failure_if", failure_if)
        check_test("CircuitBreaker.ignore", ignore)
        self._fallback = fallback
        self._failure_if = failure_if
        self._failure_if_result = failure_if_result
        self._ignore = ignore
        self._fast: Run | None = None
        """The run, where a bare call needs neither clock nor predicate; else `None`."""
        numbers = (threshold, base_timeout, max_timeout)
        if policy is None:
            policy = _classic(*_checked(*numbers))
        elif numbers != (5, 60.0, 300.0):
            raise ValueError(
                "CircuitBreaker.policy is given: threshold, base_timeout and max_timeout "
                "belong into it then"
            )
        super().__init__(name, policy, clock=clock, sinks=sinks)

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function, guarded. Raises what it raises, or `Rejected`.

        If it returns a coroutine or generator, the result is that, guarded: await or iterate it.
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
        if result.__class__ is not run.plain:
            if type(result) in _LAZY:
                return cast("T", self._guard_lazy(result, args, kwargs))
            run.plain = result.__class__
        for _ in run.tickets:
            break
        else:
            self._fold_run(run, more=1)
        return result

    async def acall(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call and await the coroutine function, guarded. Raises what it raises, or `Rejected`."""
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
            self.failed(run.permit, error, None)
            raise
        for _ in run.tickets:
            return cast("T", pending)
        self._fold_run(run, more=1)
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
        guarded: Any = wraps(function)(_wrapper(self, function))
        guarded.breaker = self
        return cast("F", guarded)

    def __enter__(self) -> Self:
        _entered.set((self, self.enter(), self.stopwatch(), _entered.get()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entry, rest = _take_entry(self, _entered.get())
        _entered.set(rest)
        _, permit, started_s, _ = entry
        if error is None:
            self.succeeded(permit, self._seconds_since(started_s))
        else:
            self.failed(permit, error, self._seconds_since(started_s))

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    # What the wrappers share. Not for users; the other guards' files use them.

    @property
    def takes_time(self) -> bool:
        """Whether any detector wants to know how long calls take."""
        return self._slow_from_s is not None

    def stopwatch(self) -> float:
        """Seconds for measuring durations; not read when nobody wants them."""
        return 0.0 if self._slow_from_s is None else self._clock()

    def enter_or_fall_back(self) -> Permit | None:
        """A permit; or `None` when refused and there is a fallback; or raises `Rejected`."""
        run = self._run
        if run is not None:
            return run.permit
        if self._fallback is None:
            return self._ask()
        try:
            return self._ask()
        except Rejected:
            return None

    def fall_back(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the fallback gives instead of the refused call."""
        if self._fallback is None:  # pragma: no cover  callers were told that there is one
            raise AssertionError("no fallback")
        return self._fallback(*args, **kwargs)

    def succeeded(self, permit: Permit, seconds: float | None) -> None:
        """Tell a success: by a ticket of the run, if it is as unremarkable as that."""
        run = self._run
        if run is None or run.permit is not permit or self._is_slow(seconds):
            self.tell(Signal(ok=True, seconds=seconds), permit)
            return
        if seconds is None or self._clock() < run.due_s:
            for _ in run.tickets:
                return
        self._fold_run(run, more=1)

    def failed(self, permit: Permit, error: BaseException, seconds: float | None) -> None:
        """Tell what an exception means; gives the permit back where it means nothing."""
        if self._is_failure(error):
            self.tell(failure(error, seconds), permit)
        else:
            self.tell(Signal(), permit)

    def _returned(self, permit: Permit, result: Any, seconds: float | None) -> None:
        if self._is_bad(result):
            self.tell(Signal(ok=False, seconds=seconds, error="the result is a failure"), permit)
        else:
            self.succeeded(permit, seconds)

    def _is_slow(self, seconds: float | None) -> bool:
        return seconds is not None and seconds > cast("float", self._slow_from_s)

    def _is_failure(self, error: BaseException) -> bool:
        if is_no_evidence(error):
            return False
        try:
            return not matches(self._ignore, error) and matches(self._failure_if, error)
        except Exception:  # noqa: BLE001  the caller's exception is never replaced
            log_exception("failure_if or ignore of circuit %r failed", self.name)
            return True

    def _is_bad(self, result: Any) -> bool:
        if self._failure_if_result is None:
            return False
        try:
            return bool(self._failure_if_result(result))
        except Exception:  # noqa: BLE001  the caller gets the result that was made
            log_exception("failure_if_result of circuit %r failed", self.name)
            return False

    def _seconds_since(self, started_s: float) -> float | None:
        return None if self._slow_from_s is None else self._clock() - started_s

    def _set_run(self, run: Run | None) -> None:
        super()._set_run(run)
        bare = self._slow_from_s is None and self._failure_if_result is None
        self._fast = run if bare else None

    def _call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The call in full: any phase, any policy, with fallback and predicates."""
        run = self._run
        permit = self.enter_or_fall_back() if run is None else run.permit
        if permit is None:
            return self.fall_back(args, kwargs)
        due_s = -math.inf if run is None or self._failure_if_result is not None else run.due_s
        started_s = self._clock()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            self.failed(permit, error, self._seconds_since(started_s))
            raise
        if type(result) in _LAZY:
            if permit.probe:
                self.tell(Signal(), permit)
            return self._guard_lazy(result, args, kwargs)
        if run is not None and self._clock() < due_s:
            for _ in run.tickets:
                return result
        self._returned(permit, result, self._seconds_since(started_s))
        return result

    async def _acall(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What `_call` is, awaiting what the function gives."""
        permit = self.enter_or_fall_back()
        if permit is None:
            instead = self.fall_back(args, kwargs)
            return await instead if hasattr(instead, "__await__") else instead
        started_s = self.stopwatch()
        try:
            result = function(*args, **kwargs)
            if hasattr(result, "__await__"):
                result = await result
        except BaseException as error:
            self.failed(permit, error, self._seconds_since(started_s))
            raise
        self._returned(permit, result, self._seconds_since(started_s))
        return result

    def _guard_lazy(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A guarded coroutine or generator in place of a bare one that a function returned."""

        def already_made(*_: Any, **__: Any) -> Any:
            return result

        if type(result) is CoroutineType:
            return _await_lazy(self, result, args, kwargs)
        if type(result) is GeneratorType:
            return guarded_generator(self, already_made)(*args, **kwargs)
        return guarded_async_generator(self, already_made)(*args, **kwargs)

    def _config(self) -> dict[str, Any]:
        return {
            **super()._config(),
            "fallback": self._fallback,
            "failure_if": self._failure_if,
            "failure_if_result": self._failure_if_result,
            "ignore": self._ignore,
        }


def _checked(threshold: int, base_timeout: float, max_timeout: float) -> tuple[int, float, float]:
    record.whole("CircuitBreaker.threshold", threshold)
    base_timeout = record.seconds("CircuitBreaker.base_timeout", base_timeout)
    max_timeout = record.seconds("CircuitBreaker.max_timeout", max_timeout)
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


def _take_entry(breaker: CircuitBreaker, stack: _Entry | None) -> tuple[_Entry, _Entry | None]:
    """The innermost block of this breaker, and the stack without it."""
    if stack is None:
        raise WrongContext(breaker.name)
    if stack[0] is breaker:
        return stack, stack[3]
    entry, rest = _take_entry(breaker, stack[3])
    return entry, (*stack[:3], rest)


async def _await_lazy(
    breaker: CircuitBreaker, coroutine: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    def already_made(*_: Any, **__: Any) -> Any:
        return coroutine

    try:
        return await breaker.acall(already_made, *args, **kwargs)
    finally:
        coroutine.close()  # refused: it never ran, and need not warn that nobody awaited it


# The wrappers that decorate


def _wrapper(breaker: CircuitBreaker, function: Callable[..., Any]) -> Callable[..., Any]:
    # A process that guards by `call` alone never pays for this import.
    import inspect  # noqa: PLC0415

    method = getattr(function, "__call__", None)  # noqa: B004  an object may have an async one
    for is_kind, wrap in (
        (inspect.isasyncgenfunction, guarded_async_generator),
        (inspect.isgeneratorfunction, guarded_generator),
        (inspect.iscoroutinefunction, _guarded_coroutine),
    ):
        if is_kind(function) or is_kind(method):
            return wrap(breaker, function)
    if breaker.takes_time and breaker._failure_if_result is None:
        return _guarded_timed(breaker, function)
    return _guarded(breaker, function)


def _guarded(breaker: CircuitBreaker, function: Callable[..., Any]) -> Callable[..., Any]:
    """`breaker.call` with the method call taken out. Few free variables: each costs every call."""

    def guarded(*args: Any, **kwargs: Any) -> Any:
        run = breaker._fast
        if run is None:
            refused = breaker._refused() if breaker._fallback is None else None
            if refused is not None:
                raise Rejected(*refused)
            return breaker._call(function, args, kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            breaker.failed(run.permit, error, None)
            raise
        if result.__class__ is not run.plain:
            if type(result) in _LAZY:
                return breaker._guard_lazy(result, args, kwargs)
            run.plain = result.__class__
        for _ in run.tickets:
            break
        else:
            breaker._fold_run(run, more=1)
        return result

    return guarded


def _guarded_timed(breaker: CircuitBreaker, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a policy that takes times."""
    clock = breaker._clock

    def guarded(*args: Any, **kwargs: Any) -> Any:
        run = breaker._run
        if run is None:
            refused = breaker._refused() if breaker._fallback is None else None
            if refused is not None:
                raise Rejected(*refused)
            return breaker._call(function, args, kwargs)
        due_s = run.due_s
        started_s = clock()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            breaker.failed(run.permit, error, clock() - started_s)
            raise
        if result.__class__ is not run.plain:
            if type(result) in _LAZY:
                return breaker._guard_lazy(result, args, kwargs)
            run.plain = result.__class__
        if clock() < due_s:
            for _ in run.tickets:
                return result
        breaker.succeeded(run.permit, clock() - started_s)
        return result

    return guarded


def _guarded_coroutine(
    breaker: CircuitBreaker, function: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        run = breaker._fast
        if run is None:
            refused = breaker._refused() if breaker._fallback is None else None
            if refused is not None:
                raise Rejected(*refused)
            return await breaker._acall(function, args, kwargs)
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            breaker.failed(run.permit, error, None)
            raise
        for _ in run.tickets:
            return result
        breaker._fold_run(run, more=1)
        return result

    return guarded
