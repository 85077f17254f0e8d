"""Budgets of a panel: reservations, refusals and listeners."""

import pickle
from typing import Any

import pytest

from switchgear import EventKind, Panel, Phase, Rejected
from switchgear._budgets.budgets import Budgets, budget_policy
from switchgear._budgets.tree import BudgetNode, Line, audit, level_of, load_book
from switchgear._core.errors import (
    BudgetRefused,
    Refusal,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)
from switchgear._stores.base import MemoryLedger, ledger_of
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock

DOLLAR = 1_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)


@pytest.fixture
def panel(clock: FakeClock) -> Panel:
    return Panel(MemoryStore(clock=clock), clock=clock)


@pytest.fixture
def budgets(panel: Panel) -> Budgets:
    found = panel.budgets
    found.open("atlas", 10 * DOLLAR)
    found.open("atlas/wave-1", 4 * DOLLAR)
    found.open("atlas/wave-1/S-12", 2 * DOLLAR, circuit="story/S-12")
    return found


def node(budgets: Budgets, path: str) -> BudgetNode:
    return budgets.book(path).nodes[path]


def test_money_reserved_for_a_child_is_not_free_for_others(budgets: Budgets) -> None:
    assert budgets.free_micros("atlas") == 6 * DOLLAR
    with pytest.raises(BudgetRefused) as caught:
        budgets.open("atlas/wave-2", 7 * DOLLAR)
    assert str(caught.value) == "budget 'atlas' refuses: $7.00 requested, $6.00 of $10.00 free"
    assert (caught.value.node, caught.value.free_micros) == ("atlas", 6 * DOLLAR)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_reservation_is_charged_and_the_rest_returns(budgets: Budgets) -> None:
    reservation = budgets.reserve("atlas/wave-1/S-12", 500_000, owner="coder")
    assert node(budgets, "atlas/wave-1/S-12").held_micros == 500_000
    assert reservation.settle(120_000) == 120_000
    story = node(budgets, "atlas/wave-1/S-12")
    assert (story.spent_micros, story.held_micros) == (120_000, 0)
    assert node(budgets, "atlas").spent_micros == 120_000
    assert budgets.free_micros("atlas") == 6 * DOLLAR


def test_the_unused_part_of_a_closed_child_returns(budgets: Budgets) -> None:
    budgets.reserve("atlas/wave-1/S-12", DOLLAR).settle(300_000)
    budgets.close("atlas/wave-1")
    assert budgets.free_micros("atlas") == 10 * DOLLAR - 300_000
    assert [standing.path for standing in budgets.tree("atlas")] == ["atlas"]


def test_a_node_with_open_reservations_is_not_closed(budgets: Budgets) -> None:
    reservation = budgets.reserve("atlas/wave-1/S-12", DOLLAR)
    with pytest.raises(BudgetRefused, match="1 reservation is still open below it"):
        budgets.close("atlas/wave-1")
    reservation.release()
    budgets.close("atlas/wave-1")


def test_a_node_without_a_limit_draws_on_the_one_above(budgets: Budgets) -> None:
    budgets.open("atlas/free", None)
    budgets.reserve("atlas/free", 5 * DOLLAR)
    assert budgets.free_micros("atlas") == DOLLAR
    with pytest.raises(BudgetRefused, match=r"budget 'atlas' refuses: .* requested"):
        budgets.reserve("atlas/free", 2 * DOLLAR)


def test_an_unknown_price_is_refused_by_default(budgets: Budgets) -> None:
    with pytest.raises(BudgetRefused, match="the price is unknown"):
        budgets.reserve("atlas", None)
    reservation = budgets.reserve("atlas", None, allow_unknown=True)
    reservation.settle(70_000)
    assert node(budgets, "atlas").spent_micros == 70_000
    assert [line.kind for line in budgets.lines("atlas")][-3:] == ["overrun", "charged", "closed"]


def test_an_unknown_cost_counts_as_the_whole_reservation(budgets: Budgets) -> None:
    assert budgets.reserve("atlas", 90_000).settle(None) == 90_000


