"""Claude Code: `continue:false` alone still runs the tool, so a stop is a deny and a stop."""

import json
from collections.abc import Mapping
from typing import Any

from switchgear._agents import hook_fields
from switchgear._agents.hook_call import HookFacts, Moment
from switchgear._agents.hook_ruling import Action, Reply, Ruling
from switchgear._agents.hook_transcript import thought_before

AGENT = "claude-code"
EVENT = "hook_event_name"
MOMENTS = {
    "SessionStart": Moment.SESSION_START,
    "UserPromptSubmit": Moment.PROMPT,
    "PreToolUse": Moment.BEFORE_TOOL,
    "PostToolUse": Moment.AFTER_TOOL,
    "PostToolUseFailure": Moment.AFTER_TOOL,
    "PostToolBatch": Moment.BATCH,
    "SubagentStart": Moment.AGENT_START,
    "SubagentStop": Moment.AGENT_STOP,
    "Stop": Moment.STOP,
    "SessionEnd": Moment.SESSION_END,
    "Notification": Moment.OTHER,
    "PermissionRequest": Moment.OTHER,
    "PreCompact": Moment.OTHER,
    "Setup": Moment.OTHER,
    "StopFailure": Moment.OTHER,
    "TeammateIdle": Moment.OTHER,
    "TaskCompleted": Moment.OTHER,
}
WARNS = frozenset(
    {
        *("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"),
        *("PostToolUseFailure", "PostToolBatch"),
    }
)
_SUB_TRANSCRIPTS = {AGENT: "{session}/subagents", "qwen": "../subagents/{session}"}
"""Where the files of sub-agents lie, from the folder of the session's."""
_DEAF = frozenset({Moment.STOP, Moment.AGENT_STOP, Moment.SESSION_END, Moment.OTHER})
"""Where a "block" would make the agent go on, or nobody listens."""


def read(data: Mapping[str, Any]) -> HookFacts:
    """The facts of an event. Raises `BadInput`."""
    return read_as(AGENT, data, MOMENTS)


def read_as(agent: str, data: Mapping[str, Any], moments: Mapping[str, Moment]) -> HookFacts:
    """The facts of an event of an agent that speaks as Claude Code does. Raises `BadInput`."""
    facts = hook_fields.base(agent, data, moments)
    if facts.subagent and agent in _SUB_TRANSCRIPTS and not data.get("agent_transcript_path"):
        facts = facts._replace(transcript=_transcript_of(facts))
    if facts.moment is Moment.BATCH:
        calls = data.get("tool_calls")
        items = (
            [item for item in calls if isinstance(item, dict)] if isinstance(calls, list) else []
        )
        return facts._replace(batch=tuple(_called(facts, item) for item in items[:100]))
    if facts.moment is Moment.BEFORE_TOOL or facts.moment is Moment.AFTER_TOOL:
        return _called(facts, data)
    used = hook_fields.share(data.get("context_usage"))
    return facts._replace(context_used=used)


def _transcript_of(facts: HookFacts) -> str:
    """The file of a sub-agent, which only its end names: beside that of who sent it."""
    folder, _, name = facts.transcript.rpartition("/")
    session = name.removesuffix(".jsonl")
    if session == name:
        return ""
    place = _SUB_TRANSCRIPTS[facts.agent].format(session=session)
    return f"{folder}/{place}/agent-{facts.subagent}.jsonl"


def _called(facts: HookFacts, data: Mapping[str, Any]) -> HookFacts:
    """The facts of a call, before or after it, alone or in a batch. Raises `BadInput`."""
    # Qwen names a call twice, and only the second name is the same in a batch.
    call_id = hook_fields.text(data.get("tool_call_id")) or hook_fields.text(
        data.get("tool_use_id")
    )
    facts = facts._replace(
        tool=hook_fields.tool_name(data), args=data.get("tool_input"), call_id=call_id[:200]
    )
    if facts.moment is Moment.BEFORE_TOOL:
        return facts
    response = data.get("tool_response")
    error = hook_fields.text(data.get("error"))
    ok: bool | None = True
    result = hook_fields.whole_text(response)
    if facts.event == "PostToolUseFailure" or _is_error(data, response, result):
        ok, error = False, error or _error_of(response, result)
        result = error if result is None else result
    if data.get("is_interrupt") is True or _flag(response, "interrupted"):
        ok, error = None, ""
    seconds = hook_fields.milliseconds(data.get("duration_ms"))
    thought = thought_before(facts.transcript, facts.call_id)
    return facts._replace(
        result=result, ok=ok, error=error or None, seconds=seconds, thought=thought
    )


def _is_error(data: Mapping[str, Any], response: Any, result: str | None) -> bool:
    if data.get("status") == "error" or _flag(response, "is_error") or _flag(response, "isError"):
        return True
    told = response.get("llmContent") if isinstance(response, dict) else result
    code = hook_fields.exit_code(told if isinstance(told, str) else result)
    if code is not None:
        return code != 0
    return isinstance(response, str) and response.startswith(("Error", "<tool_use_error>"))


def _error_of(response: Any, result: str | None) -> str:
    told = response.get("error") if isinstance(response, dict) else None
    return told if isinstance(told, str) and told else result or "failed"


def _flag(response: Any, name: str) -> bool:
    return isinstance(response, dict) and response.get(name) is True


def write(ruling: Ruling, facts: HookFacts) -> Reply:
    """The ruling as Claude Code obeys it at this event."""
    output: dict[str, Any] = {}
    if ruling.remark:
        output["systemMessage"] = ruling.remark
    if ruling.text and facts.moment not in _DEAF:
        output |= _said(ruling, facts)
    return Reply(json.dumps(output) if output else "", ruling.remark)


def _said(ruling: Ruling, facts: HookFacts) -> dict[str, Any]:
    stops = ruling.action is Action.STOP
    if facts.moment is Moment.BEFORE_TOOL and ruling.action in {Action.DENY, Action.STOP}:
        specific = {"permissionDecision": "deny", "permissionDecisionReason": ruling.text}
    else:
        specific = {"additionalContext": ruling.text}
    output: dict[str, Any] = {"hookSpecificOutput": {"hookEventName": facts.event, **specific}}
    if facts.moment is Moment.PROMPT and ruling.action in {Action.DENY, Action.STOP}:
        output = {"decision": "block", "reason": ruling.text}
    if stops:
        output |= {"continue": False, "stopReason": ruling.for_user or ruling.text}
    return output
