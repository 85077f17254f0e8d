"""A coroutine or generator that a guarded function returns is guarded when it runs."""

import asyncio
import gc
import warnings
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import pytest

from switchgear import CircuitBreaker, Policy, Rejected, Signal, detectors
from switchgear._breaker.shapes import lazy_code
from switchgear.testing import FakeClock
from unit.shapes import driven

TIMED = Policy([detectors.ConsecutiveFailures(1), detectors.SlowCalls(slow_s=10.0)])


async def coroutine() -> str:
    return "answer"


async def failing() -> str:
    raise ConnectionError


def returns_a_coroutine() -> Any:
    return failing()


def generator() -> Generator[int]:
    yield 1


async def async_generator() -> AsyncGenerator[int]:
    yield 1


class Client:
    async def ask(self) -> str:
        return "answer"

    def plain(self) -> str:
        return "answer"


class AsyncCallable:
    async def __call__(self) -> str:
        return "answer"


class PlainCallable:
    def __call__(self) -> str:
        return "answer"


def counts(breaker: CircuitBreaker) -> dict[str, int]:
    return {name: n for name, n in breaker.totals._asdict().items() if n}


def probing(policy: Policy | None = None) -> CircuitBreaker:
    """A breaker whose next call is a probe, and whose totals are one failure."""
    clock = FakeClock()
    policy = policy or Policy([detectors.ConsecutiveFailures(1)])
    breaker = CircuitBreaker("api", policy=policy, clock=clock)
    breaker.record(Signal(ok=False))
    clock.advance(60.0)
    return breaker


@pytest.mark.parametrize(
    "function",
    [
        coroutine,
        generator,
        async_generator,
        Client().ask,
        Client.ask,
        AsyncCallable(),
        partial(coroutine),
        partial(partial(Client().ask)),
        partial(AsyncCallable()),
    ],
)
def test_functions_that_only_create_coroutines_or_generators_are_recognised_before_the_call(
    function: Callable[..., Any],
) -> None:
    assert lazy_code(function) is not None


@pytest.mark.parametrize(
    "function",
    [
        int,
        len,
        counts,
        Client().plain,
        Client,
        PlainCallable(),
        partial(counts),
        returns_a_coroutine,
    ],
)
def test_functions_that_run_when_they_are_called_are_not_lazy(function: Callable[..., Any]) -> None:
    assert lazy_code(function) is None


@pytest.mark.parametrize("phase", ["closed", "half_open"])
@pytest.mark.parametrize(
    "function",
    [coroutine, Client().ask, AsyncCallable(), partial(coroutine), partial(AsyncCallable())],
)
def test_call_guards_every_kind_of_coroutine_function_in_every_phase(
    function: Callable[..., Any], phase: str
) -> None:
    breaker = probing() if phase == "half_open" else CircuitBreaker("api", clock=FakeClock())
    assert driven(breaker.call(function)) == "answer"
    assert breaker.totals.succeeded == 1
    assert breaker.state == "closed"


@pytest.mark.parametrize("phase", ["closed", "half_open"])
def test_an_async_generator_function_given_to_acall_is_guarded_too(phase: str) -> None:
    breaker = probing() if phase == "half_open" else CircuitBreaker("api", clock=FakeClock())
    acall: Callable[..., Any] = breaker.acall
    before = breaker.totals

    async def main() -> list[int]:
        stream = await acall(async_generator)
        assert breaker.totals == before
        return [item async for item in stream]

    assert driven(main()) == [1]
    assert breaker.totals.succeeded == 1


def test_a_failing_coroutine_given_to_call_counts_when_it_is_awaited_and_not_before() -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    pending = breaker.call(failing)
    assert counts(breaker) == {}
    with pytest.raises(ConnectionError):
        driven(pending)
    assert breaker.state == "open"


def test_a_coroutine_made_while_closed_and_awaited_while_open_is_refused_and_never_runs() -> None:
    breaker, ran = CircuitBreaker("api", threshold=1, clock=FakeClock()), list[str]()

    async def runs() -> None:
        ran.append("ran")

    pending = breaker.call(runs)
    breaker.record(Signal(ok=False))
    with pytest.raises(Rejected):
        driven(pending)
    assert ran == []
    assert counts(breaker) == {"failed": 1, "refused": 1}


@pytest.mark.parametrize("function", [coroutine, generator, async_generator])
def test_an_open_circuit_refuses_them_at_the_call(function: Callable[..., Any]) -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    breaker.hold_open(by="ann", why="test")
    with pytest.raises(Rejected):
        breaker.call(function)


@pytest.mark.parametrize("policy", [None, TIMED])
@pytest.mark.parametrize("function", [coroutine, generator, async_generator])
def test_a_dropped_lazy_result_is_not_a_call_and_uses_no_probe(
    function: Callable[..., Any], policy: Policy | None
) -> None:
    breaker = probing(policy)
    made: Any = breaker.call(function)
    if function is coroutine:
        made.close()  # as a decent program does; Python warns of the others
    del made
    assert counts(breaker) == {"failed": 1}
    assert breaker.call(int) == 0
    assert breaker.state == "closed"


@pytest.mark.parametrize("made_by", [coroutine, generator, async_generator])
def test_a_coroutine_that_a_plain_function_returned_holds_the_probe_until_it_is_dropped(
    made_by: Callable[..., Any],
) -> None:
    breaker = probing()
    made: Any = breaker.call(lambda: made_by())  # noqa: PLW0108  a function that is plain
    with pytest.raises(Rejected, match="a probe is under way"):
        breaker.call(int)
    if made_by is coroutine:
        made.close()
    del made
    assert counts(breaker) == {"failed": 1, "refused": 1, "ignored": 1}
    assert breaker.call(int) == 0


