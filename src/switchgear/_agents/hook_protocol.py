"""The values that hooks exchange: the facts of an event, the ruling of the circuits, the reply to the agent.

Each agent's `hooks` module translates between the agent's JSON and these values. It has

- `read(data) -> HookFacts`: the facts of a parsed event. Raises `BadInput`.
- `write(ruling, facts) -> Reply`: the ruling in the form that the agent obeys at this event.
- `EVENT`: the field with the event's name. `MOMENTS`: what the agent's events mean.
- `WARNS`: the events at which the agent passes a warning on to the model; at other events, warnings wait.
- `SETTINGS`: where the agent's hooks are configured, for `switchgear hooks`.
- `sample(before, session, folder)` and `action_of(reply)`: an event as the agent sends it, and the
  action and text that it takes from a reply, for `switchgear hooks doctor`.
- `switch_off(settings)`: the setting with which the agent runs no hooks, if it has one.
- `USAGE_MARK` and `usage_in(line)`, if its transcripts report tokens.

Every hook process imports this module, so it imports little itself.
"""

import json
import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from switchgear._agents import fields
from switchgear._agents.fields import TokenCounts, at
from switchgear._system.files import open_regular

MAX_ID_CHARS = 120
"""Maximum length of an identifier from an agent; it becomes part of a circuit's name."""
DEFAULT_WINDOW = 200_000
"""The context window in tokens of an unknown model."""
TIMEOUT_S = 15
"""Seconds that an agent waits for a hook; it takes about 30 milliseconds, and longer on a busy machine."""
PROJECT, LOCAL, USER = "project", "local", "user"
SCOPES = (PROJECT, LOCAL, USER)
"""Settings shared with the project, of this checkout only, and of the user for every project."""
_BEFORE_TOOL = ("PreToolUse", "BeforeTool")


class Moment(StrEnum):
    """The meaning of an event, which is the same for all agents."""

    SESSION_START = "session_start"
    PROMPT = "prompt"
    BEFORE_MODEL = "before_model"
    AFTER_MODEL = "after_model"
    BEFORE_TOOL = "before_tool"
    AFTER_TOOL = "after_tool"
    BATCH = "batch"
    """All tools of one response of the model have finished."""
    AGENT_START = "agent_start"
    """A sub-agent begins."""
    AGENT_STOP = "agent_stop"
    STOP = "stop"
    """The agent has answered and waits for a prompt."""
    SESSION_END = "session_end"
    OTHER = "other"
    """Known, but nothing is recorded, and everything is admitted."""


class BadInput(ValueError):
    """An event that cannot be used, with the reason."""


class HookFacts(NamedTuple):
    """The facts of one event. Texts are as the agent sent them: redact them before they are stored."""

    agent: str
    """The agent's name in the hook command."""
    event: str
    """The agent's own name for the event."""
    moment: Moment
    session: str
    """The agent's id of the session, made safe for a circuit's name."""
    subagent: str = ""
    """The sub-agent that acts; empty: the agent itself."""
    tool: str = ""
    args: Any = None
    """The tool's arguments: usually a mapping."""
    result: str | None = None
    thought: str | None = None
    """The agent's text before the call; `None`: unknown."""
    ok: bool | None = None
    """Whether the tool succeeded; `None`: not reported, or a person interrupted it."""
    error: str | None = None
    seconds: float | None = None
    """The duration of the call, if the agent reports it."""
    call_id: str = ""
    """The agent's id of this call; empty: calls are matched by tool and arguments."""
    cwd: str = ""
    prompt: str = ""
    context_used: float | None = None
    """The share of the context window in use: 0 to 1."""
    tokens: int | None = None
    """The tokens in the context, if the window is unknown."""
    cost_micros: int | None = None
    batch: tuple["HookFacts", ...] = ()
    transcript: str = ""
    """The transcript of the agent, or of the sub-agent that acts."""
    model: str = ""
    """The model, if the agent names it."""


