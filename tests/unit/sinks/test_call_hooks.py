"""Hooks per call and per refusal, sinks that are added later, and coroutine functions as sinks."""

import asyncio
import pickle
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from switchgear import CircuitBreaker, Event, Panel, Policy, Rejected, Signal, detectors
from switchgear._sinks.dispatch import Call, CallOutcome
from switchgear.sinks import Metrics
from switchgear.testing import FakeClock
from timeouts import LIMIT_S
from unit.shapes import ALL, Shape
from unit.system.test_locks import in_a_child

every_shape = pytest.mark.parametrize("shape", ALL, ids=lambda shape: shape.__name__)
TIMED = Policy([detectors.ConsecutiveFailures(5), detectors.SlowCalls(slow_s=10.0)])


def answer() -> str:
    return "answer"


def down() -> None:
    raise ConnectionError("down")


@every_shape
@pytest.mark.parametrize("policy", [None, TIMED])
@pytest.mark.parametrize("late", [False, True])
def test_a_hook_receives_every_call_once_with_its_outcome(
    shape: Shape, policy: Policy | None, late: bool
) -> None:
    seen = list[Call]()
    hooks = () if late else (seen.append,)
    breaker = CircuitBreaker("api", policy=policy, on_call=hooks, clock=FakeClock())
    if late:
        breaker.add_on_call(seen.append)
    shape(breaker, lambda: "answer")
    with pytest.raises(ConnectionError):
        shape(breaker, down)
    breaker.hold_open(by="ada", why="x")
    with pytest.raises(Rejected):
        shape(breaker, lambda: "answer")
    assert [call.outcome for call in seen] == ["success", "failure", "rejected"]
    assert [type(call.exception) for call in seen] == [type(None), ConnectionError, Rejected]
    assert all(call.circuit == "api" for call in seen)
    assert (breaker.totals.succeeded, breaker.totals.failed, breaker.totals.refused) == (1, 1, 1)


def test_durations_are_measured_although_no_detector_needs_them() -> None:
    clock, seen = FakeClock(), list[Call]()
    breaker = CircuitBreaker("api", on_call=seen.append, clock=clock)

    @breaker
    def slow() -> None:
        clock.advance(2.5)

    slow()
    breaker.call(slow.__wrapped__)  # type: ignore[attr-defined]
    assert [call.seconds for call in seen] == [2.5, 2.5]


def test_a_hook_receives_calls_without_evidence_as_ignored() -> None:
    seen = list[Call]()
    breaker = CircuitBreaker("api", ignore=KeyError, on_call=seen.append, clock=FakeClock())

    def missing() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        breaker.call(missing)
    assert seen[0].outcome is CallOutcome.IGNORED


def test_a_hook_receives_a_bad_result_as_a_failure() -> None:
    seen = list[Call]()
    breaker = CircuitBreaker(
        "api", failure_if_result=lambda result: result is None, on_call=seen.append
    )
    breaker.call(lambda: None)
    assert seen[0].outcome == "failure"


def test_a_hook_receives_a_refusal_with_a_fallback() -> None:
    seen = list[Call]()
    breaker = CircuitBreaker("api", fallback=lambda: "instead", on_call=seen.append)
    breaker.hold_open(by="ada", why="x")
    assert breaker.call(lambda: "answer") == "instead"
    assert [call.outcome for call in seen] == ["rejected"]


@every_shape
def test_a_hook_that_raises_changes_nothing(shape: Shape) -> None:
    def broken(_: Call) -> None:
        raise RuntimeError("the hook is broken")

    breaker = CircuitBreaker("api", on_call=[broken], clock=FakeClock())
    shape(breaker, lambda: "answer")
    with pytest.raises(ConnectionError):
        shape(breaker, down)
    breaker.hold_open(by="ada", why="x")
    with pytest.raises(Rejected):
        shape(breaker, lambda: "answer")


def test_the_fast_path_is_taken_only_without_hooks() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    assert breaker._fast is not None
    breaker.add_on_call(lambda _: None)
    assert breaker._fast is None


