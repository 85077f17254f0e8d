"""Puts the report into the folder of its run: whole, at once, for the user only."""

import os
from pathlib import Path

from switchgear.report.page import page
from switchgear.runner.record import RunFolder

NAME = "report.html"


def write_report(record: RunFolder) -> Path:
    """Write the report of a run and return where it is. Raises `RunUnreadable` and OSError."""
    whole = page(record.read(), list(record.iterations()))
    place = record.path / NAME
    beside = record.path / f".{NAME}.{os.getpid()}"
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
    return place
