"""Circuits in a SQLite file: the embedded default, shared by the processes of one machine.

Modules: `store` (the store), `file` (the file, its layout and its errors), `fold` (messages, rows,
notes and the clock).
"""

from switchgear._stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
