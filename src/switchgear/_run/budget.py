"""What a run may spend, set aside in a tree of budgets that other processes draw on, too.

It is held while this process lives: its lease is renewed beside the work. Of a process that was
killed nobody knows what it spent, so the end of its lease counts all of it (`docs/budgets.md`).
"""

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from switchgear._budgets.budgets import Budgets
from switchgear._budgets.reservation import LEASE_S
from switchgear._budgets.tree import Node, is_reservation, parent_of, root_of
from switchgear._core.errors import BudgetRefused, StoreError

RECENT = 3
"""How many iterations the estimate of the next one looks back."""


class Budget(NamedTuple):
    """What was spent, and on what the estimate rests. Immutable."""

    limit_micros: int | None = None
    """`None`: spend what it takes."""
    spent_micros: int = 0
    recent_micros: tuple[int, ...] = ()
    unknown: int = 0
    """Iterations whose price is not known."""

    def after(self, cost_micros: int | None) -> "Budget":
        """The budget after an iteration."""
        if cost_micros is None:
            return self._replace(unknown=self.unknown + 1)
        return self._replace(
            spent_micros=self.spent_micros + cost_micros,
            recent_micros=(*self.recent_micros, cost_micros)[-RECENT:],
        )

    @property
    def left_micros(self) -> int | None:
        """What is left; `None`: no limit."""
        return None if self.limit_micros is None else self.limit_micros - self.spent_micros

    @property
    def estimate_micros(self) -> int:
        """What the next iteration may cost: as much as the dearest of the last few."""
        return max(self.recent_micros, default=0)

    @property
    def objection(self) -> str | None:
        """Why the next iteration must not begin; `None`: it may."""
        left = self.left_micros
        if left is None:
            return None
        if left <= 0:
            return f"{dollars(self.spent_micros)} of {dollars(self.limit_micros or 0)} are spent"
        if self.estimate_micros > left:
            return (
                f"the next iteration may cost {dollars(self.estimate_micros)}, as a recent one did,"
                f" and {dollars(left)} of {dollars(self.limit_micros or 0)} are left"
            )
        return None


def dollars(micros: int) -> str:
    """`$1.25`, `$0.004`: as few digits as tell it exactly, at least two.

    >>> dollars(1_250_000), dollars(4_000), dollars(-1)
    ('$1.25', '$0.004', '-$0.000001')
    """
    sign = "-" if micros < 0 else ""
    whole, part = divmod(abs(micros), 1_000_000)
    digits = f"{part:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}${whole}.{digits}"


class Room(NamedTuple):
    """What can be set aside at a node, in whole micro-dollars."""

    free_micros: int | None
    """`None`: neither the node nor one above it has a limit."""
    held_micros: int = 0
    """What runs and others have set aside of the same money, and may give back."""
    payer: str = ""
    """Whose money it is: the node, or the next one above that has a limit."""


def room_at(budgets: Budgets, node: str) -> Room:
    """What can be set aside at a node now. Raises `BudgetRefused` if it is not open, `StoreError`."""
    nodes = budgets.book(root_of(node)).nodes
    if node not in nodes:
        raise BudgetRefused(node, "there is no such budget", None)
    payer = _payer(nodes, node)
    free_micros = nodes[payer].free_micros if payer else None
    if free_micros is None:
        return Room(None)
    held = (at for at in nodes if is_reservation(at) and _payer(nodes, parent_of(at)) == payer)
    return Room(max(0, free_micros), sum(nodes[at].claim_micros for at in held), payer)


def payers_of(budgets: Budgets, nodes: Iterable[str]) -> dict[str, str]:
    """Whose money is set aside at each of the nodes that are open. Raises `StoreError`."""
    wanted = set(nodes)
    trees = {root: budgets.book(root).nodes for root in set(map(root_of, wanted))}
    found = ((node, trees[root_of(node)]) for node in wanted)
    return {node: _payer(tree, node) for node, tree in found if node in tree}


def _payer(nodes: Mapping[str, Node], node: str) -> str:
    """Whose money is set aside at a node: its own, or that of the next one above with a limit."""
    while node and nodes[node].limit_micros is None:
        node = parent_of(node)
    return node


def _all_that_is_free(room: Room) -> int | None:
    if room.free_micros == 0:
        others = f", {dollars(room.held_micros)} is set aside by others" if room.held_micros else ""
        raise BudgetRefused(room.payer, f"nothing is free{others}", 0)
    return room.free_micros


class SetAside:
    """An amount that is held for one run. Made, and settled, by one thread.

    Raises `BudgetRefused`, `StoreError`: then nothing is held. `amount_micros` of `None` is all
    that is free, and refused if that is nothing; it stays `None` where no node has a limit.
    """

    def __init__(
        self, budgets: Budgets, node: str, amount_micros: int | None, *, owner: str
    ) -> None:
        if amount_micros is None:
            amount_micros = _all_that_is_free(room_at(budgets, node))
        self.amount_micros = amount_micros
        self._held = budgets.reserve(node, amount_micros, owner=owner, allow_unknown=True)
        self._over = threading.Event()
        threading.Thread(target=self._renew, name="switchgear-lease", daemon=True).start()

    def settle(self, cost_micros: int | None, *, unpriced: bool = False) -> str | None:
        """It cost so much; the rest returns. `None`, or a part that is `unpriced`: all of it did.

        Returns what is to be said if the store could not be told.
        """
        if unpriced and (cost_micros or 0) <= (self.amount_micros or 0):
            cost_micros = None
        self._over.set()
        try:
            self._held.settle(cost_micros)
        except (BudgetRefused, StoreError) as trouble:
            return f"{trouble}; what was set aside counts as spent when its lease ends"
        return None

    def _renew(self) -> None:
        while not self._over.wait(LEASE_S / 3):
            try:
                self._held.renew()
            except BudgetRefused:
                return  # it slept for too long; settling charges what the end of the lease did not
            except StoreError:
                continue  # the lease outlasts two of these
