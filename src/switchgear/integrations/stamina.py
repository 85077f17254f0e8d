"""Stamina: a refusal is not retried before the circuit may admit again.

`@stamina.retry(on=unless_refused(httpx.HTTPError))`, or `on=after_refusal(…)` to wait for the circuit. The
nesting order matters: see `docs/integrations/retries.md`.
"""

from collections.abc import Callable

from switchgear.integrations._refusals import refusal_in, retry_after_s

__all__ = ["after_refusal", "unless_refused"]

Kinds = type[Exception] | tuple[type[Exception], ...]
_SOON_S = 0.001


def unless_refused(on: Kinds = Exception) -> Callable[[Exception], bool]:
    """For `stamina.retry(on=…)`: retry these exceptions, but never a refusal."""

    def decide(error: Exception) -> bool:
        return refusal_in(error) is None and isinstance(error, on)

    return decide


def after_refusal(
    on: Kinds = Exception, *, longer_than_s: float = 60.0
) -> Callable[[Exception], bool | float]:
    """For `stamina.retry(on=…)`: retry these exceptions, and a refusal after its `retry_after_s`.

    A refusal until a manual reset, or for longer than `longer_than_s` seconds, is not retried. Give `stamina.retry` a `timeout` and `attempts` that allow for the wait.
    """
    if not longer_than_s >= 0:
        raise ValueError(f"longer_than_s is {longer_than_s!r}: it must be at least 0")

    def decide(error: Exception) -> bool | float:
        refused = refusal_in(error)
        if refused is None:
            return isinstance(error, on)
        wait_s = retry_after_s(refused)
        if wait_s is None or wait_s > longer_than_s:
            return False
        return max(wait_s, _SOON_S)

    return decide