def safe_id(value: Any) -> str:
    """An identifier from an agent as part of a circuit's name: letters, digits and a few signs.

    >>> safe_id("a/../b c"), safe_id("")
    ('a_.._b_c', 'unknown')
    """
    text = value if isinstance(value, str) else ""
    kept = [
        sign if sign.isascii() and (sign.isalnum() or sign in "-_.:@") else "_" for sign in text
    ]
    return "".join(kept[:MAX_ID_CHARS]) or "unknown"


class Action(StrEnum):
    ALLOW = "allow"
    WARN = "warn"
    """The call is admitted, and the agent gets a text."""
    DENY = "deny"
    """The call is refused; the agent gets the reason."""
    STOP = "stop"
    """The call is refused, and the agent's turn ends."""


REFUSING = frozenset((Action.DENY, Action.STOP))
"""The actions that refuse a tool call."""


class WorkAfterReply(NamedTuple):
    """Tasks to do after the reply; see `_hooks/after_reply.py`."""

    agent: str
    session: str
    root: str
    cwd: str = ""
    watch: bool = False
    escalate: str | None = None
    """The escalation agent, if one is configured."""
    evidence: str = ""
    """The evidence for the escalation agent; empty: it is not started."""
    notice: str = ""
    """A message for people, shown if the agent runs headless; empty: none."""
    opinion: str = ""
    """The request for a second opinion, as JSON; empty: none."""


class Ruling(NamedTuple):
    """The decision on one hook call. Immutable.

    >>> allow().action
    <Action.ALLOW: 'allow'>
    """

    action: Action
    text: str = ""
    """For the agent: a warning, or why the call is refused and what to do."""
    remark: str = ""
    """For the agent's log, for example why a hook could not decide."""
    whole: bool = True
    """Whether a stop applies to the whole session, and not only to a sub-agent."""
    for_user: str = ""
    """The text about a stop for people, if the agent shows them a separate text."""


class Reply(NamedTuple):
    """The output and the exit code of a hook process."""

    stdout: str = ""
    stderr: str = ""
    code: int = 0
    interrupt: bool = False
    """Whether the agent must be interrupted, because no output of a hook ends its turn."""
    work_after: WorkAfterReply | None = None
    refusal: str = ""
    """Why a tool call is refused. If `stdout` cannot be written, this is written to `stderr`, with exit code 2."""


def allow(remark: str = "") -> Ruling:
    return Ruling(Action.ALLOW, remark=remark)


def warn(text: str, remark: str = "") -> Ruling:
    """Admit the call, and show the agent this text."""
    return Ruling(Action.WARN, text, remark)


def deny(reason: str, remark: str = "") -> Ruling:
    return Ruling(Action.DENY, reason, remark)


def stop(reason: str, remark: str = "", *, whole: bool = True) -> Ruling:
    """Refuse this call and every further one in this turn."""
    return Ruling(Action.STOP, reason, remark, whole)


class AnswerUsage(NamedTuple):
    """The tokens of one response of the model, as a line of a transcript reports them."""

    id: str
    """The same in all lines about the same response."""
    model: str
    tokens: TokenCounts
    window: int | None = None
    """The context window in tokens, if the agent reports it; 0: another line reports it."""
    at: str = ""
    """The time in ISO 8601, UTC."""
    of_sub_agent: bool = False
    """Whether it is the response to a sub-agent, in the transcript of the agent that started it."""


class Dialect(NamedTuple):
    """The parts of an agent's `hooks` module that every hook call needs."""

    read: Callable[[Mapping[str, Any]], HookFacts]
    write: Callable[[Ruling, HookFacts], Reply]
    warns: frozenset[str]
    moments: Mapping[str, Moment]
    event_field: str

    def is_surely_not_before_a_tool(self, data: Any) -> bool:
        """Whether an event is certainly not before a tool, even if it is invalid otherwise."""
        name = data.get(self.event_field) if isinstance(data, dict) else None
        moment = self.moments.get(name) if isinstance(name, str) else None
        return moment is not None and moment is not Moment.BEFORE_TOOL


