"""Processes that spend from one budget at the same time, and report what they reserved."""

import os
import random
import signal
from typing import Any

from switchgear import Panel
from switchgear._budgets.budgets import Budgets
from switchgear._core.errors import BudgetRefused

PATIENCE_S = 300.0


def budgets_at(url: str) -> Budgets:
    return Panel(url).budgets


def spend(gate: Any, index: int, url: str, times: int) -> tuple[int, int, int]:
    """Reserve and settle more than the budget has; the numbers of charges, reservations and refusals."""
    budgets = budgets_at(url)
    chance = random.Random(index)
    story = f"team/wave/S-{index % 4}"
    gate.wait(PATIENCE_S)
    charged = given = refused = 0
    for _ in range(times):
        amount = chance.randrange(1, 60)
        node = chance.choice((story, "team/wave", "team"))
        try:
            reservation = budgets.reserve(node, amount, owner=f"agent/{index}")
        except BudgetRefused:
            refused += 1
            continue
        given += amount
        charged += reservation.settle(chance.randrange(amount + 1))
    return charged, given, refused


def spend_until_killed(url: str) -> None:
    """Reserve and settle without end; each charge that was answered is a byte on our output.

    A `.` was charged; a `~` came after its lease had run out, and was charged then, as a whole.
    """
    budgets = budgets_at(url)
    while True:
        charged = budgets.reserve("purse", 10, lease_s=5.0).settle(7)
        os.write(1, b"." if charged else b"~")


def die_holding(url: str) -> None:
    """Reserve, and be killed before anything is settled."""
    budgets_at(url).reserve("team", 40, lease_s=0.05, owner="victim")
    os.write(1, b"!")
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    import sys

    {"spend": lambda: spend_until_killed(sys.argv[2]), "die": lambda: die_holding(sys.argv[2])}[
        sys.argv[1]
    ]()
