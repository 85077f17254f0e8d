"""The policy of `CircuitBreaker(name, threshold, base_timeout, max_timeout)`, from its numbers."""

from functools import lru_cache

from switchgear.core import record
from switchgear.core.detectors import ConsecutiveFailures
from switchgear.core.policy import Policy
from switchgear.core.recovery import Cooldown


def classic(threshold: int = 5, base_timeout: float = 60.0, max_timeout: float = 300.0) -> Policy:
    """Consecutive failures, then a cooldown. Raises ValueError when a number is out of range."""
    return _classic(*_checked(threshold, base_timeout, max_timeout))


def _checked(threshold: int, base_timeout: float, max_timeout: float) -> tuple[int, float, float]:
    record.whole("CircuitBreaker.threshold", threshold)
    base_timeout = record.seconds("CircuitBreaker.base_timeout", base_timeout)
    max_timeout = record.seconds("CircuitBreaker.max_timeout", max_timeout)
    if base_timeout > max_timeout:
        raise ValueError(
            f"CircuitBreaker.base_timeout is {base_timeout:g}: it must not be above max_timeout, "
            f"which is {max_timeout:g}"
        )
    return threshold, base_timeout, max_timeout


@lru_cache(maxsize=256)
def _classic(threshold: int, base_timeout: float, max_timeout: float) -> Policy:
    """The policy of seed 004; shared, so that ten thousand breakers hold it once."""
    return Policy([ConsecutiveFailures(threshold)], Cooldown(base_timeout, max_timeout))
