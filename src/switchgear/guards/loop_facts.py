"""What a loop tells its breaker and hears from it: the records of seeds 000 and 001."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from switchgear.core.types import Phase, Signal

if TYPE_CHECKING:
    from datetime import datetime  # a millisecond or more, and few ask for a date


CIRCUIT_OPEN = "circuit_open"
"""The exit signal of a loop that its circuit ends."""


class Dated(Protocol):
    """A `datetime`, or whatever else knows its seconds since the epoch."""

    def timestamp(self) -> float:
        """Seconds since the epoch."""


class IterationMetrics(NamedTuple):
    """What was measured of one iteration; `None` is "not measured", and who needs it abstains.

    >>> IterationMetrics(files_changed=2, tests_passing=14, output_length=1800).files_changed
    2
    """

    files_changed: int | None = None
    """Against the start of the iteration, committed or not."""
    tests_passing: int | None = None
    output_length: int | None = None
    """In characters."""
    timestamp: Dated | float | None = None
    """When: a `datetime`, or seconds since the epoch. Default: now."""

    def signal(self) -> Signal:
        """The same as facts for the mechanism: neither success nor failure."""
        at_s = self.timestamp
        return Signal(
            files_changed=self.files_changed,
            tests_passing=self.tests_passing,
            output_chars=self.output_length,
            at_s=at_s if at_s is None or isinstance(at_s, int | float) else at_s.timestamp(),
        )


class Decision(NamedTuple):
    """Whether the loop may go on, and why not or what the breaker is worried about."""

    allow_continue: bool
    state: Phase
    """CLOSED, HALF_OPEN (watchful: one more chance) or OPEN."""
    reason: str | None
    """`None` while all is well."""

    @property
    def exit_signal(self) -> str | None:
        """`"circuit_open"` when the loop must end, for its coordinator (seed 000); else `None`."""
        return None if self.allow_continue else CIRCUIT_OPEN


class LoopStatus(NamedTuple):
    """How a loop stands, in the words of seed 000."""

    state: Phase
    consecutive_no_progress: int | None
    """`None`: nothing watches for it, so nobody counted."""
    error_counts: dict[str, int]
    """How often each error came, by the text it first had."""
    output_trend: list[int]
    """The lengths of the latest outputs, oldest first."""
    last_progress: "datetime | None"
    """In UTC."""


class LoopStats(NamedTuple):
    """How a loop failed, in the words of seed 001. `None`: nothing watches for it, nobody counted."""

    consecutive_failures: int | None
    total_failures: int
    unique_errors: int | None
    """How many different errors came; `LoopBreaker.unique_errors_exact` says whether all are counted."""
