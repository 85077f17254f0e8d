"""The output and the exit code of a command, in texts that agents frame and in texts that only look so."""

import pytest

from switchgear._agents.fields import command_output, exit_code
from switchgear._agents.hook_protocol import _result_text

HEADER = "Chunk ID: cb45b7\nWall time: 0.5 seconds\nProcess exited with code 1\nOutput:\n"
LONG = "a line of a log\n" * 400


@pytest.mark.parametrize("printed", ["a\nProcess Group PGID: 5", "Exit code: 0\nmore"])
def test_an_output_cannot_hide_the_header_of_codex(printed: str) -> None:
    assert command_output(HEADER + printed) == (printed, 1)
    assert exit_code(HEADER + printed) == 1


def test_an_output_that_contains_the_end_of_an_envelope_is_kept() -> None:
    text = "ps says:\nProcess Group PGID: 5\nSignal: (none)"
    assert command_output(text) == (text, None)


def test_the_first_line_of_a_long_output_counts_only_as_claude_code_writes_it() -> None:
    assert exit_code(f"Exit code 1\n{LONG}") == 1
    assert exit_code(f"Exit code: 1\n{LONG}") is None
    assert exit_code(f"{LONG}Exit code: 3") == 3


@pytest.mark.parametrize(
    "response",
    [
        {"errors": [], "warnings": 0},
        {"passed": False},
        {"count": 0},
        {"numFiles": 0, "message": "the index is being built, 40 % done"},
    ],
)
def test_a_result_with_zeros_is_not_empty(response: object) -> None:
    assert _result_text(response)


@pytest.mark.parametrize(
    "response",
    [
        {"stdout": "", "stderr": "", "interrupted": False, "isImage": False},
        {"filenames": [], "numFiles": 0, "durationMs": 3},
        {"mode": "content", "filenames": [], "numFiles": 0, "content": "", "numLines": 0},
    ],
)
def test_a_silent_command_and_a_search_without_matches_are_empty(response: object) -> None:
    assert _result_text(response) == ""


def test_an_error_beside_an_empty_content_stays_visible() -> None:
    assert "boom" in (_result_text({"llmContent": "", "error": {"message": "boom"}}) or "")
