"""What a self-test says of one guard: which attack it met, where, and whether it cut."""

from enum import StrEnum
from typing import NamedTuple

from switchgear._core.errors import duration


class GuardStatus(StrEnum):
    """How a guard did."""

    OK = "ok"
    """It fired."""
    FAILED = "failed"
    """It is configured and cannot fire; the reason says why."""
    SKIPPED = "skipped"
    """It was not tried; the reason says why. No failure: nothing is known against it."""


class GuardRow(NamedTuple):
    """One guard under one attack. Immutable.

    >>> GuardRow("provider/*", "failures", "library", "consecutive_failures", 5, 0.4).after
    '5 signals, 0.4 s'
    """

    guard: str
    attack: str
    path: str
    """What it went through: `mechanism`, `library`, `hooks`, `loop runner`, `router`, `locks`,
    `budgets`, `store`, or one of these with `live`."""
    detector: str = ""
    """What tripped; several that tripped together are joined by ` + `."""
    signals: int = 0
    """How many signals, calls or iterations it took."""
    seconds: float = 0.0
    """How long it took: virtual time, or with `live` real time."""
    status: GuardStatus = GuardStatus.OK
    reason: str = ""
    """The evidence of the trip, or why there is none."""

    @property
    def after(self) -> str:
        """When it fired, in words."""
        if not self.signals:
            return ""
        noun = "signal" if self.signals == 1 else "signals"
        return f"{self.signals:,} {noun}, {duration(self.seconds)}"


def failed(guard: str, attack: str, path: str, reason: str) -> GuardRow:
    """A guard that cannot fire."""
    return GuardRow(guard, attack, path, status=GuardStatus.FAILED, reason=reason)


def skipped(guard: str, attack: str, path: str, reason: str) -> GuardRow:
    """A guard that was not tried."""
    return GuardRow(guard, attack, path, status=GuardStatus.SKIPPED, reason=reason)
