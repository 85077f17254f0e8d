"""Budgets for coroutines: the same amounts, without blocking the loop, and cancelled tasks reserve nothing."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchgear import Panel, Phase, Rejected
from switchgear._budgets.budgets import Budgets
from switchgear._core.errors import BudgetRefused, Refusal
from switchgear._stores.base import MemoryLedger, Work
from switchgear.testing import FakeClock
from timeouts import LIMIT_S


@pytest.fixture(params=["memory:", "sqlite:///{}/state.db"])
def budgets(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Budgets]:
    with Panel(request.param.format(tmp_path)) as panel:
        panel.budgets.open("atlas", 1000)
        yield panel.budgets


def test_a_coroutine_reserves_settles_renews_and_charges(budgets: Budgets) -> None:
    async def work() -> None:
        async with await budgets.areserve("atlas", 400, owner="coder") as reservation:
            assert budgets.free_micros("atlas") == 600
            await reservation.arenew(60.0)
            assert await reservation.asettle(150) == 150
        await budgets.acharge("atlas", 50, who="bill")
        with pytest.raises(BudgetRefused, match="the price is unknown"):
            await budgets.areserve("atlas", None)
        with pytest.raises(BudgetRefused, match="free"):
            await budgets.areserve("atlas", 801)

    asyncio.run(work())
    assert budgets.free_micros("atlas") == 800
    assert budgets.audit("atlas").problems == ()


def test_an_async_block_that_settles_nothing_spends_all_unless_it_was_refused(
    budgets: Budgets,
) -> None:
    async def rejected() -> None:
        async with await budgets.areserve("atlas", 100):
            raise Rejected("provider/x", Refusal(Phase.OPEN, "5 failures", 9.0, None), 1.0)

    async def cancelled() -> None:
        async with await budgets.areserve("atlas", 300):
            raise asyncio.CancelledError

    with pytest.raises(Rejected):
        asyncio.run(rejected())
    assert budgets.free_micros("atlas") == 1000
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert budgets.free_micros("atlas") == 700


def test_many_tasks_never_reserve_more_than_is_free(budgets: Budgets) -> None:
    async def one() -> int:
        try:
            async with await budgets.areserve("atlas", 100) as reservation:
                return await reservation.asettle(90)
        except BudgetRefused:
            return 0

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*(one() for _ in range(30)))

    spent = sum(asyncio.run(all_of_them()))
    assert spent <= 1000
    assert budgets.audit("atlas") == ("atlas", budgets.book("atlas").lines, spent, ())


class Slow(MemoryLedger):
    """A ledger that answers when the test permits."""

    def __init__(self) -> None:
        super().__init__("slow", FakeClock(0.0))
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.may_answer.set()

    def amend(self, shelf: str, key: str, work: Work) -> Any:
        self.asked.set()
        assert self.may_answer.wait(LIMIT_S)
        return super().amend(shelf, key, work)


@pytest.mark.parametrize("times", [1, 2])
def test_a_task_that_is_cancelled_while_it_reserves_holds_nothing(times: int) -> None:
    ledger = Slow()
    budgets = Budgets(ledger)
    budgets.open("atlas", 1000)

    async def work() -> None:
        ledger.asked.clear()
        ledger.may_answer.clear()
        task = asyncio.ensure_future(budgets.areserve("atlas", 400))
        await asyncio.to_thread(ledger.asked.wait, 30)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)  # lets it hear of it
        assert not task.done(), "it waits for what it began"
        ledger.may_answer.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert budgets.free_micros("atlas") == 1000
    assert [line.kind for line in budgets.lines("atlas")] == [
        *("opened", "reserved", "charged", "closed")
    ]
