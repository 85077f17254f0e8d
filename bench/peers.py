"""The eight peers, each used as its own documentation shows and set as close to ours as it goes:
five failures in a row, or a window of 20 calls with half failed or half slower than 10 s; 60 s open.

The imports are dynamic because the peers are installed only in the environment of the benchmarks,
and some have no types: for the type checker they are all `Any`.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

from bench.library import Function, Guard, Library

aiobreaker: Any = import_module("aiobreaker")
circuitbreaker: Any = import_module("circuitbreaker")
failsafe: Any = import_module("failsafe")
fluxgate: Any = import_module("fluxgate")
fluxgate_retries: Any = import_module("fluxgate.retries")
fluxgate_trippers: Any = import_module("fluxgate.trippers")
fluxgate_windows: Any = import_module("fluxgate.windows")
hyx: Any = import_module("hyx.circuitbreaker")
hyx_exceptions: Any = import_module("hyx.circuitbreaker.exceptions")
interlock: Any = import_module("interlock")
purgatory: Any = import_module("purgatory")
purgatory_model: Any = import_module("purgatory.domain.model")
pybreaker: Any = import_module("pybreaker")


def drive(coroutine: Any) -> Any:
    """Run a coroutine that never waits, without an event loop; only the memory measure needs it."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("the coroutine waited for something")


# --- pybreaker: synchronous (its async calls need Tornado) ---------------------------------------


def pybreaker_in_a_row(function: Function) -> Any:
    return pybreaker.CircuitBreaker(fail_max=5, reset_timeout=60)(function)


PYBREAKER = Library(
    distribution="pybreaker",
    refusal=pybreaker.CircuitBreakerError,
    create=lambda name: pybreaker.CircuitBreaker(name=name),
    use=lambda breaker, function: breaker.call(function),
    in_a_row=pybreaker_in_a_row,
)


# --- circuitbreaker ------------------------------------------------------------------------------


def circuitbreaker_in_a_row(function: Function) -> Any:
    return circuitbreaker.CircuitBreaker(failure_threshold=5, recovery_timeout=60)(function)


CIRCUITBREAKER = Library(
    distribution="circuitbreaker",
    refusal=circuitbreaker.CircuitBreakerError,
    create=lambda name: circuitbreaker.CircuitBreaker(name=name),
    # `call` records but never refuses; only the decorator does. Enough for counting bytes.
    use=lambda breaker, function: breaker.call(function),
    in_a_row=circuitbreaker_in_a_row,
    in_a_row_async=circuitbreaker_in_a_row,
)


# --- aiobreaker ----------------------------------------------------------------------------------


def aiobreaker_in_a_row(function: Function) -> Any:
    return aiobreaker.CircuitBreaker(fail_max=5, timeout_duration=timedelta(seconds=60))(function)


AIOBREAKER = Library(
    distribution="aiobreaker",
    refusal=aiobreaker.CircuitBreakerError,
    create=lambda name: aiobreaker.CircuitBreaker(name=name),
    use=lambda breaker, function: breaker.call(function),
    in_a_row=aiobreaker_in_a_row,
    in_a_row_async=aiobreaker_in_a_row,
)


# --- purgatory: breakers live in a factory; what it raises is its internal "opened" state --------


def purgatory_in_a_row(function: Function) -> Any:
    return purgatory.SyncCircuitBreakerFactory()("bench", threshold=5, ttl=60)(function)


def purgatory_in_a_row_async(function: Function) -> Any:
    return purgatory.AsyncCircuitBreakerFactory()("bench", threshold=5, ttl=60)(function)


def purgatory_use(breaker: Any, function: Function) -> Any:
    with breaker:
        return function()


# One factory for all, as one application would have.
PURGATORY_FACTORY = purgatory.SyncCircuitBreakerFactory()

PURGATORY = Library(
    distribution="purgatory",
    refusal=purgatory_model.OpenedState,
    create=PURGATORY_FACTORY.get_breaker,
    use=purgatory_use,
    in_a_row=purgatory_in_a_row,
    in_a_row_async=purgatory_in_a_row_async,
)


# --- interlock-cb: always a window and always timed; its defaults stand in for "in a row" --------


def interlock_in_a_row(function: Function) -> Any:
    return interlock.CircuitBreaker(name="bench")(function)


