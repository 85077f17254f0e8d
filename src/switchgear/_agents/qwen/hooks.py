"""Qwen Code's hooks: Claude Code's format, but `continue:false` refuses only one call, so a stop interrupts."""

import json
from collections.abc import Mapping
from typing import Any

from switchgear._agents.fields import TokenCounts, at, count, text
from switchgear._agents.hook_protocol import (
    EVENT,
    MOMENTS,
    OTHER_EVENTS,
    TOOL_EVENTS,
    WARNS,
    Action,
    AnswerUsage,
    HookFacts,
    HookSettings,
    Moment,
    Reply,
    Ruling,
    action_of,
    before_tool_reply,
    read_event,
    sample,
    switch_off,
)

__all__ = ["EVENT", "MOMENTS", "WARNS", "action_of", "sample", "switch_off"]

SETTINGS = HookSettings(
    "qwen",
    "Qwen Code",
    "qwen",
    project_file=".qwen/settings.json",
    user_file="settings.json",
    user_folder="~/.qwen",
    home_variable="QWEN_HOME",
    tool_events=TOOL_EVENTS,
    other_events=OTHER_EVENTS,
    named=True,
    comments=True,
    byte_order_mark=True,
    trust="Qwen Code runs a project's hooks in trusted folders",
    project_variable="QWEN_PROJECT_DIR",
    has_subagents=True,
)


def read(data: Mapping[str, Any]) -> HookFacts:
    facts = read_event("qwen", data, MOMENTS, "../subagents/{session}")
    if facts.moment is Moment.PROMPT and not facts.prompt and not data.get("submitted_prompt"):
        # Qwen Code also sends this event before the model reads results of tools.
        return facts._replace(moment=Moment.BEFORE_MODEL)
    return facts


def write(ruling: Ruling, facts: HookFacts) -> Reply:
    if not ruling.text or facts.event not in WARNS:
        return Reply("", ruling.remark)
    if facts.moment is Moment.BEFORE_TOOL:
        return before_tool_reply(ruling)
    specific = {"hookEventName": facts.event, "additionalContext": ruling.text}
    stops = ruling.action is Action.STOP and ruling.whole
    return Reply(json.dumps({"hookSpecificOutput": specific}), ruling.remark, interrupt=stops)


USAGE_MARK = b'"usageMetadata"'


def usage_in(line: dict[str, Any]) -> AnswerUsage:
    return AnswerUsage(
        text(line.get("uuid")),
        text(line.get("model")),
        token_counts(line.get("usageMetadata")),
        count(line.get("contextWindowSize")) or None,
        text(line.get("timestamp")),
    )


def token_counts(usage: object) -> TokenCounts:
    """The tokens of a chat message. Input tokens include the cache; thoughts are added to the output."""
    output = count(at(usage, "candidatesTokenCount")) + count(at(usage, "thoughtsTokenCount"))
    cached = count(at(usage, "cachedContentTokenCount"))
    return TokenCounts(count(at(usage, "promptTokenCount")), output, cached)
