"""A task that is cancelled while it records a call: the call is counted, with all before it."""

import asyncio
import threading
from contextlib import suppress

from contract.words import Broken
from switchgear import Panel, Policy, Signal, detectors
from switchgear._core.types import EventKind, Message, Step
from switchgear._stores.memory import MemoryStore
from switchgear._system.threads import run_in_thread
from switchgear.testing import FakeClock, FlakyStore
from timeouts import LIMIT_S

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


def test_a_failure_of_a_cancelled_task_is_saved_when_an_unreachable_store_is_back() -> None:
    heard: list[EventKind] = []
    clock, called, free = FakeClock(1000.0), threading.Event(), threading.Event()

    class Silent(FlakyStore):
        """Raises an error in a thread, as SQLite does, and only after a while."""

        async def aapply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
            def work() -> Step:
                called.set()
                assert free.wait(LIMIT_S)
                return self.apply(key, policy, message, now_s)

            return await run_in_thread(work)

    store = Silent(clock=clock)
    panel = Panel(store, clock=clock, sinks=[lambda event: heard.append(event.kind)])
    breaker = panel.breaker("api", CALM)

    async def work() -> bool:
        store.cut()
        task = asyncio.create_task(breaker.arecord(Signal(ok=False)))
        assert await asyncio.to_thread(called.wait, LIMIT_S)
        task.cancel()
        await asyncio.sleep(0)
        free.set()
        with suppress(asyncio.CancelledError):
            await task
        return task.cancelled()

    assert asyncio.run(work())
    breaker.record(Signal(ok=False))
    assert heard == [EventKind.STORE_LOST]
    store.mend()
    clock.advance(1.0)
    breaker.refresh()
    assert breaker.totals.failed == 2
    found = store.get("api")
    assert found is not None
    assert found.circuit.totals.failed == 2
    assert heard == [EventKind.STORE_LOST, EventKind.STORE_BACK]


def test_an_error_of_a_detector_does_not_replace_the_cancellation() -> None:
    breaker = Panel(Slow()).breaker("api", Policy([Broken(1000)]))

    async def work() -> bool:
        breaker.call(len, "ok")
        task = asyncio.create_task(breaker.arecord(Signal(ok=False, error="boom")))
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError, ZeroDivisionError):
            await task
        return task.cancelled()

    assert asyncio.run(work())


def test_a_coroutine_that_is_closed_while_it_reports_ends() -> None:
    """As for coroutines that are left when an event loop ends: `close` raises if they await anything more."""
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
