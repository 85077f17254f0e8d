"""Waiting that is seen and can be ended: a countdown, in slices, on a clock that tests can move."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from switchgear._run.interrupt import Interrupt
from switchgear._run.view import View
from switchgear._system.clock import AWAKE, Clock

SLICE_S = 0.2


class Time(NamedTuple):
    """Where a run's time comes from."""

    clock: Clock = AWAKE
    """For spans: never runs backwards, and stands still while the process is suspended."""
    wall: Clock = time.time
    """For dates: seconds since the epoch."""
    sleep: Callable[[float], None] = time.sleep
    took: Callable[[float, float], None] = AWAKE.took
    """Told of each sleep: how long it took, and how long it was to take."""


def wait(why: str, seconds: float, *, on: Time, view: View, interrupt: Interrupt) -> bool:
    """Let that time pass, showing what is left each second. False: somebody asked to stop."""
    until_s = on.clock() + seconds
    shown = None
    while not interrupt.asked:
        left_s = until_s - on.clock()
        if left_s <= 0:
            return True
        if math.ceil(left_s) != shown:
            shown = math.ceil(left_s)
            view.waiting(why, float(shown))
        slice_s, before_s = min(SLICE_S, left_s), on.clock()
        on.sleep(slice_s)
        now_s = on.clock()
        on.took(now_s - before_s, slice_s)
        until_s -= now_s - on.clock()  # what is waited for went on while we were suspended
    return False
