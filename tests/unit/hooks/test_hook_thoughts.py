"""The text of Gemini CLI and Qwen Code before a call is read from their real transcripts."""

from pathlib import Path
from typing import Any

import pytest

from switchgear._agents.fields import MAX_THOUGHT_CHARS
from switchgear._agents.registry import dialect_of

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
THOUGHT = "The parser rejects the header, so I read how it is parsed."
FIRST, SECOND = "I look at the parser first.", "Now the same from another side."
QWEN_CALLS = ("call_53714787bb28430e9db9", "call_87b72767dea745d3ae0b")


def thought_of(agent: str, transcript: Path, call: str = "") -> str | None:
    event = "AfterTool" if agent == "gemini" else "PostToolUse"
    data: dict[str, Any] = {
        "session_id": "s1",
        "cwd": "/",
        "hook_event_name": event,
        "transcript_path": str(transcript),
        "tool_name": "run_shell_command",
        "tool_input": {"command": "echo hello"},
        "tool_response": {"llmContent": "hello"},
        "tool_use_id": call,
    }
    return dialect_of(agent).read(data).thought


def until(agent: str, words: str, folder: Path) -> Path:
    """The transcript as it was when these words had just been written."""
    lines = (TRANSCRIPTS / f"{agent}.jsonl").read_text().splitlines(keepends=True)
    last = next(number for number, line in enumerate(lines) if words in line)
    path = folder / "so-far.jsonl"
    path.write_text("".join(lines[: last + 1]))
    return path


@pytest.mark.parametrize("words", [FIRST, SECOND])
def test_gemini_has_a_thought_and_a_text_before_each_call(words: str, tmp_path: Path) -> None:
    assert thought_of("gemini", until("gemini", words, tmp_path)) == f"{THOUGHT}\n{words}"


def test_geminis_subject_is_the_thought_if_there_is_no_description(tmp_path: Path) -> None:
    path = until("gemini", FIRST, tmp_path)
    path.write_text(path.read_text().replace(THOUGHT, ""))
    assert thought_of("gemini", path) == f"Looking at the header\n{FIRST}"


def test_a_call_of_gemini_without_text_has_no_thought_of_an_earlier_answer(
    tmp_path: Path,
) -> None:
    path = until("gemini", SECOND, tmp_path)
    with path.open("a") as file:
        file.write('{"type": "gemini", "content": "", "thoughts": []}\n')
    assert thought_of("gemini", path) is None


@pytest.mark.parametrize(("call", "words"), [*zip(QWEN_CALLS, (FIRST, SECOND), strict=True)])
def test_qwens_thoughts_are_those_of_the_answer_with_the_call(call: str, words: str) -> None:
    said = thought_of("qwen", TRANSCRIPTS / "qwen.jsonl", call)
    assert said == f"**Looking at the header**\n{THOUGHT}\n{words}"


def test_a_call_of_qwen_without_text_has_no_thought_of_an_earlier_answer(
    tmp_path: Path,
) -> None:
    path = tmp_path / "silent.jsonl"
    text = (TRANSCRIPTS / "qwen.jsonl").read_text()
    spoken = '{"text":"**Looking at the header**\\n' + THOUGHT + '","thought":true},'
    path.write_text(text.replace(spoken, "").replace(f'{{"text":"{SECOND}"}},', ""))
    assert thought_of("qwen", path, QWEN_CALLS[0]) == FIRST
    assert thought_of("qwen", path, QWEN_CALLS[1]) is None


def test_a_call_that_is_not_in_the_transcript_has_no_known_thought() -> None:
    assert thought_of("qwen", TRANSCRIPTS / "qwen.jsonl", "call_of_another_session") is None
    assert thought_of("qwen", TRANSCRIPTS / "qwen.jsonl") is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"gemini","content":',
        b'{"type":"gemini","content":7,"thoughts":"x"}',
        b'{"type":"gemini","thoughts":[1,null,{"description":[]}]}',
        b'["x", {"type":"gemini"}]',
        b'{"type":"gemini","content":"\xff\xfe  "',
    ],
)
def test_missing_thoughts_of_gemini_are_unknown(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(line + b"\n")
    assert thought_of("gemini", path) is None
    assert thought_of("gemini", tmp_path) is None


def test_a_long_thought_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text('{"type": "gemini", "content": "' + "so " * MAX_THOUGHT_CHARS + '"}\n')
    assert len(thought_of("gemini", path) or "") == MAX_THOUGHT_CHARS
