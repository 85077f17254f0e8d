"""Keys become lines: what a shell reads after corrections, completions and keys that move."""

import pytest

from switchgear._hooks.shell_input import LONGEST_INPUT, Typed, typed

MOVING = "a line with cursor keys cannot be checked; send it without them"


@pytest.mark.parametrize(
    ("before", "keys", "text"),
    [
        ("", "ls", "ls"),
        ("", "ls\r", "ls\n"),
        ("r", "m x\n", "rm x\n"),
        ("cd src\nr", "m x\nls", "cd src\nrm x\nls"),
        ("", "ab\x7f\x08c", "c"),
        ("", "abc\x7fd", "abd"),
        ("", "abc\x08d", "abd"),
        ("x\n", "\x7fy", "x\ny"),
        ("x\ny", "\x15z", "x\nz"),
        ("x\ny", "\x03z", "x\nz"),
        ("", "a bc\x17d", "a d"),
        ("", "a bc  \x17d", "a d"),
        ("", "abc\x17d", "d"),
        ("", "\x17d", "d"),
        ("x\n", " \x17d", "x\nd"),
        ("", "cat a\t\n", "cat a*\n"),
        ("", "cat \tb", "cat \tb"),
        ("", "\tprint(1)\n", "\tprint(1)\n"),
        ("", "a\x04\x07\x0c\x11\x13\x1a\x1cb\n", "ab\n"),
        ("", "\x1b[A\n", "\n"),
        ("", "\x1b[1;5C\x1bOP\x01\n", "\n"),
        ("", "\x1b[3~\x03ls\n", "ls\n"),
        ("", "\x1b[1;5C\x03ls\n", "ls\n"),
        ("", "\x1b[@\x03ls\n", "ls\n"),
        ("", "ihello\x1b:wq\n", "ihello:wq\n"),
        ("", "é ü\n", "é ü\n"),
    ],
)
def test_keys_are_lines_with_the_editing_applied(before: str, keys: str, text: str) -> None:
    assert typed(before, keys) == Typed(text, "")


@pytest.mark.parametrize(
    "keys", ["m\x01r\n", "a\x1b[Db\n", "\x1b[Ax\n", "\x1bbx\n", "x\x1b\n", "a\x00\n", "\x1bOAx\n"]
)
def test_a_line_with_cursor_keys_and_text_is_unreadable(keys: str) -> None:
    assert typed("", keys).unread == MOVING
    assert typed("ls\n", f"{keys}ls\n").unread == MOVING


def test_an_unfinished_line_is_kept() -> None:
    half = typed("", "ab\x1b[D")
    assert half.unread == ""
    assert typed(half.text, "c\n").unread == MOVING
    assert typed(half.text, "\x03ls\n") == Typed("ls\n")


def test_a_sequence_that_is_cut_off_is_a_key() -> None:
    assert typed("", "\x1b[").unread == ""
    assert typed("", "\x1b[\n").text == typed("", "\x1b[").text


def test_the_length_is_bounded() -> None:
    assert typed("", "x" * LONGEST_INPUT).unread == ""
    assert typed("x", "x" * LONGEST_INPUT).unread.endswith("characters; start a new one")
