"""Each agent's recorded stream becomes the same few facts."""

import json
from pathlib import Path

import pytest

from switchgear._agents.base import StreamReader
from switchgear._agents.command import CommandReader
from switchgear._agents.events import (
    AgentError,
    AgentResult,
    Question,
    StreamEvent,
    TextOutput,
    ToolStarted,
    ToolStep,
    Usage,
    total_usage,
)
from switchgear._agents.registry import agent_named

STREAMS = Path(__file__).parents[1] / "streams"


def read(name: str, exit_code: int | None = 0) -> list[StreamEvent]:
    """A recording, through the reader that its name begins with."""
    reader = agent_named(name.partition("-")[0]).reader()
    events = fed(reader, (STREAMS / f"{name}.jsonl").read_bytes().splitlines())
    assert reader.unknown_lines == 0
    return [*events, *reader.close(exit_code)]


def fed(reader: StreamReader, lines: list[bytes]) -> list[StreamEvent]:
    return [event for line in lines for event in reader.feed(line)]


def told(agent: str, *lines: object, exit_code: int | None = 0) -> list[StreamEvent]:
    reader = agent_named(agent).reader()
    events = fed(reader, [json.dumps(line).encode() for line in lines])
    return [*events, *reader.close(exit_code)]


def steps(events: list[StreamEvent]) -> list[ToolStep]:
    return [event for event in events if isinstance(event, ToolStep)]


def errors(events: list[StreamEvent]) -> list[AgentError]:
    return [event for event in events if isinstance(event, AgentError)]


def result(events: list[StreamEvent]) -> AgentResult:
    [found] = [event for event in events if isinstance(event, AgentResult)]
    return found


def usage(events: list[StreamEvent]) -> Usage:
    latest = {event.model: event for event in events if isinstance(event, Usage)}
    return total_usage(latest.values())


@pytest.mark.parametrize(
    ("stream", "tool", "words"),
    [
        ("claude-loop", "Bash", "Exit code 1"),
        ("codex-loop", "shell", "exit code 1"),
        ("gemini-loop", "run_shell_command", "Command exited with code: 1"),
        ("qwen-own-guard", "run_shell_command", "Exit Code: 1"),
        ("opencode-loop", "bash", "exit code 1"),
        ("goose-loop", "shell", "Command exited with code 1"),
    ],
)
def test_a_failed_command_is_a_failed_step_whatever_the_agent_calls_it(
    stream: str, tool: str, words: str
) -> None:
    found = steps(read(stream))
    assert found
    assert {(step.tool, step.ok) for step in found} == {(tool, False)}
    assert all(words in str(step.error) and "false" in step.arguments for step in found)


@pytest.mark.parametrize(
    "stream", ["codex-rate-limited", "qwen-works", "opencode-works", "pi-works"]
)
def test_a_command_that_works_is_a_step_without_error(stream: str) -> None:
    events = read(stream)
    [step] = steps(events)
    assert (step.ok, step.error) == (True, None)
    assert "echo after429" in step.arguments
    assert result(events)[:2] == ("Done.", True)


@pytest.mark.parametrize(
    ("stream", "tokens"),
    [
        ("claude-loop", (15_600, 120, 7_500, 600, 28_800)),
        ("codex-rate-limited", (2_600, 40, 500, 0, None)),
        ("gemini-loop", (11_600, 100, 5_500, 0, None)),
        ("qwen-works", (2_600, 40, 500, 0, None)),
        ("opencode-works", (2_600, 40, 500, 0, 7_050)),
        ("pi-works", (2_600, 40, 500, 0, 7_050)),
        ("goose-loop", (310_000, 620, 0, 0, None)),
    ],
)
def test_input_includes_the_cache_and_cost_is_whole_micro_dollars(
    stream: str, tokens: tuple[int, ...]
) -> None:
    assert usage(read(stream))[1:6] == tokens


def test_equal_calls_have_equal_keys_and_different_calls_do_not() -> None:
    keys = {step.call_key for step in steps(read("claude-loop"))}
    assert len(keys) == 1
    [other] = steps(read("pi-works"))
    assert other.call_key not in keys


