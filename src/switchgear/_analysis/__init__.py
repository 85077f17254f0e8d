"""Recorded runs replayed, guards attacked on purpose, fleets in virtual time."""