def test_a_block_that_settles_nothing_spends_its_whole_reservation(budgets: Budgets) -> None:
    with pytest.raises(ZeroDivisionError), budgets.reserve("atlas", 90_000):
        raise ZeroDivisionError
    assert node(budgets, "atlas").spent_micros == 90_000


def test_a_call_that_a_circuit_rejected_costs_nothing(budgets: Budgets) -> None:
    refusal = Refusal(Phase.OPEN, "5 failures", 9.0, None)
    with pytest.raises(Rejected), budgets.reserve("atlas", 90_000):
        raise Rejected("provider/x", refusal, 1.0)
    assert node(budgets, "atlas").spent_micros == 0


def test_settling_twice_charges_once(budgets: Budgets) -> None:
    reservation = budgets.reserve("atlas", 90_000)
    assert reservation.settle(50_000) == 50_000
    assert reservation.settle(50_000) == 0
    assert reservation.settle(80_000) == 0, "what is settled is settled"
    with pytest.raises(BudgetRefused, match="there is no such reservation"):
        budgets.settle("atlas/~unknown", 1)


def settle_others(budgets: Budgets, number: int = 300) -> None:
    for _ in range(number):
        budgets.reserve("atlas", 1).settle(0)


@pytest.mark.parametrize("first", [50_000, 0, 90_000, 120_000, None])
def test_settling_again_after_many_others_neither_charges_nor_raises(
    budgets: Budgets, first: int | None
) -> None:
    reservation = budgets.reserve("atlas", 90_000)
    charged = reservation.settle(first)
    settle_others(budgets)
    for cost in (first, 80_000, 0, None):
        assert reservation.settle(cost) == 0
        assert budgets.settle(reservation.path, cost) == 0, "by its path, as another process does"
        settle_others(budgets, 1)
    assert node(budgets, "atlas").spent_micros == charged
    assert not budgets.audit("atlas").problems
    with pytest.raises(BudgetRefused, match="there is no such reservation"):
        budgets.settle("atlas/~unknown", 1)


def test_releasing_again_after_many_others_does_nothing(budgets: Budgets) -> None:
    reservation = budgets.reserve("atlas", 90_000)
    reservation.release()
    settle_others(budgets)
    reservation.release()
    assert reservation.settle(70_000) == 0
    assert node(budgets, "atlas").spent_micros == 0


@pytest.mark.parametrize(("on_expiry", "more"), [("spent", 30_000), ("returned", 120_000)])
def test_a_late_settlement_is_charged_once(
    budgets: Budgets, clock: FakeClock, on_expiry: str, more: int
) -> None:
    reservation = budgets.reserve("atlas", 90_000, lease_s=60.0, on_expiry=on_expiry)
    clock.advance(61.0)
    settle_others(budgets)
    assert reservation.settle(120_000) == more
    settle_others(budgets)
    assert reservation.settle(120_000) == 0
    assert reservation.settle(500_000) == 0
    assert node(budgets, "atlas").spent_micros == 120_000
    assert not budgets.audit("atlas").problems


def test_only_a_reservation_can_be_settled(budgets: Budgets) -> None:
    budgets.open("atlas/wave", 90_000)
    held = budgets.reserve("atlas/wave", 50_000)
    before = budgets.book("atlas")
    for path in ("atlas", "atlas/wave"):
        with pytest.raises(BudgetRefused, match="there is no such reservation"):
            budgets.settle(path, 1)
    assert budgets.book("atlas") == before
    assert held.settle(10_000) == 10_000


def test_a_cost_above_the_reservation_is_charged_and_reported(budgets: Budgets) -> None:
    heard: list[Line] = []
    budgets.listen(heard.append)
    budgets.reserve("atlas", 50_000, owner="coder").settle(80_000)
    assert node(budgets, "atlas").spent_micros == 80_000
    assert [(line.kind, line.amount_micros, line.who) for line in heard] == [
        ("overrun", 30_000, "coder")
    ]