def test_claude_reports_a_dead_provider_while_it_retries_and_at_the_end() -> None:
    events = read("claude-dead-provider", 1)
    found = errors(events)
    assert [(error.kind, error.status, error.final) for error in found] == [
        ("overloaded", 529, False),
        ("overloaded", 529, False),
        ("overloaded", 529, True),
    ]
    assert result(events).claimed_success is False
    assert not any(isinstance(event, TextOutput) for event in events)


def test_claude_out_of_turns_is_a_limit_and_not_a_success() -> None:
    events = read("claude-max-turns", 1)
    [error] = errors(events)
    assert (error.kind, error.final) == ("limit", True)
    assert result(events)[1:] == (False, "max_turns")


def test_claude_stopped_by_a_hook_reports_success_which_does_not_count() -> None:
    assert result(read("claude-hook-stopped"))[1:] == (False, "hook_stopped")


def test_claude_counts_an_answer_in_several_lines_once_and_marks_the_estimate() -> None:
    def line(part: object) -> dict[str, object]:
        tokens = {"input_tokens": 100, "cache_read_input_tokens": 50, "output_tokens": 1}
        message = {"id": "m1", "model": "m", "content": [part], "usage": tokens}
        return {"type": "assistant", "message": message}

    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "x" * 400}}
    events = told("claude", line({"type": "text", "text": "hello"}), line(call), exit_code=None)
    found = usage(events)
    assert (found.input_tokens, found.cache_read_tokens, found.estimated) == (150, 50, True)
    assert found.output_tokens > 100


def test_claudes_sub_agents_are_distinguished_by_the_call_that_started_them() -> None:
    events = read("claude-sub-agent")
    helper = "toolu_a589739653b840a8b42b"
    inner, outer = steps(events)
    assert (inner.tool, inner.ok, inner.agent) == ("Bash", False, helper)
    assert (outer.tool, outer.ok, outer.agent) == ("Agent", True, "")
    begun = [(event.tool, event.agent) for event in events if isinstance(event, ToolStarted)]
    assert begun == [("Agent", ""), ("Bash", helper)]
    said = [(event.text, event.agent) for event in events if isinstance(event, TextOutput)]
    assert said == [("A helper shall look.", ""), ("The helper found nothing. Done.", "")]
    assert result(events).claimed_success is True
    assert usage(events).cost_micros == 13_200


def test_a_later_result_of_claude_replaces_the_earlier_one() -> None:
    def line(dollars: float) -> dict[str, object]:
        models = {"m": {"inputTokens": 10, "outputTokens": 1, "costUSD": dollars}}
        return {"type": "result", "subtype": "success", "result": "ok", "modelUsage": models}

    assert usage(told("claude", line(0.01), line(0.03))).cost_micros == 30_000


def test_a_rejected_usage_limit_of_claude_is_a_rate_limit_with_its_end() -> None:
    info = {"status": "rejected", "resetsAt": 4_000_000_000, "rateLimitType": "five_hour"}
    [error] = errors(told("claude", {"type": "rate_limit_event", "rate_limit_info": info}))
    assert error.kind == "rate_limit"
    assert error.retry_after_s is not None
    assert error.retry_after_s > 3600


def test_codex_reports_its_retries_and_its_end() -> None:
    events = read("codex-dead-provider", 1)
    assert {error.kind for error in errors(events)} == {"overloaded"}
    assert [error.final for error in errors(events)] == [False, False, False, True]
    assert result(events)[1:] == (False, "turn.failed")


def test_a_rate_limit_of_codex_is_not_a_failure_of_its_run() -> None:
    events = read("codex-rate-limited")
    assert {(error.kind, error.status) for error in errors(events)} == {("rate_limit", 429)}
    assert result(events).claimed_success is True


def test_codex_remarks_on_metadata_are_not_errors() -> None:
    assert errors(read("codex-loop")) == []


def test_codex_file_changes_are_named_when_they_worked() -> None:
    item = {"id": "1", "type": "file_change", "changes": [{"path": "a.py", "kind": "update"}]}
    done = {"type": "item.completed", "item": {**item, "status": "completed"}}
    failed = {"type": "item.completed", "item": {**item, "id": "2", "status": "failed"}}
    assert [step.files_changed for step in steps(told("codex", done, failed))] == [("a.py",), ()]


