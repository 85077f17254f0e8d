"""Processes that compete for one resource, which logs each process and its token."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from switchgear import Panel

PATIENCE_S = 300.0


def take_turns(gate: Any, index: int, url: str, journal: str, times: int) -> int:
    """Take the lock a number of times, and log two lines each time: acquired, released."""
    panel = Panel(url)
    gate.wait(PATIENCE_S)
    for _ in range(times):
        with panel.lock("press", owner=f"agent/{index}", lease_s=30.0) as lock:
            note(journal, f"came {lock.token}")
            note(journal, f"went {lock.token}")
    panel.close()
    return times


def note(journal: str, text: str) -> None:
    # One write of a short line at the end of a file is not torn apart.
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def die_holding(url: str, journal: str) -> None:
    """Take the lock, and be killed with it."""
    lock = Panel(url).lock("press", owner="victim", lease_s=1.0)
    lock.acquire()
    note(journal, f"came {lock.token}")
    os.kill(os.getpid(), signal.SIGKILL)


def noted(journal: Path) -> list[tuple[str, int]]:
    lines = [line.split() for line in journal.read_text().splitlines()]
    return [(what, int(token)) for what, token in lines]


if __name__ == "__main__":
    die_holding(*sys.argv[1:])
