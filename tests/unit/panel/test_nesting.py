"""Guarded code that calls code guarded by the same breaker: the inner call is part of the outer."""

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Generator

import pytest

from depth import for_each
from stress.crew import in_time
from switchgear import CircuitBreaker, Cooldown, Policy, Rejected, Signal, detectors
from switchgear._panel.panel import Panel
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock
from unit.shapes import ALL, Shape, driven

every_outer = pytest.mark.parametrize("outer", ALL, ids=lambda shape: shape.__name__)
every_inner = for_each("inner", ALL)


def up() -> str:
    return "answer"


def down() -> str:
    raise ConnectionError("down")


def probing(policy: Policy | None = None) -> tuple[CircuitBreaker, FakeClock]:
    """A breaker whose next call is a probe, and whose totals are one failure."""
    clock = FakeClock()
    policy = policy or Policy([detectors.ConsecutiveFailures(1)])
    breaker = CircuitBreaker("api", policy=policy, clock=clock)
    breaker.record(Signal(ok=False))
    clock.advance(60.0)
    return breaker, clock


def counts(breaker: CircuitBreaker) -> dict[str, int]:
    return {name: n for name, n in breaker.totals._asdict().items() if n}


@every_inner
@every_outer
def test_calls_inside_a_probe_are_admitted_and_the_probe_closes_the_circuit(
    outer: Shape, inner: Shape
) -> None:
    breaker, _ = probing()
    assert outer(breaker, lambda: inner(breaker, up)) in ("answer", ["answer"])
    assert breaker.state == "closed"
    assert counts(breaker) == {"failed": 1, "succeeded": 2}


@every_inner
@every_outer
def test_a_failure_inside_a_probe_fails_the_probe_once(outer: Shape, inner: Shape) -> None:
    breaker, _ = probing()
    with pytest.raises(ConnectionError):
        outer(breaker, lambda: inner(breaker, down))
    assert breaker.state == "open"
    assert breaker.snapshot().outage.failed_probes == 1


@every_outer
def test_a_handled_failure_inside_a_probe_decides_nothing(outer: Shape) -> None:
    breaker, _ = probing()

    def tries_again() -> str:
        with pytest.raises(ConnectionError):
            breaker.call(down)
        assert breaker.state == "half_open"
        return breaker.call(up)

    outer(breaker, tries_again)
    assert breaker.state == "closed"


def test_a_success_inside_a_probe_decides_nothing_either() -> None:
    breaker, _ = probing()

    def then_fails() -> None:
        breaker.call(up)
        assert breaker.state == "half_open"
        down()

    with pytest.raises(ConnectionError):
        breaker.call(then_fails)
    assert breaker.state == "open"


def test_calls_inside_a_probe_do_not_count_as_probes() -> None:
    recovery = Cooldown(60.0, probes=2, successes=2)
    breaker, _ = probing(Policy([detectors.ConsecutiveFailures(1)], recovery))

    def probe() -> None:
        breaker.call(breaker.call, up)
        in_time(lambda: breaker.call(up))

    breaker.call(probe)
    assert breaker.state == "closed"


def test_a_fallback_is_not_taken_inside_a_probe() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", 1, fallback=lambda *_: "fallback", clock=clock)
    breaker.record(Signal(ok=False))
    clock.advance(60.0)
    assert breaker.call(lambda: breaker.call(up)) == "answer"
    assert breaker.state == "closed"


@pytest.mark.parametrize("strict", [False, True])
def test_calls_inside_a_probe_are_admitted_over_a_shared_store_too(strict: bool) -> None:
    clock = FakeClock(1000.0)
    policy = Policy([detectors.ConsecutiveFailures(1)], strict=strict)
    breaker = Panel(MemoryStore(clock=clock), clock=clock).breaker("api", policy)
    breaker.record(Signal(ok=False))
    clock.advance(60.0)
    assert breaker.call(lambda: breaker.call(up)) == "answer"
    assert breaker.state == "closed"


