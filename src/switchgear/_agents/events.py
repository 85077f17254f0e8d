"""What an agent did, in the same values for all agents.

Every reader turns its agent's stream into these values and nothing else, so that judging a
run needs no format of an agent. Texts are already redacted, free of control characters and bounded.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

ErrorKind = Literal[
    "rate_limit",  # asked to wait: no evidence against the agent
    "quota",  # the account's credit is used up; waiting does not help soon
    "overloaded",  # 503, 529
    "server",  # other 5xx
    "connection",  # refused, reset, no such host, timed out
    "auth",  # 401, 403, a missing or wrong key
    "context",  # the conversation no longer fits the model
    "loop",  # the agent's own loop guard stopped it
    "limit",  # the agent's own limit of turns or cost
    "other",
]
OUTAGE: frozenset[ErrorKind] = frozenset({"overloaded", "server", "connection"})
"""The provider cannot be reached or does not work."""
LIMITED: frozenset[ErrorKind] = frozenset({"rate_limit", "quota"})
"""The provider works and wants to be left alone for a while."""


class ToolStarted(NamedTuple):
    """A tool is running now. For live views; each is followed by one `ToolStep`."""

    tool: str
    arguments: str
    call_key: str
    agent: str = ""
    """Which sub-agent called it; empty: the agent itself."""


class ToolStep(NamedTuple):
    """One tool call with its outcome; exactly one per call."""

    tool: str
    arguments: str
    """A summary: the command, the path, or the start of the arguments."""
    ok: bool | None
    """None: the stream ended before the outcome was known."""
    error: str | None
    """What it said when it failed, else None."""
    files_changed: tuple[str, ...] = ()
    """Files that the agent says this step changed: a claim, to be measured."""
    call_key: str = ""
    """A digest of tool and all arguments: equal for literally repeated calls."""
    output_chars: int = 0
    silent: bool = False
    """Whether it failed without a word of its own; `error` then names the call."""
    output_key: str = ""
    """A digest of what came back: equal where that was the same."""
    output: str = ""
    """The beginning and the end of what came back."""
    agent: str = ""
    """Which sub-agent called it; empty: the agent itself."""


class TextOutput(NamedTuple):
    """Something the agent said."""

    text: str
    agent: str = ""
    """Which sub-agent said it; empty: the agent itself."""


class Usage(NamedTuple):
    """Tokens and cost of one model since the process started: a running total.

    The latest value of each model counts; `total_usage` adds the models up.
    """

    model: str | None
    input_tokens: int
    """All input, tokens from and to the cache included."""
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_micros: int | None = None
    """The agent's own figure in millionths of a dollar, None where it gives none."""
    estimated: bool = False
    """Whether the output tokens are a guess because the agent has not told them yet."""


class AgentError(NamedTuple):
    """A provider or the agent itself complains."""

    kind: ErrorKind
    text: str
    status: int | None = None
    """The HTTP status, if it was said."""
    retry_after_s: float | None = None
    final: bool = False
    """True: the agent gave up on it. False: it goes on or tries again."""


class Question(NamedTuple):
    """The agent wants an answer from a human."""

    text: str
    by_tool: bool
    """True: asked with a tool made for it. False: its last words end with a question mark."""


class AgentResult(NamedTuple):
    """The agent's own summary of its run: facts about what it says, never proof."""

    text: str
    claimed_success: bool | None
    reason: str | None = None
    """Why it ended, in the agent's words: completed, max_turns, hook_stopped…"""


StreamEvent = ToolStarted | ToolStep | TextOutput | Usage | AgentError | Question | AgentResult


def usage_by_model(events: Iterable[StreamEvent]) -> tuple[Usage, ...]:
    """The latest `Usage` of each model, in the order of their first mention."""
    latest: dict[str | None, Usage] = {}
    for event in events:
        if isinstance(event, Usage):
            latest[event.model] = event
    return tuple(latest.values())


def total_usage(usages: Iterable[Usage]) -> Usage:
    """All models together. The cost is None as soon as one model's cost is.

    >>> total_usage([Usage("a", 10, 1, cost_micros=5), Usage("b", 20, 2, cost_micros=7)])[1:6]
    (30, 3, 0, 0, 12)
    """
    models = tuple(usages)
    costs = [usage.cost_micros for usage in models]
    known = [cost for cost in costs if cost is not None]
    return Usage(
        model=models[0].model if len(models) == 1 else None,
        input_tokens=sum(usage.input_tokens for usage in models),
        output_tokens=sum(usage.output_tokens for usage in models),
        cache_read_tokens=sum(usage.cache_read_tokens for usage in models),
        cache_write_tokens=sum(usage.cache_write_tokens for usage in models),
        cost_micros=sum(known) if costs and len(known) == len(costs) else None,
        estimated=any(usage.estimated for usage in models),
    )
