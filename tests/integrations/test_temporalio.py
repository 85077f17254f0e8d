"""Temporal, with the real package: the activity environment for tests, without a server."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("temporalio")

from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from switchgear import Panel
from switchgear.integrations.temporalio import guard
from switchgear.testing import FakeClock


class Innermost(ActivityInboundInterceptor):
    """Runs the activity, as the last interceptor of a worker does."""

    def __init__(self) -> None:
        pass

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        return await input.fn(*input.args)


def execute(panel: Panel, activity: Any, **options: Any) -> Any:
    async def run() -> Any:
        chain = guard(panel=panel, **options).intercept_activity(Innermost())
        return await chain.execute_activity(ExecuteActivityInput(activity, (), None, {}))

    return asyncio.run(ActivityEnvironment().run(run))


async def works() -> str:
    return "fetched"


async def fails() -> str:
    raise ConnectionError("no route")


CIRCUIT = "activity/unknown"  # the name of activities in this environment


def test_a_refused_activity_is_retried_when_the_circuit_may_admit_it() -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    for _ in range(5):
        with pytest.raises(ConnectionError):
            execute(panel, fails)
    with pytest.raises(ApplicationError, match="no route") as refused:
        execute(panel, works)
    assert refused.value.type == "Rejected"
    assert not refused.value.non_retryable
    assert refused.value.next_retry_delay == timedelta(seconds=60)
    clock.advance(61)
    assert execute(panel, works) == "fetched"
    assert panel.breaker(CIRCUIT).state == "closed"


def test_the_refusal_of_an_inner_guard_delays_the_activity_and_is_not_evidence_against_it() -> None:
    panel = Panel("memory:")
    panel.breaker("provider/openai").hold_open(by="test", why="maintenance")

    async def asks() -> str:
        return await panel.breaker("provider/openai").acall(works)

    for _ in range(6):
        with pytest.raises(ApplicationError, match="maintenance") as refused:
            execute(panel, asks, hold_s=120.0)
        assert refused.value.next_retry_delay == timedelta(seconds=120)
    assert panel.breaker(CIRCUIT).totals.failed == 0


def test_cancellation_is_not_evidence() -> None:
    panel = Panel("memory:")

    async def waits() -> str:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        execute(panel, waits)
    assert panel.breaker(CIRCUIT).totals.failed == 0
    assert panel.breaker(CIRCUIT).totals.ignored == 1
