"""What each task of a batch may spend: a share of the batch's budget, and of a node's in the tree.

The batch's own budget is kept by this process. A node (`budget_node`) is shared with others: what a
task may spend is held there before it begins, and settled when it ends.
"""

from collections.abc import Mapping

from switchgear.batch.model import Batch, Progress, Task
from switchgear.batch.purse import Purse
from switchgear.batch.words import out_of_money
from switchgear.budgets import Budgets
from switchgear.runner.set_aside import Room, SetAside, room_at


class Treasury:
    """Grants money to the tasks of one batch. Used by one thread."""

    def __init__(self, batch: Batch, budgets: Budgets, progress: Mapping[str, Progress]) -> None:
        self._limit_micros = batch.budget_micros
        self._budgets = budgets
        self._progress = progress

    def grant(self, task: Task, *, reserved_micros: int, sharers: int) -> int | None:
        """What the task may spend; 0: nothing now, `None`: what it takes.

        `reserved_micros` is granted to tasks that run, `sharers` are those that could begin now.
        Raises `BudgetRefused` if its node is not open, `StoreError`.
        """
        purse = Purse(self._limit_micros, self._spent_micros, reserved_micros)
        wanted = purse.grant(self._own_left(task), sharers)
        room = self._room(task)
        if room.free_micros is None:
            return wanted
        whole = room.free_micros + room.held_micros
        return Purse(whole, reserved_micros=room.held_micros).grant(wanted, sharers)

    def waits_for(self, task: Task) -> str | None:
        """What may come back to the task's node, in words; `None`: nothing that would help it."""
        if self._own_left(task) == 0 or self._left == 0 or not self._room(task).held_micros:
            return None
        return f"waits for what others have set aside in budget {_node(task)!r}"

    def broke(self, task: Task) -> str:
        """Why there is no money for a task: its own is spent, or the batch's, or its node's."""
        if self._own_left(task) == 0:
            spent = self._progress[task.name].spent_micros
            return out_of_money("its", task.flags["budget_micros"], spent)
        if self._left == 0:
            return out_of_money("the batch's", self._limit_micros or 0, self._spent_micros)
        return f"budget {_node(task)!r} has nothing left; `switchgear budgets set` gives it more"

    def set_aside(self, task: Task, grant_micros: int | None, batch: str) -> SetAside | None:
        """Hold it in the tree, if the task names a node. Raises `BudgetRefused`, `StoreError`."""
        node = _node(task)
        if node is None:
            return None
        return SetAside(self._budgets, node, grant_micros, owner=f"batch {batch}, task {task.name}")

    def _room(self, task: Task) -> Room:
        node = _node(task)
        return Room(None) if node is None else room_at(self._budgets, node)

    def _own_left(self, task: Task) -> int | None:
        own = task.flags.get("budget_micros")
        return None if own is None else max(0, own - self._progress[task.name].spent_micros)

    @property
    def _left(self) -> int | None:
        return Purse(self._limit_micros, self._spent_micros).left_micros

    @property
    def _spent_micros(self) -> int:
        return sum(each.spent_micros for each in self._progress.values())


def _node(task: Task) -> str | None:
    return task.flags.get("budget_node")
