"""The tree of budgets against a naive one, which knows only what is open and what was charged."""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from switchgear._budgets.fold import apply
from switchgear._budgets.tree import (
    EMPTY,
    BudgetAnswer,
    BudgetRequest,
    Charge,
    Close,
    Limit,
    Line,
    Open,
    PassTime,
    Renew,
    Reserve,
    Settle,
    audit,
    dump_book,
    is_reservation,
    load_book,
    parent_of,
)

AMOUNTS = st.sampled_from((0, 1, 5, 10, 33, 50, 100))
LIMITS = st.sampled_from((None, 0, 10, 100, 100, 250))
NAMES = st.sampled_from(("a", "a/b", "a/c", "a/b/d", "a/b/e", "a/b/d/f"))


class Naive:
    """Open nodes with their limits, and every charge that was made; all else is worked out anew."""

    def __init__(self) -> None:
        self.limits: dict[str, int | None] = {}
        self.charges: list[tuple[str, str, int]] = []
        """Node, which opening of it, and how much."""
        self.openings: dict[str, int] = {}
        self.until: dict[str, tuple[float | None, str]] = {}

    def spent(self, path: str) -> int:
        """The sum of charges at or below a node since it was opened."""
        mark = f"{path}@{self.openings[path]}"
        return sum(cost for _, trail, cost in self.charges if mark in trail.split())

    def trail(self, path: str) -> str:
        marks = []
        while path:
            marks.append(f"{path}@{self.openings[path]}")
            path = parent_of(path)
        return " ".join(marks)

    def below(self, path: str) -> list[str]:
        return [other for other in self.limits if parent_of(other) == path]

    def may_still(self, path: str) -> int:
        """The amount that this node may still reserve from its parent: the rest of its limit, or that of its children."""
        limit = self.limits[path]
        if limit is None:
            return sum(self.may_still(other) for other in self.below(path))
        return max(0, limit - self.spent(path))

    def held(self, path: str) -> int:
        return sum(self.may_still(other) for other in self.below(path))

    def fits(self, path: str, more: int) -> bool:
        """Whether a node may be given so much more: by the nearest above it that has a limit."""
        above = parent_of(path)
        while above:
            limit = self.limits[above]
            if limit is not None:
                return more <= 0 or more <= limit - self.spent(above) - self.held(above)
            above = parent_of(above)
        return True

    def add(self, path: str, limit: int | None) -> None:
        self.openings[path] = self.openings.get(path, 0) + 1
        self.limits[path] = limit

    def charge(self, path: str, cost: int) -> None:
        self.charges.append((path, self.trail(path), cost))


