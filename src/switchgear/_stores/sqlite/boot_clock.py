"""A clock for all processes of one machine that setting the wall clock does not move.

It counts from the machine's start and is anchored to the wall clock once per start: the first
process writes the anchor into the shared file, the others read it. Where the system does not say
when it was started, it is the wall clock.
"""

import os
import sqlite3
import time

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_TIME_NAMESPACE = "/proc/self/ns/time"


def boot_name() -> str | None:
    """Which start of which machine this is; processes with the same name count alike."""
    try:
        with open(_BOOT_ID, encoding="utf-8") as file:
            boot = file.read().strip()
    except (OSError, ValueError):
        return None
    try:
        # A container may have moved its own count of time since the start.
        return f"{boot}/{os.stat(_TIME_NAMESPACE).st_ino}"
    except OSError:
        return boot


class BootClock:
    """Seconds since the epoch. Thread-safe: everything it does is one read or one assignment."""

    __slots__ = ("_anchor_s", "_name", "is_shared")

    def __init__(self) -> None:
        self._name = boot_name() if hasattr(time, "CLOCK_BOOTTIME") else None
        # Until the shared anchor is known, our own: the time goes on while the file is away.
        self._anchor_s = self._own_anchor_s()
        self.is_shared: bool = self._name is None

    def __call__(self) -> float:
        """The time now."""
        if self._name is None:
            return time.time()
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self._anchor_s

    @property
    def name(self) -> str | None:
        """Which start of which machine this is; `None`: not known."""
        return self._name

    def learn(self, db: sqlite3.Connection) -> bool:
        """Take the anchor that others use; false if there is none yet. ValueError: not a number."""
        if self._name is None:
            return True
        found = db.execute("SELECT value FROM meta WHERE name = ?", (self._key(),)).fetchone()
        if found is None:
            return False
        self._anchor_s = float(found[0])
        self.is_shared = True
        return True

    def teach(self, db: sqlite3.Connection) -> None:
        """Write our anchor for the others. In a transaction, after `learn` found none."""
        if not self.is_shared:  # else the file is a new one, and time must not jump because of it
            self._anchor_s = self._own_anchor_s()
        # Anchors of earlier starts are of no use any more.
        db.execute("DELETE FROM meta WHERE name >= 'clock:' AND name < 'clock;'")
        db.execute("INSERT INTO meta VALUES (?, ?)", (self._key(), repr(self._anchor_s)))
        self.is_shared = True

    def _key(self) -> str:
        return f"clock:{self._name}"

    def _own_anchor_s(self) -> float:
        if self._name is None:
            return 0.0
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
