"""Stores save circuits, in memory, in SQLite or in Redis. A store applies a message in one transaction; the core evaluates it."""