class Tree(RuleBasedStateMachine):
    """Random requests to the book and to the naive tree."""

    reservations = Bundle("reservations")

    def __init__(self) -> None:
        super().__init__()
        self.book = EMPTY
        self.naive = Naive()
        self.lines: list[Line] = []
        self.now_s = 1000.0
        self.count = 0
        self.overran = 0

    def ask(self, asked: BudgetRequest) -> BudgetAnswer:
        self.let_leases_end()
        turned = apply(self.book, asked, self.now_s)
        assert [line.number for line in turned.lines] == list(
            range(self.book.lines + 1, self.book.lines + len(turned.lines) + 1)
        )
        self.lines += turned.lines
        stored: Any = json.loads(json.dumps(dump_book(turned.book)))
        self.book = load_book(stored)
        assert self.book == turned.book
        return turned.answer

    def let_leases_end(self) -> None:
        due = [
            (until, path)
            for path, (until, _) in self.naive.until.items()
            if path in self.naive.limits and until is not None and until <= self.now_s
        ]
        for _, path in sorted(due):
            if self.naive.until[path][1] == "spent":
                self.naive.charge(path, self.naive.may_still(path))
            del self.naive.limits[path]

    @rule(path=NAMES, limit=LIMITS)
    def somebody_opens(self, path: str, limit: int | None) -> None:
        answer = self.ask(Open(path, limit))
        naive = self.naive
        if path in naive.limits:
            assert bool(answer.refused) == (naive.limits[path] != limit)
            return
        above = parent_of(path)
        fits = (not above or above in naive.limits) and naive.fits(path, limit or 0)
        assert bool(answer.refused) == (not fits)
        if fits:
            naive.add(path, limit)

    @rule(
        target=reservations,
        path=NAMES,
        amount=AMOUNTS,
        lease=st.sampled_from((None, 5.0, 50.0)),
        on_expiry=st.sampled_from(("spent", "returned")),
    )
    def somebody_reserves(self, path: str, amount: int, lease: float | None, on_expiry: str) -> str:
        self.count += 1
        mine = f"{path}/~{self.count}"
        answer = self.ask(Reserve(mine, amount, "agent", lease, on_expiry))
        fits = path in self.naive.limits and self.naive.fits(mine, amount)
        assert bool(answer.refused) == (not fits)
        if fits:
            self.naive.add(mine, amount)
            until = None if lease is None else self.now_s + lease
            self.naive.until[mine] = until, on_expiry
        return mine

    @rule(mine=reservations, cost=st.none() | AMOUNTS)
    def somebody_settles(self, mine: str, cost: int | None) -> None:
        self.let_leases_end()
        is_open = mine in self.naive.limits
        amount = self.naive.limits.get(mine) or 0
        answer = self.ask(Settle(mine, cost))
        if is_open:
            assert not answer.refused
            assert answer.charged_micros == (amount if cost is None else cost)
            self.overran += max(0, answer.charged_micros - amount)
            self.naive.charge(mine, answer.charged_micros)
            del self.naive.limits[mine]
        elif answer.charged_micros:  # after its lease: what its end did not charge
            assert cost is not None
            self.overran += answer.charged_micros
            self.naive.charge(parent_of(mine), answer.charged_micros)
        again = self.ask(Settle(mine, cost))
        assert not again.charged_micros, "the same thing is charged once"

    @rule(mine=reservations, lease=st.sampled_from((5.0, 50.0)))
    def somebody_renews(self, mine: str, lease: float) -> None:
        answer = self.ask(Renew(mine, lease))
        assert bool(answer.refused) == (mine not in self.naive.limits)
        if not answer.refused:
            self.naive.until[mine] = self.now_s + lease, self.naive.until[mine][1]

    @rule(path=NAMES, cost=AMOUNTS)
    def somebody_charges(self, path: str, cost: int) -> None:
        self.count += 1
        asked = Charge(path, cost, "", f"mark {self.count}")
        answer = self.ask(asked)
        assert bool(answer.refused) == (path not in self.naive.limits)
        if not answer.refused:
            self.overran += cost
            self.naive.charge(path, cost)
            assert not self.ask(asked).charged_micros, "the same charge is made once"

    @rule(path=NAMES, limit=AMOUNTS)
    def somebody_changes_a_limit(self, path: str, limit: int) -> None:
        answer = self.ask(Limit(path, limit))
        naive = self.naive
        may = path in naive.limits and limit >= naive.spent(path) + naive.held(path)
        if may:
            may = naive.fits(path, max(0, limit - naive.spent(path)) - naive.may_still(path))
        assert bool(answer.refused) == (not may)
        if may:
            naive.limits[path] = limit

    @rule(path=NAMES)
    def somebody_closes(self, path: str) -> None:
        answer = self.ask(Close(path))
        below = [other for other in self.naive.limits if other.startswith(f"{path}/")]
        may = path in self.naive.limits and not any(map(is_reservation, below))
        assert bool(answer.refused) == (not may)
        if may:
            for other in (*below, path):
                del self.naive.limits[other]

    @rule(seconds=st.sampled_from((0.0, 1.0, 5.0, 60.0, -7.0)))
    def time_passes(self, seconds: float) -> None:
        self.now_s = max(self.now_s, self.now_s + seconds)
        self.ask(PassTime())

    @invariant()
    def the_book_is_what_the_naive_tree_says(self) -> None:
        nodes, naive = self.book.nodes, self.naive
        assert nodes.keys() == naive.limits.keys()
        for path, node in nodes.items():
            assert node.limit_micros == naive.limits[path]
            assert node.spent_micros == naive.spent(path)
            assert node.held_micros == naive.held(path)
            assert node.held_micros >= 0

    @invariant()
    def no_parent_is_overspent_but_by_what_cost_more_than_was_reserved(self) -> None:
        for node in self.book.nodes.values():
            if node.limit_micros is not None:
                used = node.spent_micros + node.held_micros
                assert used <= node.limit_micros + self.overran

    @invariant()
    def the_lines_add_up(self) -> None:
        assert audit(self.book, self.lines) == ()
        charged = sum(line.amount_micros or 0 for line in self.lines if line.kind == "charged")
        assert charged == self.book.charged_micros == sum(cost for *_, cost in self.naive.charges)


TestTree = Tree.TestCase
TestTree.settings = settings(stateful_step_count=40, deadline=None)
