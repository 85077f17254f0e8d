"""The money of a run whose options name a node: set aside before it begins, settled when it ends."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from switchgear.cli.entry import fail
from switchgear.cli.text import clean, say
from switchgear.core.book import checked_path

if TYPE_CHECKING:
    from switchgear.budgets import Budgets
    from switchgear.runner.options import RunOptions
    from switchgear.runner.result import RunResult
    from switchgear.runner.state import RunState

# ruff: noqa: PLC0415  what a verb needs is imported when it is used


def checked_node(budgets: "Budgets", node: str) -> str:
    """A node that is open. Ends the command if it is not."""
    from switchgear.errors import BudgetRefused
    from switchgear.runner.set_aside import room_at

    try:
        room_at(budgets, checked_path(node))
    except ValueError as problem:
        fail(f"--budget-node: {problem}")
    except BudgetRefused:
        fail(
            f"budget {node!r} is not open; 'switchgear budgets list' shows the trees, and "
            "'switchgear budgets set' opens one"
        )
    return node


def paid(
    budgets: "Budgets",
    options: "RunOptions",
    state: "RunState | None",
    work: "Callable[[RunOptions], RunResult]",
) -> "RunResult":
    """Let the run work with what is held for it, if its options name a node.

    Raises `BudgetRefused`: then it did not begin.
    """
    from switchgear.runner.set_aside import SetAside
    from switchgear.runner.state import RunState

    if options.budget_node is None:
        return work(options)
    node, before = checked_node(budgets, options.budget_node), state or RunState()
    left = before.budget(options.budget_micros).left_micros
    wanted = None if left is None else max(0, left)
    aside = SetAside(budgets, node, wanted, owner=f"run: {options.task[:60]}")
    if aside.amount_micros is not None:
        options = options._replace(budget_micros=before.spent_micros + aside.amount_micros)
    try:
        after = work(options)
    except BaseException:
        aside.settle(None)  # a defect of ours: nobody knows what was spent
        raise
    problem = aside.settle(
        after.state.spent_micros - before.spent_micros,
        unpriced=after.state.unknown_prices > before.unknown_prices,
    )
    if problem is not None:
        say(clean(f"switchgear: {problem}", 1000), err=True)
    return after