@pytest.mark.parametrize(("on_expiry", "spent"), [("spent", 400_000), ("returned", 0)])
def test_an_expired_lease_is_settled_by_its_policy(
    budgets: Budgets, clock: FakeClock, on_expiry: str, spent: int
) -> None:
    heard: list[Line] = []
    budgets.listen(heard.append)
    budgets.reserve("atlas", 400_000, lease_s=60.0, on_expiry=on_expiry)
    clock.advance(59.0)
    assert node(budgets, "atlas").held_micros == 4 * DOLLAR + 400_000
    clock.advance(1.0)
    atlas = node(budgets, "atlas")
    assert (atlas.spent_micros, atlas.held_micros) == (spent, 4 * DOLLAR)
    assert heard == [], "reading changes nothing"
    budgets.sweep("atlas")
    assert [line.kind for line in heard] == ["expired"]
    assert node(budgets, "atlas") == atlas
    assert budgets.audit("atlas").problems == ()


def test_settling_after_the_lease_charges_what_its_end_did_not(
    budgets: Budgets, clock: FakeClock
) -> None:
    spent = budgets.reserve("atlas", 400_000, lease_s=60.0)
    returned = budgets.reserve("atlas", 400_000, lease_s=60.0, on_expiry="returned")
    clock.advance(61.0)
    assert spent.settle(300_000) == 0
    assert returned.settle(300_000) == 300_000
    assert node(budgets, "atlas").spent_micros == 700_000
    assert budgets.audit("atlas").problems == ()


def test_a_renewed_lease_lasts(budgets: Budgets, clock: FakeClock) -> None:
    reservation = budgets.reserve("atlas", 400_000, lease_s=60.0)
    clock.advance(50.0)
    reservation.renew(60.0)
    clock.advance(50.0)
    assert node(budgets, "atlas").spent_micros == 0
    clock.advance(50.0)
    with pytest.raises(BudgetRefused, match="or its lease ran out"):
        reservation.renew()


def test_a_warning_comes_once_for_each_time_three_quarters_are_crossed(budgets: Budgets) -> None:
    heard: list[Line] = []
    budgets.listen(heard.append)
    for _ in range(3):
        budgets.reserve("atlas/wave-1/S-12", 700_000, lease_s=None).settle(600_000)
    budgets.charge("atlas/wave-1/S-12", 10_000)
    assert [(line.kind, line.node) for line in heard] == [("warned", "atlas/wave-1/S-12")]
    budgets.limit("atlas/wave-1/S-12", 3 * DOLLAR)
    budgets.charge("atlas/wave-1/S-12", 450_000)
    assert [(line.kind, line.amount_micros) for line in heard][1:] == [("warned", 2_260_000)]


def test_a_node_that_is_exhausted_trips_its_circuit(panel: Panel, budgets: Budgets) -> None:
    story = "atlas/wave-1/S-12"
    budgets.reserve(story, 1_600_000).settle(1_600_000)
    circuit = panel.view("story/S-12")
    assert circuit is not None
    assert circuit.circuit.phase is Phase.TRIPPING
    budgets.reserve(story, 400_000).settle(400_000)
    assert panel.breaker("story/S-12").state is Phase.OPEN
    kinds = [entry.event.kind for entry in panel.events(glob="story/S-12")]
    assert kinds == [EventKind.MOVED, EventKind.MOVED]
    reason = panel.breaker("story/S-12").snapshot().outage.reason
    assert reason == "$2.00 spent of $2.00 (threshold 1 of it, and more)"
    with pytest.raises(BudgetRefused):
        budgets.reserve(story, 1)


def test_the_circuit_of_an_agent_records_the_cost_of_its_reservations(
    panel: Panel, budgets: Budgets
) -> None:
    reservation = budgets.reserve("atlas", DOLLAR, circuit="agent/coder")
    reservation.settle(250_000)
    assert panel.breaker("agent/coder").snapshot().totals.cost_micros == 250_000


def test_a_configured_circuit_keeps_its_policy(clock: FakeClock) -> None:
    policy = budget_policy(7)
    panel = Panel(MemoryStore(clock=clock), policies={"story/x": policy}, clock=clock)
    panel.budgets.open("x", 100, circuit="story/x")
    panel.budgets.charge("x", 7)
    assert panel.breaker("story/x").state is Phase.OPEN


