"""OpenCode's events as our plugin sends them: `{"k", "input", "output", "cwd"}`.

`k` is the plugin's hook (`tool.execute.before`, `tool.execute.after`, `chat.message`) with OpenCode's
`input` and `output`, or `event` with `type` and `properties`. A sub-agent is a separate session, whose `rootID` is
the session that it works for. `cost` is the session's cost in dollars since the last event, `usage` is the state of
its context, and `thought` is its last text.
"""

from collections.abc import Mapping
from typing import Any

from switchgear._agents import fields
from switchgear._agents.fields import TokenCounts, at, count, part
from switchgear._agents.hook_protocol import (
    BadInput,
    HookFacts,
    HookSettings,
    Moment,
    plugin_action,
    plugin_reply,
    safe_id,
    tool_name,
)

SETTINGS = HookSettings(
    "opencode",
    "OpenCode",
    "opencode",
    project_file=".opencode/plugin/switchgear.js",
    user_file="opencode/plugin/switchgear.js",
    user_folder="~/.config",
    home_variable="XDG_CONFIG_HOME",
    tool_events=("tool.execute.before", "tool.execute.after"),
    other_events=("chat.message", "event"),
    is_plugin=True,
)
EVENT = "k"
MOMENTS = {
    "init": Moment.OTHER,
    "chat.message": Moment.PROMPT,
    "chat.params": Moment.BEFORE_MODEL,
    "tool.execute.before": Moment.BEFORE_TOOL,
    "tool.execute.after": Moment.AFTER_TOOL,
    "event": Moment.OTHER,
}
_EVENTS = {
    "session.created": Moment.SESSION_START,
    "session.idle": Moment.STOP,
    "session.deleted": Moment.SESSION_END,
}
_OF_SUB_AGENTS = {
    Moment.SESSION_START: Moment.AGENT_START,
    Moment.PROMPT: Moment.AGENT_START,
    Moment.STOP: Moment.AGENT_STOP,
    Moment.SESSION_END: Moment.AGENT_STOP,
}
"""What the events of a sub-agent's session mean to the session that it works for."""
WARNS = frozenset({"tool.execute.after"})
write = plugin_reply
action_of = plugin_action


def read(data: Mapping[str, Any]) -> HookFacts:
    name = data.get("k")
    if not isinstance(name, str) or name not in MOMENTS:
        raise BadInput(f"the event {str(name)[:60]!r} is not known")
    if name == "event":
        return _event(data)
    given, made = part(data, "input"), part(data, "output")
    facts = _common_facts(
        data, given.get("sessionID") or data.get("sessionID"), name, MOMENTS[name]
    )
    if facts.moment not in {Moment.BEFORE_TOOL, Moment.AFTER_TOOL}:
        return facts
    facts = facts._replace(
        tool=tool_name(given.get("tool"), "tool"),
        args=made.get("args") if "args" in made else given.get("args"),
        call_id=fields.text(given.get("callID"))[:200],
    )
    return facts if facts.moment is Moment.BEFORE_TOOL else _after(facts, data, made)


def _after(facts: HookFacts, data: Mapping[str, Any], made: Mapping[str, Any]) -> HookFacts:
    result = fields.whole_text(made.get("output"))
    metadata = part(made, "metadata")
    code = metadata.get("exit")
    failed = bool(metadata.get("error")) or (isinstance(code, int) and code != 0)
    error = None
    if failed:
        output = fields.text(metadata.get("error")) or result or ""
        # In the form of other agents, so that a non-zero exit code is not taken for a failure of the shell.
        error = f"Exit code {code}\n{output}" if isinstance(code, int) else output
    return facts._replace(
        result=result,
        ok=not failed,
        error=error,
        seconds=fields.milliseconds(data.get("duration_ms")),
        thought=fields.thought(data.get("thought")),
    )


def _event(data: Mapping[str, Any]) -> HookFacts:
    kind, properties = fields.text(data.get("type")), part(data, "properties")
    info = part(properties, "info")
    session = properties.get("sessionID") or info.get("sessionID") or info.get("id")
    return _common_facts(data, session, kind[:100] or "event", _EVENTS.get(kind, Moment.OTHER))


def _common_facts(data: Mapping[str, Any], session: Any, event: str, moment: Moment) -> HookFacts:
    root = data.get("rootID")
    is_sub_agent = isinstance(root, str) and bool(root) and root != session
    return HookFacts(
        agent="opencode",
        event=event,
        moment=_OF_SUB_AGENTS.get(moment, moment) if is_sub_agent else moment,
        session=safe_id(root if is_sub_agent else session),
        subagent=safe_id(session) if is_sub_agent else "",
        cwd=fields.text(data.get("cwd") or data.get("directory")),
        context_used=fields.window_share(data.get("usage")),
        cost_micros=fields.micros(data.get("cost")),
    )


def sample(before: bool, session: str, folder: str) -> dict[str, Any]:  # noqa: FBT001  two cases
    call = {"tool": "read", "sessionID": session, "callID": "doctor"}
    made: dict[str, Any] = {"args": {"filePath": "README.md"}}
    if not before:
        made = {"output": "a line", "metadata": {}}
    name = f"tool.execute.{'before' if before else 'after'}"
    return {"k": name, "input": call, "output": made, "cwd": folder}


def token_counts(tokens: object) -> TokenCounts:
    """The tokens of a response. OpenCode counts those of the cache and of reasoning separately."""
    read_tokens, written = (count(at(tokens, "cache", key)) for key in ("read", "write"))
    sent = count(at(tokens, "input")) + read_tokens + written
    output = count(at(tokens, "output")) + count(at(tokens, "reasoning"))
    return TokenCounts(sent, output, read_tokens, written)
