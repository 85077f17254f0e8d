"""A fallback answers only for refused calls, in the shape of the call."""

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

from switchgear import CircuitBreaker, Latched, Policy, Rejected, detectors
from switchgear.testing import FakeClock
from unit.shapes import CALLS, Shape, driven


def opened(fallback: Callable[..., Any], **settings: Any) -> CircuitBreaker:
    breaker = CircuitBreaker("api", fallback=fallback, clock=FakeClock(), **settings)
    breaker.hold_open(by="ann", why="test")
    return breaker


def answer(prompt: str, *, n: int = 1) -> Any:
    raise AssertionError("a refused call must not run")


def test_a_fallback_gets_the_arguments_of_the_refused_call_and_its_result_is_returned() -> None:
    breaker = opened(lambda *args, **kwargs: (args, kwargs))
    expected = (("hi",), {"n": 2})
    assert breaker.call(answer, "hi", n=2) == expected
    assert breaker(answer)("hi", n=2) == expected


def test_a_fallback_is_called_only_when_the_circuit_refuses() -> None:
    called = list[str]()
    breaker = CircuitBreaker(
        "api", threshold=2, fallback=lambda: called.append("x"), clock=FakeClock()
    )
    assert breaker.call(lambda: "fine") == "fine"
    for _ in range(2):
        with pytest.raises(ConnectionError):
            breaker.call(fails)
    assert called == []
    breaker.call(fails)
    assert called == ["x"]


def fails() -> None:
    raise ConnectionError


def test_calls_that_the_fallback_answers_are_refusals_and_not_evidence() -> None:
    breaker = opened(lambda: "cached")
    for _ in range(3):
        breaker.call(lambda: "never")
    assert breaker.totals._asdict() == {
        **dict.fromkeys(breaker.totals._fields, 0),
        "refused": 3,
    }


def test_an_exception_of_the_fallback_has_no_refusal_as_its_cause() -> None:
    error = LookupError("nothing cached")

    def nothing_cached() -> str:
        raise error

    with pytest.raises(LookupError) as raised:
        opened(nothing_cached).call(lambda: "never")
    assert raised.value is error
    assert raised.value.__context__ is None
    assert raised.value.__cause__ is None


# Whoever is refused a function that would have returned a coroutine cannot know that it would.
KNOWN = [shape for shape in CALLS if "that_returns" not in shape.__name__]


@pytest.mark.parametrize("phase", ["open", "half_open"])
@pytest.mark.parametrize("shape", KNOWN, ids=lambda shape: shape.__name__)
def test_a_fallback_answers_in_every_shape_of_call_also_during_a_probe(
    shape: Shape, phase: str
) -> None:
    clock = FakeClock()
    is_stream = "generator" in shape.__name__ or "stream" in shape.__name__

    def cached(*_: object) -> object:
        return ["cached"] if is_stream else "cached"

    breaker = CircuitBreaker("api", threshold=1, fallback=cached, clock=clock)
    with pytest.raises(ConnectionError):
        breaker.call(fails)
    if phase == "half_open":
        clock.advance(60.0)
        breaker.enter()
    assert breaker.state == phase
    assert shape(breaker, lambda: pytest.fail("a refused call must not run")) == "cached"


@pytest.mark.parametrize("how", ["acall", "decorated", "call"])
def test_a_coroutine_function_may_have_an_async_fallback(how: str) -> None:
    async def later(prompt: str) -> str:
        return f"cached {prompt}"

    async def ask(prompt: str) -> str:
        raise AssertionError("a refused call must not run")

    breaker = opened(later)
    coroutine: Any = {
        "acall": lambda: breaker.acall(ask, "hi"),
        "decorated": lambda: breaker(ask)("hi"),
        "call": lambda: breaker.call(ask, "hi"),
    }[how]()
    assert driven(coroutine) == "cached hi"


def test_a_stream_may_have_a_stream_as_its_fallback_result_and_all() -> None:
    def cached() -> Generator[int, None, str]:
        yield 1
        yield 2
        return "done"

    def stream() -> Generator[int, None, str]:
        yield answer("a refused call must not run")
        return "never"

    def collect() -> Generator[int, None, str]:
        return (yield from opened(cached)(stream)())

    collected, items = collect(), list[int]()
    with pytest.raises(StopIteration) as end:
        while True:
            items.append(next(collected))
    assert items == [1, 2]
    assert end.value.value == "done"


def test_an_async_stream_may_have_an_async_stream_as_its_fallback() -> None:
    async def cached() -> AsyncGenerator[int]:
        yield 1
        yield 2

    async def stream() -> AsyncGenerator[int]:
        yield answer("a refused call must not run")

    async def collect() -> list[int]:
        return [item async for item in opened(cached)(stream)()]

    assert driven(collect()) == [1, 2]


def test_a_block_cannot_fall_back_and_is_refused() -> None:
    breaker = opened(lambda: "cached")
    with pytest.raises(Rejected), breaker:
        pytest.fail("a refused block must not run")


def test_a_probe_is_tried_before_the_fallback() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, fallback=lambda: "cached", clock=clock)
    with pytest.raises(ConnectionError):
        breaker.call(fails)
    assert breaker.call(lambda: "fresh") == "cached"
    clock.advance(60.0)
    assert breaker.call(lambda: "fresh") == "fresh"


def test_a_latched_circuit_falls_back_for_good() -> None:
    policy = Policy([detectors.ConsecutiveFailures(1)], Latched())
    clock = FakeClock()
    breaker = CircuitBreaker("api", policy=policy, fallback=lambda: "cached", clock=clock)
    with pytest.raises(ConnectionError):
        breaker.call(fails)
    clock.advance(1e9)
    assert breaker.call(lambda: "fresh") == "cached"