def test_a_hook_receives_calls_of_functions_decorated_before() -> None:
    for policy in (None, TIMED):
        seen = list[Call]()
        breaker = CircuitBreaker("api", policy=policy, clock=FakeClock())
        guarded = breaker(answer)
        guarded()
        breaker.add_on_call(seen.append)
        guarded()
        assert [call.outcome for call in seen] == ["success"]


def test_a_hook_of_a_panel_receives_calls_of_all_breakers() -> None:
    first, second, third = list[Call](), list[Call](), list[Call]()
    with Panel("memory:", on_call=first.append) as panel:
        panel.breaker("a", on_call=third.append).call(int)
        panel.add_on_call(second.append)
        panel.breaker("a").call(int)
        panel.breaker("b").call(int)
    assert [call.circuit for call in first] == ["a", "a", "b"]
    assert [call.circuit for call in second] == ["a", "b"]
    assert [call.circuit for call in third] == ["a", "a"]


def test_hooks_pickle_with_the_breaker() -> None:
    again = pickle.loads(pickle.dumps(CircuitBreaker("api", on_call=print)))
    assert again._on_call == (print,)


# Sinks


def test_a_sink_can_be_added_later() -> None:
    seen, of_panel = list[Event](), list[Event]()
    with Panel("memory:") as panel:
        breaker = panel.breaker("api")
        breaker.add_sink(seen.append)
        panel.add_sink(of_panel.append)
        breaker.record(Signal(ok=False, count=5))
        panel.breaker("other").record(Signal(ok=False, count=5))
    assert [event.circuit for event in seen] == ["api"]
    assert [event.circuit for event in of_panel] == ["api", "other"]


async def awaits(_: Any) -> None:
    await asyncio.sleep(0)


class Awaits:
    async def __call__(self, _: Any) -> None:
        await asyncio.sleep(0)

    async def method(self, _: Any) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "sink", [awaits, Awaits(), Awaits().method, partial(awaits), partial(Awaits())]
)
def test_a_sink_that_would_never_be_awaited_is_refused(sink: Any) -> None:
    makers: list[Callable[[], Any]] = [
        lambda: CircuitBreaker("api", sinks=[sink]),
        lambda: CircuitBreaker("api", on_call=sink),
        lambda: CircuitBreaker("api").add_sink(sink),
        lambda: CircuitBreaker("api").add_on_call(sink),
        lambda: Panel("memory:", sinks=[sink]),
        lambda: Panel("memory:", on_call=[sink]),
        lambda: Panel("memory:").add_sink(sink),
    ]
    for make in makers:
        with pytest.raises(ValueError, match="a sink must not be a coroutine function"):
            make()


def test_a_function_that_returns_a_coroutine_is_reported_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def gives_a_coroutine(event: Event) -> Any:
        return awaits(event)

    breaker = CircuitBreaker("api", threshold=1, sinks=[gives_a_coroutine])
    breaker.record(Signal(ok=False))
    assert "returned a coroutine, which is never awaited" in caplog.text


@pytest.mark.parametrize("hook", [3, "hook", [3], None])
def test_an_object_that_is_not_a_hook_is_refused(hook: Any) -> None:
    with pytest.raises(ValueError, match=r"CircuitBreaker\.on_call"):
        CircuitBreaker("api", on_call=hook)


def test_a_forked_child_counts_although_a_thread_of_its_parent_was_counting() -> None:
    metrics, entered, release = Metrics(), threading.Event(), threading.Event()

    def count_slowly() -> None:
        with metrics._lock:
            entered.set()
            release.wait(LIMIT_S)

    threading.Thread(target=count_slowly, daemon=True).start()
    assert entered.wait(LIMIT_S)
    try:
        assert in_a_child(lambda: _is_counted(metrics))
    finally:
        release.set()


def _is_counted(metrics: Metrics) -> bool:
    signal.alarm(round(LIMIT_S))  # ends a child that hangs
    metrics.on_call(Call("api", CallOutcome.SUCCESS, 1.0))
    return 'switchgear_calls_total{circuit="api",outcome="success"} 1' in metrics.text()
