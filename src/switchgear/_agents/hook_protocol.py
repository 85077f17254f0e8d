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

from switchgear._agents import fields
from switchgear._agents.fields import TokenCounts, at
from switchgear._system.files import open_regular

LONGEST_ID = 120
"""Characters kept of an identifier that an agent chose: it becomes part of a circuit's name."""
DEFAULT_WINDOW = 200_000
"""The context window in tokens of a model that is in no list."""
TIMEOUT_S = 15
"""How long an agent waits for a hook; it takes some 30 milliseconds, and longer on a busy machine."""
PROJECT, LOCAL, USER = "project", "local", "user"
SCOPES = (PROJECT, LOCAL, USER)
"""Shared with the project, this checkout only, every project of the user."""
_BEFORE_TOOL = ("PreToolUse", "BeforeTool")


class Moment(StrEnum):
    """The point in an agent's life at which a hook is called, whatever the agent calls it."""

    SESSION_START = "session_start"
    PROMPT = "prompt"
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
    batch: tuple["HookFacts", ...] = ()
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
    ALLOW = "allow"
    WARN = "warn"
    """The call happens, and the agent reads the text."""
    DENY = "deny"
    """This tool call does not happen; the agent reads why."""
    STOP = "stop"
    """This call does not happen and the turn ends."""


REFUSING = frozenset((Action.DENY, Action.STOP))
"""The actions with which a tool call does not happen."""


class WorkAfterReply(NamedTuple):
    """Tasks to do after the reply; see `_hooks/after_reply.py`."""

    agent: str
    session: str
    root: str
    cwd: str = ""
    watch: bool = False
    escalate: str | None = None
    """The escalation agent that takes over, if one does."""
    evidence: str = ""
    notice: str = ""
    """A message for people, where the agent runs headless and would not show it."""
    opinion: str = ""


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
    """Of a stop: it applies to the whole session, not only to a sub-agent."""
    for_user: str = ""
    """Of a stop: what a person reads, where the agent shows people a separate text."""


class Reply(NamedTuple):
    """The output and the exit code of a hook process."""

    stdout: str = ""
    stderr: str = ""
    code: int = 0
    interrupt: bool = False
    """The agent must be sent SIGINT as well: none of its hook outputs ends a turn."""
    work_after: WorkAfterReply | None = None
    refusal: str = ""
    """Why a tool call is refused; with exit code 2, this text is the answer if `stdout` cannot be written."""


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
        """Whether an event is known and not before a tool, whatever else is wrong with it."""
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
    """Events with a matcher for tools."""
    other_events: tuple[str, ...] = ()
    timeout: int = TIMEOUT_S
    """In the agent's own unit."""
    named: bool = False
    """Whether the agent shows its hooks by names."""
    comments: bool = False
    byte_order_mark: bool = False
    other_file: str = ""
    """A file beside the settings that the agent reads too: hooks can be switched off in it."""
    trust: str = ""
    """What else the agent requires before it runs a hook of the project."""
    is_plugin: bool = False
    """Whether the file is a plugin that belongs to Switchgear, not shared settings."""
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

    It runs inside the agent and acts on it with the agent's own means: throw, append, abort.
    """
    del facts
    output = {"action": ruling.action.value, "text": ruling.text, "remark": ruling.remark}
    refusal = ruling.text if ruling.action in REFUSING else ""
    return Reply(json.dumps(output), ruling.remark, refusal=refusal)


def plugin_action(reply: Mapping[str, Any]) -> tuple[str, str]:
    return str(reply.get("action", "")), str(reply.get("text", ""))


EVENT = "hook_event_name"
LONGEST_TOOL = 200
SUBAGENT = "doctor"
"""The sub-agent of a sample event: refusing it interrupts no agent."""
_FAILED = frozenset({"failed", "failure", "error", "errored", "crashed", "timeout", "timed_out"})
_CUT_OFF = frozenset({"cancelled", "canceled", "interrupted", "killed", "aborted", "stopped"})


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
    """How a sub-agent ended, as far as the event shows, and the error; one that was cut off: `None`.

    Without a report of failure it has succeeded: agents send the event when its work is done.
    """
    error = fields.whole_text(data.get("error") or None)
    status = fields.text(data.get("status")).lower()
    for task in fields.objects(data.get("background_tasks")):
        if task.get("id") == data.get("agent_id") and not status:
            status = fields.text(task.get("status")).lower()
            error = error or fields.whole_text(task.get("error") or None)
    if error is not None or status in _FAILED:
        return False, error or f"the sub-agent ended: {status}"
    return (None if status in _CUT_OFF else True), None


def tool_name(value: Any, field: str = "tool_name") -> str:
    """The tool. Raises `BadInput`: a truncated name could be that of another tool."""
    if not isinstance(value, str) or not value:
        raise BadInput(f"the field {field!r} is missing or is not a text")
    if len(value) > LONGEST_TOOL:
        raise BadInput(f"the tool name has more than {LONGEST_TOOL} characters")
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
"""Those for which a hook is installed."""
WARNS = frozenset({*TOOL_EVENTS, "SessionStart", "UserPromptSubmit", "PostToolBatch"})


def read_event(
    agent: str, data: Mapping[str, Any], moments: Mapping[str, Moment], subagents: str = ""
) -> HookFacts:
    """The facts of an event in Claude Code's format. Raises `BadInput`.

    - `subagents`: the folder with the transcripts of sub-agents, from that of the session's.
    """
    facts = common_facts(agent, data, moments)
    if facts.subagent and subagents and not data.get("agent_transcript_path"):
        # Beside the transcript of the session; only the last event of a sub-agent names it.
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
    """The facts of a call: before or after it, alone or in a batch. Raises `BadInput`."""
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
    result = _returned(response)
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


def _returned(response: Any) -> str | None:
    r"""The result of a tool without its duration; empty for a silent command or a search without matches.

    >>> _returned({"stdout": "", "stderr": "", "interrupted": False})
    ''
    >>> _returned({"filenames": ["a.py"], "durationMs": 13, "numFiles": 1})
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
    """A deny without `continue`, or a warning; a stop also interrupts the agent."""
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
    """The setting by which the agent runs no hooks; empty: there is none."""
    return '"disableAllHooks" is true' if settings.get("disableAllHooks") is True else ""


