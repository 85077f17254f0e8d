"""OpenCode, as our plugin passes its events on: `{"k", "input", "output", "cwd"}`.

`k` is the plugin's hook (`tool.execute.before`, `tool.execute.after`, `chat.message`) with what
OpenCode gave it as `input` and `output`, or `event` with `type` and `properties`. A sub-agent is a
session of its own, whose `rootID` is the session that it works for. `cost` is what the session has
cost in dollars since the last time, `usage` how full its context is, `thought` what it said last.
"""

from collections.abc import Mapping
from typing import Any

from switchgear._agents import hook_fields
from switchgear._agents.hook_call import BadInput, HookFacts, Moment, safe_id
from switchgear._agents.hook_plugin import write

AGENT = "opencode"
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
"""What the life of a sub-agent's session means to the one that it works for."""
WARNS = frozenset({"tool.execute.after"})

__all__ = ["EVENT", "MOMENTS", "WARNS", "read", "write"]


def read(data: Mapping[str, Any]) -> HookFacts:
    """The facts of an event. Raises `BadInput`."""
    name = data.get("k")
    if not isinstance(name, str) or name not in MOMENTS:
        raise BadInput(f"the event {str(name)[:60]!r} is not known")
    if name == "event":
        return _event(data)
    given, made = _part(data, "input"), _part(data, "output")
    facts = _of(data, given.get("sessionID") or data.get("sessionID"), name, MOMENTS[name])
    if facts.moment not in {Moment.BEFORE_TOOL, Moment.AFTER_TOOL}:
        return facts
    tool = given.get("tool")
    if not isinstance(tool, str) or not tool:
        raise BadInput("the field 'tool' is missing, or no text")
    args = made.get("args") if "args" in made else given.get("args")
    call_id = hook_fields.text(given.get("callID"))[:200]
    facts = facts._replace(tool=hook_fields.short_name(tool), args=args, call_id=call_id)
    return facts if facts.moment is Moment.BEFORE_TOOL else _after(facts, data, made)


def _after(facts: HookFacts, data: Mapping[str, Any], made: Mapping[str, Any]) -> HookFacts:
    result = hook_fields.whole_text(made.get("output"))
    metadata = _part(made, "metadata")
    code = metadata.get("exit")
    failed = bool(metadata.get("error")) or (isinstance(code, int) and code != 0)
    error = None
    if failed:
        told = hook_fields.text(metadata.get("error")) or result or ""
        # As the others write it: a command that ran and said no is not a failure of the shell.
        error = f"Exit code {code}\n{told}" if isinstance(code, int) else told
    seconds = hook_fields.milliseconds(data.get("duration_ms"))
    thought = hook_fields.thought(data.get("thought"))
    return facts._replace(
        result=result, ok=not failed, error=error, seconds=seconds, thought=thought
    )


def _event(data: Mapping[str, Any]) -> HookFacts:
    kind, properties = hook_fields.text(data.get("type")), _part(data, "properties")
    info = _part(properties, "info")
    session = properties.get("sessionID") or info.get("sessionID") or info.get("id")
    return _of(data, session, kind[:100] or "event", _EVENTS.get(kind, Moment.OTHER))


def _of(data: Mapping[str, Any], session: Any, event: str, moment: Moment) -> HookFacts:
    """What every event has."""
    root = data.get("rootID")
    is_sub_agent = isinstance(root, str) and bool(root) and root != session
    return HookFacts(
        agent=AGENT,
        event=event,
        moment=_OF_SUB_AGENTS.get(moment, moment) if is_sub_agent else moment,
        session=safe_id(root if is_sub_agent else session),
        subagent=safe_id(session) if is_sub_agent else "",
        cwd=hook_fields.text(data.get("cwd") or data.get("directory")),
        context_used=hook_fields.window_share(data.get("usage")),
        cost_micros=hook_fields.dollars(data.get("cost")),
    )


def _part(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = data.get(name)
    return part if isinstance(part, dict) else {}
