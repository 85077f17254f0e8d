"""Gemini CLI's hooks: `decision:"deny"` refuses a call, `continue:false` ends the turn.

Calls have no ids, so a result belongs to the oldest open call with the same tool and arguments.
"""

import json
from collections.abc import Mapping
from typing import Any

from switchgear._agents import fields
from switchgear._agents.fields import TokenCounts, at, count, text
from switchgear._agents.hook_protocol import (
    EVENT,
    MAX_LINES,
    REFUSING,
    TIMEOUT_S,
    Action,
    AnswerUsage,
    HookFacts,
    HookSettings,
    Moment,
    Reply,
    Ruling,
    common_facts,
    parsed,
    read_tail,
    tool_name,
)

__all__ = ["EVENT"]

SETTINGS = HookSettings(
    "gemini",
    "Gemini CLI",
    "gemini",
    project_file=".gemini/settings.json",
    user_file=".gemini/settings.json",
    user_folder="~",
    home_variable="GEMINI_CLI_HOME",
    tool_events=("BeforeTool", "AfterTool"),
    # Not AfterModel: it is called for each chunk of a streamed response.
    other_events=("BeforeAgent", "AfterAgent", "SessionStart", "SessionEnd"),
    timeout=TIMEOUT_S * 1000,
    named=True,
    comments=True,
    trust="Gemini CLI runs a project's hooks in trusted folders, and warns of new ones",
    project_variable="GEMINI_PROJECT_DIR",
)
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


def switch_off(settings: Mapping[str, Any]) -> str:
    """The setting with which Gemini CLI runs no hooks; empty: hooks are not switched off."""
    if at(settings, "hooksConfig", "enabled") is False:
        return '"hooksConfig.enabled" is false'
    disabled = at(settings, "hooksConfig", "disabled")
    named = isinstance(disabled, list) and "switchgear" in disabled
    return '"hooksConfig.disabled" has "switchgear"' if named else ""


def read(data: Mapping[str, Any]) -> HookFacts:
    facts = common_facts("gemini", data, MOMENTS)
    if facts.moment is Moment.AFTER_MODEL:
        total = fields.number(at(data.get("llm_response"), "usageMetadata", "totalTokenCount"))
        return facts._replace(tokens=None if total is None else int(total))
    if facts.moment not in {Moment.BEFORE_TOOL, Moment.AFTER_TOOL}:
        return facts
    facts = facts._replace(tool=tool_name(data.get("tool_name")), args=data.get("tool_input"))
    return facts if facts.moment is Moment.BEFORE_TOOL else _after(facts, data)


def _after(facts: HookFacts, data: Mapping[str, Any]) -> HookFacts:
    facts = facts._replace(thought=_last_thought(facts.transcript))
    response = data.get("tool_response")
    content = response.get("llmContent") if isinstance(response, dict) else response
    result, error = fields.whole_text(content), at(response, "error")
    if isinstance(error, dict):
        error = error.get("message")
    if not error and fields.exit_code(result):
        error = result
    return facts._replace(
        result=result, ok=not error, error=fields.whole_text(error) if error else None
    )


def _last_thought(transcript: str) -> str | None:
    """The model's last text or thought; it cannot be searched for by call, because calls have no ids. Never raises."""
    if not transcript:
        return None
    for line in reversed(read_tail(transcript).splitlines()[-MAX_LINES:]):
        if b'"type":"gemini"' in line.replace(b": ", b":"):
            message = parsed(line)
            thoughts = fields.objects(message.get("thoughts"))
            texts = [each.get("description") or each.get("subject") for each in thoughts]
            texts.append(message.get("content"))
            thought = "\n".join(each for each in texts if isinstance(each, str) and each.strip())
            return thought[: fields.MAX_THOUGHT_CHARS] or None
    return None


def write(ruling: Ruling, facts: HookFacts) -> Reply:
    output: dict[str, Any] = {}
    if ruling.remark:
        output["systemMessage"] = ruling.remark
    if ruling.text and facts.event in WARNS:
        specific = {"hookEventName": facts.event, "additionalContext": ruling.text}
        output["hookSpecificOutput"] = specific
    blocks = ruling.action in REFUSING
    if blocks and facts.moment in _STOPPED_BY and facts.moment is not Moment.AFTER_TOOL:
        output |= {"decision": "deny", "reason": ruling.text}
    if ruling.action is Action.STOP and facts.moment in _STOPPED_BY:
        output |= {"continue": False, "stopReason": ruling.for_user or ruling.text}
    return Reply(json.dumps(output) if output else "", ruling.remark)


def action_of(reply: Mapping[str, Any]) -> tuple[str, str]:
    if reply.get("continue") is False:
        return "stop", str(reply.get("stopReason") or reply.get("reason", ""))
    if reply.get("decision") in {"deny", "block"}:
        return "deny", str(reply.get("reason", ""))
    context = at(reply.get("hookSpecificOutput"), "additionalContext")
    return ("warn", str(context)) if context else ("allow", "")


def sample(before: bool, session: str, folder: str) -> dict[str, Any]:  # noqa: FBT001  two cases
    """An event as Gemini CLI sends it: the agent reads a file."""
    event = {
        "session_id": session,
        "transcript_path": "",
        "cwd": folder,
        "hook_event_name": "BeforeTool" if before else "AfterTool",
        "tool_name": "read_file",
        "tool_input": {"file_path": "README.md"},
    }
    return event if before else {**event, "tool_response": {"llmContent": "a line"}}


USAGE_MARK = b'"tokens"'


def usage_in(line: dict[str, Any]) -> AnswerUsage:
    return AnswerUsage(
        text(line.get("id")),
        text(line.get("model")),
        token_counts(line.get("tokens")),
        at=text(line.get("timestamp")),
    )


def token_counts(tokens: object) -> TokenCounts:
    """The tokens of a chat message. Input tokens include the cache; thoughts are added to the output."""
    output = count(at(tokens, "output")) + count(at(tokens, "thoughts"))
    return TokenCounts(count(at(tokens, "input")), output, count(at(tokens, "cached")))