# Transcripts


END_BYTES = 256 * 1024
"""Bytes read from the end of a transcript: the call was made a moment ago."""
MOST_NEW_BYTES = 1024 * 1024
"""Bytes read of what was added since the last hook."""
MOST_LINES = 40
"""Lines before the call that are read."""
_SPEAKERS = ("assistant", "model")


def thought_before(transcript: str, call_id: str) -> str | None:
    """The agent's text before a call, in the same answer; `None`: unknown. Never raises."""
    if not transcript or not call_id:
        return None
    name = json.dumps(call_id).encode()
    lines = end_of(transcript).splitlines()
    calls = [index for index, line in enumerate(lines) if name in line and _calls(line, call_id)]
    if not calls:
        return None
    for line in reversed(lines[max(0, calls[0] - MOST_LINES) : calls[0] + 1]):
        message = _message(line)
        thought = _text_of(message)
        if thought and message.get("role") in _SPEAKERS:
            return thought[: fields.LONGEST_THOUGHT]
        if message.get("role") == "user" or str(message.get("type")).endswith("_output"):
            return None  # the answer began here
    return None


def end_of(path: str) -> bytes:
    """The end of a file; empty if it cannot be read. Never raises."""
    return _read_from(path, 0, END_BYTES)[1]


def lines_since(path: str, offset: int) -> tuple[int, list[bytes]]:
    """The whole lines of a file from `offset` on, and where the next begins. Never raises.

    Of more than `MOST_NEW_BYTES` only the end is read. A file that has become shorter is another
    one: its present content counts as read.
    """
    if not path:
        return offset, []
    start, data = _read_from(path, offset, MOST_NEW_BYTES)
    end = data.rfind(b"\n") + 1
    return start + end, data[:end].splitlines()


def parsed(line: bytes) -> dict[str, Any]:
    """A line as a JSON object; empty for anything else."""
    found = fields.parsed(line.decode(errors="replace"))
    return found if isinstance(found, dict) else {}


def _read_from(path: str, offset: int, most: int) -> tuple[int, bytes]:
    """The bytes of a file from `offset` on, `most` at most, and where they begin."""
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            start = min(max(offset, size - most), size)
            return start, os.pread(file.fileno(), most, start)
    except (OSError, ValueError):
        return offset, b""


def _calls(line: bytes, call_id: str) -> bool:
    """Whether a line is the call itself, and not its outcome."""
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