def test_a_coroutine_that_a_plain_function_returned_decides_the_probe_when_it_has_run() -> None:
    breaker = probing()
    pending = breaker.call(returns_a_coroutine)
    assert breaker.state == "half_open"
    with pytest.raises(ConnectionError):
        driven(pending)
    assert breaker.state == "open"
    assert counts(breaker) == {"failed": 2}


def test_a_task_that_is_cancelled_before_it_starts_warns_of_nothing_and_counts_nothing() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())

    async def main() -> None:
        task = asyncio.create_task(breaker.call(coroutine))
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert [str(warning.message) for warning in warned] == []
    assert counts(breaker) == {}


def test_an_unawaited_coroutine_causes_one_warning_with_its_own_name() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        breaker.call(coroutine)  # type: ignore[unused-coroutine]
        gc.collect()
    assert [str(warning.message) for warning in warned] == [
        "coroutine 'coroutine' was never awaited"
    ]


def test_a_lazy_result_has_the_name_of_its_function() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    made: list[Any] = [breaker.call(generator), breaker.call(async_generator)]
    assert [each.__name__ for each in made] == ["generator", "async_generator"]
    assert [each.__qualname__ for each in made] == ["generator", "async_generator"]


@pytest.mark.parametrize("answer", [[1, 2], iter([1]), range(3), map(int, "12")])
def test_other_results_are_returned_unchanged(answer: Any) -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    assert breaker.call(lambda: answer) is answer
    assert counts(breaker) == {"succeeded": 1}


def test_wrong_arguments_of_a_coroutine_function_are_a_failure_of_the_call() -> None:
    breaker = probing()
    wrong: Callable[..., Any] = coroutine
    with pytest.raises(TypeError, match="positional argument"):
        driven(breaker.call(wrong, 1))
    assert breaker.state == "open"


# What can be awaited and is no coroutine


def test_the_future_of_an_event_loop_counts_when_it_is_awaited_and_not_before() -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())

    async def main() -> None:
        pending = breaker.call(asyncio.ensure_future, failing())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert pending.done()
        assert counts(breaker) == {}
        with pytest.raises(ConnectionError):
            await pending

    asyncio.run(main())
    assert counts(breaker) == {"failed": 1}


def test_an_awaitable_that_is_awaited_again_counts_once() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())

    async def main() -> list[str]:
        pending = breaker.call(asyncio.ensure_future, coroutine())
        return [await pending, await pending, *await asyncio.gather(pending)]

    assert asyncio.run(main()) == ["answer"] * 3
    assert counts(breaker) == {"succeeded": 1}


def test_an_awaitable_that_is_awaited_while_the_circuit_is_open_is_refused() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())

    async def main() -> None:
        pending = breaker.call(asyncio.ensure_future, coroutine())
        breaker.hold_open(by="ann", why="test")
        with pytest.raises(Rejected):
            await pending
        pending.cancel()

    asyncio.run(main())


class Request:
    """Awaitable, and an async context manager, as the requests of some clients are."""

    url = "https://example.test/"

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def __await__(self) -> Generator[Any, Any, str]:
        return coroutine().__await__()

    async def __aenter__(self) -> str:
        if self._error is not None:
            raise self._error
        return "response"

    async def __aexit__(self, *_: object) -> None:
        pass


def test_an_awaitable_that_is_a_context_manager_is_guarded_when_it_is_entered() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())

    async def main() -> None:
        async with breaker.call(Request) as response:
            assert response == "response"
        with pytest.raises(ConnectionError):
            async with breaker.call(Request, ConnectionError()):
                pass

    driven(main())
    assert counts(breaker) == {"succeeded": 1, "failed": 1}


def test_other_attributes_are_those_of_the_awaitable() -> None:
    request = CircuitBreaker("api", clock=FakeClock()).call(Request)
    assert request.url == "https://example.test/"
    assert not hasattr(request, "nonsense")
    assert "guarded by circuit 'api'" in repr(request)


def test_an_awaitable_created_under_a_probe_and_dropped_frees_the_probe() -> None:
    breaker = probing()
    made = breaker.call(Request)
    with pytest.raises(Rejected):
        breaker.call(int)
    del made
    assert breaker.call(int) == 0
    assert breaker.state == "closed"


def test_a_mock_does_not_count_as_an_awaitable() -> None:
    breaker, mock = CircuitBreaker("api", clock=FakeClock()), MagicMock()
    assert breaker.call(lambda: mock) is mock
    assert counts(breaker) == {"succeeded": 1}


def test_an_object_that_is_not_iterable_is_not_a_stream() -> None:
    unfit: Any = 5
    with pytest.raises(TypeError, match="circuit 'api' cannot guard 5 as a stream"):
        CircuitBreaker("api", clock=FakeClock()).stream(unfit)


def test_an_abandoned_stream_object_is_not_evidence_and_not_closed() -> None:
    breaker, source = CircuitBreaker("api", clock=FakeClock()), iter([1, 2, 3])
    for item in breaker.stream(source):
        assert item == 1
        break
    gc.collect()
    assert counts(breaker) == {"ignored": 1}
    assert list(source) == [2, 3]
