"""Where the time of in-process breakers comes from.

The monotonic clock: setting the wall clock forward or back changes nothing. A clock is any
callable that returns seconds and never runs backwards; tests use `switchgear.testing.FakeClock`.
"""

import time
from collections.abc import Callable

Clock = Callable[[], float]

monotonic: Clock = time.monotonic
