"""The deadline of a hook process: whatever it waits for, the agent is answered in time.

Reading the input, waiting for a configuration that another process compiles, a busy store: each is
bounded, and together they may take longer than an agent waits. An agent that gives up waiting goes on
as if there were no hook; so the process answers before that.
"""

import _thread
import time
from collections.abc import Callable

LOOK_S = 0.25
"""How often the thread looks whether the deadline has moved."""


def watch(late: Callable[[], object], due_s: Callable[[], float]) -> Callable[[], object]:
    """Call `late`, which ends the process, at `due_s()` on the monotonic clock, from another thread.

    The returned function must be called before answering: it returns if there is still time, and never
    returns if the deadline has answered already.
    """
    answering = _thread.allocate_lock()

    def wait() -> None:
        while (left_s := due_s() - time.monotonic()) > 0:
            if answering.locked():
                return  # a process may decide further events
            time.sleep(min(left_s, LOOK_S))
        if answering.acquire(blocking=False):
            late()

    try:  # noqa: SIM105  a hook does without contextlib
        _thread.start_new_thread(wait, ())
    except RuntimeError:
        pass  # without a thread, the store's own time limits bound the wait
    return answering.acquire
