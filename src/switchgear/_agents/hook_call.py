"""What one hook call says, in the same words for every agent."""

from enum import StrEnum
from typing import Any, NamedTuple

LONGEST_ID = 120
"""Characters kept of an identifier that an agent chose: it becomes part of a circuit's name."""

DEFAULT_WINDOW = 200_000
"""How many tokens a model can hold of which nothing is known."""


class Moment(StrEnum):
    """Where in an agent's life a hook is called, whatever the agent calls it."""

    SESSION_START = "session_start"
    PROMPT = "prompt"
    """Somebody asked the agent for something."""
    BEFORE_MODEL = "before_model"
    AFTER_MODEL = "after_model"
    BEFORE_TOOL = "before_tool"
    AFTER_TOOL = "after_tool"
    BATCH = "batch"
    """All tools of one answer of the model are done."""
    AGENT_START = "agent_start"
    """A sub-agent begins."""
    AGENT_STOP = "agent_stop"
    STOP = "stop"
    """The agent has answered and waits for somebody."""
    SESSION_END = "session_end"
    OTHER = "other"
    """Known, and of no interest: nothing is told, everything is admitted."""


class BadInput(ValueError):
    """A hook's input that cannot be used: what, and why."""


class HookFacts(NamedTuple):
    """One hook call. Texts are as the agent sent them: whoever keeps one redacts it first."""

    agent: str
    """One of `command.AGENTS`."""
    event: str
    """The agent's own name for the event."""
    moment: Moment
    session: str
    """The agent's own name for the session, made safe for a circuit's name."""
    subagent: str = ""
    """Which sub-agent acts; empty: the agent itself."""
    tool: str = ""
    args: Any = None
    """What the tool is called with: usually a mapping."""
    result: str | None = None
    """What the tool gave back, as text."""
    thought: str | None = None
    """What the agent said before it called the tool, where it tells that."""
    ok: bool | None = None
    """Whether the tool succeeded; `None`: the agent does not say, or somebody interrupted it."""
    error: str | None = None
    seconds: float | None = None
    """How long the tool took, if the agent measured it."""
    call_id: str = ""
    """The agent's name for this call; empty: calls are told apart by tool and arguments."""
    cwd: str = ""
    prompt: str = ""
    context_used: float | None = None
    """The share of the context window in use: 0 to 1."""
    tokens: int | None = None
    """How many tokens the context holds, where only that is known."""
    cost_micros: int | None = None
    """What it has cost, in millionths of a dollar."""
    batch: tuple["HookFacts", ...] = ()
    """The calls of a batch, each as it would have been told after its tool."""
    transcript: str = ""
    """The file in which the agent, or the sub-agent that acts, keeps what was said."""
    model: str = ""
    """Which model answers, if the agent says so."""


def safe_id(value: Any) -> str:
    """An agent's identifier as part of a circuit's name: letters, digits and a few signs.

    >>> safe_id("a/../b c"), safe_id("")
    ('a_.._b_c', 'unknown')
    """
    text = value if isinstance(value, str) else ""
    kept = [
        sign if sign.isascii() and (sign.isalnum() or sign in "-_.:@") else "_" for sign in text
    ]
    return "".join(kept[:LONGEST_ID]) or "unknown"
