"""Tags on spend: totals by what the money was for, bounded, without secrets."""

import pytest

from switchgear import Panel
from switchgear._budgets.budgets import MOST_TAGS, OTHER, Budgets


@pytest.fixture
def budgets() -> Budgets:
    found = Panel("memory:").budgets
    found.open("team", 10_000_000)
    found.open("team/a", 5_000_000)
    return found


def test_reserved_and_unreserved_costs_are_counted_by_tag(budgets: Budgets) -> None:
    with budgets.reserve("team/a", 1_000_000) as reserved:
        reserved.settle(300_000, tags={"model": "gpt-5", "task": "S-1"})
    budgets.charge("team", 200_000, tags={"model": "gpt-5"})
    budgets.charge("team/a", 50_000, tags={"model": "haiku"})
    budgets.charge("team", 10_000)
    assert budgets.spent_by_tag("team") == {
        "model": {"gpt-5": 500_000, "haiku": 50_000},
        "task": {"S-1": 300_000},
    }
    assert budgets.spent_by_tag("team/a") == budgets.spent_by_tag("team"), "one count per tree"


def test_settling_twice_counts_once_and_an_unknown_cost_counts_in_full(budgets: Budgets) -> None:
    reserved = budgets.reserve("team", 400_000)
    reserved.settle(None, tags={"model": "x"})
    reserved.settle(None, tags={"model": "x"})
    assert budgets.spent_by_tag("team") == {"model": {"x": 400_000}}


def test_a_reservation_that_is_given_back_counts_nothing(budgets: Budgets) -> None:
    budgets.reserve("team", 400_000).settle(0, tags={"model": "x"})
    assert budgets.spent_by_tag("team") == {}


def test_values_are_bounded_and_redacted(budgets: Budgets) -> None:
    for number in range(MOST_TAGS + 5):
        budgets.charge("team", 1, tags={"user": f"u{number}"})
    budgets.charge("team", 1, tags={"key": "sk-proj-abcdefghijklmnop"})
    found = budgets.spent_by_tag("team")
    assert len(found["user"]) == MOST_TAGS + 1
    assert found["user"][OTHER] == 5
    assert found["key"] == {"[redacted]": 1}


@pytest.mark.parametrize(
    "tags", [{"": "x"}, {"a" * 61: "x"}, {"a": 1}, {f"n{n}": "x" for n in range(9)}]
)
def test_invalid_tags_charge_nothing(budgets: Budgets, tags: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="tags has"):
        budgets.charge("team", 100, tags=tags)
    assert budgets.free_micros("team") == 5_000_000
