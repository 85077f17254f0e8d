"""What a run may spend, set aside in a tree of budgets that other processes draw on, too.

It is held while this process lives: its lease is renewed beside the work. Of a process that was
killed nobody knows what it spent, so the end of its lease counts all of it (`docs/budgets.md`).
"""

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from switchgear.budgets import Budgets
from switchgear.core.book import Node, is_reservation, parent_of, root_of
from switchgear.errors import BudgetRefused, StoreError
from switchgear.reservations import LEASE_S
from switchgear.runner.budget import dollars


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
