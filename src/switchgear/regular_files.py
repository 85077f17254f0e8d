"""Reading files that somebody else made: only regular ones, never more than a bound, never waiting."""

import errno
import os
import stat
from pathlib import Path


def open_regular(path: Path) -> int:
    """A descriptor to read a regular file. Raises OSError, also for a pipe, a device or a folder.

    Opening a pipe would wait for its writer, and no signal ends that wait: so it is opened without
    waiting, and looked at after that.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is not a regular file", str(path))


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The first bytes of a regular file, at most so many. Raises OSError."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(most_bytes)