class HookSettings(NamedTuple):
    """Where an agent's hooks are configured, which events it has, and which settings it can read."""

    name: str
    """The agent's name in the hook command."""
    title: str
    program: str
    project_file: str
    """The settings of the project, relative to its folder."""
    user_file: str
    """The settings of the user, relative to the folder in `home_variable`, else to `user_folder`."""
    user_folder: str
    home_variable: str
    """The environment variable that overrides `user_folder`."""
    local_file: str = ""
    """The settings of this checkout only, relative to the project's folder; empty: the agent has none."""
    tool_events: tuple[str, ...] = ()
    """Events with a matcher for tools."""
    other_events: tuple[str, ...] = ()
    timeout: int = TIMEOUT_S
    """In the agent's unit: seconds or milliseconds."""
    named: bool = False
    """Whether hooks have a name."""
    comments: bool = False
    byte_order_mark: bool = False
    other_file: str = ""
    """Another file beside the settings in which hooks can be switched off."""
    trust: str = ""
    """What else the agent requires before it runs a hook of the project."""
    is_plugin: bool = False
    """Whether the file is a plugin that belongs to Switchgear, not shared settings."""
    project_variable: str = ""
    """The environment variable with the project's folder that the agent sets for its hooks."""
    has_subagents: bool = False
    """Whether events name the sub-agent that acts."""

    @property
    def before_tool(self) -> tuple[str, ...]:
        """The events at which a hook that cannot start must refuse."""
        return tuple(event for event in self.tool_events if event in _BEFORE_TOOL)

    @property
    def scopes(self) -> tuple[str, ...]:
        return SCOPES if self.local_file else (PROJECT, USER)

    @property
    def events(self) -> tuple[str, ...]:
        return (*self.tool_events, *self.other_events)

    def file(self, scope: str, folder: str) -> str:
        """The file of a scope, for the project in `folder`."""
        if scope in {PROJECT, LOCAL}:
            name = self.local_file if scope == LOCAL else self.project_file
            return os.path.join(os.path.abspath(folder), name)
        home = os.path.expanduser(os.environ.get(self.home_variable) or self.user_folder)
        return os.path.join(os.path.abspath(home), self.user_file)


def plugin_reply(ruling: Ruling, facts: HookFacts | None = None) -> Reply:
    """The ruling for our own plugin or extension: `{"action", "text", "remark"}` on one line.

    The plugin runs inside the agent, and obeys by throwing an error, adding to an output, or aborting the turn.
    """
    del facts
    output = {"action": ruling.action.value, "text": ruling.text, "remark": ruling.remark}
    refusal = ruling.text if ruling.action in REFUSING else ""
    return Reply(json.dumps(output), ruling.remark, refusal=refusal)


def plugin_action(reply: Mapping[str, Any]) -> tuple[str, str]:
    return str(reply.get("action", "")), str(reply.get("text", ""))


EVENT = "hook_event_name"
MAX_TOOL_CHARS = 200
SUBAGENT = "doctor"
"""The sub-agent of a sample event: refusing it interrupts no agent."""
_FAILED_STATUSES = frozenset(
    {"failed", "failure", "error", "errored", "crashed", "timeout", "timed_out"}
)
_INTERRUPTED_STATUSES = frozenset(
    {"cancelled", "canceled", "interrupted", "killed", "aborted", "stopped"}
)


def common_facts(agent: str, data: Mapping[str, Any], moments: Mapping[str, Moment]) -> HookFacts:
    """The fields that every event has. Raises `BadInput`."""
    event = data.get(EVENT)
    if not isinstance(event, str) or not event or len(event) > 100:
        raise BadInput("the field 'hook_event_name' is missing or is not a short text")
    if event not in moments:
        raise BadInput(f"the event {event[:60]!r} is not known")
    session = data.get("session_id")
    if not isinstance(session, str) or not session:
        raise BadInput("the field 'session_id' is missing or is not a text")
    ok, error = _sub_agent_end(data) if moments[event] is Moment.AGENT_STOP else (None, None)
    return HookFacts(
        agent=agent,
        event=event,
        moment=moments[event],
        ok=ok,
        error=error,
        session=safe_id(session),
        subagent=safe_id(data["agent_id"]) if data.get("agent_id") else "",
        cwd=fields.text(data.get("cwd")),
        prompt=fields.text(data.get("prompt")),
        transcript=fields.text(data.get("agent_transcript_path") or data.get("transcript_path")),
        model=fields.text(data.get("model"))[:200],
    )