def interlock_by_rate(function: Function) -> Any:
    config = interlock.Config(
        window_size=20,
        minimum_number_of_calls=20,
        failure_rate_threshold=0.5,
        slow_call_duration_threshold=10.0,
        slow_call_rate_threshold=0.5,
        wait_duration_in_open=60.0,
    )
    return interlock.CircuitBreaker(name="bench", config=config)(function)


def interlock_by_rate_of(window: int) -> Guard:
    """Requires one call more than the window has, so it never trips."""
    config = interlock.Config(window_size=window, minimum_number_of_calls=window + 1)

    def guard(function: Function) -> Any:
        return interlock.CircuitBreaker(name="bench", config=config)(function)

    return guard


INTERLOCK = Library(
    distribution="interlock-cb",
    refusal=interlock.CircuitOpenError,
    create=lambda name: interlock.CircuitBreaker(name=name),
    use=lambda breaker, function: breaker.call(function),
    in_a_row=interlock_in_a_row,
    in_a_row_async=interlock_in_a_row,
    by_rate=interlock_by_rate,
    by_rate_of=interlock_by_rate_of,
)


# --- fluxgate: always a window, always timed; `FailureStreak` is its "in a row" ------------------


def fluxgate_in_a_row(function: Function) -> Any:
    tripper = fluxgate_trippers.FailureStreak(5)
    return fluxgate.CircuitBreaker(tripper=tripper)(function)


def fluxgate_in_a_row_async(function: Function) -> Any:
    tripper = fluxgate_trippers.FailureStreak(5)
    return fluxgate.AsyncCircuitBreaker(tripper=tripper)(function)


def fluxgate_by_rate(function: Function) -> Any:
    enough = fluxgate_trippers.MinRequests(20)
    failing = fluxgate_trippers.FailureRate(0.5)
    slow = fluxgate_trippers.SlowRate(0.5, threshold=10.0)
    return fluxgate.CircuitBreaker(
        window=fluxgate_windows.CountWindow(20),
        tripper=enough & (failing | slow),
        retry=fluxgate_retries.Cooldown(60.0),
    )(function)


def fluxgate_by_rate_of(window: int) -> Guard:
    """Requires one call more than the window has, so it never trips."""
    never = fluxgate_trippers.MinRequests(window + 1) & fluxgate_trippers.FailureRate(1.0)

    def guard(function: Function) -> Any:
        count = fluxgate_windows.CountWindow(window)
        return fluxgate.CircuitBreaker(window=count, tripper=never)(function)

    return guard


FLUXGATE = Library(
    distribution="fluxgate",
    refusal=fluxgate.CallNotPermittedError,
    create=lambda _name: fluxgate.CircuitBreaker(),
    use=lambda breaker, function: breaker.call(function),
    in_a_row=fluxgate_in_a_row,
    in_a_row_async=fluxgate_in_a_row_async,
    by_rate=fluxgate_by_rate,
    by_rate_of=fluxgate_by_rate_of,
)


# --- pyfailsafe: asynchronous only; retries are off ----------------------------------------------


def pyfailsafe_in_a_row_async(function: Function) -> Any:
    breaker = failsafe.CircuitBreaker(maximum_failures=5, reset_timeout_seconds=60)
    return partial(failsafe.Failsafe(circuit_breaker=breaker).run, function)


PYFAILSAFE = Library(
    distribution="pyfailsafe",
    refusal=failsafe.CircuitOpen,
    create=lambda _name: failsafe.Failsafe(circuit_breaker=failsafe.CircuitBreaker()),
    use=lambda breaker, function: drive(breaker.run(function)),
    in_a_row_async=pyfailsafe_in_a_row_async,
    uses_coroutines=True,
)


# --- hyx: asynchronous only ----------------------------------------------------------------------


def hyx_in_a_row_async(function: Function) -> Any:
    return hyx.consecutive_breaker(failure_threshold=5, recovery_time_secs=60)(function)


async def hyx_use(breaker: Any, function: Function) -> Any:
    async with breaker:
        return await function()


HYX = Library(
    distribution="hyx",
    refusal=hyx_exceptions.BreakerFailing,
    create=lambda _name: hyx.consecutive_breaker(),
    use=lambda breaker, function: drive(hyx_use(breaker, function)),
    in_a_row_async=hyx_in_a_row_async,
    uses_coroutines=True,
)


PEERS = (
    AIOBREAKER,
    CIRCUITBREAKER,
    FLUXGATE,
    HYX,
    INTERLOCK,
    PURGATORY,
    PYBREAKER,
    PYFAILSAFE,
)
