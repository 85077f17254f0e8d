"""Files that are written atomically, and that only their owner can read."""

import errno
import json
import os
import re
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path  # slow to import, and hooks use this module


def open_regular(path: "str | Path") -> int:
    """A descriptor to read a regular file. Raises OSError, also for a pipe, a device or a folder.

    Opening a pipe waits for its writer, and no signal ends that wait. Therefore the file is opened
    without blocking, and checked afterwards.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is not a regular file", str(path))


def read_regular(path: "str | Path", most_bytes: int) -> bytes:
    """The first `most_bytes` bytes of a regular file. Raises OSError."""
    with os.fdopen(open_regular(path), "rb") as file:
        data: bytes | None = file.read(most_bytes)
    if data is None:  # such as /proc/kmsg, which waits for more although it is a regular file
        raise BlockingIOError(errno.EAGAIN, "has nothing to read now", str(path))
    return data


def append_descriptor(path: "Path") -> int:
    """A descriptor to append to a Switchgear file. Anything but a regular file is removed and replaced.

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
            raise  # the excepted errors mean a link, or a pipe without a reader
    path.unlink()
    return os.open(path, flags | os.O_EXCL, 0o600)


def write_regular(path: "Path", data: bytes) -> None:
    """Replace a Switchgear file, or whatever else is at the path. Raises OSError."""
    path.unlink(missing_ok=True)
    with os.fdopen(append_descriptor(path), "wb") as file:
        file.write(data)


FOLDER_MODE, FILE_MODE = 0o700, 0o600


def state_folder(*names: str) -> str:
    """A path in Switchgear's state folder, below XDG_STATE_HOME if that is absolute; it may not exist."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    base = folder if os.path.isabs(folder) else os.path.expanduser("~/.local/state")
    return os.path.join(base, "switchgear", *names)


def read_private(path: str, largest: int) -> bytes | None:
    """The content of a private file; `None`: there is none, or it is not private.

    A private file is a regular file of this user, of at most `largest` bytes, that no other user can
    read or write.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        is_mine = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not is_mine or status.st_mode & 0o077 or status.st_size > largest:
            return None
        return _read_up_to(file, largest)
    except OSError:
        return None
    finally:
        os.close(file)


def _read_up_to(file: int, largest: int) -> bytes:
    parts: list[bytes] = []
    left = largest
    while left > 0 and (part := os.read(file, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def write_private(path: str, data: bytes) -> None:
    """Replace a private file in one step; its folder is created for this user alone. Raises OSError."""
    folder = os.path.dirname(path)
    make_private_folder(folder)
    new = os.path.join(folder, f".{os.path.basename(path)}.{os.getpid()}.{os.urandom(4).hex()}")
    file = os.open(
        new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE
    )
    try:
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)
        os.rename(new, path)
    except BaseException:
        os.unlink(new)
        raise


def make_private_folder(folder: str) -> None:
    """Create the folder for this user alone, if it is missing. Raises OSError for anything but a folder.

    A link is an error, too, because its target could be inside a project.
    """
    os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise NotADirectoryError(20, "must be a folder of this user, and not a link", folder)
    if status.st_mode & 0o077:
        os.chmod(folder, FOLDER_MODE)


DRAFT_S = 3600.0
"""Minimum age in seconds of an abandoned draft: writing one takes milliseconds."""
_DRAFT = re.compile(r".+[.-][0-9a-f]{8}\.part", re.ASCII)


def write_whole(path: str, text: str) -> None:
    """Write a file with mode 0600 in one step: a reader sees the old content or the new content."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    draft = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.part"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(file, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.remove(draft)
        raise


def remove_old_drafts(folder: str) -> None:
    """Remove the drafts (files and folders) that killed processes left in a folder.

    Other processes may write or clean up there at the same time: drafts younger than an hour are
    kept, and missing drafts are ignored.
    """
    before_s = time.time() - DRAFT_S
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not _DRAFT.fullmatch(entry.name):
                continue
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime > before_s:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    import shutil  # noqa: PLC0415  slow to import, and hooks use this module

                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.remove(entry.path)


def as_json(value: Any) -> str:
    """A value as indented JSON in ASCII, so that no text in it can break a reader."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
