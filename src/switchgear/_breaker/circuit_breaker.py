"""The call breaker: guards functions, coroutines, streams and blocks with one circuit."""

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
from types import CoroutineType
from typing import Any, ParamSpec, Self, TypeVar, cast, overload

from switchgear._breaker.handle import Breaker
from switchgear._breaker.nesting import (
    await_in_probe,
    call_in_probe,
    enter_block,
    leave_block,
    note_counted,
    passed_before,
    probe_around,
    report_missing_block,
)
from switchgear._breaker.shapes import (
    LAZY,
    call_lazily,
    guard_items,
    guard_lazy,
    lazy_code,
    wrapper,
)
from switchgear._breaker.signals import ExceptionTest, check_test, failure, outcome_of
from switchgear._breaker.tickets import SuccessRun
from switchgear._core import values
from switchgear._core.errors import Rejected, is_interrupt
from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import Permit, Phase, Record, Signal
from switchgear._detectors import ConsecutiveFailures
from switchgear._sinks.dispatch import (
    Call,
    CallHook,
    CallOutcome,
    Sink,
    checked_hooks,
    log_exception,
    report,
)
from switchgear._stores.base import Remembers
from switchgear._system.clock import Clock, monotonic

BAD_RESULT = "the result is a failure"
P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def classic(threshold: int = 5, base_timeout: float = 60.0, max_timeout: float = 300.0) -> Policy:
    """The policy of a breaker without one: consecutive failures, then a cooldown. Raises ValueError."""
    return _classic(*_check_limits(threshold, base_timeout, max_timeout))


def _check_limits(
    threshold: int, base_timeout: float, max_timeout: float
) -> tuple[int, float, float]:
    values.check_int("CircuitBreaker.threshold", threshold)
    base_timeout = values.check_seconds("CircuitBreaker.base_timeout", base_timeout)
    max_timeout = values.check_seconds("CircuitBreaker.max_timeout", max_timeout)
    if base_timeout > max_timeout:
        raise ValueError(
            f"CircuitBreaker.base_timeout is {base_timeout:g}: it must not be above max_timeout, "
            f"which is {max_timeout:g}"
        )
    return threshold, base_timeout, max_timeout


@lru_cache(maxsize=256)
def _classic(threshold: int, base_timeout: float, max_timeout: float) -> Policy:
    """The default policy; cached, so that all breakers share it."""
    return Policy([ConsecutiveFailures(threshold)], Cooldown(base_timeout, max_timeout))


