"""The values of hooks: what an agent reports, what the circuits decide, what the agent reads.

Each agent's `hooks` module translates between the agent's JSON and these values. It has

- `read(data) -> HookFacts`: an event from standard input, already parsed. Raises `BadInput`.
- `write(ruling, facts) -> Reply`: the ruling as this agent obeys it at this event.
- `EVENT`: the field with the event's name. `MOMENTS`: what the agent's events mean.
- `WARNS`: the events at which the agent passes a warning on to the model. A warning that is due at
  another event waits.
- `SETTINGS`: where the agent's hooks are configured, for `switchgear hooks`.
- `sample(before, session, folder)` and `action_of(reply)`: an event as the agent sends it, and the
  action and text that it takes from a reply, for `switchgear hooks doctor`.
- `switch_off(settings)`, if the agent has one: the setting by which it runs no hooks.
- `USAGE_MARK` and `usage_in(line)`, if its transcripts report tokens.

Every hook process imports this module, so it imports little itself.
"""

import json
import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from switchgear._agents.fields import TokenCounts

LONGEST_ID = 120
"""Characters kept of an identifier that an agent chose: it becomes part of a circuit's name."""
DEFAULT_WINDOW = 200_000
"""The context window in tokens of a model that no list knows."""
TIMEOUT_S = 15
"""How long an agent waits for a hook; it takes some 30 milliseconds, and longer on a busy machine."""
PROJECT, LOCAL, USER = "project", "local", "user"
SCOPES = (PROJECT, LOCAL, USER)
"""Shared with everyone who works on the project, this checkout only, every project of the user."""
_BEFORE_TOOL = ("PreToolUse", "BeforeTool")


class Moment(StrEnum):
    """Where in an agent's life a hook is called, whatever the agent calls it."""

    SESSION_START = "session_start"
    PROMPT = "prompt"
    """The agent received a prompt."""
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
    """The agent has answered and waits for a prompt."""
    SESSION_END = "session_end"
    OTHER = "other"
    """Known and ignored: nothing is recorded, everything is admitted."""


class BadInput(ValueError):
    """A hook's input that cannot be used: what, and why."""


class HookFacts(NamedTuple):
    """One hook call. Texts are as the agent sent them: redact one before you keep it."""

    agent: str
    """The agent's name in the hook command."""
    event: str
    """The agent's own name for the event."""
    moment: Moment
    session: str
    """The agent's own name for the session, made safe for a circuit's name."""
    subagent: str = ""
    """Which sub-agent acts; empty: the agent itself."""
    tool: str = ""
    args: Any = None
    """The tool's arguments: usually a mapping."""
    result: str | None = None
    """What the tool returned, as text."""
    thought: str | None = None
    """What the agent wrote before it called the tool, where it reports that."""
    ok: bool | None = None
    """Whether the tool succeeded; `None`: not reported, or a person interrupted it."""
    error: str | None = None
    seconds: float | None = None
    """How long the tool took, if the agent measured it."""
    call_id: str = ""
    """The agent's id of this call; empty: calls are matched by tool and arguments."""
    cwd: str = ""
    prompt: str = ""
    context_used: float | None = None
    """The share of the context window in use: 0 to 1."""
    tokens: int | None = None
    """How many tokens the context holds, where only that is known."""
    cost_micros: int | None = None
    """The cost in millionths of a dollar."""
    batch: tuple["HookFacts", ...] = ()
    """The calls of a batch, each as after its tool."""
    transcript: str = ""
    """The transcript of the agent, or of the sub-agent that acts."""
    model: str = ""
    """The model that answers, if the agent names it."""


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


class Action(StrEnum):
    """What a ruling demands."""

    ALLOW = "allow"
    WARN = "warn"
    """The call happens, and the agent reads the text."""
    DENY = "deny"
    """This tool call does not happen; the agent reads why."""
    STOP = "stop"
    """This call does not happen and the turn ends."""


REFUSING = frozenset((Action.DENY, Action.STOP))
"""The actions with which a tool call does not happen."""


class Errand(NamedTuple):
    """What is left to do after the reply; see `_hooks/after_reply.py`."""

    agent: str
    session: str
    root: str
    cwd: str = ""
    watch: bool = False
    """Whether the session needs a watcher."""
    escalate: str | None = None
    """The escalation agent that takes over, if one does."""
    evidence: str = ""
    notice: str = ""
    """A message for people, where the agent runs headless and would not show it."""
    opinion: str = ""
    """A second opinion to ask, as JSON."""


class Ruling(NamedTuple):
    """The decision on one hook call. Immutable.

    >>> allow().action
    <Action.ALLOW: 'allow'>
    """

    action: Action
    text: str = ""
    """For the agent: the warning, or why the call is refused and what to do."""
    remark: str = ""
    """For the agent's log: why a hook could not decide, for example."""
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
    """Admit the call."""
    return Ruling(Action.ALLOW, remark=remark)


