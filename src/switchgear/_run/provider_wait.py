"""When the provider fails: how long to stay away, and when to give up. No evidence on the loop.

A rate limit is waited out for as long as it says. An outage is tried again after growing pauses,
until the provider's own circuit opens: then the run ends, for the agent could not do its work.
"""

from typing import NamedTuple

from switchgear._agents.events import LIMITED, AgentError
from switchgear._breaker.handle import Breaker
from switchgear._core.detector import plural
from switchgear._core.errors import duration
from switchgear._core.types import Phase
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.state import RunState

FIRST_PAUSE_S = 5.0
PATIENCE_S = 3600.0
"""How long a provider is waited for in all before it must have worked once."""


class Pause(NamedTuple):
    """What to do next."""

    seconds: float
    why: str
    ends: ExitReason | None = None
    """End the run instead, for that reason; `why` is the sentence."""
    too_long: ExitReason = ExitReason.RATE_LIMIT
    """How it ends if there is not so much time left."""


def pause_for(trouble: AgentError, state: RunState, provider: Breaker) -> Pause:
    """What to do after an iteration that the provider failed."""
    growing_s = FIRST_PAUSE_S * 2.0 ** min(max(state.provider_failures - 1, 0), 16)
    if trouble.kind not in LIMITED:
        if provider.snapshot().phase is Phase.OPEN:
            words = (
                f"{provider.name} is down, {plural(state.provider_failures, 'iteration')} in a row"
            )
            return Pause(0.0, f"{words}: {trouble.text}", ExitReason.AGENT_ERROR)
        seconds = max(trouble.retry_after_s or 0.0, growing_s)
        why = f"for {provider.name} to come back ({trouble.kind})"
        return _patient(Pause(seconds, why, None, ExitReason.AGENT_ERROR), state, trouble)
    if trouble.kind == "quota" and trouble.retry_after_s is None:
        words = f"the quota at {provider.name} is used up"
        return Pause(0.0, f"{words}: {trouble.text}", ExitReason.RATE_LIMIT)
    wait_s = trouble.retry_after_s if trouble.retry_after_s is not None else growing_s
    return _patient(Pause(wait_s, f"for the rate limit of {provider.name}"), state, trouble)


def _patient(pause: Pause, state: RunState, trouble: AgentError) -> Pause:
    waited_s = state.provider_waited_s + pause.seconds
    if waited_s <= PATIENCE_S:
        return pause
    words = f"waiting {duration(pause.seconds)} {pause.why} would make it {duration(waited_s)}"
    limit = f"more than the {duration(PATIENCE_S)} that a provider gets"
    return Pause(0.0, f"{words}, {limit}: {trouble.text}", pause.too_long)
