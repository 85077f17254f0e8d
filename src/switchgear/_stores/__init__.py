"""Stores save circuits in memory, in SQLite or in Redis; the core evaluates them."""
