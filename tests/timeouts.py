"""How long tests wait for other processes and threads: until something happens, not a fixed time."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

LIMIT_S = float(os.environ.get("SWITCHGEAR_TEST_LIMIT_S", "300"))
"""A limit for deadlocks only. A busy machine is slow, and that is no failure."""


def eventually(is_so: Callable[[], object], what: str, patience_s: float = LIMIT_S) -> None:
    """Wait until the condition holds; fail with what was waited for."""
    deadline_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline_s, f"still not so after {patience_s:g} s: {what}"
        time.sleep(0.005)


def end(process: subprocess.Popen[Any]) -> None:
    """Kill the process if it still runs, and close its pipes: an open one fails another test."""
    process.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()


@contextlib.contextmanager
def ended(*processes: subprocess.Popen[Any]) -> Iterator[None]:
    """End the processes when the block is left, however it is left."""
    try:
        yield
    finally:
        for process in processes:
            end(process)
