"""Stores: where the state of circuits, budgets and locks is kept."""

from switchgear._stores.base import Entry, Store, Vacuumed
from switchgear._stores.memory import MemoryStore
from switchgear._stores.sqlite import SqliteStore
from switchgear._stores.url import default_file, open_store

__all__ = ["Entry", "MemoryStore", "SqliteStore", "Store", "Vacuumed", "default_file", "open_store"]
