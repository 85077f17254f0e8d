"""Threads for tests: started together, waited for with a bound, their exceptions raised here.

The threads are daemons, so that a deadlock is a failed test and not a run that never ends.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 300.0


def together(*jobs: Callable[[], object]) -> None:
    """Run the jobs at the same time, a thread each; raise the first exception of any."""
    gate = threading.Barrier(len(jobs))
    errors: list[BaseException] = []

    def run(job: Callable[[], object]) -> None:
        try:
            gate.wait(PATIENCE_S)
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    if errors:
        raise errors[0]
    stuck = sum(thread.is_alive() for thread in threads)
    assert not stuck, f"{stuck} of {len(threads)} threads are stuck"


def in_time(job: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """The result of the job, run in a separate thread; fails after the time limit."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(job())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(patience_s)
    if errors:
        raise errors[0]
    assert results, f"still not done after {patience_s:g} s: a deadlock"
    return results[0]