def _sub_agent_end(data: Mapping[str, Any]) -> tuple[bool | None, str | None]:
    """Whether a sub-agent succeeded, and its error; `None`: it was interrupted.

    Agents send the event when a sub-agent has finished, so it counts as succeeded unless a failure is reported.
    """
    error = fields.whole_text(data.get("error") or None)
    status = fields.text(data.get("status")).lower()
    for task in fields.objects(data.get("background_tasks")):
        if task.get("id") == data.get("agent_id") and not status:
            status = fields.text(task.get("status")).lower()
            error = error or fields.whole_text(task.get("error") or None)
    if error is not None or status in _FAILED_STATUSES:
        return False, error or f"the sub-agent ended: {status}"
    return (None if status in _INTERRUPTED_STATUSES else True), None


def tool_name(value: Any, field: str = "tool_name") -> str:
    """The name of the tool. Raises `BadInput`; a long name is not truncated, because it could match another tool."""
    if not isinstance(value, str) or not value:
        raise BadInput(f"the field {field!r} is missing or is not a text")
    if len(value) > MAX_TOOL_CHARS:
        raise BadInput(f"the tool name has more than {MAX_TOOL_CHARS} characters")
    return value


# Claude Code's format

MOMENTS = {
    "SessionStart": Moment.SESSION_START,
    "UserPromptSubmit": Moment.PROMPT,
    "PreToolUse": Moment.BEFORE_TOOL,
    "PostToolUse": Moment.AFTER_TOOL,
    "PostToolUseFailure": Moment.AFTER_TOOL,
    "PostToolBatch": Moment.BATCH,
    "SubagentStart": Moment.AGENT_START,
    "SubagentStop": Moment.AGENT_STOP,
    "Stop": Moment.STOP,
    "SessionEnd": Moment.SESSION_END,
    "Notification": Moment.OTHER,
    "PermissionRequest": Moment.OTHER,
    "PreCompact": Moment.OTHER,
    "Setup": Moment.OTHER,
    "StopFailure": Moment.OTHER,
    "TeammateIdle": Moment.OTHER,
    "TaskCompleted": Moment.OTHER,
}
"""The events of Claude Code and Qwen Code."""
TOOL_EVENTS = ("PreToolUse", "PostToolUse", "PostToolUseFailure")
OTHER_EVENTS = (
    *("PostToolBatch", "UserPromptSubmit", "SubagentStart", "SubagentStop"),
    *("Stop", "SessionStart", "SessionEnd"),
)
"""The other events for which a hook is installed."""
WARNS = frozenset({*TOOL_EVENTS, "SessionStart", "UserPromptSubmit", "PostToolBatch"})


def read_event(
    agent: str, data: Mapping[str, Any], moments: Mapping[str, Moment], subagents: str = ""
) -> HookFacts:
    """The facts of an event in Claude Code's format. Raises `BadInput`.

    - `subagents`: the folder with the transcripts of sub-agents, relative to the session's transcript.
    """
    facts = common_facts(agent, data, moments)
    if facts.subagent and subagents and not data.get("agent_transcript_path"):
        # Only the last event of a sub-agent names its transcript.
        folder, _, name = facts.transcript.rpartition("/")
        session = name.removesuffix(".jsonl")
        path = f"{folder}/{subagents.format(session=session)}/agent-{facts.subagent}.jsonl"
        facts = facts._replace(transcript=path if session != name else "")
    if facts.moment is Moment.BATCH:
        calls = fields.objects(data.get("tool_calls"))
        return facts._replace(batch=tuple(_add_call_facts(facts, call) for call in calls[:100]))
    if facts.moment is Moment.BEFORE_TOOL or facts.moment is Moment.AFTER_TOOL:
        return _add_call_facts(facts, data)
    return facts._replace(context_used=fields.share(data.get("context_usage")))


