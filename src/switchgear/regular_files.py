"""Files in places that somebody else can reach: only regular ones, never a link, and nothing waits.

An agent may put a pipe or a link where we read or write; opening a pipe waits for its other end.
"""

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


def append_descriptor(path: Path) -> int:
    """A descriptor to add to a file of ours. What is in its place and no regular file is removed.

    Raises OSError.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENXIO, errno.EMLINK}:
            raise  # else it is a link, or a pipe that has no reader
    path.unlink()
    return os.open(path, flags | os.O_EXCL, 0o600)


def write_regular(path: Path, data: bytes) -> None:
    """Write a file of ours anew, whatever was in its place. Raises OSError."""
    path.unlink(missing_ok=True)
    with os.fdopen(append_descriptor(path), "wb") as file:
        file.write(data)
