"""Policies and loops that are ready to use, as data."""

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
