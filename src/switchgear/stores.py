"""Stores keep the state of circuits, budgets and locks: in memory, in SQLite or in Redis.

>>> from switchgear.stores import open_store
>>> open_store("memory:").facts()
{'circuits': '0', 'events': '0'}
"""

from typing import TYPE_CHECKING, Any

from switchgear._stores.base import Entry, Store, Vacuumed
from switchgear._stores.memory import MemoryStore
from switchgear._stores.sqlite import SqliteStore
from switchgear._stores.url import default_file, open_store

if TYPE_CHECKING:
    from switchgear._stores.redis import RedisStore

__all__ = [
    "Entry",
    "MemoryStore",
    "RedisStore",
    "SqliteStore",
    "Store",
    "Vacuumed",
    "default_file",
    "open_store",
]


def __getattr__(name: str) -> Any:
    """Import `RedisStore` on first use: it needs the extra `switchgear[redis]`."""
    if name == "RedisStore":
        from switchgear._stores.redis import RedisStore  # noqa: PLC0415

        return RedisStore
    raise AttributeError(name)
