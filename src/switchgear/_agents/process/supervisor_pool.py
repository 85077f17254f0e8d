"""Wardens that are there before they are needed.

A new Python takes as long to come as `git status` on a large repository. So a run has its next
warden started while an agent works: it waits for its job, and costs the iteration nothing. When we
go, it reads the end of its pipes and goes, too.
"""

import marshal
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from switchgear._agents.process import supervisor

WITHHELD = ("SWITCHGEAR_TOKEN",)
"""Variables that an agent never gets: the guarded must not unguard themselves."""
_WARDEN = str(Path(supervisor.__file__).resolve())


class Warden:
    """A warden that waits for its one job. Used by one thread.

    `control` and `status` are our ends of its pipes, for whoever takes it to close.
    """

    def __init__(self) -> None:
        job, self._job = os.pipe()
        control, self.control = os.pipe()
        self.status, status = os.pipe()
        self._stdin = tempfile.TemporaryFile()  # noqa: SIM115 - open until its job begins
        theirs = (job, control, status)
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", _WARDEN, *map(str, theirs)],
                stdin=self._stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env={name: value for name, value in os.environ.items() if name not in WITHHELD},
                pass_fds=theirs,
                start_new_session=True,
            )
        except BaseException:
            for ours in (self._job, self.control, self.status):
                os.close(ours)
            self._stdin.close()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    @property
    def is_there(self) -> bool:
        """Whether it still waits."""
        return self.process.poll() is None

    def begin(
        self, argv: Sequence[str], stdin: str, *, env: Mapping[str, str], cwd: Path, grace_s: float
    ) -> None:
        """Give it its job. Whether that came to anything, its status tells."""
        # Unbuffered, else closing it would write once more. Closed in any case: then it gives up.
        with (
            suppress(BrokenPipeError),
            os.fdopen(self._job, "wb", buffering=0) as pipe,
            self._stdin as file,
        ):
            file.write(stdin.encode("utf-8", "replace"))
            file.seek(0)  # it has the same file, at the same place
            job = marshal.dumps((list(argv), dict(env), str(cwd), float(grace_s)))
            while job:
                job = job[pipe.write(job) :]

    def dismiss(self) -> None:
        """Let it go without a job."""
        self._stdin.close()
        for ours in (self._job, self.control, self.status):
            os.close(ours)
        with self.process:  # closes its outputs and waits
            pass


class Wardens:
    """At most one warden that waits. Used by one thread; `close` it, or use it with `with`."""

    def __init__(self) -> None:
        self._next: Warden | None = None

    def take(self) -> Warden:
        """The one that waits, else a new one."""
        ready, self._next = self._next, None
        if ready is None:
            return Warden()
        if ready.is_there:
            return ready
        ready.dismiss()
        return Warden()

    def prepare(self) -> None:
        """See that one waits, if the system lets us; else whoever needs one hears of it."""
        if self._next is None:
            with suppress(OSError):
                self._next = Warden()

    def close(self) -> None:
        """Let the one that waits go."""
        ready, self._next = self._next, None
        if ready is not None:
            ready.dismiss()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
