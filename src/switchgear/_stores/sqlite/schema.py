"""How a store lies in its SQLite file, and how older files become newer ones.

A file says which layout it has (`user_version`) and that it is ours (`application_id`). Layouts
are never edited, only followed by the next one: golden files in the tests keep it so.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence

from switchgear._core.errors import StoreCorrupt, StoreTooNew

APPLICATION_ID = 0x53574752
"""In the header of the file: "SWGR"."""

# Rows of circuits are long, for which an ordinary table with an index on the name is the better
# shape: a table without row numbers would spill them into overflow pages.
_LAYOUT_1 = (
    """CREATE TABLE circuits (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        phase TEXT NOT NULL,
        mode TEXT NOT NULL,
        seen_s REAL NOT NULL,
        event_seq INTEGER NOT NULL,
        state TEXT NOT NULL,
        policy TEXT NOT NULL
    )""",
    """CREATE TABLE events (
        cursor INTEGER PRIMARY KEY AUTOINCREMENT,
        circuit TEXT NOT NULL,
        seq INTEGER NOT NULL,
        event TEXT NOT NULL,
        UNIQUE (circuit, seq)
    )""",
    """CREATE TABLE unreadable (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        at_s REAL NOT NULL,
        why TEXT NOT NULL,
        state BLOB,
        policy BLOB
    )""",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)


def _lay_out(db: sqlite3.Connection) -> None:
    for statement in _LAYOUT_1:
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


_LAYOUT_2 = (
    """CREATE TABLE ledger_values (
        shelf TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (shelf, key)
    )""",
    """CREATE TABLE ledger_lines (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        shelf TEXT NOT NULL,
        key TEXT NOT NULL,
        line TEXT NOT NULL
    )""",
    "CREATE INDEX ledger_lines_by_key ON ledger_lines (shelf, key, number)",
)


def _add_ledger(db: sqlite3.Connection) -> None:
    for statement in _LAYOUT_2:
        db.execute(statement)


MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [_lay_out, _add_ledger]
"""The step from each layout to the next: the first makes layout 1 of an empty file."""


def check(db: sqlite3.Connection, label: str) -> int:
    """The layout of a file of ours. Raises `StoreCorrupt` for another program's database."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables or version or application:
            raise StoreCorrupt(
                label,
                "it is a database of another program, and was left as it is",
                "name another file",
            )
    if version > len(MIGRATIONS):
        raise StoreTooNew(
            label,
            f"its layout is number {version}, and this Switchgear knows {len(MIGRATIONS)}",
            "use the newer Switchgear that wrote it",
        )
    return int(version)


def migrate(db: sqlite3.Connection, label: str) -> None:
    """Bring a file to the newest layout, each step a transaction of its own."""
    while check(db, label) < len(MIGRATIONS):
        db.execute("BEGIN IMMEDIATE")
        try:
            version = check(db, label)  # again: somebody may have been quicker
            if version < len(MIGRATIONS):
                MIGRATIONS[version](db)
                db.execute(f"PRAGMA user_version = {version + 1}")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


_UNKNOWN = "set aside"


def remember_set_aside(
    db: sqlite3.Connection, stamps: Sequence[str], whys: Mapping[str, str]
) -> None:
    """Note when files were set aside before this one was begun, and why, where that is known."""
    rows = [(f"corrupt:{stamp}", whys.get(stamp) or _UNKNOWN) for stamp in stamps]
    db.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", rows)


def set_aside_stamps(db: sqlite3.Connection) -> dict[str, str]:
    """When files were set aside before this one was begun, oldest first; and why, or ""."""
    rows = db.execute(
        "SELECT CAST(name AS TEXT), CAST(value AS TEXT) FROM meta "
        "WHERE name >= 'corrupt:' AND name < 'corrupt;' ORDER BY name"
    ).fetchall()
    texts = [[bytes(column).decode(errors="replace") for column in row] for row in rows]
    return {name.removeprefix("corrupt:"): why.removeprefix(_UNKNOWN) for name, why in texts}
