"""Qwen Code: speaks as Claude Code does; `continue:false` blocks one call only, so it is interrupted."""

import json
from collections.abc import Mapping
from typing import Any

from switchgear._agents.claude_code import hooks
from switchgear._agents.codex.hooks import before_tool
from switchgear._agents.hook_call import HookFacts, Moment
from switchgear._agents.hook_ruling import Action, Reply, Ruling

AGENT = "qwen"
EVENT = "hook_event_name"
MOMENTS = hooks.MOMENTS
WARNS = hooks.WARNS


def read(data: Mapping[str, Any]) -> HookFacts:
    """The facts of an event. Raises `BadInput`."""
    facts = hooks.read_as(AGENT, data, MOMENTS)
    if facts.moment is Moment.PROMPT and not facts.prompt and not data.get("submitted_prompt"):
        # It is also called before the model reads the results of tools: nobody asked for anything.
        return facts._replace(moment=Moment.BEFORE_MODEL)
    return facts


def write(ruling: Ruling, facts: HookFacts) -> Reply:
    """The ruling as Qwen Code obeys it at this event."""
    if not ruling.text or facts.event not in WARNS:
        return Reply("", ruling.remark)
    if facts.moment is Moment.BEFORE_TOOL:
        return before_tool(ruling)
    specific = {"hookEventName": facts.event, "additionalContext": ruling.text}
    stops = ruling.action is Action.STOP and ruling.whole
    text = json.dumps({"hookSpecificOutput": specific})
    return Reply(text, ruling.remark, interrupt=stops)
