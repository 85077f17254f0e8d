"""What the tests of the SQLite store share: a policy, a path, and a child process without rights."""

import os
import pickle
import sqlite3
import traceback
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from switchgear._core.policy import Policy
from switchgear._core.types import Record, Signal
from switchgear._detectors import ConsecutiveFailures

POLICY = Policy([ConsecutiveFailures(threshold=3)])
STRICT = POLICY.replace(strict=True)
NOW_S = 1_750_000_000.0
OK = Record(Signal(ok=True))
FAILED = Record(Signal(ok=False, error="529 overloaded"))
NOBODY = 65_534


def sql(path: Path, statement: str, *values: Any) -> list[Any]:
    """Execute SQL on the file without the store."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(statement, values).fetchall()


def set_aside(path: Path) -> list[Path]:
    """The files that were set aside, without their logs."""
    found = path.parent.glob(f"{path.name}.corrupt-*")
    return sorted(file for file in found if not file.name.endswith(("-wal", "-shm")))


def lock_away(path: Path) -> None:
    """Make a file and its folder read-only, but for root, and reachable for anybody."""
    path.parent.chmod(0o555)
    for file in path.parent.iterdir():
        file.chmod(0o444)
    for folder in path.parent.parents:
        if not folder.stat().st_mode & 0o001:  # else nobody could come near at all
            folder.chmod(folder.stat().st_mode | 0o111)


def in_a_fork(work: Callable[[], Any], *, as_nobody: bool = False) -> Any:
    """What `work` returns in a forked child, or the exception it raises there.

    As nobody: the tests may run as root, whom no file is read-only to.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of other tests are idle
        child = os.fork()
    if not child:
        try:
            if as_nobody and os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            result = work()
        except BaseException as error:
            traceback.print_exc()
            result = error
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(pickle.dumps(result))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(answer)
