"""Codex's hooks: Claude Code's format, but `continue:false` cancels a deny, and no output ends a turn.

The output of a hook after a tool would replace the tool's output, so it is empty: a warning waits for the next
call, and a stop denies that call and interrupts the agent.
"""

import json
from collections.abc import Mapping
from typing import Any

from switchgear._agents.fields import TokenCounts, at, count, exit_code, part, text
from switchgear._agents.hook_protocol import (
    EVENT,
    AnswerUsage,
    HookFacts,
    HookSettings,
    Moment,
    Reply,
    Ruling,
    action_of,
    before_tool_reply,
    parsed,
    read_event,
    read_tail,
    sample,
)

__all__ = ["EVENT", "action_of", "sample"]

SETTINGS = HookSettings(
    "codex",
    "Codex",
    "codex",
    project_file=".codex/hooks.json",
    user_file="hooks.json",
    user_folder="~/.codex",
    home_variable="CODEX_HOME",
    tool_events=("PreToolUse", "PostToolUse"),
    other_events=(
        *("UserPromptSubmit", "SubagentStart", "SubagentStop"),
        *("Stop", "SessionStart", "SessionEnd"),
    ),
    other_file="config.toml",
    trust="Codex silently skips hooks until you review them: type /hooks in codex",
    has_subagents=True,
)
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
_KIND = b'"CommandExecution"'


def switch_off(settings: Mapping[str, Any]) -> str:
    """The setting with which Codex runs no hooks; empty: hooks are not switched off."""
    return "features.hooks is false" if at(settings, "features", "hooks") is False else ""


def read(data: Mapping[str, Any]) -> HookFacts:
    facts = read_event("codex", data, MOMENTS)
    if facts.moment is not Moment.AFTER_TOOL:
        return facts
    # The event has no exit code. It is in the transcript, and sometimes in the result.
    code = exit_code_of(facts.transcript, facts.call_id)
    if code is not None:
        error = f"Exit code {code}\n{facts.result or ''}" if code else None
        return facts._replace(ok=code == 0, error=error)
    if facts.ok is False:
        return facts
    code = exit_code(facts.result)
    return facts._replace(ok=None if code is None else code == 0)


def exit_code_of(transcript: str, call_id: str) -> int | None:
    """The exit code of a call; `None`: unknown. Never raises."""
    if not transcript or not call_id:
        return None
    name = json.dumps(call_id).encode()
    for line in reversed(read_tail(transcript).splitlines()):
        if name not in line or _KIND not in line:
            continue
        item = part(parsed(line).get("payload"), "item")
        if item.get("id") == call_id:
            code = item.get("exit_code")
            return code if isinstance(code, int) and not isinstance(code, bool) else None
    return None


def write(ruling: Ruling, facts: HookFacts) -> Reply:
    if not ruling.text or facts.moment is not Moment.BEFORE_TOOL:
        return Reply("", ruling.remark)
    return before_tool_reply(ruling)


USAGE_MARK = b'"total_tokens"'


def usage_in(line: dict[str, Any]) -> AnswerUsage:
    """The usage of a response in a line of a rollout; Codex reports it again after the response's tool calls.

    The total of the thread is the same in these lines, so it identifies the response.
    """
    payload = part(line, "payload")
    info = part(payload, "info")
    last = part(info, "last_token_usage") or part(payload, "usage")
    total = part(info, "total_token_usage") or part(payload, "thread_token_usage")
    return AnswerUsage(
        str(count(total.get("total_tokens")) or ""),
        "",
        token_counts(last),
        (count(info.get("model_context_window")) or None) if info else 0,
        text(line.get("timestamp")),
    )


def token_counts(usage: object) -> TokenCounts:
    """The tokens of a response or a turn. Input tokens include the cache."""
    return TokenCounts(
        count(at(usage, "input_tokens")),
        count(at(usage, "output_tokens")),
        count(at(usage, "cached_input_tokens")),
        count(at(usage, "cache_write_input_tokens")),
    )
