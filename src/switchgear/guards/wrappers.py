"""The wrappers that decorate functions: the hot path, written out for each shape.

A closed circuit costs them one slot to read and one ticket to take; everything else happens in
the slow paths of the breaker, whose inside they know. They repeat each other and
`CircuitBreaker.call` on purpose: one call more would cost what the whole guard costs.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from switchgear.errors import Rejected
from switchgear.guards.lazy import LAZY, guard_lazy
from switchgear.guards.streams import guarded_async_generator, guarded_generator

if TYPE_CHECKING:
    from switchgear.guards.call import CircuitBreaker


def wrapper(breaker: "CircuitBreaker", function: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper that fits the function's shape."""
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
    if not breaker.takes_time or breaker._failure_if_result is not None:
        return _guarded(breaker, function)
    if breaker._wall is None:
        return _guarded_timed(breaker, function)
    return _guarded_timed_and_shared(breaker, function)


def _guarded(breaker: "CircuitBreaker", function: Callable[..., Any]) -> Callable[..., Any]:
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
        if type(result) is not run.plain:
            if type(result) in LAZY or hasattr(type(result), "__await__"):
                return guard_lazy(breaker, result, None, args, kwargs)
            run.plain = type(result)
        for _ in run.tickets:
            break
        else:
            breaker._fold_run(run, more=1)
        return result

    return guarded


def _guarded_timed(breaker: "CircuitBreaker", function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a policy that takes times."""
    clock = breaker._clock

    def guarded(*args: Any, **kwargs: Any) -> Any:
        run = breaker._timed
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
        except Exception:  # noqa: BLE001  the clock's own trouble
            breaker.log_trouble()
        breaker.succeeded(run.permit, breaker.seconds_since(started_s))
        return result

    return guarded


def _guarded_timed_and_shared(
    breaker: "CircuitBreaker", function: Callable[..., Any]
) -> Callable[..., Any]:
    """The same where others share the circuit: a run that is due is looked at before the call.

    So it needs not to know whether changes are pushed, which may begin or cease at any time.
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
            refused = breaker._refused() if breaker._fallback is None else None
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