def _add_call_facts(facts: HookFacts, data: Mapping[str, Any]) -> HookFacts:
    """Add the facts of a call, before or after it, alone or in a batch. Raises `BadInput`."""
    # Qwen Code gives a call two ids, and only the second is the same in a batch.
    call_id = fields.text(data.get("tool_call_id")) or fields.text(data.get("tool_use_id"))
    facts = facts._replace(
        tool=tool_name(data.get("tool_name")), args=data.get("tool_input"), call_id=call_id[:200]
    )
    if facts.moment is Moment.BEFORE_TOOL:
        return facts
    response = data.get("tool_response")
    error = fields.text(data.get("error"))
    ok: bool | None = True
    result = _result_text(response)
    if facts.event == "PostToolUseFailure" or _is_error(data, response, result):
        ok, error = False, error or fields.text(at(response, "error")) or result or "failed"
        result = error if result is None else result
    if data.get("is_interrupt") is True or at(response, "interrupted") is True:
        ok, error = None, ""
    seconds = fields.milliseconds(data.get("duration_ms"))
    thought = thought_before(facts.transcript, facts.call_id)
    return facts._replace(
        result=result, ok=ok, error=error or None, seconds=seconds, thought=thought
    )


_TIMINGS = frozenset({"durationMs", "durationSeconds", "totalDurationMs"})
"""Fields of Claude Code's results that differ every time."""


def _result_text(response: Any) -> str | None:
    r"""The result of a tool without durations; empty for a command without output or a search without matches.

    >>> _result_text({"stdout": "", "stderr": "", "interrupted": False})
    ''
    >>> _result_text({"filenames": ["a.py"], "durationMs": 13, "numFiles": 1})
    '{"filenames": ["a.py"], "numFiles": 1}'
    """
    if not isinstance(response, dict):
        return fields.whole_text(response)
    if isinstance(response.get("llmContent"), str) and not response.get("error"):
        return fields.whole_text(response["llmContent"])
    response = {key: value for key, value in response.items() if key not in _TIMINGS}
    is_silent = "stdout" in response and not any(response.values())
    found_nothing = not response.get("filenames", True) and not response.get("content")
    if is_silent or found_nothing:
        return ""
    return fields.whole_text(response)


def _is_error(data: Mapping[str, Any], response: Any, result: str | None) -> bool:
    flags = (at(response, "is_error"), at(response, "isError"))
    if data.get("status") == "error" or any(flag is True for flag in flags):
        return True
    content = at(response, "llmContent")
    code = fields.exit_code(content if isinstance(content, str) else result)
    if code is not None:
        return code != 0
    return isinstance(response, str) and response.startswith(("Error", "<tool_use_error>"))


def before_tool_reply(ruling: Ruling) -> Reply:
    """A deny without `continue`, or a warning. A stop is a deny that also interrupts the agent."""
    if ruling.action is Action.WARN:
        specific = {"additionalContext": ruling.text}
    else:
        specific = {"permissionDecision": "deny", "permissionDecisionReason": ruling.text}
    output = {"hookSpecificOutput": {"hookEventName": "PreToolUse", **specific}}
    stops = ruling.action is Action.STOP and ruling.whole
    return Reply(json.dumps(output), ruling.remark, interrupt=stops)


def action_of(reply: Mapping[str, Any]) -> tuple[str, str]:
    specific = fields.part(reply, "hookSpecificOutput")
    if specific.get("permissionDecision") == "deny":
        action = "stop" if reply.get("continue") is False else "deny"
        return action, str(specific.get("permissionDecisionReason", ""))
    context = specific.get("additionalContext")
    return ("warn", str(context)) if context else ("allow", "")


