"""One process per task: a lock that is held for as long as the process lives.

The lock is an advisory lock of the system (flock) on a file. The system releases it when the
process ends, however it ends, so there is nothing stale to clean up, and a zombie or a reused process
id never counts as alive. The content of the file only describes the holder in messages.
"""

import errno
import fcntl
import json
import os
import socket
import stat
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from switchgear._core.errors import SwitchgearError

LOCKS = "locks"
MAX_DESCRIPTION_BYTES = 4096
ATTEMPTS = 10
RETRY_S = 0.05
"""Seconds between attempts: `is_held` holds a lock for a moment, which is not a conflict."""


class RunLockHolder(NamedTuple):
    """The process that holds a lock, as far as it is known."""

    pid: int | None = None
    started_at: str | None = None
    """UTC, ISO 8601."""
    what: str | None = None
    """Such as `run 20261115-113536-399b165`."""
    host: str | None = None

    def __str__(self) -> str:
        words = [self.what or "another process"]
        if self.pid is not None:
            elsewhere = f" on {self.host}" if self.host not in {None, socket.gethostname()} else ""
            words.append(f"process {self.pid}{elsewhere}")
        if self.started_at is not None:
            words.append(f"started {self.started_at}")
        return ", ".join(words)


class RunConflict(SwitchgearError):
    """Another process runs the same task. `what` is the task, `holder` the process."""

    def __init__(self, what: str, holder: RunLockHolder) -> None:
        super().__init__(what, holder)
        self.what = what
        self.holder = holder

    def __str__(self) -> str:
        return f"{self.what} is already running: {self.holder}"


class RunLock:
    """A lock on a file. Held from the construction until `release`, or the end of the process.

    Raises `RunConflict` if another process, or another lock of this process, holds it, and OSError
    if the file is a link, no regular file or cannot be made.
    """

    def __init__(self, path: Path, what: str, holds: str | None = None) -> None:
        self._descriptor = -1
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = _acquire_lock(path, what)
        self.describe(holds)

    def describe(self, holds: str | None) -> None:
        """Write the holder and its purpose into the file; errors are ignored."""
        now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")
        holder = RunLockHolder(os.getpid(), now, holds, socket.gethostname())
        text = json.dumps(holder._asdict()).encode()[:MAX_DESCRIPTION_BYTES]
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text, 0)

    def release(self) -> None:
        """Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def task_lock(runs: Path, circuit: str, holds: str | None = None) -> RunLock:
    """The lock of a task in a folder, by the name of the task. Raises `RunConflict`."""
    name = circuit.replace("/", "-")
    return RunLock(runs.parent / LOCKS / f"{name}.lock", f"this task ({circuit})", holds)


def folder_lock(folder: Path, what: str, holds: str | None = None) -> RunLock:
    """The lock of a run or a batch that is kept in this folder. Raises `RunConflict`."""
    return RunLock(folder / "lock", what, holds or what)


def is_held(path: Path) -> bool | None:
    """Whether a process holds the lock now; `None`: there is no lock file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def _acquire_lock(path: Path, what: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for tries_left in range(ATTEMPTS - 1, -1, -1):
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.EISDIR}:
                raise _not_a_lock(path) from None
            raise
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _not_a_lock(path)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_current(path, descriptor):
                return descriptor
        except BlockingIOError:
            if not tries_left:
                holder = _holder(descriptor)
                os.close(descriptor)
                raise RunConflict(what, holder) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(RETRY_S)
    raise RunConflict(what, RunLockHolder())


def _not_a_lock(path: Path) -> OSError:
    return OSError(f"the lock {path} is not a regular file: remove it and try again")


def _is_current(path: Path, descriptor: int) -> bool:
    """Whether the path still leads to the locked file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def _holder(descriptor: int) -> RunLockHolder:
    try:
        fields: Any = json.loads(os.pread(descriptor, MAX_DESCRIPTION_BYTES, 0))
        holder = RunLockHolder(**{key: fields.get(key) for key in RunLockHolder._fields})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return RunLockHolder()
    pid = holder.pid if isinstance(holder.pid, int) else None
    texts = (value if isinstance(value, str) else None for value in holder[1:])
    return RunLockHolder(pid, *texts)
