"""Files of other programs, changed as carefully as they would: whole or not at all.

A write goes to a temporary file that takes the old one's place; the mode stays, and a link stays a
link. The original and the changed content are kept in the user's state folder, never
beside the settings: a project's folder is for the project's files.
"""

import fcntl
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import NamedTuple

from switchgear._core.errors import SwitchgearError
from switchgear._system.files import state_folder, write_private

MAX_BYTES = 5_000_000
MAX_BACKUPS = 10
"""How many copies of one file are kept; the oldest go first."""


class CannotChange(SwitchgearError):
    """A file of an agent that is left alone. `args` are the file, why, and what to do."""

    args: tuple[str, str, str]

    def __init__(self, path: str, why: str, what_to_do: str) -> None:
        super().__init__(path, why, what_to_do)

    def __str__(self) -> str:
        path, why, what_to_do = self.args
        return f"{path}: {why}; nothing was changed; {what_to_do}"


class Journal(NamedTuple):
    after_sha256: str
    """Digest of the file after the change: if it still matches, nothing else has changed."""
    before: bytes | None
    """The original file; `None`: there was none."""
    containers: dict[str, str | None]
    """What `edit.insert` returned."""
    folders: tuple[str, ...] = ()
    """Folders that were created for the file, innermost first."""


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def read(path: str) -> bytes | None:
    """What a file holds; `None`: there is none. Raises `CannotChange`."""
    try:
        # A pipe in its place must not block until there is a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise CannotChange(path, "it is not a file", "move it away")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = "check the file and its permissions"
        raise CannotChange(path, error.strerror or "it cannot be read", what) from None
    if len(data) > MAX_BYTES:
        raise CannotChange(path, f"it is larger than {MAX_BYTES:,} bytes", "inspect it")
    return data


def write(path: str, data: bytes, seen: bytes | None) -> tuple[str, ...]:
    """Replace a file at once, unless it no longer holds what was `seen`; the folders made for it.

    Raises `CannotChange`.
    """
    real = os.path.realpath(path)
    try:
        folders = _make_folders(os.path.dirname(real))
        _replace(real, data, lambda: _check_unchanged(path, seen))
    except OSError as error:
        why = error.strerror or "it cannot be written"
        raise CannotChange(path, why, "check the permissions") from None
    return folders


def remove(path: str, seen: bytes, folders: tuple[str, ...] = ()) -> None:
    """Remove a file that holds what was `seen`, and those of the folders that are left empty."""
    _check_unchanged(path, seen)
    try:
        os.unlink(os.path.realpath(path))  # a link stays, as it does when a file is written
    except OSError as error:
        why = error.strerror or "it cannot be removed"
        raise CannotChange(path, why, "check the permissions") from None
    for folder in folders:
        try:
            os.rmdir(folder)
        except OSError:
            return  # another process has put something there


def _check_unchanged(path: str, seen: bytes | None) -> None:
    if read(path) != seen:
        raise CannotChange(path, "another process changed it at the same time", "try again")


def _make_folders(folder: str) -> tuple[str, ...]:
    made: list[str] = []
    missing = folder
    while not os.path.isdir(missing):
        made.append(missing)
        missing = os.path.dirname(missing)
    os.makedirs(folder, exist_ok=True)
    return tuple(made)


def _replace(real: str, data: bytes, check: Callable[[], None]) -> None:
    name = f"{real}.switchgear-{secrets.token_hex(4)}"
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            with suppress(FileNotFoundError):
                old = os.stat(real)
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
                if old.st_uid != os.geteuid() or old.st_gid != os.getegid():
                    with suppress(PermissionError):
                        os.fchown(file.fileno(), old.st_uid, old.st_gid)
            os.fsync(file.fileno())
        check()
        os.replace(name, real)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


class SavedState:
    """The saved state of one file: its journal, its backups and a lock. Used by one thread.

    `with Memory(path).locked():` keeps other Switchgear installations away from the file.
    """

    def __init__(self, path: str) -> None:
        real = os.path.realpath(path)
        name = f"{os.path.basename(real)}-{digest(os.fsencode(real))[:12]}"
        self.path = path
        self.folder = state_folder("hooks", name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the file against other Switchgear processes. Raises OSError."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        path = os.path.join(self.folder, "lock")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(path, flags, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(f"the lock {path} is not a regular file: remove it and try again")
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def journal(self) -> Journal | None:
        """What the last installation did; `None`: there is none that can be read."""
        try:
            with open(os.path.join(self.folder, "journal.json"), encoding="utf-8") as file:
                data = json.load(file)
            before = None
            if data["before"] is not None:
                with open(os.path.join(self.folder, "before"), "rb") as kept:
                    before = kept.read()
                if digest(before) != data["before"]:
                    return None
            after, containers, folders = data["after"], data["containers"], data["folders"]
            texts = [after, *containers, *folders, *(each for each in containers.values() if each)]
            good = all(isinstance(text, str) for text in texts)
            return Journal(after, before, dict(containers), tuple(folders)) if good else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def keep(self, journal: Journal) -> None:
        before = None if journal.before is None else digest(journal.before)
        data = {
            "path": self.path,
            "after": journal.after_sha256,
            "before": before,
            "containers": journal.containers,
            "folders": journal.folders,
        }
        if journal.before is not None:
            self._write("before", journal.before)
        self._write("journal.json", json.dumps(data, indent=2).encode())

    def forget(self) -> None:
        """Remove the journal: the hook is no longer installed."""
        for name in ("journal.json", "before"):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, name))

    def back_up(self, data: bytes) -> str:
        """Save a copy of the content. Returns its path."""
        when = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        name = f"backup-{when}-{secrets.token_hex(2)}"
        self._write(name, data)
        kept = sorted(each for each in os.listdir(self.folder) if each.startswith("backup-"))
        for old in kept[:-MAX_BACKUPS]:
            os.unlink(os.path.join(self.folder, old))
        return os.path.join(self.folder, name)

    def _write(self, name: str, data: bytes) -> None:
        write_private(os.path.join(self.folder, name), data)
