"""Puts the report into the folder of its run: whole, at once, for the user only."""

import os
from pathlib import Path

from switchgear.report.page import page
from switchgear.runner.record import RunFolder

NAME = "report.html"


def write_report(record: RunFolder) -> Path:
    """Write the report of a run and return where it is. Raises `RunUnreadable` and OSError."""
    place = record.path / NAME
    put_in_place(place, page(record.read(), list(record.iterations())))
    return place


def put_in_place(path: str | Path, whole: str) -> None:
    """Write a file beside its place and put it there at once. Raises OSError."""
    place = Path(path)
    beside = place.parent / f".{place.name}.{os.getpid()}"
    # What an agent may have put there, a link above all, is not written through.
    beside.unlink(missing_ok=True)
    try:
        with beside.open("x", encoding="utf-8", errors="backslashreplace") as file:
            beside.chmod(0o600)
            file.write(whole)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
