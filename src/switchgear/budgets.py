"""Budgets that many agents share: reserved before money is spent, settled afterwards."""

from switchgear._budgets.budgets import Budgets, Reservation

__all__ = ["Budgets", "Reservation"]
