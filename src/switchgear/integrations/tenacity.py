"""Tenacity: a refusal is not retried before the circuit may admit again.

`@retry(retry=retry_unless_refused(), wait=wait_for_circuit(wait_exponential()), stop=stop_if_refused())`. The
nesting order matters: see `docs/integrations/retries.md`.
"""

from collections.abc import Callable
from typing import Any

from tenacity import RetryCallState, wait_none
from tenacity.retry import retry_base, retry_if_exception
from tenacity.stop import stop_base
from tenacity.wait import wait_base

from switchgear.integrations._refusals import RefusalError, refusal_in, retry_after_s

__all__ = ["retry_unless_refused", "stop_if_refused", "wait_for_circuit"]

_BaseRetry = Callable[[RetryCallState], bool]
_BaseWait = Callable[[RetryCallState], float]


class retry_unless_refused(retry_base):  # noqa: N801  named as tenacity names its own
    """Retry as `retry` decides (default: every exception), but never a refusal."""

    def __init__(self, retry: _BaseRetry | None = None) -> None:
        self._retry = retry or retry_if_exception(lambda error: isinstance(error, Exception))

    def __call__(self, retry_state: RetryCallState) -> bool:
        """Whether to try again."""
        return _refusal(retry_state) is None and self._retry(retry_state)


class wait_for_circuit(wait_base):  # noqa: N801
    """Wait as `wait` decides (default: not at all), but at least `retry_after_s` after a refusal.

    For retries that include refusals; `stop_if_refused` excludes those that do not end by themselves.
    """

    def __init__(self, wait: _BaseWait | None = None) -> None:
        self._wait = wait or wait_none()

    def __call__(self, retry_state: RetryCallState) -> float:
        """Seconds until the next attempt."""
        wait_s = float(self._wait(retry_state))
        refused = _refusal(retry_state)
        return wait_s if refused is None else max(wait_s, retry_after_s(refused) or 0.0)


class stop_if_refused(stop_base):  # noqa: N801
    """Stop after a refusal until a manual reset, or for longer than `longer_than_s` seconds.

    Combine it with your own limit: `stop_if_refused(60) | stop_after_attempt(5)`.
    """

    def __init__(self, longer_than_s: float = 60.0) -> None:
        if not longer_than_s >= 0:
            raise ValueError(f"longer_than_s is {longer_than_s!r}: it must be at least 0")
        self._longest_s = longer_than_s

    def __call__(self, retry_state: RetryCallState) -> bool:
        """Whether to give up now."""
        refused = _refusal(retry_state)
        if refused is None:
            return False
        wait_s = retry_after_s(refused)
        return wait_s is None or wait_s > self._longest_s


def _refusal(retry_state: RetryCallState) -> RefusalError | None:
    outcome: Any = retry_state.outcome
    return None if outcome is None or not outcome.failed else refusal_in(outcome.exception())