class CircuitBreaker(Breaker):
    """Guards calls: admits them while the circuit is closed, refuses them with `Rejected` while it is open.

    - `name`: the name of the circuit, for messages and logs. Required.
    - `threshold` (5): consecutive failures before the circuit opens.
    - `base_timeout` (60.0), `max_timeout` (300.0): seconds to wait before one probe is
      admitted; a failed probe doubles the wait, up to the maximum; a success resets it.
    - `policy`: any detectors and recovery instead of those three: `Policy([...], Cooldown(...))`.
    - `fallback`: called with the arguments of a refused call; its result is returned instead.
    - `failure_if`: which exceptions are failures: types or a predicate. Default: every
      `Exception`. Other exceptions do not count.
    - `failure_if_result`: a predicate on the result; true means that the call failed.
    - `ignore`: exceptions that do not count as evidence: types or a predicate.
    - `success_if`: exceptions that prove that the service works, such as a 404: types or a predicate.
      They count as successes. `ignore` is checked first, then `success_if`, then `failure_if`.
    - `on_call`: a function, or several, called with a `Call` after each call and each refusal.
    - `clock`: returns monotonic seconds. `sinks`: called with each `Event`.
    - `store`, `wall`: set by `Panel.breaker(…)`, for a circuit that processes share.

    Cancellation, KeyboardInterrupt, GeneratorExit and the `Rejected` of another circuit are never
    evidence; an ExceptionGroup counts as its members do. An exception that passes two guards of one
    breaker counts once. Raises ValueError when an argument is out of range. Thread-safe, task-safe,
    fork-safe; pickles with its state. No lock is held while a guarded function runs. A guarded
    function may call another that the same breaker guards: each success counts, and calls inside a
    probe are part of it.

    >>> breaker = CircuitBreaker("anthropic", threshold=5, base_timeout=60.0, max_timeout=300.0)
    >>> breaker.call(max, 1, 2), breaker.state
    (2, <Phase.CLOSED: 'closed'>)
    """

    __slots__ = ("_failure_if", "_failure_if_result", "_fallback", "_ignore", "_success_if")

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
                f"{base_timeout!r}, max_timeout {max_timeout!r}: set them in the policy instead"
            )
        owner = type(self).__name__
        hooks = checked_hooks(f"{owner}.on_call", on_call)
        for field, hook in (("fallback", fallback), ("failure_if_result", failure_if_result)):
            if hook is not None and not callable(hook):
                raise ValueError(f"{owner}.{field} is {hook!r}: it must be callable")
        check_test(f"{owner}.failure_if", failure_if)
        check_test(f"{owner}.ignore", ignore)
        check_test(f"{owner}.success_if", success_if)
        self._fallback = fallback
        self._failure_if = failure_if
        self._failure_if_result = failure_if_result
        self._ignore = ignore
        self._success_if = success_if
        super().__init__(
            name,
            policy,
            clock=clock,
            sinks=sinks,
            store=store,
            wall=wall,
            checks_results=failure_if_result is not None,
        )
        if hooks:
            self._set_hooks(hooks)

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function, guarded. Raises what the function raises, or `Rejected`.

        A coroutine, another awaitable or a generator that the function returns is guarded, too: await
        or iterate the result. For other streams see `stream`.
        """
        run = self._fast
        if run is None:
            refused = self._count_refusal() if self._fallback is None else None
            if refused is not None:
                raise Rejected(*refused)
            return cast("T", self._call(function, args, kwargs))
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            self.failed(run.permit, error, None)
            raise
        if type(result) is run.plain:
            for _ in run.tickets:
                return result
        return cast("T", self._finish(run, result, args, kwargs))

    async def acall(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call and await the coroutine function, guarded. Raises what the function raises, or `Rejected`.

        A generator or async generator that the function returns is guarded, too: iterate the result.
        """
        run = self._fast
        if run is None:
            refused = self._count_refusal() if self._fallback is None else None
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
        """The items of a stream, sync or async, guarded as one call from the first to the last item.

        For the stream objects of SDKs, which are not generators. The request that creates the stream is
        guarded separately: `breaker.stream(breaker.call(client.create, stream=True))`. A decorated
        generator that does both is one call. Close the stream yourself, as usual.
        """
        return guard_items(self, items)

    def __enter__(self) -> Self:
        frame = sys._getframe().f_back  # noqa: SLF001  there is no other way to identify a block
        enter_block(self, self.enter(), self.stopwatch(), frame)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        block = leave_block(self, sys._getframe().f_back)  # noqa: SLF001
        if block is None:
            report_missing_block(self, error)
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

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        block = leave_block(self, sys._getframe().f_back)  # noqa: SLF001
        if block is None:
            report_missing_block(self, error)
        elif error is None:
            await self.asucceeded(block.permit, self.seconds_since(block.started_s))
        else:
            if block.has_passed(error) and not block.permit.probe:
                await self.agive_back(block.permit)
            else:
                await self.afailed(block.permit, error, self.seconds_since(block.started_s))
            note_counted(block, error)

    def _call(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The general case of `call`: any phase and policy, with fallback and predicates."""
        run = self._fresh_run()
        if run is None:
            return self._call_with_permit(function, args, kwargs)
        needs_outcome = self._failure_if_result is not None or self._on_call
        due_s = -math.inf if needs_outcome else run.due_s
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
        except Exception:  # noqa: BLE001  the clock failed
            self.log_trouble()
        self.returned(run.permit, result, self.seconds_since(started_s))
        return result

    def _finish(
        self, run: SuccessRun, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Count a result whose type differs from that of the last result, or that finds no ticket."""
        if type(result) in LAZY or hasattr(type(result), "__await__"):
            return guard_lazy(self, result, None, args, kwargs)
        run.plain = type(result)
        for _ in run.tickets:
            return result
        self._fold_run(run, more=1)
        return result

    def _call_with_permit(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The call while the circuit is not closed, or is held."""
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
        """Like `_call`, but awaits the result of the function; `enter` acquires the permit."""
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

    def add_on_call(self, hook: CallHook) -> None:
        """Call one more hook with every call and refusal from now on."""
        self._set_hooks((*self._on_call, *checked_hooks("hook", hook)))

    def _set_hooks(self, hooks: tuple[CallHook, ...]) -> None:
        self._on_call = hooks
        self._set_run(self._run)  # with hooks no call takes the fast path

    @property
    def takes_time(self) -> bool:
        """Whether any detector or hook uses the duration of calls."""
        return self._slow_from_s is not None or bool(self._on_call)

    def stopwatch(self) -> float:
        """The time for measuring durations; 0 if nothing uses them, NaN if the clock raises."""
        if self._slow_from_s is None and not self._on_call:
            return 0.0
        try:
            return self._clock()
        except Exception:  # noqa: BLE001  the call was admitted, and can still run
            self.log_trouble()
            return math.nan

    def enter_or_fall_back(self) -> Permit | None:
        """A permit; `None` if the call is refused and there is a fallback. Raises `Rejected` without one."""
        if self._fallback is None:
            return self.enter()
        try:
            return self.enter()
        except Rejected:
            return None

    async def aenter_or_fall_back(self) -> Permit | None:
        """`enter_or_fall_back` without blocking the event loop."""
        if self._fallback is None:
            return await self.aenter()
        try:
            return await self.aenter()
        except Rejected:
            return None

    def fall_back(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of the fallback for a refused call; there must be one."""
        fallback: Any = self._fallback
        return fallback(*args, **kwargs)

    # Recording a result must not replace what the call returned or raised: if a clock, a
    # third-party detector or a store fails here, the error is logged. Texts are already redacted.
    # The methods that begin with `a` do not block the event loop.

    def succeeded(self, permit: Permit, seconds: float | None) -> None:
        """Record a success; usually that only takes a ticket of the run."""
        try:
            unrecorded = self._take_ticket(permit, seconds)
            if isinstance(unrecorded, Record):
                self.send(unrecorded)
            elif unrecorded is not None:
                self._fold_run(unrecorded, more=1)
        except Exception:  # noqa: BLE001
            self.log_trouble()
        if self._on_call:
            report(Call(self.name, CallOutcome.SUCCESS, seconds), self._on_call)

    async def asucceeded(self, permit: Permit, seconds: float | None) -> None:
        """`succeeded` without blocking the event loop."""
        try:
            unrecorded = self._take_ticket(permit, seconds)
            if isinstance(unrecorded, Record):
                await self.asend(unrecorded)
            elif unrecorded is not None:
                await self._afold_run(unrecorded, more=1)
        except Exception:  # noqa: BLE001
            self.log_trouble()
        if self._on_call:
            report(Call(self.name, CallOutcome.SUCCESS, seconds), self._on_call)

    def failed(self, permit: Permit, error: BaseException, seconds: float | None) -> None:
        """Record an exception; return the permit if the exception is no evidence."""
        self._failed(permit, error, seconds, None)

    def _failed(
        self, permit: Permit, error: BaseException, seconds: float | None, wait_s: float | None
    ) -> None:
        """`failed`; `wait_s` is the requested wait if the exception itself has no `Retry-After`."""
        signal = _with_wait(self._signal_of(error, seconds, permit), wait_s)
        self._record_result(signal, permit)
        if self._on_call:
            self._report(signal, seconds, error)

    async def afailed(self, permit: Permit, error: BaseException, seconds: float | None) -> None:
        """`failed` without blocking the event loop."""
        await self._afailed(permit, error, seconds, None)

    async def _afailed(
        self, permit: Permit, error: BaseException, seconds: float | None, wait_s: float | None
    ) -> None:
        signal = _with_wait(self._signal_of(error, seconds, permit), wait_s)
        await self._arecord_result(signal, permit)
        if self._on_call:
            self._report(signal, seconds, error)

    def returned(self, permit: Permit, result: Any, seconds: float | None) -> None:
        """Record what a call returned: a success, or a failure if `failure_if_result` is true for it."""
        if self._is_failure_result(result):
            self.ended(permit, Signal(ok=False, seconds=seconds, error=BAD_RESULT))
        else:
            self.succeeded(permit, seconds)

    async def areturned(self, permit: Permit, result: Any, seconds: float | None) -> None:
        """`returned` without blocking the event loop."""
        if self._is_failure_result(result):
            await self.aended(permit, Signal(ok=False, seconds=seconds, error=BAD_RESULT))
        else:
            await self.asucceeded(permit, seconds)

    def ended(self, permit: Permit, signal: Signal) -> None:
        """Record the outcome of a call that the caller has classified. Never raises."""
        self._record_result(signal, permit)
        self._report(signal, signal.seconds, None)

    async def aended(self, permit: Permit, signal: Signal) -> None:
        """`ended` without blocking the event loop."""
        await self._arecord_result(signal, permit)
        self._report(signal, signal.seconds, None)

    def give_back(self, permit: Permit) -> None:
        """Return a permit unused: the call has no outcome."""
        self.ended(permit, Signal())

    async def agive_back(self, permit: Permit) -> None:
        """`give_back` without blocking the event loop."""
        await self.aended(permit, Signal())

    def seconds_since(self, started_s: float) -> float | None:
        """Seconds since `stopwatch` returned `started_s`; `None`: not needed, or unknown."""
        if self._slow_from_s is None and not self._on_call:
            return None
        seconds = self.stopwatch() - started_s
        return None if math.isnan(seconds) else seconds

    def log_trouble(self) -> None:
        """Log an exception that was raised while a call was recorded."""
        log_exception("circuit %r could not record a call", self.name)

    def _report(self, signal: Signal, seconds: float | None, error: BaseException | None) -> None:
        """Pass a call that ended with this signal to the hooks."""
        if self._on_call:
            outcome = CallOutcome.SUCCESS if signal.ok else CallOutcome.FAILURE
            outcome = CallOutcome.IGNORED if signal.ok is None else outcome
            report(Call(self.name, outcome, seconds, error), self._on_call)

    def _record_result(self, signal: Signal, permit: Permit) -> None:
        try:
            self.send(Record(signal, permit))
        except Exception:  # noqa: BLE001
            self.log_trouble()

    async def _arecord_result(self, signal: Signal, permit: Permit) -> None:
        try:
            await self.asend(Record(signal, permit))
        except Exception:  # noqa: BLE001
            self.log_trouble()

    def _fold_run(self, run: SuccessRun, *, more: int) -> None:
        """Fold the successes of a run and `more` without a ticket, or leave them to the panel's thread."""
        try:
            if not self._leave_to_thread(run, more):
                for message, ago_s in self._count_messages(run, more):
                    self._fold(message, ago_s)
        except Exception:  # noqa: BLE001
            self.log_trouble()

    async def _afold_run(self, run: SuccessRun, *, more: int) -> None:
        try:
            if not self._leave_to_thread(run, more):
                for message, ago_s in self._count_messages(run, more):
                    await self._afold(message, ago_s)
        except Exception:  # noqa: BLE001
            self.log_trouble()

    def _take_ticket(self, permit: Permit, seconds: float | None) -> SuccessRun | Record | None:
        """The run to fold or the record to send for a success; `None`: it took a ticket."""
        run, limit_s = self._run, self._slow_from_s
        is_slow = seconds is not None and limit_s is not None and seconds > limit_s
        if run is None or run.permit is not permit or is_slow:
            return Record(Signal(ok=True, seconds=seconds), permit)
        if self._clock() < run.due_s:
            for _ in run.tickets:
                return None
        return run

    def _signal_of(self, error: BaseException, seconds: float | None, permit: Permit) -> Signal:
        """The signal of an exception; empty if it is no evidence, or an inner guard has recorded it."""
        try:
            ok = self._outcome(error)
            if ok is None or self._is_part_of_a_probe(permit):
                return Signal()
            if not permit.probe and passed_before(self, error):
                return Signal()
            return Signal(ok=True, seconds=seconds) if ok else failure(error, seconds)
        except BaseException as trouble:
            if is_interrupt(trouble):
                raise
            self.log_trouble()
            return Signal(ok=False, seconds=seconds)

    def _is_part_of_a_probe(self, permit: Permit) -> bool:
        """Whether this call ran inside a probe of the same circuit, which reports for both."""
        probing = self._circuit.phase is Phase.HALF_OPEN and not permit.probe
        return probing and probe_around(self) is not None

    def _outcome(self, error: BaseException) -> bool | None:
        try:
            return outcome_of(error, self._failure_if, self._ignore, self._success_if)
        except BaseException as trouble:  # must not replace the caller's exception
            if is_interrupt(trouble):
                raise
            log_exception("failure_if, success_if or ignore of circuit %r failed", self.name)
            return False

    def _is_failure_result(self, result: Any) -> bool:
        if self._failure_if_result is None:
            return False
        try:
            return bool(self._failure_if_result(result))
        except Exception:  # noqa: BLE001  must not replace the result of the call
            log_exception("failure_if_result of circuit %r failed", self.name)
            return False

    def _config(self) -> dict[str, Any]:
        return {
            **super()._config(),
            "fallback": self._fallback,
            "failure_if": self._failure_if,
            "failure_if_result": self._failure_if_result,
            "ignore": self._ignore,
            "success_if": self._success_if,
            "on_call": self._on_call,
        }


def _with_wait(signal: Signal, wait_s: float | None) -> Signal:
    """The signal; a failure without a requested wait gets `wait_s`."""
    if wait_s is None or signal.ok is not False or signal.retry_after_s is not None:
        return signal
    return signal._replace(retry_after_s=wait_s)
