"""Switchgear as the suite uses it: the default breaker, and the one with windows."""

from __future__ import annotations

import math

from bench.library import Function, Guard, Library, Role
from switchgear import CircuitBreaker, Cooldown, Policy, Rejected, detectors


def in_a_row(function: Function) -> Function:
    return CircuitBreaker("bench", threshold=5, base_timeout=60.0)(function)


def call() -> Function:
    """The same breaker without the decorator: `breaker.call(function)`."""
    return CircuitBreaker("bench", threshold=5, base_timeout=60.0).call


def acall() -> Function:
    """The same for coroutine functions: `await breaker.acall(function)`."""
    return CircuitBreaker("bench", threshold=5, base_timeout=60.0).acall


def by_rate(function: Function) -> Function:
    policy = Policy(
        detectors=[
            detectors.FailureRate(window=20, threshold=0.5),
            detectors.SlowCalls(slow_s=10.0, window=20, threshold=0.5),
        ],
        recovery=Cooldown(base_s=60.0),
    )
    return CircuitBreaker("bench", policy=policy)(function)


def by_rate_of(window: int) -> Guard:
    """A window of so many calls that never trips: the threshold is, rounded, all of them."""
    policy = Policy(
        detectors=[detectors.FailureRate(window=window, threshold=math.nextafter(1.0, 0.0))],
        recovery=Cooldown(base_s=60.0),
    )

    def guard(function: Function) -> Function:
        return CircuitBreaker("bench", policy=policy)(function)

    return guard


OURS = Library(
    distribution="switchgear",
    role=Role.OURS,
    refusal=Rejected,
    create=CircuitBreaker,
    use=CircuitBreaker.call,
    in_a_row=in_a_row,
    in_a_row_async=in_a_row,
    by_rate=by_rate,
    by_rate_of=by_rate_of,
)
