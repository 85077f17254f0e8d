"""Where a session lives: on which machine, in which container, in which folder.

Many may share a store, and the number of a process or the name of a folder means something in its
own place only.
"""

import os

_BOOT = "/proc/sys/kernel/random/boot_id"
_NUMBERS = "/proc/self/ns/pid"


def here() -> str:
    """Where the numbers of processes are those that this process sees."""
    try:
        return f"{_machine()} {os.readlink(_NUMBERS)}"
    except OSError:
        return _machine()


def lives(pid: int) -> bool:
    """Whether a process of this user has this number here."""
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return pid > 0


def folder_mark(path: str) -> str:
    """Which folder it is, by whatever name and from whichever container it is seen; empty: none."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{_machine()} {found.st_dev}:{found.st_ino}"


def _machine() -> str:
    """The machine since it was started: what ran on it before is gone."""
    try:
        file = os.open(_BOOT, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return os.uname().nodename
    try:
        return os.read(file, 64).decode(errors="replace").strip()
    finally:
        os.close(file)
