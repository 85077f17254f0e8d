"""A task that is cancelled while it records a call: the call is counted, with all before it."""

import asyncio
from contextlib import suppress

from switchgear import Panel, Policy, Signal, detectors
from switchgear._core.types import Message, Step
from switchgear._stores.memory import MemoryStore

CALM = Policy([detectors.ConsecutiveFailures(1000)])


class Slow(MemoryStore):
    """Takes several steps of the event loop for a message, and applies it as the real ones do."""

    async def aapply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        try:
            for _ in range(3):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.apply(key, policy, message, now_s)
            raise
        return self.apply(key, policy, message, now_s)


def test_a_failure_and_the_successes_before_it_are_counted_wherever_the_task_is_cancelled() -> None:
    panel = Panel(Slow())
    breaker = panel.breaker("api", CALM)

    async def cancelled_after(steps: int) -> None:
        assert breaker.call(len, "ok") == 2
        task = asyncio.create_task(breaker.arecord(Signal(ok=False)))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def all_of_them() -> None:
        for steps in range(1, 13):
            await cancelled_after(steps)

    asyncio.run(all_of_them())
    totals = breaker.snapshot().totals
    assert (totals.succeeded, totals.failed) == (12, 12)


def test_a_cancelled_task_ends_as_cancelled() -> None:
    breaker = Panel(Slow()).breaker("api", CALM)

    async def work() -> bool:
        breaker.call(len, "ok")
        task = asyncio.create_task(breaker.arecord(Signal(ok=False)))
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return task.cancelled()

    assert asyncio.run(work())


def test_a_coroutine_that_is_closed_while_it_reports_ends() -> None:
    """As those that are left when an event loop ends: `close` raises if they await anything more."""
    breaker = Panel(Slow()).breaker("api", CALM)

    async def closed_after(steps: int) -> None:
        breaker.call(len, "ok")
        report = breaker.arecord(Signal(ok=False))
        for _ in range(steps):
            report.send(None)
        report.close()

    async def all_of_them() -> None:
        for steps in range(1, 7):
            await closed_after(steps)

    asyncio.run(all_of_them())
