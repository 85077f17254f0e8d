"""When circuits of a file last failed, in memory that all processes of the machine share.

A closed call asks no database. So that a process notices at its very next call that a circuit failed
elsewhere, each failure writes its time into a small mapped file beside the database. Reading it
costs a fraction of a microsecond. It holds nothing that matters: without it, processes notice at
their next look into the file.
"""

import os
import stat

SLOTS = 512
"""Circuits whose names fall together wake each other for nothing, and no more."""
_SIZE = SLOTS * 8


class Marks:
    """The times of the last failures. Thread-safe: a slot is read and written whole."""

    def __init__(self, path: str) -> None:
        self._path = path + ".warm"
        self._view: memoryview[float] | None = None
        self._tried = False

    def set(self, key: str, at_s: float) -> None:
        """A circuit fails now."""
        view = self._opened()
        if view is not None:
            view[_slot(key)] = at_s

    def get(self, key: str) -> float:
        """When a circuit last failed, as far as is known; 0: never."""
        view = self._opened()
        return 0.0 if view is None else float(view[_slot(key)])

    def _opened(self) -> "memoryview[float] | None":
        if not self._tried:
            self._tried = True
            try:
                self._view = _mapped(self._path)
            except (OSError, ValueError):
                self._view = None  # read-only, full, no regular file: then without
        return self._view


def _slot(key: str) -> int:
    from zlib import crc32  # noqa: PLC0415  a hook seldom needs it

    return crc32(key.encode(errors="replace")) % SLOTS


def _mapped(path: str) -> "memoryview[float]":
    import mmap  # noqa: PLC0415  a hook seldom needs it

    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        there = os.fstat(file)
        if not stat.S_ISREG(there.st_mode):
            raise OSError("it is not a regular file")
        if there.st_size < _SIZE:
            os.posix_fallocate(
                file, 0, _SIZE
            )  # a hole in a full disk would kill who writes into it
        return memoryview(mmap.mmap(file, _SIZE)).cast("d")
    finally:
        os.close(file)
