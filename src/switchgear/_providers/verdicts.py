"""What a response of a model provider means for its circuit: success, failure, or no evidence."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from switchgear._core.types import Signal
from switchgear._providers.errors import ProviderError, classify_response
from switchgear._providers.table import ProviderErrorKind
from switchgear._providers.usage import Metered

TRUNCATED = "the response broke off before its end"


class ResponseVerdict(NamedTuple):
    """The verdict on a response."""

    outcome: Literal["success", "failure", "ignored"]
    """`ignored`: an error of the caller, such as a bad request, which is no evidence about the provider."""
    error: ProviderError | None = None

    def signal(self, seconds: float | None = None, cost_micros: int | None = None) -> Signal:
        """The signal to record in the circuit of the provider."""
        if self.outcome == "failure":
            found = self.error or ProviderError(ProviderErrorKind.OUTAGE)
            wait = found.retry_after_s
            return Signal(
                ok=False,
                seconds=seconds,
                error=found.text,
                retry_after_s=wait,
                cost_micros=cost_micros,
            )
        if self.outcome == "ignored":
            return Signal(cost_micros=cost_micros)
        return Signal(ok=True, seconds=seconds, cost_micros=cost_micros)


SUCCESS = ResponseVerdict("success")


def judge_response(
    status: int,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    metered: Metered | None = None,
    now_s: float | None = None,
) -> ResponseVerdict:
    """Judge a whole response by its status and error body, then by what was metered in it.

    `body` is the body of an error response: text, bytes or parsed JSON. `now_s` is the time in seconds
    since the epoch.

    >>> judge_response(529).outcome, judge_response(404).outcome, judge_response(200).outcome
    ('failure', 'ignored', 'success')
    >>> judge_response(200, metered=Metered(complete=False)).outcome
    'failure'
    """
    if status < 400:
        error = None if metered is None else metered.error
        if error is None and metered is not None and not metered.complete:
            error = ProviderError(ProviderErrorKind.OUTAGE, status, None, TRUNCATED)
    else:
        error = classify_response(status, headers, body, now_s)
    if error is None:
        return SUCCESS
    if not error.is_provider_failure:
        return ResponseVerdict("ignored", error)
    return ResponseVerdict("failure", error)
