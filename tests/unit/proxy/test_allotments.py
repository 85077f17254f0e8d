"""How the calls of a proxy share a node of the budgets."""

import pytest

from switchgear import Panel
from switchgear._proxy.allotments import BudgetShort, CallEstimate, NodeBudget


def test_a_node_spends_what_was_reserved_for_it_although_its_parent_has_less_left() -> None:
    budgets = Panel("memory:").budgets
    budgets.open("team", 10_000_000)
    budgets.open("team/proxy", 8_000_000)
    node = NodeBudget(lambda: budgets, "team/proxy")
    share = node.acquire(CallEstimate(5_000_000, is_learned=True))
    share.settle(5_000_000)
    node.close()
    assert budgets.free_micros("team/proxy") == 3_000_000
    assert budgets.free_micros("team") == 2_000_000


def test_a_node_without_a_limit_draws_on_the_next_one_above_that_has_one() -> None:
    budgets = Panel("memory:").budgets
    budgets.open("team", 10_000_000)
    budgets.open("team/proxy")
    budgets.open("team/other", 4_000_000)
    node = NodeBudget(lambda: budgets, "team/proxy")
    with budgets.reserve("team", 2_000_000), pytest.raises(BudgetShort) as short:
        node.acquire(CallEstimate(5_000_000, is_learned=True))
    assert (short.value.free_micros, short.value.held_micros) == (4_000_000, 2_000_000)
