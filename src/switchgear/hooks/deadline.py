"""The one deadline of a hook process: whatever it waits for, the agent is answered in time.

To wait for a configuration that another process compiles, for a busy store, and for the store again
to leave an event is each short enough, and together longer than an agent waits. One that gives up
waiting goes on as if there were no hook, whatever is configured; so we answer before.
"""

import _thread
import time
from collections.abc import Callable

DEADLINE_S = 12.0
"""From the input to the answer. Agents give a hook 15 s, and starting Python takes its part."""


def watch(late: Callable[[], object]) -> Callable[[], object]:
    """Call `late`, which ends the process, at the deadline, from a thread of its own.

    Who has an answer before calls what is returned, and answers when that returns: if it is too late,
    it never does.
    """
    answering = _thread.allocate_lock()

    def wait() -> None:
        time.sleep(DEADLINE_S)
        if answering.acquire(blocking=False):
            late()

    try:  # noqa: SIM105  a hook does without contextlib
        _thread.start_new_thread(wait, ())
    except RuntimeError:
        pass  # no thread is to be had: an answer that may be late is better than none
    return answering.acquire
