"""Files of the user's state folder that only this user may read or write.

They hold what must not come from a project: which configurations are trusted, and copies of what
guards agents. No link is followed at the last step, a file of another owner or with another mode is
not read, and a write replaces the whole file or nothing.
"""

import os
import stat

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def state_folder(*names: str) -> str:
    """The folder of that name in the user's state folder (XDG_STATE_HOME); it may not exist."""
    told = os.environ.get("XDG_STATE_HOME", "")
    base = told if os.path.isabs(told) else os.path.expanduser("~/.local/state")
    return os.path.join(base, "switchgear", *names)


def read_private(path: str, largest: int) -> bytes | None:
    """What a private file holds; `None`: there is none, or it cannot be believed.

    It must be a regular file of this user, at most `largest` bytes, that no one else can read or write.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        mine = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if not mine or found.st_mode & 0o077 or found.st_size > largest:
            return None
        return _all_of(file, largest)
    except OSError:
        return None
    finally:
        os.close(file)


def _all_of(file: int, largest: int) -> bytes:
    parts: list[bytes] = []
    left = largest
    while left > 0 and (part := os.read(file, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def write_private(path: str, data: bytes) -> None:
    """Replace a private file; its folder is made for this user alone. Raises OSError."""
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
    """Make the folder, for this user alone. Raises OSError if it is something else.

    A link in its place is an error: its target could lie in a project.
    """
    os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise NotADirectoryError(
            20, "is a folder that must belong to this user, and be no link", folder
        )
    if found.st_mode & 0o077:
        os.chmod(folder, FOLDER_MODE)
