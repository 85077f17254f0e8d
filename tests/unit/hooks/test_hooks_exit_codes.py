"""The exit code of a command: in Codex's transcript, in OpenCode's metadata, or in the output."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from switchgear._agents.codex.hooks import exit_code_of, read
from switchgear._agents.hook_protocol import TAIL_BYTES
from switchgear._agents.opencode.hooks import read as read_opencode
from switchgear._hooks.inspect_call import call_signal, error_line, operation_signal


def ended(call_id: str, code: object) -> str:
    item = {"type": "CommandExecution", "id": call_id, "status": "failed", "exit_code": code}
    return json.dumps({"type": "event_msg", "payload": {"type": "item_completed", "item": item}})


def transcript(folder: Path, *lines: str) -> str:
    path = folder / "rollout.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def event(path: str, response: str = "no such file") -> dict[str, Any]:
    return {
        "session_id": "s1",
        "transcript_path": path,
        "cwd": "/w",
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "cat x"},
        "tool_response": response,
        "tool_use_id": "call_1",
    }


def test_a_failed_command_is_recognised_by_the_transcript(tmp_path: Path) -> None:
    facts = read(event(transcript(tmp_path, ended("call_0", 0), ended("call_1", 2))))
    assert facts.ok is False
    assert error_line(facts) == "exit code 2: no such file"
    facts = read(event(transcript(tmp_path, ended("call_1", 1)), ""))
    assert error_line(facts) == "exit code 1 of cat x"


def test_a_successful_command_is_recognised_by_the_transcript(tmp_path: Path) -> None:
    facts = read(event(transcript(tmp_path, ended("call_1", 0)), "Exit code: 1 is what it printed"))
    assert facts.ok is True
    assert facts.error is None


def test_without_a_transcript_nothing_is_guessed(tmp_path: Path) -> None:
    assert read(event("")).ok is None
    assert read(event(str(tmp_path / "none"))).ok is None
    assert read(event(transcript(tmp_path, ended("call_9", 1)))).ok is None


@pytest.mark.parametrize("code", [None, "1", True, {"a": 1}])
def test_an_invalid_exit_code_is_unknown(code: object, tmp_path: Path) -> None:
    assert exit_code_of(transcript(tmp_path, ended("call_1", code)), "call_1") is None


@pytest.mark.parametrize(
    "line",
    [
        '"CommandExecution" "call_1"',
        '["CommandExecution", "call_1"]',
        '{"payload": "CommandExecution", "x": "call_1"}',
        '{"payload": {"item": ["CommandExecution", "call_1"]}}',
        '{"payload": {"item": {"type": "CommandExecution", "id": "other", "x": "call_1"}}}',
    ],
)
def test_lines_of_another_shape_are_skipped(line: str, tmp_path: Path) -> None:
    assert exit_code_of(transcript(tmp_path, ended("call_1", 3), line), "call_1") == 3


def test_only_the_end_of_a_long_transcript_is_read(tmp_path: Path) -> None:
    far = transcript(tmp_path, ended("call_1", 3), "x" * TAIL_BYTES)
    assert exit_code_of(far, "call_1") is None
    near = transcript(tmp_path, "x" * TAIL_BYTES, ended("call_1", 3))
    assert exit_code_of(near, "call_1") == 3


def test_a_pipe_in_the_place_of_the_transcript_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert exit_code_of(str(tmp_path / "pipe"), "call_1") is None
    assert exit_code_of(f"{tmp_path}/nul\0byte", "call_1") is None


@pytest.mark.parametrize(
    ("made", "error"),
    [
        ({"output": "no such file", "metadata": {"exit": 2}}, "exit code 2: no such file"),
        ({"output": "", "metadata": {"exit": 1}}, "exit code 1 of cat x"),
    ],
)
def test_a_nonzero_exit_in_opencode_is_not_a_failure_of_the_shell(
    made: dict[str, Any], error: str
) -> None:
    call = {"tool": "bash", "sessionID": "s1", "callID": "c1", "args": {"command": "cat x"}}
    facts = read_opencode({"k": "tool.execute.after", "input": call, "output": made})
    assert facts.ok is False
    assert error_line(facts) == error
    signal = call_signal(facts, seconds=None, changed=None)
    assert signal.ok is False
    assert operation_signal(signal, "shell", facts).ok is True


def test_a_failed_tool_of_opencode_has_its_error() -> None:
    made = {"output": "", "metadata": {"error": "the server is gone"}}
    call = {"tool": "x_search", "sessionID": "s1", "callID": "c1"}
    facts = read_opencode({"k": "tool.execute.after", "input": call, "output": made})
    assert (facts.ok, facts.error) == (False, "the server is gone")
