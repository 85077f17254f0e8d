"""The events of each agent are parsed, and each response has the format that the agent obeys."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from switchgear._agents.fields import exit_code
from switchgear._agents.hook_protocol import BadInput, Moment, Reply, allow, deny, stop, warn
from switchgear._agents.registry import dialect_of
from switchgear._hooks.command import AGENTS, hook_command
from unit.hook_calls import after, batch, before, claude, failed, written

RECORDED = Path(os.environ.get("SWITCHGEAR_RECORDED_HOOKS", "nowhere"))
"""Inputs recorded from real agents, a folder per agent; they are not part of this repository."""
GEMINI_BEFORE = claude("BeforeTool", tool_name="run_shell_command", tool_input={"command": "make"})
GEMINI_AFTER = {
    **GEMINI_BEFORE,
    "hook_event_name": "AfterTool",
    "tool_response": {"llmContent": "Output: (empty)\nExit Code: 1\n", "returnDisplay": "no"},
}
PI_CALL = {"type": "tool_call", "toolName": "bash", "toolCallId": "c1", "input": {"command": "ls"}}
PI_BEFORE = {
    "k": "tool_call",
    "event": PI_CALL,
    "usage": {"tokens": 6400, "contextWindow": 128_000, "percent": 5.0},
    "session": "s1",
}
OPENCODE_BEFORE = {
    "k": "tool.execute.before",
    "input": {"tool": "bash", "sessionID": "s1", "callID": "c1"},
    "output": {"args": {"command": "ls"}},
}


def read(agent: str, data: dict[str, Any]) -> Any:
    return dialect_of(agent).read(data)


def test_a_call_of_claude_code_is_read_before_and_after() -> None:
    facts = read("claude-code", before("Bash", {"command": "ls"}, "t9"))
    assert (facts.moment, facts.tool, facts.call_id) == (Moment.BEFORE_TOOL, "Bash", "t9")
    facts = read("claude-code", after(result={"stdout": "hi", "interrupted": False}))
    assert (facts.ok, facts.seconds, facts.error) == (True, 0.02, None)
    facts = read("claude-code", failed(error="Exit code 2\nno such file"))
    assert (facts.ok, facts.error) == (False, "Exit code 2\nno such file")


def test_an_interrupted_call_is_not_evidence() -> None:
    assert read("claude-code", failed(is_interrupt=True)).ok is None
    assert read("claude-code", after(result={"interrupted": True})).ok is None


def test_a_tool_that_reports_failure_has_failed() -> None:
    assert read("claude-code", after("mcp__x__y", result={"isError": True})).ok is False
    assert read("qwen", after(result={"llmContent": "Output: x\nExit Code: 3\n"})).ok is False
    assert read("qwen", after(result={"llmContent": "Output: x\nExit Code: 0\n"})).ok is True


def test_a_batch_has_its_calls() -> None:
    facts = read("claude-code", batch(("Bash", {"command": "false"}, "a"), response="Exit code 1"))
    assert [(call.tool, call.call_id, call.ok) for call in facts.batch] == [("Bash", "a", False)]


def test_qwen_names_a_call_by_the_name_that_its_batch_has() -> None:
    assert read("qwen", before(call="toolu_1", tool_call_id="call_1")).call_id == "call_1"


def test_sub_agents_are_distinguished() -> None:
    assert read("claude-code", before(agent_id="a/1", agent_type="explore")).subagent == "a_1"


def test_qwen_reports_how_full_its_context_is_when_it_stops() -> None:
    facts = read("qwen", claude("Stop", context_usage=0.023, context_limit=200_000))
    assert (facts.moment, facts.context_used) == (Moment.STOP, 0.023)


def test_codex_does_not_report_how_a_command_ended() -> None:
    assert read("codex", after(result="")).ok is None
    assert read("codex", after(result="Process exited with code 2")).ok is False


def test_gemini_reports_an_exit_code_in_its_text() -> None:
    facts = read("gemini", GEMINI_AFTER)
    assert (facts.ok, facts.call_id) == (False, "")
    good = {**GEMINI_AFTER, "tool_response": {"llmContent": "Output: hi"}}
    assert read("gemini", good).ok is True
    wrong = {**GEMINI_AFTER, "tool_response": {"llmContent": "x", "error": {"message": "denied"}}}
    assert (read("gemini", wrong).ok, read("gemini", wrong).error) == (False, "denied")


def test_gemini_reports_how_many_tokens_it_used() -> None:
    usage: Any = {"llm_response": {"usageMetadata": {"totalTokenCount": 1020}}}
    assert read("gemini", claude("AfterModel", **usage)).tokens == 1020


def test_pi_and_opencode_are_read_as_their_plugins_pass_them_on() -> None:
    facts = read("pi", PI_BEFORE)
    assert (facts.tool, facts.call_id, facts.context_used) == ("bash", "c1", 0.05)
    told = {**PI_CALL, "content": [{"type": "text", "text": "no"}], "isError": True}
    ended = {"k": "tool_result", "session": "s1", "event": told}
    assert (read("pi", ended).ok, read("pi", ended).error) == (False, "no")
    facts = read("opencode", OPENCODE_BEFORE)
    assert (facts.tool, facts.session, facts.args) == ("bash", "s1", {"command": "ls"})
    output = {"output": "bad", "metadata": {"exit": 1}}
    done = {**OPENCODE_BEFORE, "k": "tool.execute.after", "output": output}
    assert (read("opencode", done).ok, read("opencode", done).error) == (False, "Exit code 1\nbad")


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"hook_event_name": "PreToolUse"},
        {"hook_event_name": "PreToolUse", "session_id": 5},
        {"hook_event_name": "PreToolUse", "session_id": "s"},
        {"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": ["x"]},
        {"hook_event_name": "MadeUp", "session_id": "s"},
        {"hook_event_name": 7, "session_id": "s"},
        {"k": "tool_call", "event": 1},
        {"k": "made up"},
        {"k": "tool.execute.before"},
    ],
)
@pytest.mark.parametrize("agent", AGENTS)
def test_an_event_that_lacks_a_field_is_bad_input(agent: str, data: Any) -> None:
    with pytest.raises(BadInput):
        read(agent, data)


# What is written


def test_claude_code_is_stopped_by_a_deny_and_a_stop() -> None:
    told = written("claude-code", before(), stop("enough"))
    assert told["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert told["hookSpecificOutput"]["permissionDecisionReason"] == "enough"
    assert told["continue"] is False


def test_claude_code_is_denied_one_call_and_warned() -> None:
    told = written("claude-code", before(), deny("no"))
    assert told["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "continue" not in told
    told = written("claude-code", after(), warn("careful"))
    assert told == {
        "hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "careful"}
    }


@pytest.mark.parametrize("event", ["Stop", "SubagentStop", "SessionEnd"])
def test_no_text_makes_claude_code_continue_after_its_stop(event: str) -> None:
    assert written("claude-code", claude(event), stop("enough")) == {}


def test_a_prompt_is_blocked() -> None:
    told = written("claude-code", claude("UserPromptSubmit", prompt="x"), stop("enough"))
    assert (told["decision"], told["reason"]) == ("block", "enough")


def test_codex_is_denied_without_continue_and_interrupted() -> None:
    dialect = dialect_of("codex")
    reply = dialect.write(stop("enough"), dialect.read(before()))
    assert "continue" not in json.loads(reply.stdout), "it would void the deny"
    assert json.loads(reply.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert reply.interrupt
    assert not dialect.write(deny("no"), dialect.read(before())).interrupt
    child = dialect.read(before(agent_id="a"))
    assert not dialect.write(stop("enough", whole=False), child).interrupt


def test_the_output_of_a_tool_of_codex_is_not_replaced() -> None:
    assert written("codex", after(), warn("careful")) == {}
    assert "PostToolUse" not in dialect_of("codex").warns


def test_gemini_receives_replies_in_its_own_format() -> None:
    told = written("gemini", GEMINI_BEFORE, deny("no"))
    assert told == {"decision": "deny", "reason": "no"}
    told = written("gemini", GEMINI_BEFORE, stop("enough"))
    assert told["continue"] is False
    told = written("gemini", GEMINI_AFTER, warn("careful"))
    assert told["hookSpecificOutput"]["additionalContext"] == "careful"
    assert "decision" not in written("gemini", GEMINI_AFTER, stop("enough"))


def test_qwen_is_denied_and_interrupted_and_warned_after_a_tool() -> None:
    dialect = dialect_of("qwen")
    reply = dialect.write(stop("enough"), dialect.read(before()))
    assert reply.interrupt
    assert "continue" not in json.loads(reply.stdout)
    told = written("qwen", after(), warn("careful"))
    assert told["hookSpecificOutput"]["additionalContext"] == "careful"


@pytest.mark.parametrize(("agent", "data"), [("pi", PI_BEFORE), ("opencode", OPENCODE_BEFORE)])
def test_plugins_receive_the_ruling_unchanged(agent: str, data: Any) -> None:
    assert written(agent, data, stop("enough"))["action"] == "stop"
    assert written(agent, data, allow())["action"] == "allow"


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini", "qwen"])
def test_without_a_message_nothing_is_written(agent: str) -> None:
    data = GEMINI_BEFORE if agent == "gemini" else before()
    dialect = dialect_of(agent)
    assert dialect.write(allow(), dialect.read(data)) == Reply()


def test_a_remark_is_shown_at_the_terminal() -> None:
    dialect = dialect_of("claude-code")
    reply = dialect.write(allow("could not decide"), dialect.read(before()))
    assert json.loads(reply.stdout)["systemMessage"] == "could not decide"
    assert reply.stderr == "could not decide"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Exit code 1", 1),
        ("Exit Code: 127\nmore", 127),
        ("Command exited with code 1", 1),
        ("Process exited with code 0", 0),
        ("the exit is over there", None),
        ("", None),
        (None, None),
    ],
)
def test_exit_codes_are_found_in_texts(text: str | None, code: int | None) -> None:
    assert exit_code(text) == code


def test_the_command_works_from_anywhere() -> None:
    words = hook_command("codex", root=".")
    assert all(Path(word).is_absolute() for word in (words[0], words[3], words[6]))
    with pytest.raises(ValueError, match="agent is 'x': it must be one of claude-code"):
        hook_command("x")


@pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded inputs are not here")
@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini", "qwen"])
def test_every_recorded_input_is_read(agent: str) -> None:
    files = sorted((RECORDED / agent.removesuffix("-code")).glob("*.json"))
    assert files
    for file in files:
        facts = read(agent, json.loads(file.read_text()))
        assert facts.event == file.stem


@pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded inputs are not here")
@pytest.mark.parametrize(
    ("agent", "file"), [("pi", "pi-extension"), ("opencode", "opencode-plugin")]
)
def test_every_recorded_line_is_read(agent: str, file: str) -> None:
    for line in (RECORDED / f"{file}.jsonl").read_text().splitlines():
        assert read(agent, json.loads(line)).agent == agent
