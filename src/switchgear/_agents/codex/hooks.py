"""Codex: speaks as Claude Code does, but `continue:false` voids a deny, and no output ends a turn.

What a hook writes after a tool replaces the tool's output, so nothing is written there: a warning
waits for the next call, and a stop is a deny of that call and an interrupt.
"""

import json
from collections.abc import Mapping
from typing import Any

from switchgear._agents import hook_fields
from switchgear._agents.claude_code.hooks import read_as
from switchgear._agents.hook_call import HookFacts, Moment
from switchgear._agents.hook_ruling import Action, Reply, Ruling
from switchgear._agents.hook_transcript import end_of

_KIND = b'"CommandExecution"'


def exit_code_of(transcript: str, call_id: str) -> int | None:
    """The exit code of a call; `None`: the transcript does not say. Never raises."""
    if not transcript or not call_id:
        return None
    name = json.dumps(call_id).encode()
    for line in reversed(end_of(transcript).splitlines()):
        if name not in line or _KIND not in line:
            continue
        item = _item(line)
        if item.get("id") == call_id:
            code = item.get("exit_code")
            return code if isinstance(code, int) and not isinstance(code, bool) else None
    return None


def _item(line: bytes) -> dict[str, Any]:
    try:
        told: Any = json.loads(line.decode(errors="replace"))
        item = told["payload"]["item"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
    return item if isinstance(item, dict) else {}


AGENT = "codex"
EVENT = "hook_event_name"
MOMENTS = {
    "SessionStart": Moment.SESSION_START,
    "UserPromptSubmit": Moment.PROMPT,
    "PreModelRequest": Moment.BEFORE_MODEL,
    "PreToolUse": Moment.BEFORE_TOOL,
    "PostToolUse": Moment.AFTER_TOOL,
    "SubagentStart": Moment.AGENT_START,
    "SubagentStop": Moment.AGENT_STOP,
    "Stop": Moment.STOP,
    "SessionEnd": Moment.SESSION_END,
    "PermissionRequest": Moment.OTHER,
    "PreCompact": Moment.OTHER,
    "PostCompact": Moment.OTHER,
}
WARNS = frozenset({"PreToolUse"})


def read(data: Mapping[str, Any]) -> HookFacts:
    """The facts of an event. Raises `BadInput`."""
    facts = read_as(AGENT, data, MOMENTS)
    if facts.moment is not Moment.AFTER_TOOL:
        return facts
    # The response carries no exit code: the transcript does, or now and then the text itself.
    code = exit_code_of(facts.transcript, facts.call_id)
    if code is not None:
        error = f"Exit code {code}\n{facts.result or ''}" if code else None
        return facts._replace(ok=code == 0, error=error)
    if facts.ok is False:
        return facts
    code = hook_fields.exit_code(facts.result)
    return facts._replace(ok=None if code is None else code == 0)


def write(ruling: Ruling, facts: HookFacts) -> Reply:
    """The ruling as Codex obeys it at this event."""
    if not ruling.text or facts.moment is not Moment.BEFORE_TOOL:
        return Reply("", ruling.remark)
    return before_tool(ruling)


def before_tool(ruling: Ruling) -> Reply:
    """A deny without `continue`, or a warning; who must stop is interrupted besides."""
    if ruling.action is Action.WARN:
        specific = {"additionalContext": ruling.text}
    else:
        specific = {"permissionDecision": "deny", "permissionDecisionReason": ruling.text}
    output = {"hookSpecificOutput": {"hookEventName": "PreToolUse", **specific}}
    stops = ruling.action is Action.STOP and ruling.whole
    return Reply(json.dumps(output), ruling.remark, interrupt=stops)