def test_a_charge_is_never_refused_for_lack_of_money(budgets: Budgets) -> None:
    budgets.charge("atlas/wave-1/S-12", 3 * DOLLAR, who="bill")
    assert budgets.free_micros("atlas/wave-1/S-12") == -DOLLAR
    with pytest.raises(BudgetRefused):
        budgets.reserve("atlas/wave-1/S-12", 1)
    assert budgets.audit("atlas").problems == ()


def test_a_panel_has_one_object_with_all_listeners(panel: Panel) -> None:
    heard: list[Line] = []
    panel.budgets.listen(heard.append)
    panel.budgets.open("t", 100)
    panel.budgets.charge("t", 100)
    assert [line.kind for line in heard] == ["exhausted"]


def test_a_listener_that_raises_does_not_affect_others(
    budgets: Budgets, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Line) -> None:
        raise ZeroDivisionError

    budgets.listen(broken)
    budgets.charge("atlas", 20 * DOLLAR)
    assert node(budgets, "atlas").spent_micros == 20 * DOLLAR
    assert "a listener of budgets failed" in caplog.text


def test_opening_again_with_the_same_limit_changes_nothing(budgets: Budgets) -> None:
    before = budgets.book("atlas")
    budgets.open("atlas/wave-1", 4 * DOLLAR)
    assert budgets.book("atlas") == before
    with pytest.raises(BudgetRefused, match="it is open already, with another limit"):
        budgets.open("atlas/wave-1", DOLLAR)


def test_a_limit_is_not_lowered_below_what_is_used(budgets: Budgets) -> None:
    with pytest.raises(BudgetRefused, match=r"\$4.00 of it are spent or reserved"):
        budgets.limit("atlas", 3 * DOLLAR)
    with pytest.raises(BudgetRefused, match=r"\$7.00 requested, \$6.00 of"):
        budgets.limit("atlas/wave-1", 11 * DOLLAR)
    with pytest.raises(BudgetRefused, match="no such budget"):
        budgets.limit("atlas/none", 1)


@pytest.mark.parametrize(
    "path", ["", " ", "a//b", "/a", "a/", "a/~b", "a\x1b", "a" * 401, "a/" * 8 + "a"]
)
def test_an_invalid_path_is_a_value_error(budgets: Budgets, path: str) -> None:
    with pytest.raises(ValueError, match="node is"):
        budgets.open(path, 1)


@pytest.mark.parametrize("amount", [-1, 1.5, True, "1", 2**53 + 1])
def test_an_invalid_amount_is_a_value_error(budgets: Budgets, amount: object) -> None:
    before = budgets.book("atlas")
    for ask in (
        lambda: budgets.open("atlas/x", amount),  # type: ignore[arg-type]
        lambda: budgets.reserve("atlas", amount),  # type: ignore[arg-type]
        lambda: budgets.charge("atlas", amount),  # type: ignore[arg-type]
        lambda: budgets.limit("atlas", amount),  # type: ignore[arg-type]
        lambda: budgets.settle("atlas/~1", amount),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match="_micros is"):
            ask()
    assert budgets.book("atlas") == before


def test_the_author_must_be_a_text(budgets: Budgets) -> None:
    who: Any = 5
    before = budgets.book("atlas")
    with pytest.raises(ValueError, match="owner is 5: it must be a text that identifies it"):
        budgets.reserve("atlas", 1, owner=who)
    with pytest.raises(ValueError, match="who is 5: it must be a text that identifies it"):
        budgets.charge("atlas", 1, who=who)
    assert budgets.book("atlas") == before


def test_a_bad_lease_or_policy_of_expiry_is_a_value_error(budgets: Budgets) -> None:
    with pytest.raises(ValueError, match="lease_s is 0"):
        budgets.reserve("atlas", 1, lease_s=0)
    with pytest.raises(ValueError, match="on_expiry is 'lost': it must be one of spent, returned"):
        budgets.reserve("atlas", 1, on_expiry="lost")


