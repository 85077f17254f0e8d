"""Budgets as a tree that many processes share: reserved before, settled after."""
