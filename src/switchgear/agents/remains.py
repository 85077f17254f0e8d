"""What is left when even the warden was killed: processes that still carry the mark of a run.

A last resort. The mark is a variable of the environment, which an agent's commands inherit.
"""

import os
import signal
from pathlib import Path


def end_marked(mark: str, *, lost: bool) -> list[int]:
    """Kills every process with this `NAME=value` in its environment, if the warden was lost."""
    killed: list[int] = []
    needle = mark.encode()
    while lost and (found := _marked(needle)):
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
            killed.append(pid)
        if set(found) <= set(killed[: -len(found)]):  # already killed once: the system has them
            break
    return killed


def _marked(needle: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if needle in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found
