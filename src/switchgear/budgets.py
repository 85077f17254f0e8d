"""Budgets that many agents share: reserved before money is spent, settled afterwards.

>>> from switchgear import Panel
>>> budgets = Panel("memory:").budgets
>>> budgets.open("atlas", limit="$5")
>>> with budgets.reserve("atlas", amount="$0.50") as reservation:
...     reservation.settle(120_000)
120000
"""

from switchgear._budgets.budgets import Budgets, Reservation
from switchgear._text.formats import Money

__all__ = ["Budgets", "Money", "Reservation"]
