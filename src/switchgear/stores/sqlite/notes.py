"""Notes in a SQLite file: a short text under a name, of use until a time.

They lie in `meta`, the table for everything that is neither circuit nor event. The value begins
with the time, so that a vacuum can compare it without reading the rest.
"""

import sqlite3

_PREFIX = "note:"


def read(db: sqlite3.Connection, name: str, now_s: float) -> str | None:
    """The note of that name; `None`: there is none that is still of use and can be read."""
    found = db.execute("SELECT value FROM meta WHERE name = ?", (_PREFIX + name,)).fetchone()
    if found is None or not isinstance(found[0], bytes):
        return None
    until_s, _, text = found[0].partition(b" ")
    try:
        return text.decode() if float(until_s) > now_s else None
    except ValueError:
        return None


def write(db: sqlite3.Connection, name: str, text: str | None, until_s: float) -> None:
    """Keep this note instead; `None`: none."""
    if text is None:
        db.execute("DELETE FROM meta WHERE name = ?", (_PREFIX + name,))
        return
    value = f"{until_s!r} {text}"
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_PREFIX + name, value))


def forget(db: sqlite3.Connection, now_s: float) -> None:
    """Remove the notes that are of no use any more."""
    db.execute(
        "DELETE FROM meta WHERE name >= 'note:' AND name < 'note;' AND CAST(value AS REAL) <= ?",
        (now_s,),
    )
