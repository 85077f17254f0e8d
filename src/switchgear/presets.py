"""Policies and loops that are ready to use, as data."""

from switchgear._breaker.presets import LOOP_PRESETS, PRESETS

__all__ = ["LOOP_PRESETS", "PRESETS"]