@pytest.mark.parametrize("stream", ["gemini-own-guard", "qwen-own-guard"])
def test_a_loop_that_the_agent_stopped_itself_is_not_a_success(stream: str) -> None:
    events = read(stream)
    assert [(error.kind, error.final) for error in errors(events)] == [("loop", True)]
    assert result(events).claimed_success is False


@pytest.mark.parametrize(
    ("output", "ok"),
    [
        ("cat: a.toml: No such file or directory", False),
        ("Traceback (most recent call last):\n  ...\nKeyError: 'a'", False),
        ("Blocked: command substitution detected in shell command.", False),
        ("collected 3 items\n\n3 passed in 0.02s", True),
        ("No errors found", True),
    ],
)
def test_gemini_hides_exit_codes_so_the_output_of_a_command_is_read(output: str, ok: bool) -> None:
    events = told(
        "gemini",
        {"type": "tool_use", "tool_id": "1", "tool_name": "run_shell_command", "parameters": {}},
        {"type": "tool_result", "tool_id": "1", "status": "success", "output": output},
    )
    assert [step.ok for step in steps(events)] == [ok]


def test_opencode_without_a_price_has_an_unknown_cost() -> None:
    part = {"reason": "stop", "tokens": {"input": 10, "output": 5}, "cost": 0}
    found = usage(told("opencode", {"type": "step_finish", "part": part}))
    assert (found.input_tokens, found.cost_micros) == (10, None)


def test_opencode_errors_keep_status_and_retry_after() -> None:
    data = {"message": "slow down", "statusCode": 429, "responseHeaders": {"retry-after": "7"}}
    line = {"type": "error", "error": {"name": "APIError", "data": data}}
    events = told("opencode", line, exit_code=1)
    [error] = errors(events)
    assert (error.kind, error.status, error.retry_after_s) == ("rate_limit", 429, 7.0)
    assert result(events).claimed_success is False


def test_pi_that_gave_up_exits_with_zero_and_counts_as_failed() -> None:
    message = {"role": "assistant", "content": [], "stopReason": "error"}
    message["errorMessage"] = "529 overloaded_error"
    events = told(
        "pi",
        {"type": "auto_retry_start", "errorMessage": "529 overloaded_error"},
        {"type": "message_end", "message": message},
        {"type": "agent_end", "messages": []},
    )
    assert [(error.kind, error.final) for error in errors(events)] == [
        ("overloaded", False),
        ("overloaded", False),
        ("overloaded", True),
    ]
    assert result(events).claimed_success is False


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "Ran into this error: Server error (500 Internal Server Error).\n\nPlease retry.",
            "server",
        ),
        (
            "Network error: Could not connect to host.\n\nPlease resend your message to try again.",
            "connection",
        ),
    ],
)
def test_goose_that_completes_with_a_dead_provider_counts_as_failed(text: str, kind: str) -> None:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    events = told("goose", {"type": "message", "message": message}, {"type": "complete"})
    assert [(error.kind, error.final) for error in errors(events)] == [(kind, True)]
    assert result(events).claimed_success is False


def test_goose_names_its_model_in_the_banner() -> None:
    assert usage(read("goose-loop")).model == "gpt-4o-mini"


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        ("claude", {"type": "assistant", "message": {"content": [
            {"type": "tool_use", "id": "1", "name": "AskUserQuestion",
             "input": {"questions": [{"question": "Which database?"}]}}]}}),
        ("gemini", {"type": "tool_use", "tool_id": "1", "tool_name": "ask_user",
                    "parameters": {"question": "Which database?"}}),
        ("opencode", {"type": "tool_use", "part": {"tool": "question", "callID": "1",
                      "state": {"status": "running", "input": {"question": "Which database?"}}}}),
        ("demo", {"type": "question", "text": "Which database?"}),
    ],
)  # fmt: skip
def test_a_question_asked_with_a_tool_is_a_question(agent: str, line: object) -> None:
    [question] = [event for event in told(agent, line) if isinstance(event, Question)]
    assert "Which database?" in question.text
    assert question.by_tool


