"""Claude Code's hooks. `continue:false` alone does not prevent the call, so a stop also has a deny."""

import json
from collections.abc import Mapping
from typing import Any

from switchgear._agents.fields import TokenCounts, count, part, text
from switchgear._agents.hook_protocol import (
    EVENT,
    MOMENTS,
    OTHER_EVENTS,
    REFUSING,
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
    read_event,
    sample,
    switch_off,
)

__all__ = ["EVENT", "MOMENTS", "WARNS", "action_of", "sample", "switch_off"]

SETTINGS = HookSettings(
    "claude-code",
    "Claude Code",
    "claude",
    project_file=".claude/settings.json",
    local_file=".claude/settings.local.json",
    user_file="settings.json",
    user_folder="~/.claude",
    home_variable="CLAUDE_CONFIG_DIR",
    tool_events=TOOL_EVENTS,
    other_events=OTHER_EVENTS,
    byte_order_mark=True,
    other_file="settings.local.json",
    trust="Claude Code runs a project's hooks once you trust the folder; it asks when it starts",
    project_variable="CLAUDE_PROJECT_DIR",
    has_subagents=True,
)
_IGNORED = frozenset({Moment.STOP, Moment.AGENT_STOP, Moment.SESSION_END, Moment.OTHER})
"""Events at which a "block" would make the agent continue, or the reply is ignored."""


def read(data: Mapping[str, Any]) -> HookFacts:
    return read_event("claude-code", data, MOMENTS, "{session}/subagents")


def write(ruling: Ruling, facts: HookFacts) -> Reply:
    output: dict[str, Any] = {}
    if ruling.remark:
        output["systemMessage"] = ruling.remark
    if ruling.text and facts.moment not in _IGNORED:
        output |= _decision(ruling, facts)
    return Reply(json.dumps(output) if output else "", ruling.remark)


def _decision(ruling: Ruling, facts: HookFacts) -> dict[str, Any]:
    refuses = ruling.action in REFUSING
    if facts.moment is Moment.BEFORE_TOOL and refuses:
        specific = {"permissionDecision": "deny", "permissionDecisionReason": ruling.text}
    else:
        specific = {"additionalContext": ruling.text}
    output: dict[str, Any] = {"hookSpecificOutput": {"hookEventName": facts.event, **specific}}
    if facts.moment is Moment.PROMPT and refuses:
        output = {"decision": "block", "reason": ruling.text}
    if ruling.action is Action.STOP:
        output |= {"continue": False, "stopReason": ruling.for_user or ruling.text}
    return output


USAGE_MARK = b'"usage"'


def usage_in(line: dict[str, Any]) -> AnswerUsage:
    message = part(line, "message")
    return AnswerUsage(
        text(message.get("id")),
        text(message.get("model")),
        token_counts(message.get("usage")),
        at=text(line.get("timestamp")),
        of_sub_agent=line.get("isSidechain") is True,
    )


def token_counts(usage: object) -> TokenCounts:
    """The tokens of a message: Anthropic's API counts those of the cache separately."""
    given = usage if isinstance(usage, dict) else {}
    read_tokens = count(given.get("cache_read_input_tokens"))
    written = count(given.get("cache_creation_input_tokens"))
    sent = count(given.get("input_tokens")) + read_tokens + written
    return TokenCounts(sent, count(given.get("output_tokens")), read_tokens, written)
