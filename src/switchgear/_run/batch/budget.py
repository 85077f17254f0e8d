"""What each task of a batch may spend: a share of the batch's budget, and of a node's in the tree.

The batch's own budget is kept by this process. A node (`budget_node`) is shared with others: what a
task may spend is held there before it begins, and settled when it ends.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from switchgear._budgets.budgets import Budgets
from switchgear._run.batch.model import Batch, Progress, Task
from switchgear._run.budget import FreeBudget, RunReservation, free_budget, payers_of
from switchgear._text.formats import dollars


def out_of_money(whose: str, limit_micros: int, spent_micros: int) -> str:
    """Why a task does not begin, or not again."""
    return f"{dollars(spent_micros)} of {whose} {dollars(limit_micros)} are spent"


class SharedBudget(NamedTuple):
    """What the batch may spend, in whole micro-dollars. Immutable."""

    limit_micros: int | None = None
    """`None`: what it takes."""
    spent_micros: int = 0
    reserved_micros: int = 0
    """Set aside for the tasks that run."""

    @property
    def left_micros(self) -> int | None:
        """What can still be set aside; `None`: no limit."""
        if self.limit_micros is None:
            return None
        return max(0, self.limit_micros - self.spent_micros - self.reserved_micros)

    def grant(self, wanted_micros: int | None, sharers: int) -> int | None:
        """How much a task gets; 0: nothing now, `None`: no limit.

        `wanted_micros` is its own limit, `sharers` are the tasks that could begin now: one without
        a limit of its own gets its share. One that wants more than is left waits for what others
        may return, and gets the rest when no other task holds any.

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
    """What a task may spend."""

    micros: int | None
    """0: nothing now, `None`: what it takes."""
    payer: str = ""
    """The node that pays; empty: the batch's own budget, or no limit."""
    comes_back: bool = False
    """Whether others hold money that the task could have."""


class BatchBudget:
    """Grants money to the tasks of one batch. Used by one thread."""

    def __init__(self, batch: Batch, budgets: Budgets, progress: Mapping[str, Progress]) -> None:
        self._limit_micros = batch.budget_micros
        self._budgets = budgets
        self._progress = progress

    def grant(
        self, task: Task, *, reserved_micros: int, places: int, waiting: Sequence[Task]
    ) -> BudgetGrant:
        """What the task may spend.

        `reserved_micros` is granted to running tasks; `places` slots are free, for the tasks
        that are `waiting`. Raises `BudgetRefused` if its node is not open, `StoreError`.
        """
        shared = SharedBudget(self._limit_micros, self._spent_micros, reserved_micros)
        own_left = self._own_left(task)
        wanted = shared.grant(own_left, min(places, len(waiting)))
        if wanted == 0:
            return BudgetGrant(0, comes_back=own_left != 0 and reserved_micros > 0)
        room = self._room(task)
        if room.free_micros is None:
            return BudgetGrant(wanted)
        sharers = min(places, self._drawing_on(room.payer, waiting)) if wanted is None else 1
        whole = room.free_micros + room.held_micros
        micros = SharedBudget(whole, reserved_micros=room.held_micros).grant(wanted, sharers)
        return BudgetGrant(micros, room.payer, comes_back=room.held_micros > 0)

    def _drawing_on(self, payer: str, tasks: Sequence[Task]) -> int:
        """How many of the tasks have their money from the same node."""
        nodes = [node for task in tasks if (node := node_of(task)) is not None]
        payers = payers_of(self._budgets, nodes)
        return sum(payers.get(node) == payer for node in nodes)

    def why_no_money(self, task: Task) -> str:
        """Why there is no money for a task: its own is spent, or the batch's, or its node's."""
        if self._own_left(task) == 0:
            spent = self._progress[task.name].spent_micros
            return out_of_money("its", task.flags["budget_micros"], spent)
        if self._left == 0:
            return out_of_money("the batch's", self._limit_micros or 0, self._spent_micros)
        return f"budget {node_of(task)!r} has nothing left; `switchgear budgets set` gives it more"

    def reserve(self, task: Task, grant_micros: int | None, batch: str) -> RunReservation | None:
        """Hold it in the tree, if the task names a node. Raises `BudgetRefused`, `StoreError`."""
        node = node_of(task)
        if node is None:
            return None
        return RunReservation(
            self._budgets, node, grant_micros, owner=f"batch {batch}, task {task.name}"
        )

    def _room(self, task: Task) -> FreeBudget:
        node = node_of(task)
        return FreeBudget(None) if node is None else free_budget(self._budgets, node)

    def _own_left(self, task: Task) -> int | None:
        own = task.flags.get("budget_micros")
        return None if own is None else max(0, own - self._progress[task.name].spent_micros)

    @property
    def _left(self) -> int | None:
        return SharedBudget(self._limit_micros, self._spent_micros).left_micros

    @property
    def _spent_micros(self) -> int:
        return sum(each.spent_micros for each in self._progress.values())


def node_of(task: Task) -> str | None:
    """The node of the budgets that a task is paid from; `None`: it names none."""
    return task.flags.get("budget_node")