def test_a_question_at_the_end_of_the_output_is_of_the_weaker_kind() -> None:
    done = {"type": "turn.completed", "usage": {}}
    for text, expected in (("Shall I drop the table?", 1), ("Done. Anything else?", 0)):
        said = {"type": "item.completed", "item": {"type": "agent_message", "text": text}}
        found = [event for event in told("codex", said, done) if isinstance(event, Question)]
        assert len(found) == expected
        assert not any(question.by_tool for question in found)


def test_a_call_without_outcome_is_a_step_of_unknown_outcome_at_the_end() -> None:
    call = {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "sleep 9"}}
    line = {"type": "assistant", "message": {"content": [call]}}
    [step] = steps(told("claude", line, exit_code=None))
    assert (step.ok, step.error, step.arguments) == (None, None, "sleep 9")


AIDER = """\
Aider v0.86.2
Model: gpt-5 with diff edit format
I will fix the function.
Tokens: 2.3k sent, 1.0k cache hit, 210 received. Cost: $0.0100 message, $0.01 session.
Applied edit to src/a.py
Tokens: 1,000 sent, 90 received. Cost: $0.02 message, $0.03 session.
"""


def test_aider_reports_edits_tokens_and_cost_in_plain_words() -> None:
    reader = agent_named("aider").reader()
    events = [*fed(reader, AIDER.encode().splitlines()), *reader.close(0)]
    [step] = steps(events)
    assert step.files_changed == ("src/a.py",)
    assert usage(events) == Usage("gpt-5", 3_300, 300, 1_000, 0, 30_000)
    assert result(events).claimed_success is True


def test_an_aider_run_with_only_errors_has_failed() -> None:
    reader = agent_named("aider").reader()
    events = fed(reader, [b"litellm.RateLimitError: RateLimitError: too many requests"])
    events += reader.close(0)
    assert [(error.kind, error.final) for error in errors(events)] == [
        ("rate_limit", False),
        ("rate_limit", True),
    ]
    assert result(events).claimed_success is False


MINI = """\
mini-swe-agent (step 1, $0.02):
I look for the settings.

```
cat settings.toml
```

Tool:
<returncode>
1
<output>
cat: settings.toml: No such file or directory

mini-swe-agent (step 2, $0.05):
They are missing.

```bash
echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT
```

User:
<returncode>0</returncode>

Exit:
the settings are missing
"""


def test_mini_reports_commands_and_their_outcomes_in_plain_words() -> None:
    reader = agent_named("mini").reader()
    events = [*fed(reader, MINI.encode().splitlines()), *reader.close(0)]
    assert [(step.arguments, step.ok) for step in steps(events)] == [
        ("cat settings.toml", False),
        ("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", True),
    ]
    assert steps(events)[0].error == ("cat: settings.toml: No such file or directory\nexit code 1")
    assert usage(events).cost_micros == 50_000
    assert result(events)[:2] == ("the settings are missing", True)


@pytest.mark.parametrize(
    ("status", "kind"), [("LimitsExceeded", "limit"), ("RepeatedFormatError", "other")]
)
def test_mini_swe_agent_that_gave_up_exits_with_zero_and_counts_as_failed(
    status: str, kind: str
) -> None:
    reader = agent_named("mini").reader()
    lines = ["mini-swe-agent (step 1, $0.00):", "Hm.", "─" * 300, "Exit:", status]
    events = [*fed(reader, [line.encode() for line in lines]), *reader.close(0)]
    assert [(error.kind, error.final) for error in errors(events)] == [(kind, True)]
    assert result(events).claimed_success is False
    assert "─" not in str(events)


@pytest.mark.parametrize(
    "stream", ["claude-loop", "codex-loop", "gemini-loop", "opencode-loop", "goose-loop"]
)
def test_a_command_that_fails_without_output_is_identified_by_the_call(stream: str) -> None:
    for step in steps(read(stream)):
        assert step.silent
        assert str(step.error).startswith(f"{step.arguments}: failed without an error message\n")


def test_the_text_of_a_command_is_its_output() -> None:
    call = {"type": "tool", "name": "bash", "arguments": {"command": "make"}, "ok": False}
    said, silent = steps(told("demo", {**call, "error": "no rule for a"}, {**call, "error": ""}))
    assert (said.silent, said.error) == (False, "no rule for a")
    assert (silent.silent, silent.error) == (True, "make: failed without an error message")


