"""Money as `"$5"`: what is read as an amount, and where it is accepted."""

import asyncio

import pytest

from switchgear import Panel, RunOptions, detectors
from switchgear.budgets import Money
from switchgear.detectors import Spend, TotalCost
from switchgear.fleet import Fleet, agent, crew, story


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("$5", 5_000_000),
        ("$0.25", 250_000),
        (" $0.000001 ", 1),
        ("$1,250.5", 1_250_500_000),
        ("$1250", 1_250_000_000),
        ("$0", 0),
    ],
)
def test_an_amount_is_read_exactly(text: str, micros: int) -> None:
    assert Money(text) == micros
    assert Money(str(Money(text))) == micros


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "$",
            "5",
            "5$",
            "-$5",
            "$-5",
            "+$5",
            "$5.",
            "$.5",
            "$5.0000001",
            "$1,2",
            "$12,34,567",
        ),
        *("$,500", "$5 million", "$1e3", "$nan", "$inf", "$5_000", "€5", "$\u0665", "$$5", "$5.-1"),
        "$" + "9" * 40,
    ],
)
def test_an_invalid_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount of money"):
        Money(text)


def test_money_prints_as_dollars_and_counts_as_micro_dollars() -> None:
    assert str(Money(1_500_000)) == "$1.50"
    assert repr(Money("$2")) == "Money('$2.00')"
    assert Money("$2") + 1 == 2_000_001


@pytest.mark.parametrize("limit", ["$5", Money("$5")])
def test_a_limit_is_given_as_text_as_money_or_in_micro_dollars(limit: Money | str) -> None:
    with Panel("memory:") as panel:
        budgets = panel.budgets
        budgets.open("text", limit=limit)
        budgets.open("micros", 5_000_000)
        budgets.open("none")
        assert budgets.free_micros("text") == budgets.free_micros("micros") == 5_000_000
        assert budgets.free_micros("none") is None
        budgets.limit("text", limit="$7.50")
        assert budgets.free_micros("text") == 7_500_000


def test_an_amount_is_reserved_as_text_also_without_blocking() -> None:
    with Panel("memory:") as panel:
        budgets = panel.budgets
        budgets.open("team", limit="$1")
        with budgets.reserve("team", amount="$0.40") as held:
            assert budgets.free_micros("team") == 600_000
            held.settle(0)
        reserved = asyncio.run(budgets.areserve("team", amount="$0.25"))
        assert reserved.amount_micros == 250_000


def test_detectors_take_their_limits_as_text() -> None:
    assert Spend(hard_cap="$5") == Spend(5_000_000)
    assert TotalCost(budget="$2", threshold=1.0) == TotalCost(2_000_000, 1.0)


def test_both_ways_at_once_and_bare_numbers_are_refused() -> None:
    with Panel("memory:") as panel:
        with pytest.raises(ValueError, match="limit and limit_micros are both given"):
            panel.budgets.open("a", 1, limit="$1")
        with pytest.raises(ValueError, match="limit is 5: it must be a text or Money"):
            panel.budgets.open("a", limit=5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="limit is 'five': write it as"):
            panel.budgets.open("a", limit="five")
        with pytest.raises(ValueError, match=r"limit_micros is None"):
            panel.budgets.limit("a")
    with pytest.raises(ValueError, match=r"Spend\.hard_cap_micros is None"):
        Spend()


def test_every_limit_of_money_takes_a_text() -> None:
    assert detectors.SpendVelocity(least="$0.25").least_micros == 250_000
    assert detectors.SpendVelocity(least="$0.25") == detectors.SpendVelocity(least_micros=250_000)
    with pytest.raises(ValueError, match=r"SpendVelocity\.least_micros is 0: it must be"):
        detectors.SpendVelocity(least="$0")
    assert story(name="S-1", owner="ana", budget="$3").budget_micros == 3_000_000
    with pytest.raises(ValueError, match="budget and budget_dollars are both given"):
        story(name="S-1", owner="ana", budget="$3", budget_dollars=3)
    with pytest.raises(ValueError, match="least and least_micros are both given"):
        detectors.SpendVelocity(least="$1", least_micros=2)
    people = crew([agent(name="coder", owner="ana", provider="anthropic", model="opus")])
    with Fleet.open("memory:", people) as fleet:
        fleet.panel.budgets.open("atlas", limit=Money("$2"))
        with fleet.route("coder", budget="atlas", estimate="$0.50"):
            assert fleet.panel.budgets.free_micros("atlas") == 1_500_000
        with pytest.raises(ValueError, match="estimate is 'half': write it as"):
            fleet.route("coder", budget="atlas", estimate="half")
    assert RunOptions("task", budget_micros=Money("$5")).budget_micros == 5_000_000