def warn(text: str, remark: str = "") -> Ruling:
    """Admit the call, and show the agent this text."""
    return Ruling(Action.WARN, text, remark)


def deny(reason: str, remark: str = "") -> Ruling:
    """Refuse this call."""
    return Ruling(Action.DENY, reason, remark)


def stop(reason: str, remark: str = "", *, whole: bool = True) -> Ruling:
    """Refuse this call and every further one in this turn."""
    return Ruling(Action.STOP, reason, remark, whole)


class AnswerUsage(NamedTuple):
    """The tokens of one answer of the model, as a transcript reports them."""

    id: str
    """The same for lines about the same answer."""
    model: str
    tokens: TokenCounts
    window: int | None = None
    """The model's context window in tokens, where the agent reports it; 0: another line will."""
    at: str = ""
    """When, as ISO 8601 in UTC."""
    aside: bool = False
    """Whether it is an answer to a sub-agent, in the transcript of the agent that started it."""


class Dialect(NamedTuple):
    """The parts of an agent's `hooks` module that every hook call needs."""

    read: Callable[[Mapping[str, Any]], HookFacts]
    write: Callable[[Ruling, HookFacts], Reply]
    warns: frozenset[str]
    moments: Mapping[str, Moment]
    event_field: str

    def is_surely_not_before_a_tool(self, data: Any) -> bool:
        """Whether an event, whatever else is wrong with it, is a known one and not before a tool."""
        name = data.get(self.event_field) if isinstance(data, dict) else None
        moment = self.moments.get(name) if isinstance(name, str) else None
        return moment is not None and moment is not Moment.BEFORE_TOOL


class HookSettings(NamedTuple):
    """Where an agent's hooks are configured, which events it has and what it can read."""

    name: str
    """The agent's name in the hook command."""
    title: str
    program: str
    project_file: str
    """From the project's folder."""
    user_file: str
    """From the folder of `home_variable`, else from `user_folder`."""
    user_folder: str
    home_variable: str
    """The environment variable that names another folder than `user_folder`."""
    local_file: str = ""
    """From the project's folder: the settings of this checkout only; empty: the agent has none."""
    tool_events: tuple[str, ...] = ()
    """Those that have a matcher, for all tools."""
    other_events: tuple[str, ...] = ()
    timeout: int = TIMEOUT_S
    """In the agent's own unit."""
    named: bool = False
    """Whether the agent shows its hooks by names."""
    comments: bool = False
    """Whether its settings may have comments."""
    byte_order_mark: bool = False
    """Whether its settings may begin with a byte order mark."""
    other_file: str = ""
    """A file beside the settings that the agent reads too: hooks can be switched off in it."""
    trust: str = ""
    """What else the agent requires before it runs a hook of the project."""
    is_plugin: bool = False
    """Whether the file is a plugin and only ours, not settings that we share."""
    project_variable: str = ""
    """The environment variable by which the agent names the project to its hooks."""
    has_subagents: bool = False
    """Whether events name the sub-agent that acts."""

    @property
    def before_tool(self) -> tuple[str, ...]:
        """The events at which a hook that fails must refuse."""
        return tuple(event for event in self.tool_events if event in _BEFORE_TOOL)

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that the agent has."""
        return SCOPES if self.local_file else (PROJECT, USER)

    @property
    def events(self) -> tuple[str, ...]:
        """All events that are hooked."""
        return (*self.tool_events, *self.other_events)

    def file(self, scope: str, folder: str, environment: Mapping[str, str] | None = None) -> str:
        """The file of a scope, for the project in `folder`."""
        if scope in {PROJECT, LOCAL}:
            name = self.local_file if scope == LOCAL else self.project_file
            return os.path.join(os.path.abspath(folder), name)
        known = os.environ if environment is None else environment
        home = os.path.expanduser(known.get(self.home_variable) or self.user_folder)
        return os.path.join(os.path.abspath(home), self.user_file)


def plugin_reply(ruling: Ruling, facts: HookFacts | None = None) -> Reply:
    """The ruling for our own plugin or extension: `{"action", "text", "remark"}` on one line.

    It runs inside the agent and acts on it with the agent's own means: throw, append, abort.
    """
    del facts
    output = {"action": ruling.action.value, "text": ruling.text, "remark": ruling.remark}
    refusal = ruling.text if ruling.action in REFUSING else ""
    return Reply(json.dumps(output), ruling.remark, refusal=refusal)


def plugin_action(reply: Mapping[str, Any]) -> tuple[str, str]:
    """The action and the text that our plugin takes from a reply."""
    return str(reply.get("action", "")), str(reply.get("text", ""))
