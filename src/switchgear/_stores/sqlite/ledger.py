"""Values and lines of a ledger in the SQLite file, each amendment one transaction."""

import sqlite3
from collections.abc import Iterator
from typing import Any

from switchgear._core.errors import StoreCorrupt
from switchgear._stores.ledger import Work, as_text, from_text
from switchgear._stores.sqlite import rows
from switchgear._stores.sqlite.connection import Link
from switchgear._system.clock import Clock

PAGE = 1000
"""How many lines are read at a time, so that no reader keeps the log from shrinking."""


class SqliteLedger:
    """Over the connection of a store. Safe to share between threads and, by path, processes."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self.label: str = link.label
        self.now_s = clock
        self._link = link

    def amend(self, shelf: str, key: str, work: Work) -> Any:
        """Load, amend, save with the lines, under the writer's lock of the file."""
        self.now_s()  # learns the clock of the file, which it cannot inside of a transaction
        return self._link.write(self._amend, shelf, key, work)

    def value(self, shelf: str, key: str) -> Any:
        """The value that is there; `None`: none."""
        return self._read(shelf, key, self._link.run(_text, shelf, key))

    def keys(self, shelf: str) -> list[str]:
        """The keys of a shelf that have values, sorted."""
        return [rows.name(key) for (key,) in self._link.run(_keys, shelf)]

    def lines(self, shelf: str, key: str) -> Iterator[Any]:
        """All lines of a value, oldest first; a page at a time."""
        last = 0
        while True:
            page = self._link.run(_page, shelf, key, last)
            for number, line in page:
                yield from_text(self.label, f"line {number} of {shelf} {key!r}", line)
            if len(page) < PAGE:
                return
            last = page[-1][0]

    def _amend(self, db: sqlite3.Connection, shelf: str, key: str, work: Work) -> Any:
        done = work(self._read(shelf, key, _text(db, shelf, key)), self.now_s())
        if done.value is not None:
            db.execute(
                "INSERT INTO ledger_values (shelf, key, value) VALUES (?, ?, ?) "
                "ON CONFLICT (shelf, key) DO UPDATE SET value = excluded.value",
                (shelf, key, as_text(done.value)),
            )
            db.executemany(
                "INSERT INTO ledger_lines (shelf, key, line) VALUES (?, ?, ?)",
                [(shelf, key, as_text(line)) for line in done.lines],
            )
        return done.answer

    def _read(self, shelf: str, key: str, text: Any) -> Any:
        """The value of a row. What may have been in a damaged file is not taken for nothing."""
        if text is not None:
            return from_text(self.label, f"{shelf} {key!r}", text)
        if asides := self._link.asides():
            why = f"{shelf} {key!r} may have been in a damaged file, set aside as {asides[-1]}"
            why += self._link.why_aside()
            raise StoreCorrupt(self.label, why, "look at it, then move it away")
        return None


def _text(db: sqlite3.Connection, shelf: str, key: str) -> Any:
    found = db.execute(
        "SELECT value FROM ledger_values WHERE shelf = ? AND key = ?", (shelf, key)
    ).fetchone()
    return None if found is None else found[0]


def _keys(db: sqlite3.Connection, shelf: str) -> list[Any]:
    return db.execute(
        "SELECT key FROM ledger_values WHERE shelf = ? ORDER BY key", (shelf,)
    ).fetchall()


def _page(db: sqlite3.Connection, shelf: str, key: str, last: int) -> list[Any]:
    return db.execute(
        "SELECT number, line FROM ledger_lines "
        "WHERE shelf = ? AND key = ? AND number > ? ORDER BY number LIMIT ?",
        (shelf, key, last, PAGE),
    ).fetchall()
