"""The money of a run whose options name a node: set aside before it begins, settled when it ends."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from switchgear._budgets.tree import checked_path
from switchgear._cli.entry import fail
from switchgear._cli.views.text import clean, say

if TYPE_CHECKING:
    from switchgear._budgets.budgets import Budgets
    from switchgear._run.loop import Runner
    from switchgear._run.options import RunOptions
    from switchgear._run.result import RunResult
    from switchgear._run.state import RunState

# ruff: noqa: PLC0415  what a verb needs is imported when it is used


def check_node(budgets: "Budgets", node: str | None) -> None:
    """End the command if a node is named that is not open."""
    from switchgear._core.errors import BudgetRefused
    from switchgear._run.budget import free_budget

    if node is None:
        return
    try:
        free_budget(budgets, checked_path(node))
    except ValueError as problem:
        fail(f"--budget-node: {problem}")
    except BudgetRefused:
        fail(
            f"budget {node!r} is not open; 'switchgear budgets list' shows the trees, and "
            "'switchgear budgets set' opens one"
        )


def paid(
    budgets: "Budgets",
    options: "RunOptions",
    state: "RunState | None",
    made: "Callable[[int | None], Runner]",
) -> "RunResult":
    """Make the run and let it work with what is held for it, if its options name a node.

    `made` is given that amount in micro-dollars, `None` where nothing is held. Raises
    `BudgetRefused`: then it was not made.
    """
    from switchgear._run.budget import RunReservation
    from switchgear._run.state import RunState

    if options.budget_node is None:
        return made(None).run()
    before, runner = state or RunState(), None
    left = before.budget(options.budget_micros).left_micros
    wanted = None if left is None else max(0, left)
    aside = RunReservation(budgets, options.budget_node, wanted, owner=f"run: {options.task[:60]}")
    try:
        runner = made(aside.amount_micros)
        after = runner.run()
    except BaseException:
        # After a defect of ours nobody knows what was spent; before an agent was started, nothing.
        aside.settle(None if runner is not None and runner.has_worked else 0)
        raise
    problem = aside.settle(
        after.state.spent_micros - before.spent_micros,
        unpriced=after.state.unknown_prices > before.unknown_prices,
    )
    if problem is not None:
        say(clean(f"switchgear: {problem}", 1000), err=True)
    return after