LOGGED = (
    'timestamp=2026-11-15T13:11:58.436Z level=ERROR run=9ebe20ff message="stream error"'
    " providerID=p modelID=m session.id=ses_1 small={small} agent=build mode=primary"
    ' error.error="AI_APICallError: {text}"'
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Cannot connect to API: Unable to connect.", "connection"),
        ("Internal server error", "server"),
        ("Rate limited", "rate_limit"),
        ('a \\"new\\" trouble', "other"),
    ],
)
def test_opencode_reports_retries_in_its_log(text: str, kind: str) -> None:
    line = LOGGED.format(small="false", text=text).encode()
    [error] = agent_named("opencode").reader().feed(line, stderr=True)
    assert isinstance(error, AgentError)
    assert (error.kind, error.final) == (kind, False)
    assert error.text == f"AI_APICallError: {text}".replace("\\", "")


@pytest.mark.parametrize(
    "line",
    [
        LOGGED.format(small="true", text="Cannot connect to API"),
        LOGGED.format(small="false", text="x").replace("stream error", "tool error 503"),
        'timestamp=2026 level=ERROR message="stream error"',
        "",
    ],
)
def test_other_lines_of_the_opencode_log_are_not_errors(line: str) -> None:
    assert agent_named("opencode").reader().feed(line.encode(), stderr=True) == []


def test_errors_of_opencode_outside_its_log_are_read_too() -> None:
    [error] = agent_named("opencode").reader().feed(b"Error: connect ECONNREFUSED", stderr=True)
    assert isinstance(error, AgentError)
    assert error.kind == "connection"


COMMAND_ANSWERS = [
    {"type": "result", "text": "0123456789"},
    {"type": "result", "result": "0123456789", "session_id": "a-long-identifier-of-a-session"},
    {"type": "result", "success": True, "output": "0123456789"},
    {
        "type": "result",
        "content": [{"type": "text", "text": "01234"}, {"type": "text", "text": "6789"}],
    },
    {"type": "result", "message": {"role": "assistant", "content": [{"text": "0123456789"}]}},
    {"type": "result", "summary": "0123456789"},
    {"type": "text", "content": "0123456789"},
    {"type": "question", "text": "0123456789"},
    {"type": "assistant", "message": {"content": [{"type": "text", "text": "0123456789"}]}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "0123456789"}},
    {"choices": [{"message": {"role": "assistant", "content": "0123456789"}}]},
    {"response": {"candidates": [{"content": {"parts": [{"text": "0123456789"}]}}]}},
    {"output": ["01234", "6789"]},
    [{"type": "init"}, {"type": "result", "result": "0123456789"}],
    "0123456789 in quotation marks is plain text"[:8],
]


@pytest.mark.parametrize("answer", COMMAND_ANSWERS, ids=lambda answer: json.dumps(answer)[:40])
def test_text_in_the_json_of_a_command_is_output_at_any_level(answer: object) -> None:
    reader = CommandReader()
    fed(reader, [json.dumps(answer).encode()])
    assert reader.output_chars == 10


def test_a_repeated_result_is_counted_once() -> None:
    reader = CommandReader()
    lines = [
        {"type": "text", "text": "All done, as asked."},
        {"type": "result", "text": "All done, as asked."},
    ]
    fed(reader, [json.dumps(line).encode() for line in lines])
    assert reader.output_chars == len("All done, as asked.")


@pytest.mark.parametrize("line", [b'{"a": 1}', b"[1, 2]", b'{"broken": ', b"{}"])
def test_json_without_text_counts_as_output(line: bytes) -> None:
    reader = CommandReader()
    fed(reader, [line])
    assert reader.output_chars == len(line)


def test_hostile_nesting_is_read_in_bounded_time() -> None:
    reader = CommandReader()
    line = b'{"content": ' * 5_000 + b'"x"' + b"}" * 5_000
    fed(reader, [line, b'{"text": ' * 40 + b'"x"' + b"}" * 40])
    assert reader.output_chars > 0
