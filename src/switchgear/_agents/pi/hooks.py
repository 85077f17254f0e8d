"""pi, as our extension passes its events on: `{"k", "event", "usage", "session", "cwd"}`.

`k` is the name of pi's event, `event` what pi gave the extension, `usage` what
`ctx.getContextUsage()` said, `session` pi's session, `cost` what the session has cost in dollars
since the last time, if pi says so.
"""

from collections.abc import Mapping
from typing import Any

from switchgear._agents import hook_fields
from switchgear._agents.hook_call import BadInput, HookFacts, Moment, safe_id
from switchgear._agents.hook_plugin import write

AGENT = "pi"
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

__all__ = ["EVENT", "MOMENTS", "WARNS", "read", "write"]


def read(data: Mapping[str, Any]) -> HookFacts:
    """The facts of an event. Raises `BadInput`."""
    name = data.get("k")
    if not isinstance(name, str) or name not in MOMENTS:
        raise BadInput(f"the event {str(name)[:60]!r} is not known")
    given = data.get("event")
    event: dict[str, Any] = given if isinstance(given, dict) else {}
    facts = HookFacts(
        agent=AGENT,
        event=name,
        moment=MOMENTS[name],
        session=safe_id(data.get("session")),
        cwd=hook_fields.text(data.get("cwd")),
        prompt=hook_fields.text(event.get("text") or event.get("prompt")),
        context_used=hook_fields.window_share(data.get("usage")),
        cost_micros=hook_fields.dollars(data.get("cost")),
    )
    if facts.moment not in {Moment.BEFORE_TOOL, Moment.AFTER_TOOL}:
        return facts
    tool = event.get("toolName")
    if not isinstance(tool, str) or not tool:
        raise BadInput("the field 'toolName' is missing, or no text")
    facts = facts._replace(
        tool=hook_fields.short_name(tool),
        args=event.get("input"),
        call_id=hook_fields.text(event.get("toolCallId"))[:200],
    )
    if facts.moment is Moment.BEFORE_TOOL:
        return facts
    result = _words(event.get("content"))
    failed = event.get("isError") is True
    seconds = hook_fields.milliseconds(data.get("duration_ms"))
    return facts._replace(
        result=result,
        ok=not failed,
        error=(result or "failed") if failed else None,
        seconds=seconds,
        thought=hook_fields.thought(data.get("thought")),
    )


def _words(content: Any) -> str | None:
    if not isinstance(content, list):
        return hook_fields.whole_text(content)
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(part for part in parts if isinstance(part, str))[: hook_fields.LONGEST_RESULT]
