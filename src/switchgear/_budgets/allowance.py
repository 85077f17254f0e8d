"""The budget of a run or of a task in a batch: its limit, its share, and its reservation in a tree.

While the process lives, a thread renews the lease of the reservation. What a killed process spent is
unknown, so the whole reservation is charged when its lease ends (`docs/budgets.md`).
"""

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from switchgear._budgets.budgets import LEASE_S, Budgets
from switchgear._budgets.tree import BudgetNode, is_reservation, parent_of, root_of
from switchgear._core.errors import BudgetRefused, StoreError
from switchgear._text.formats import dollars

RECENT = 3
"""The number of past iterations that the estimate of the next one uses."""


class RunBudget(NamedTuple):
    """The spent amount, and the basis of the estimate. Immutable."""

    limit_micros: int | None = None
    """`None`: no limit."""
    spent_micros: int = 0
    recent_micros: tuple[int, ...] = ()
    unknown: int = 0
    """Iterations with an unknown price."""

    def after(self, cost_micros: int | None) -> "RunBudget":
        if cost_micros is None:
            return self._replace(unknown=self.unknown + 1)
        return self._replace(
            spent_micros=self.spent_micros + cost_micros,
            recent_micros=(*self.recent_micros, cost_micros)[-RECENT:],
        )

    @property
    def left_micros(self) -> int | None:
        """The amount that is left; `None`: no limit."""
        return None if self.limit_micros is None else self.limit_micros - self.spent_micros

    @property
    def estimate_micros(self) -> int:
        """Estimated cost of the next iteration: the highest of the last `RECENT` costs."""
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


class FreeBudget(NamedTuple):
    """The amount that can be reserved at a node, in whole micro-dollars."""

    free_micros: int | None
    """`None`: neither the node nor one above it has a limit."""
    held_micros: int = 0
    """The amount of the other reservations from the same node, which may be returned."""
    payer: str = ""
    """The node that pays: this one, or the next one above that has a limit."""


def free_budget(budgets: Budgets, node: str) -> FreeBudget:
    """The amount that can be reserved at a node now. Raises `BudgetRefused` if it is not open, `StoreError`."""
    nodes = budgets.book(root_of(node)).nodes
    if node not in nodes:
        raise BudgetRefused(node, "there is no such budget", None)
    payer = _payer(nodes, node)
    free_micros = nodes[payer].free_micros if payer else None
    if free_micros is None:
        return FreeBudget(None)
    held = (at for at in nodes if is_reservation(at) and _payer(nodes, parent_of(at)) == payer)
    return FreeBudget(max(0, free_micros), sum(nodes[at].claim_micros for at in held), payer)


def payers_of(budgets: Budgets, nodes: Iterable[str]) -> dict[str, str]:
    """The node that pays for each of these nodes that is open. Raises `StoreError`."""
    unique = set(nodes)
    trees = {root: budgets.book(root).nodes for root in set(map(root_of, unique))}
    pairs = ((node, trees[root_of(node)]) for node in unique)
    return {node: _payer(tree, node) for node, tree in pairs if node in tree}


def _payer(nodes: Mapping[str, BudgetNode], node: str) -> str:
    """The node that pays for a node: itself, or the next one above with a limit."""
    while node and nodes[node].limit_micros is None:
        node = parent_of(node)
    return node


class RunReservation:
    """An amount that is reserved for one run. Created and settled by one thread.

    `amount_micros=None` reserves all that is free, and is refused if nothing is free; it stays `None`
    if no node has a limit. Raises `BudgetRefused` and `StoreError`; then nothing is reserved.
    """

    def __init__(
        self, budgets: Budgets, node: str, amount_micros: int | None, *, owner: str
    ) -> None:
        if amount_micros is None:
            room = free_budget(budgets, node)
            if room.free_micros == 0:
                held = (
                    f", {dollars(room.held_micros)} is reserved by others"
                    if room.held_micros
                    else ""
                )
                raise BudgetRefused(room.payer, f"nothing is free{held}", 0)
            amount_micros = room.free_micros
        self.amount_micros = amount_micros
        self._held = budgets.reserve(node, amount_micros, owner=owner, allow_unknown=True)
        self._settled = threading.Event()
        threading.Thread(target=self._renew, name="switchgear-lease", daemon=True).start()

    def settle(self, cost_micros: int | None, *, unpriced: bool = False) -> str | None:
        """Charge the cost and release the rest; an unknown (`None`) or partly `unpriced` cost charges all.

        Returns a message if the reservation could not be settled, else `None`.
        """
        if unpriced and (cost_micros or 0) <= (self.amount_micros or 0):
            cost_micros = None
        self._settled.set()
        try:
            self._held.settle(cost_micros)
        except (BudgetRefused, StoreError) as trouble:
            return f"{trouble}; the reservation counts as spent when its lease ends"
        return None

    def _renew(self) -> None:
        while not self._settled.wait(LEASE_S / 3):
            try:
                self._held.renew()
            except BudgetRefused:
                return  # the process was suspended and the lease expired; settling charges the rest
            except StoreError:
                continue  # the lease outlasts two failed attempts


def out_of_money(whose: str, limit_micros: int, spent_micros: int) -> str:
    """Why a task does not start: its budget is spent."""
    return f"{dollars(spent_micros)} of {whose} {dollars(limit_micros)} are spent"


class SharedBudget(NamedTuple):
    """The budget of a batch, in whole micro-dollars. Immutable."""

    limit_micros: int | None = None
    """`None`: no limit."""
    spent_micros: int = 0
    reserved_micros: int = 0
    """The amount that is reserved for the running tasks."""

    @property
    def left_micros(self) -> int | None:
        """The amount that can still be reserved; `None`: no limit."""
        if self.limit_micros is None:
            return None
        return max(0, self.limit_micros - self.spent_micros - self.reserved_micros)

    def grant(self, wanted_micros: int | None, sharers: int) -> int | None:
        """The amount for a task; 0: nothing now, `None`: no limit.

        `wanted_micros` is the task's own limit. A task without one gets an equal share of what is left;
        `sharers` is the number of tasks that could begin now. A task that needs more than is left waits
        for money that others may return, and gets the rest when no other task has a reservation.

        >>> SharedBudget(9).grant(None, 3), SharedBudget(9, 2, 3).grant(8, 1), SharedBudget(9, 2).grant(8, 1)
        (3, 0, 7)
        """
        left = self.left_micros
        if left is None:
            return wanted_micros
        if wanted_micros is None:
            return -(-left // max(1, sharers))
        if wanted_micros > left and self.reserved_micros:
            return 0
        return min(wanted_micros, left)


class BudgetGrant(NamedTuple):
    micros: int | None
    """0: nothing now, `None`: no limit."""
    payer: str = ""
    """The budget node; empty: the batch's own budget, or no limit."""
    comes_back: bool = False
    """Whether other tasks hold money that may be returned."""
