"""pi's events as our extension sends them: `{"k", "event", "usage", "session", "cwd"}`.

`k` is the name of pi's event, `event` its data, `usage` the result of `ctx.getContextUsage()`, `session` the id of the
session, and `cost` the session's cost in dollars since the last event, if pi reports it.
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
    "pi",
    "pi",
    "pi",
    project_file=".pi/extensions/switchgear.js",
    user_file="extensions/switchgear.js",
    user_folder="~/.pi/agent",
    home_variable="PI_CODING_AGENT_DIR",
    tool_events=("tool_call", "tool_result"),
    other_events=("session_start", "input", "turn_end", "agent_end", "session_shutdown"),
    is_plugin=True,
)
EVENT = "k"
MOMENTS = {
    "session_start": Moment.SESSION_START,
    "input": Moment.PROMPT,
    "before_agent_start": Moment.PROMPT,
    "turn_end": Moment.BATCH,
    "tool_call": Moment.BEFORE_TOOL,
    "tool_result": Moment.AFTER_TOOL,
    "agent_end": Moment.STOP,
    "session_shutdown": Moment.SESSION_END,
}
WARNS = frozenset({"tool_result"})
write = plugin_reply
action_of = plugin_action


def read(data: Mapping[str, Any]) -> HookFacts:
    name = data.get("k")
    if not isinstance(name, str) or name not in MOMENTS:
        raise BadInput(f"the event {str(name)[:60]!r} is not known")
    event = part(data, "event")
    facts = HookFacts(
        agent="pi",
        event=name,
        moment=MOMENTS[name],
        session=safe_id(data.get("session")),
        cwd=fields.text(data.get("cwd")),
        prompt=fields.text(event.get("text") or event.get("prompt")),
        context_used=fields.window_share(data.get("usage")),
        cost_micros=fields.micros(data.get("cost")),
    )
    if facts.moment not in {Moment.BEFORE_TOOL, Moment.AFTER_TOOL}:
        return facts
    facts = facts._replace(
        tool=tool_name(event.get("toolName"), "toolName"),
        args=event.get("input"),
        call_id=fields.text(event.get("toolCallId"))[:200],
    )
    if facts.moment is Moment.BEFORE_TOOL:
        return facts
    result = _content(event.get("content"))
    failed = event.get("isError") is True
    return facts._replace(
        result=result,
        ok=not failed,
        error=(result or "failed") if failed else None,
        seconds=fields.milliseconds(data.get("duration_ms")),
        thought=fields.thought(data.get("thought")),
    )


def _content(content: Any) -> str | None:
    if not isinstance(content, list):
        return fields.whole_text(content)
    texts = [each.get("text") for each in fields.objects(content)]
    return "\n".join(each for each in texts if isinstance(each, str))[: fields.MAX_RESULT_CHARS]


def sample(before: bool, session: str, folder: str) -> dict[str, Any]:  # noqa: FBT001  two cases
    call = {"toolName": "read", "toolCallId": "doctor"}
    event: dict[str, Any] = {**call, "input": {"path": "README.md"}}
    if not before:
        event |= {"content": [{"type": "text", "text": "a line"}], "isError": False}
    name = "tool_call" if before else "tool_result"
    return {"k": name, "event": event, "session": session, "cwd": folder}


def token_counts(usage: object) -> TokenCounts:
    """The tokens of a response. pi counts those of the cache separately."""
    read_tokens, written = count(at(usage, "cacheRead")), count(at(usage, "cacheWrite"))
    sent = count(at(usage, "input")) + read_tokens + written
    return TokenCounts(sent, count(at(usage, "output")), read_tokens, written)