def test_a_circuit_that_no_store_can_keep_is_reported_before_any_money_moves(
    budgets: Budgets,
) -> None:
    before = budgets.book("atlas")
    for ask in (
        lambda: budgets.open("atlas/x", 1, circuit="x" * 501),
        lambda: budgets.reserve("atlas", 1, circuit="\ud800"),
    ):
        with pytest.raises(ValueError, match="name is"):
            ask()
    assert budgets.book("atlas") == before


def test_reserving_from_a_missing_budget_is_refused(budgets: Budgets) -> None:
    with pytest.raises(BudgetRefused, match="budget 'nobody' refuses: there is no such budget"):
        budgets.reserve("nobody", 1)
    assert budgets.roots() == ["atlas"]


def test_levels_have_the_names_of_the_fleet() -> None:
    paths = ("t", "t/w", "t/w/s", "t/w/s/c", "t/w/s/c/i", "t/w/~1")
    assert [level_of(path) for path in paths] == [
        *("team", "wave", "story", "capsule", "invocation", "invocation")
    ]


class Flaky(MemoryLedger):
    """A ledger that applies the request and then loses its answer."""

    fails = 0

    def amend(self, shelf: str, key: str, work: object) -> object:
        answer = super().amend(shelf, key, work)  # type: ignore[arg-type]
        if self.fails:
            self.fails -= 1
            raise StoreUnavailable("x", "the answer was lost", "try again")
        return answer


def test_a_request_that_is_repeated_after_a_lost_reply_is_applied_once(clock: FakeClock) -> None:
    ledger = Flaky("x", clock)
    budgets = Budgets(ledger)
    for ask in (
        lambda: budgets.open("t", 100),
        lambda: budgets.charge("t", 10),
        lambda: budgets.reserve("t", 20).settle(15),
    ):
        ledger.fails = 1
        ask()
    t = budgets.book("t").nodes["t"]
    assert (t.spent_micros, t.held_micros) == (25, 0)
    ledger.fails = 1
    with pytest.raises(StoreUnavailable):
        budgets.close("t")


def test_an_audit_finds_what_was_changed(budgets: Budgets) -> None:
    budgets.reserve("atlas", DOLLAR)
    lines = list(budgets.lines("atlas"))
    book = budgets.book("atlas")
    assert audit(book, lines) == ()
    assert audit(book._replace(charged_micros=1), lines) == (
        "the lines charge $0.00, but the balance has $0.000001",
    )
    assert "there are 3 lines, but the balance has 4" in audit(book, lines[:-1])
    assert audit(book, lines[1:]) == ("line 1 has the number 2",)
    richer = {**book.nodes, "atlas": book.nodes["atlas"]._replace(spent_micros=5)}
    assert audit(book._replace(nodes=richer), lines) == (
        "'atlas' has spent 5, but the lines add up to 0",
    )
    del richer["atlas/wave-1"]
    assert "'atlas/wave-1' is open in the lines only" in audit(book._replace(nodes=richer), lines)
    more = {**book.nodes, "atlas/x": BudgetNode(1)}
    assert "'atlas/x' is open in the balance only" in audit(book._replace(nodes=more), lines)


@pytest.mark.parametrize("value", [7, [], {}, {"schema": 2}, {"schema": 1, "nodes": 7}])
def test_an_unreadable_tree_is_an_error_and_never_an_empty_one(value: object) -> None:
    with pytest.raises(ValueError):
        load_book(value)
    ledger = MemoryLedger("x", FakeClock(0.0))
    from switchgear._stores.base import Amended  # noqa: PLC0415

    ledger.amend("budget", "t", lambda _, __: Amended(None, value))
    with pytest.raises(StoreCorrupt, match="budget 't'"):
        Budgets(ledger).open("t", 1)


def test_a_store_that_keeps_no_ledger_reports_it() -> None:
    with pytest.raises(StoreError, match="it keeps no budgets and no locks"):
        ledger_of(object())
