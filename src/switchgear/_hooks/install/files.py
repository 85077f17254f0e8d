"""Changes files of other programs atomically, with backups.

A write goes to a temporary file that replaces the old one; the mode is kept, and a link stays a link. Backups
and the journal are in the user's state folder, because the project's folder is for the project's files.
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
"""Maximum number of backups of a file; the oldest are removed."""


class CannotChange(SwitchgearError):
    """A file that cannot be changed safely. `args` are the path, the reason, and what to do."""

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
    """The content of a file; `None`: there is no file. Raises `CannotChange`."""
    try:
        # Non-blocking: opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
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


def write(path: str, data: bytes, expected: bytes | None) -> tuple[str, ...]:
    """Replace a file atomically if its content is `expected`. Returns the folders created for it.

    Raises `CannotChange`.
    """
    real = os.path.realpath(path)
    try:
        folders = _make_folders(os.path.dirname(real))
        _replace(real, data, lambda: _check_unchanged(path, expected))
    except OSError as error:
        why = error.strerror or "it cannot be written"
        raise CannotChange(path, why, "check the permissions") from None
    return folders


def remove(path: str, expected: bytes, folders: tuple[str, ...] = ()) -> None:
    """Remove a file if its content is `expected`, and those of the folders that are empty then.

    Raises `CannotChange`.
    """
    _check_unchanged(path, expected)
    try:
        os.unlink(os.path.realpath(path))  # removes the target of a link, as `write` replaces it
    except OSError as error:
        why = error.strerror or "it cannot be removed"
        raise CannotChange(path, why, "check the permissions") from None
    for folder in folders:
        try:
            os.rmdir(folder)
        except OSError:
            return  # it contains other files


def _check_unchanged(path: str, expected: bytes | None) -> None:
    if read(path) != expected:
        raise CannotChange(path, "another process changed it at the same time", "try again")


def _make_folders(folder: str) -> tuple[str, ...]:
    created: list[str] = []
    missing = folder
    while not os.path.isdir(missing):
        created.append(missing)
        missing = os.path.dirname(missing)
    os.makedirs(folder, exist_ok=True)
    return tuple(created)


def _replace(real: str, data: bytes, check: Callable[[], None]) -> None:
    name = f"{real}.switchgear-{secrets.token_hex(4)}"
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(descriptor, "wb") as file:
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
    """What Switchgear stores about one file: the journal, the backups and a lock. Used by one thread.

    `with SavedState(path).locked():` excludes other Switchgear processes.
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
        descriptor = os.open(path, flags, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(f"the lock {path} is not a regular file: remove it and try again")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def journal(self) -> Journal | None:
        """The changes of the last installation; `None`: there is no readable journal."""
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

    def save(self, journal: Journal) -> None:
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
        """Save a copy of the content. Returns the path of the copy."""
        when = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        name = f"backup-{when}-{secrets.token_hex(2)}"
        self._write(name, data)
        kept = sorted(each for each in os.listdir(self.folder) if each.startswith("backup-"))
        for old in kept[:-MAX_BACKUPS]:
            os.unlink(os.path.join(self.folder, old))
        return os.path.join(self.folder, name)

    def _write(self, name: str, data: bytes) -> None:
        write_private(os.path.join(self.folder, name), data)
