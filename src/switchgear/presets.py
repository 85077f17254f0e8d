"""Ready-made policies and loops, as data; and the time limits that are chosen for agents.

>>> from switchgear.presets import PRESETS
>>> PRESETS["resource_lock"]["detectors"]
[{'lock_wait': {'limit_s': 60.0}}]
"""

from switchgear._breaker.presets import LOOP_PRESETS, PRESETS
from switchgear._stuck.timeouts import ChosenTimeout, Estimate, Timeouts, timeout

__all__ = [
    "LOOP_PRESETS",
    "PRESETS",
    "ChosenTimeout",
    "Estimate",
    "Timeouts",
    "timeout",
]
