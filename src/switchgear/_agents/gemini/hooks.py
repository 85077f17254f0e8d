"""Gemini CLI: `decision:"deny"` blocks, `continue:false` stops; Claude's words are ignored.

Calls have no names, so a result belongs to the oldest open call of the same tool and arguments.
"""

import json
from collections.abc import Mapping
from typing import Any

from switchgear._agents import hook_fields
from switchgear._agents.hook_call import HookFacts, Moment
from switchgear._agents.hook_ruling import Action, Reply, Ruling
from switchgear._agents.hook_transcript import last_thought

AGENT = "gemini"
EVENT = "hook_event_name"
MOMENTS = {
    "SessionStart": Moment.SESSION_START,
    "BeforeAgent": Moment.PROMPT,
    "BeforeModel": Moment.BEFORE_MODEL,
    "AfterModel": Moment.AFTER_MODEL,
    "BeforeTool": Moment.BEFORE_TOOL,
    "AfterTool": Moment.AFTER_TOOL,
    "AfterAgent": Moment.STOP,
    "SessionEnd": Moment.SESSION_END,
    "BeforeToolSelection": Moment.OTHER,
    "PreCompress": Moment.OTHER,
    "Notification": Moment.OTHER,
}
WARNS = frozenset({"SessionStart", "BeforeAgent", "AfterTool"})
_STOPPED_BY = frozenset({Moment.PROMPT, Moment.BEFORE_MODEL, Moment.BEFORE_TOOL, Moment.AFTER_TOOL})


def read(data: Mapping[str, Any]) -> HookFacts:
    """The facts of an event. Raises `BadInput`."""
    facts = hook_fields.base(AGENT, data, MOMENTS)
    if facts.moment is Moment.AFTER_MODEL:
        return facts._replace(tokens=_tokens(data.get("llm_response")))
    if facts.moment not in {Moment.BEFORE_TOOL, Moment.AFTER_TOOL}:
        return facts
    facts = facts._replace(tool=hook_fields.tool_name(data), args=data.get("tool_input"))
    return facts if facts.moment is Moment.BEFORE_TOOL else _after(facts, data)


def _after(facts: HookFacts, data: Mapping[str, Any]) -> HookFacts:
    facts = facts._replace(thought=last_thought(facts.transcript))
    response = data.get("tool_response")
    told = response.get("llmContent") if isinstance(response, dict) else response
    result = hook_fields.whole_text(told)
    error = response.get("error") if isinstance(response, dict) else None
    if isinstance(error, dict):
        error = error.get("message")
    if error:
        return facts._replace(result=result, ok=False, error=hook_fields.whole_text(error))
    if hook_fields.exit_code(result):
        return facts._replace(result=result, ok=False, error=result)
    return facts._replace(result=result, ok=True)


def _tokens(response: Any) -> int | None:
    usage = response.get("usageMetadata") if isinstance(response, dict) else None
    count = hook_fields.number(usage.get("totalTokenCount")) if isinstance(usage, dict) else None
    return None if count is None else int(count)


def write(ruling: Ruling, facts: HookFacts) -> Reply:
    """The ruling as Gemini CLI obeys it at this event."""
    output: dict[str, Any] = {}
    if ruling.remark:
        output["systemMessage"] = ruling.remark
    if ruling.text and facts.event in WARNS:
        specific = {"hookEventName": facts.event, "additionalContext": ruling.text}
        output["hookSpecificOutput"] = specific
    blocks = ruling.action in {Action.DENY, Action.STOP}
    if blocks and facts.moment in _STOPPED_BY and facts.moment is not Moment.AFTER_TOOL:
        output |= {"decision": "deny", "reason": ruling.text}
    if ruling.action is Action.STOP and facts.moment in _STOPPED_BY:
        output |= {"continue": False, "stopReason": ruling.for_user or ruling.text}
    return Reply(json.dumps(output) if output else "", ruling.remark)
