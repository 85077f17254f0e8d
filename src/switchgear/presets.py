"""Policies and loops that are ready to use, as data."""

from switchgear._breaker.loop_presets import LOOP_PRESETS
from switchgear._breaker.presets import PRESETS

__all__ = ["LOOP_PRESETS", "PRESETS"]
