"""Circuits that record the costs of budgets: their policy follows the present limit."""

from pathlib import Path

import pytest

from switchgear import Panel, Phase
from switchgear._budgets.budgets import Budgets, budget_policy
from switchgear._core.errors import BudgetRefused, StoreUnavailable
from switchgear._stores.base import MemoryLedger, Work
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock


def test_a_circuit_is_evaluated_by_the_limit_that_its_node_has_now() -> None:
    clock = FakeClock(0.0)
    panel = Panel(MemoryStore(clock=clock), clock=clock)
    panel.budgets.open("x", 100, circuit="story/x")
    panel.budgets.charge("x", 80)
    story = panel.breaker("story/x")
    assert story.snapshot().phase is Phase.TRIPPING
    panel.budgets.limit("x", 200)
    assert story.policy == budget_policy(200)
    panel.budgets.charge("x", 30)
    assert story.snapshot().phase is Phase.CLOSED, "110 of 200, where 100 was the limit"
    panel.budgets.limit("x", 120)
    panel.budgets.charge("x", 10)
    assert story.state is Phase.OPEN
    assert story.snapshot().outage.reason.startswith("$0.00012 spent of $0.00012")


def test_another_process_uses_the_new_limit_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    with Panel(url) as mine, Panel(url) as theirs:
        mine.budgets.open("x", 100, circuit="story/x")
        mine.budgets.charge("x", 80)
        theirs.budgets.limit("x", 200)
        mine.budgets.charge("x", 30)
        assert mine.breaker("story/x").state is Phase.CLOSED
    with Panel(url) as later:
        view = later.view("story/x")
        assert view is not None
        assert view.policy == budget_policy(200)


def test_a_configured_circuit_keeps_its_policy_whatever_the_limit() -> None:
    clock = FakeClock(0.0)
    policy = budget_policy(7)
    panel = Panel(MemoryStore(clock=clock), policies={"story/x": policy}, clock=clock)
    panel.budgets.open("x", 100, circuit="story/x")
    panel.budgets.limit("x", 200)
    panel.budgets.charge("x", 1)
    assert panel.breaker("story/x").policy == policy


def test_the_reserved_amount_is_not_a_limit_for_the_circuit() -> None:
    clock = FakeClock(0.0)
    panel = Panel(MemoryStore(clock=clock), clock=clock)
    panel.budgets.open("x", 1000)
    for _ in range(3):
        panel.budgets.reserve("x", 100, circuit="agent/coder").settle(100)
    coder = panel.breaker("agent/coder")
    assert coder.state is Phase.CLOSED
    assert coder.totals.cost_micros == 300


def test_a_settlement_after_its_node_was_closed_is_charged() -> None:
    clock = FakeClock(0.0)
    budgets = Budgets(MemoryLedger("x", clock))
    budgets.open("t", 1000)
    budgets.open("t/w", 500)
    late = budgets.reserve("t/w", 100, lease_s=60.0, on_expiry="returned")
    last = budgets.reserve("t/w", 100, lease_s=60.0, on_expiry="returned")
    clock.advance(61.0)
    budgets.close("t/w")
    assert late.settle(70) == 70
    assert budgets.book("t").nodes["t"].spent_micros == 70
    budgets.close("t")
    assert last.settle(30) == 30
    assert budgets.audit("t") == ("t", budgets.book("t").lines, 100, ())


class Gone(MemoryLedger):
    """A ledger that can be cut off."""

    is_gone = False

    def amend(self, shelf: str, key: str, work: Work) -> object:
        if self.is_gone:
            raise StoreUnavailable("gone", "it was cut off", "mend it")
        return super().amend(shelf, key, work)


def test_a_store_that_is_gone_does_not_replace_the_exception_of_the_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger = Gone("gone", FakeClock(0.0))
    budgets = Budgets(ledger)
    budgets.open("t", 100)
    with pytest.raises(ZeroDivisionError), budgets.reserve("t", 10):
        ledger.is_gone = True
        raise ZeroDivisionError
    assert "could not be settled" in caplog.text
    ledger.is_gone = False
    reservation = budgets.reserve("t", 10)
    with pytest.raises(StoreUnavailable), reservation:
        ledger.is_gone = True
    ledger.is_gone = False
    assert budgets.free_micros("t") == 80, "both are held until their leases end"
    with pytest.raises(BudgetRefused):
        budgets.reserve("t", 81)
