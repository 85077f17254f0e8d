"""Guarding a call keeps nothing of it alive: no frame, traceback, exception, argument or result.

Judged with the garbage collector off: what is not freed by its last reference going away is held
by somebody, or by a cycle that the guard has tied.
"""

import contextlib
import gc
import re
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from switchgear import CircuitBreaker, Policy, Rejected, detectors
from switchgear.testing import FakeClock
from unit.shapes import ALL, Shape, driven

TIMED = Policy([detectors.ConsecutiveFailures(1), detectors.SlowCalls(slow_s=10.0)])
# A class made in passing is a separate cycle; the wrappers of its methods are those of functions.
FREED_AT_ONCE = [s for s in ALL if not re.search("method|object", s.__name__)]
every_classless_shape = pytest.mark.parametrize(
    "shape", FREED_AT_ONCE, ids=lambda shape: shape.__name__
)
every_shape = pytest.mark.parametrize("shape", ALL, ids=lambda shape: shape.__name__)
every_policy = pytest.mark.parametrize("policy", [None, TIMED], ids=["classic", "timed"])


class Canary:
    """A large object of the caller."""


@pytest.fixture(autouse=True)
def collector_off() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def breaker_of(policy: Policy | None, clock: FakeClock) -> CircuitBreaker:
    if policy is None:
        return CircuitBreaker("api", threshold=1, clock=clock)
    return CircuitBreaker("api", policy=policy, clock=clock)


@every_classless_shape
@every_policy
def test_after_a_success_neither_the_function_nor_its_result_is_kept(
    shape: Shape, policy: Policy | None
) -> None:
    breaker, canary = breaker_of(policy, FakeClock()), Canary()
    alive = weakref.ref(canary)

    def gives(canary: Canary = canary) -> Canary:
        return canary

    shape(breaker, gives)
    del canary, gives
    assert alive() is None
    assert breaker.totals.succeeded == 1


@every_shape
@every_policy
@pytest.mark.parametrize("kind", [ConnectionError, KeyboardInterrupt])
def test_after_an_exception_neither_it_nor_a_frame_of_its_traceback_is_kept(
    shape: Shape, policy: Policy | None, kind: type[BaseException]
) -> None:
    breaker, alive = breaker_of(policy, FakeClock()), list[weakref.ref[Canary]]()

    class Carrier(kind):  # type: ignore[misc, valid-type]
        pass

    def fails() -> None:
        canary = Canary()
        alive.append(weakref.ref(canary))
        raise Carrier

    try:
        shape(breaker, fails)
    except Carrier as error:
        alive.append(weakref.ref(error))
    assert len(alive) == 2
    assert [ref() for ref in alive] == [None, None]


@every_classless_shape
@pytest.mark.parametrize("phase", ["open", "half_open"])
def test_after_a_refusal_neither_the_function_nor_the_refusal_is_kept(
    shape: Shape, phase: str
) -> None:
    clock = FakeClock()
    breaker = breaker_of(None, clock)
    with pytest.raises(ZeroDivisionError):
        breaker.call(lambda: 1 // 0)
    if phase == "half_open":
        clock.advance(60.0)
        breaker.enter()
    canary = Canary()
    alive: list[weakref.ref[Any]] = [weakref.ref(canary)]

    def never(canary: Canary = canary) -> Canary:
        return canary

    def refused_in_a_frame_of_its_own(never: Callable[[], Canary]) -> None:
        mine = Canary()
        alive.append(weakref.ref(mine))
        try:
            shape(breaker, never)
        except Rejected as refusal:
            alive.append(weakref.ref(refusal))

    refused_in_a_frame_of_its_own(never)
    del canary, never
    assert len(alive) == 3
    assert [ref() for ref in alive] == [None, None, None]


@every_classless_shape
def test_a_fallback_keeps_nothing_of_the_refused_call(shape: Shape) -> None:
    breaker = CircuitBreaker("api", fallback=list, clock=FakeClock())
    breaker.hold_open(by="ann", why="test")
    canary = Canary()
    alive = weakref.ref(canary)

    def never(canary: Canary = canary) -> Canary:
        return canary

    # A plain function that would have returned a coroutine falls back to what is none;
    # a block has no fallback.
    with contextlib.suppress(AttributeError, TypeError, Rejected):
        shape(breaker, never)
    del canary, never
    assert alive() is None


def frames_of(error: BaseException) -> list[FrameType]:
    frames, traceback = list[FrameType](), error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames


@every_shape
def test_no_frame_of_the_guard_keeps_the_exception_that_passed_through_it(shape: Shape) -> None:
    breaker = breaker_of(None, FakeClock())

    def fails() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError) as caught:
        shape(breaker, fails)
    ours = [f for f in frames_of(caught.value) if "/switchgear/" in f.f_code.co_filename]
    assert all(caught.value is not held for f in ours for held in f.f_locals.values())


# Streams


class Broke(Exception):
    pass


def items(canary: Canary, *, fails: bool) -> Iterator[int]:
    yield 1
    yield 2
    if fails:
        raise Broke


async def aitems(canary: Canary, *, fails: bool) -> AsyncGenerator[int]:
    yield 1
    yield 2
    if fails:
        raise Broke


def read_all(breaker: CircuitBreaker, canary: Canary, *, fails: bool) -> None:
    for _ in breaker(items)(canary, fails=fails):
        pass


def read_one(breaker: CircuitBreaker, canary: Canary, *, fails: bool) -> None:
    for _ in breaker(items)(canary, fails=fails):
        break


def aread_all(breaker: CircuitBreaker, canary: Canary, *, fails: bool) -> None:
    async def read() -> None:
        async for _ in breaker(aitems)(canary, fails=fails):
            pass

    driven(read())


def aread_one(breaker: CircuitBreaker, canary: Canary, *, fails: bool) -> None:
    async def read() -> None:
        stream = breaker(aitems)(canary, fails=fails)
        await anext(stream)
        await stream.aclose()

    driven(read())


def athrow_one(breaker: CircuitBreaker, canary: Canary, *, fails: bool) -> None:
    async def read() -> None:
        stream = breaker(aitems)(canary, fails=fails)
        await anext(stream)
        await stream.athrow(Broke())

    driven(read())


@pytest.mark.parametrize("read", [read_all, read_one, aread_all, aread_one, athrow_one])
@pytest.mark.parametrize("fails", [False, True])
def test_a_stream_is_released_after_its_end_a_failure_or_an_early_close(
    read: Callable[..., None], fails: bool
) -> None:
    breaker, canary = breaker_of(None, FakeClock()), Canary()
    alive: list[weakref.ref[Any]] = [weakref.ref(canary)]
    try:
        read(breaker, canary, fails=fails)
    except Broke as error:
        alive.append(weakref.ref(error))
    del canary
    assert all(ref() is None for ref in alive)


def test_a_breaker_itself_is_released_with_its_last_user() -> None:
    breaker = breaker_of(None, FakeClock())
    alive = weakref.ref(breaker)

    def fails() -> None:
        raise ConnectionError

    guarded = breaker(fails)
    for _ in range(2):
        with contextlib.suppress(ConnectionError, Rejected):
            guarded()
    with contextlib.suppress(Rejected), breaker:
        pass
    del breaker, guarded
    assert alive() is None
