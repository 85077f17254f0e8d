"""The policies of autonomous loops: seeds 000 and 001, each alone or both together."""

from switchgear.core import record
from switchgear.core.detectors import (
    ConsecutiveFailures,
    Detector,
    NoProgress,
    OutputDecline,
    SameError,
)
from switchgear.core.detectors.base import LAST_CHANCE
from switchgear.core.policy import Policy
from switchgear.core.recovery import Cooldown, Latched, Recovery


def loop_policy(
    *,
    consecutive_failures: int | None = 3,
    same_error: int | None = 5,
    no_progress: int | None = 3,
    output_decline_percent: float | None = 70.0,
    cooldown_s: float | None = 30.0,
    scope: str = "total",
    fingerprint: str = "default",
) -> Policy:
    """The policy of `LoopBreaker` with these arguments: `None` leaves a detector out.

    `cooldown_s` is the wait before one retry, the same after each; `None`: until it is reset.
    The circuit is TRIPPING when one more iteration like the last would open it for standing still
    or for output in decline. Failures and errors open it without that warning.
    """
    share = 0.7
    if output_decline_percent is not None:
        percent = record.positive("LoopBreaker.output_decline_percent", output_decline_percent)
        if percent > 100:
            raise ValueError(
                f"LoopBreaker.output_decline_percent is {output_decline_percent!r}: "
                "it must not be above 100"
            )
        share = percent / 100
    detectors: list[Detector] = []
    if consecutive_failures is not None:
        detectors.append(ConsecutiveFailures(consecutive_failures))
    if same_error is not None:
        detectors.append(SameError(same_error, scope, fingerprint))
    if no_progress is not None:
        detectors.append(NoProgress(no_progress, share))
    if output_decline_percent is not None:
        detectors.append(OutputDecline(share))
    watches = no_progress is not None or output_decline_percent is not None
    return Policy(
        detectors,
        Latched() if cooldown_s is None else _one_retry(cooldown_s),
        tripping_at=LAST_CHANCE if watches else None,
    )


def stagnation_policy(
    no_progress: int = 3, same_error: int = 5, output_decline_percent: float = 70.0
) -> Policy:
    """Seed 000: standing still, the same error, output in decline; open until it is reset."""
    return loop_policy(
        consecutive_failures=None,
        same_error=same_error,
        no_progress=no_progress,
        output_decline_percent=output_decline_percent,
        cooldown_s=None,
    )


def failures_policy(
    consecutive_failures: int = 3, same_error: int = 5, cooldown_s: float = 30.0
) -> Policy:
    """Seed 001: failures in a row, the same error; after a cooldown one retry decides."""
    return loop_policy(
        consecutive_failures=consecutive_failures,
        same_error=same_error,
        no_progress=None,
        output_decline_percent=None,
        cooldown_s=cooldown_s,
    )


def _one_retry(cooldown_s: float) -> Recovery:
    wait_s = record.seconds("LoopBreaker.cooldown_s", cooldown_s)
    # An iteration of an agent takes longer than the wait; the default lease would be the wait.
    return Cooldown(wait_s, max_s=wait_s, lease_s=max(wait_s, 3600.0))
