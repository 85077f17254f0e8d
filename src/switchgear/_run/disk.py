"""Room on the disk of a run: looked at before each iteration, with a reserve for its last words."""

import os
from contextlib import suppress
from pathlib import Path

from switchgear._measure.saving import free_bytes, is_full, says_full

LEAST_FREE = 1_000_000
"""Bytes: with less room no iteration begins."""
RESERVE = 262_144
"""Bytes that are kept back while the run works, so that its end can be written."""


class Disk:
    """The file systems that a run writes to. Used by one thread."""

    def __init__(self, record: Path, folder: Path) -> None:
        self._places = (record, folder)
        self._reserve = record / "notes" / "reserve"

    def reserve(self) -> None:
        """Keep some room back. A disk without that much room is said by the next look at it."""
        with suppress(OSError):
            self._reserve.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._reserve.write_bytes(os.urandom(RESERVE))  # which no file system makes smaller

    def release(self) -> None:
        """Give that room back."""
        with suppress(OSError):
            self._reserve.unlink(missing_ok=True)

    def objection(self) -> str | None:
        """Why no iteration may begin; `None`: there is room, or the system does not tell."""
        for place in self._places:
            free = free_bytes(place)
            if free is not None and free < LEAST_FREE:
                return f"{free // 1000} kB are free at {place}, and a run needs {LEAST_FREE // 1000} kB"
        return None


def full_sentence(why: object) -> str:
    """The reason of a run that ends because the disk is full."""
    return f"the disk is full ({why}); free some space, then go on"


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or what a program said in it, is that the disk is full."""
    return error is not None and (is_full(error) or says_full(str(error)))
