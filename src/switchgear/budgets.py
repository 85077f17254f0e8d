"""Budgets that many agents share: reserved before money is spent, settled afterwards."""

from switchgear._budgets.budgets import Budgets, Reservation
from switchgear._text.formats import Money

__all__ = ["Budgets", "Money", "Reservation"]
