"""Circuits in a SQLite file: the embedded default, shared by the processes of one machine.

The rooms: `store` (what the rest of Switchgear sees), `file` (the file), `schema` (its layout),
`link` (the connection), `fold` (messages), `notes` (short texts), `rows` (texts and values),
`errors` (what went wrong), `boot_clock` (one clock for all processes of a machine).
"""

from switchgear._stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