def test_calls_inside_permits_of_a_panel_are_inside_their_probe() -> None:
    clock = FakeClock(1000.0)
    panel = Panel(MemoryStore(clock=clock), clock=clock)
    breaker = panel.breaker("api", Policy([detectors.ConsecutiveFailures(1)]))
    breaker.record(Signal(ok=False))
    clock.advance(60.0)
    with panel.ask_all(["api"]):
        assert breaker.call(up) == "answer"
    assert breaker.state == "closed"


def test_only_tasks_that_a_probe_starts_are_inside_it() -> None:
    breaker, _ = probing()

    async def answer() -> str:
        return "answer"

    async def fan_out() -> list[str]:
        return await asyncio.gather(*(breaker.acall(answer) for _ in range(3)))

    async def main() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def beside() -> None:
            await asked.wait()
            with pytest.raises(Rejected, match="a probe is under way"):
                await breaker.acall(answer)
            go_on.set()

        async def probe() -> list[str]:
            asked.set()
            await go_on.wait()
            return await fan_out()

        other = asyncio.create_task(beside())
        async with asyncio.timeout(10):
            assert await breaker.acall(probe) == ["answer"] * 3
            await other

    asyncio.run(main())
    assert breaker.state == "closed"


def numbers() -> Generator[int]:
    yield 1
    yield 2


async def anumbers() -> AsyncGenerator[int]:
    yield 1
    yield 2


def test_the_consumer_of_a_stream_is_not_inside_of_it() -> None:
    breaker, _ = probing()
    stream = breaker(numbers)()
    assert next(stream) == 1
    with pytest.raises(Rejected):
        breaker.call(up)
    assert list(stream) == [2]
    assert breaker.state == "closed"


def test_the_consumer_of_an_async_stream_is_not_inside_of_it() -> None:
    breaker, _ = probing()

    async def main() -> None:
        stream = breaker(anumbers)()
        assert await anext(stream) == 1
        with pytest.raises(Rejected):
            breaker.call(up)
        assert [item async for item in stream] == [2]

    driven(main())
    assert breaker.state == "closed"


def test_calls_inside_a_finished_probe_are_refused_like_others() -> None:
    breaker, clock = probing()

    def outlives_its_lease() -> None:
        clock.advance(60.0)
        assert breaker.snapshot().probing.permits == ()
        in_time(breaker.enter)
        with pytest.raises(Rejected):
            breaker.call(up)

    breaker.call(outlives_its_lease)
    assert breaker.totals.refused == 1


def test_a_hold_open_applies_inside_a_probe() -> None:
    breaker, _ = probing()

    def held() -> None:
        breaker.hold_open(by="ann", why="test")
        with pytest.raises(Rejected, match="held open by ann"):
            breaker.call(up)

    breaker.call(held)


def test_a_context_is_inside_a_probe_only_until_it_ends() -> None:
    breaker, clock = probing()
    here = contextvars.copy_context()
    here.run(breaker.__enter__)
    assert here.run(breaker.call, up) == "answer"
    clock.advance(60.0)
    breaker.call(up)
    assert breaker.state == "closed"
    breaker.record(Signal(ok=False))
    clock.advance(60.0)
    probe = breaker.enter()
    with pytest.raises(Rejected):
        here.run(breaker.call, up)
    breaker.record(Signal(ok=True), probe)


def test_an_exception_that_is_raised_again_counts_at_every_call_and_once_in_nested_guards() -> None:
    breaker = CircuitBreaker("api", threshold=5, clock=FakeClock())
    error = ConnectionError("the same object every time")

    def fails() -> None:
        raise error

    for _ in range(2):
        with pytest.raises(ConnectionError):
            breaker.call(fails)
    assert breaker.totals.failed == 2
    with pytest.raises(ConnectionError):
        breaker.call(breaker.call, fails)
    assert breaker.totals.failed == 3
