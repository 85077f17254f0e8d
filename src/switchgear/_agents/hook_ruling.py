"""What the circuits say to a hook call, before an agent's dialect puts it into words."""

from enum import StrEnum
from typing import NamedTuple


class Action(StrEnum):
    """What has to be expressed."""

    ALLOW = "allow"
    WARN = "warn"
    """It goes on, and the agent reads the text."""
    DENY = "deny"
    """This tool call does not happen; the agent reads why."""
    STOP = "stop"
    """This call does not happen and the turn ends."""


REFUSING = frozenset((Action.DENY, Action.STOP))
"""The actions with which a tool call does not happen."""


class Errand(NamedTuple):
    """What is left to do when the hook has answered; see `errands.run`."""

    agent: str
    session: str
    root: str
    cwd: str = ""
    watch: bool = False
    """Whether the session needs a watcher."""
    escalate: str | None = None
    """Who takes over, if somebody does."""
    evidence: str = ""
    notice: str = ""
    """What a person is to read, where the agent runs headless and would not show it."""


class Ruling(NamedTuple):
    """The answer to one hook call. Immutable.

    >>> allow().action
    <Action.ALLOW: 'allow'>
    """

    action: Action
    text: str = ""
    """For the agent: the warning, or why not and what to do."""
    remark: str = ""
    """For whoever reads the agent's log: why a hook could not decide, for one."""
    whole: bool = True
    """Of a stop: the whole session is meant, not only a sub-agent."""
    for_user: str = ""
    """Of a stop: what a person reads, where the agent shows people a text of its own."""


class Reply(NamedTuple):
    """What the hook process writes and how it ends."""

    stdout: str = ""
    stderr: str = ""
    code: int = 0
    interrupt: bool = False
    """The agent must be sent SIGINT as well: none of its hook outputs ends a turn."""
    errand: Errand | None = None
    """What is left to do afterwards."""
    refusal: str = ""
    """Why a tool call is refused; exit code 2 and this text say so if `stdout` cannot be written."""


def allow(remark: str = "") -> Ruling:
    """Go on."""
    return Ruling(Action.ALLOW, remark=remark)


def warn(text: str, remark: str = "") -> Ruling:
    """Go on, and let the agent read this."""
    return Ruling(Action.WARN, text, remark)


def deny(reason: str, remark: str = "") -> Ruling:
    """Not this call."""
    return Ruling(Action.DENY, reason, remark)


def stop(reason: str, remark: str = "", *, whole: bool = True) -> Ruling:
    """Not this call, and no further one in this turn."""
    return Ruling(Action.STOP, reason, remark, whole)