def sample(before: bool, session: str, folder: str) -> dict[str, Any]:  # noqa: FBT001  two cases
    """An event of a sub-agent that reads a file."""
    event = {
        "session_id": session,
        "transcript_path": "",
        "cwd": folder,
        "hook_event_name": "PreToolUse" if before else "PostToolUse",
        "tool_name": "Read",
        "tool_input": {"file_path": "README.md"},
        "tool_use_id": "doctor",
        "agent_id": SUBAGENT,
        "agent_type": SUBAGENT,
    }
    return event if before else {**event, "tool_response": "a line"}


def switch_off(settings: Mapping[str, Any]) -> str:
    """The setting with which the agent runs no hooks; empty: hooks are not switched off."""
    return '"disableAllHooks" is true' if settings.get("disableAllHooks") is True else ""


# Transcripts


TAIL_BYTES = 256 * 1024
"""Bytes read from the end of a transcript to find a recent call."""
MAX_NEW_BYTES = 1024 * 1024
"""Maximum number of bytes read of what was added since the last hook."""
MAX_LINES = 40
"""Maximum number of lines read before a call."""
_AGENT_ROLES = ("assistant", "model")


def thought_before(transcript: str, call_id: str) -> str | None:
    """The agent's text before a call, in the same response; `None`: unknown. Never raises."""
    if not transcript or not call_id:
        return None
    name = json.dumps(call_id).encode()
    lines = read_tail(transcript).splitlines()
    calls = [index for index, line in enumerate(lines) if name in line and _is_call(line, call_id)]
    if not calls:
        return None
    for line in reversed(lines[max(0, calls[0] - MAX_LINES) : calls[0] + 1]):
        message = _message(line)
        thought = _text_of(message)
        if thought and message.get("role") in _AGENT_ROLES:
            return thought[: fields.MAX_THOUGHT_CHARS]
        if message.get("role") == "user" or str(message.get("type")).endswith("_output"):
            return None  # the beginning of the response
    return None


def read_tail(path: str) -> bytes:
    """The end of a file; empty if it cannot be read. Never raises."""
    return _read_from(path, 0, TAIL_BYTES)[1]


def new_lines(path: str, offset: int) -> tuple[int, list[bytes]]:
    """The offset after the complete lines of a file from `offset` on, and these lines. Never raises.

    If there are more than `MAX_NEW_BYTES`, only the end is read. A file that is shorter than `offset` was
    replaced: its content counts as read.
    """
    if not path:
        return offset, []
    start, data = _read_from(path, offset, MAX_NEW_BYTES)
    end = data.rfind(b"\n") + 1
    return start + end, data[:end].splitlines()


def parsed(line: bytes) -> dict[str, Any]:
    """The JSON object in a line; empty for anything else."""
    found = fields.parsed(line.decode(errors="replace"))
    return found if isinstance(found, dict) else {}


def _read_from(path: str, offset: int, max_bytes: int) -> tuple[int, bytes]:
    """The last bytes of a file from `offset` on, at most `max_bytes`, and the offset of the first of them."""
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            start = min(max(offset, size - max_bytes), size)
            return start, os.pread(file.fileno(), max_bytes, start)
    except (OSError, ValueError):
        return offset, b""


def _is_call(line: bytes, call_id: str) -> bool:
    """Whether a line contains the call itself, and not its result."""
    message = _message(line)
    if message.get("call_id") == call_id:
        return not str(message.get("type")).endswith("_output")
    return any(
        call_id in (part.get("id"), at(part, "functionCall", "id")) for part in _parts(message)
    )


def _text_of(message: dict[str, Any]) -> str:
    texts = [part.get("thinking") or part.get("text") for part in _parts(message)]
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip())


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    return fields.objects(message.get("content", message.get("parts")))


def _message(line: bytes) -> dict[str, Any]:
    found = parsed(line)
    message = found.get("message") or found.get("payload")
    return message if isinstance(message, dict) else {}
