"""Texts of agents never control the terminal; times, money and heat are readable."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from switchgear._cli.options import Fail
from switchgear._cli.views.terminal import fitted, wrapped
from switchgear._cli.views.text import (
    ASCII,
    UNICODE,
    bar,
    clean,
    clock_time,
    say_lines,
    signs_for,
)
from switchgear._text.formats import dollars, percent


@given(st.text())
def test_shown_texts_contain_no_control_characters(text: str) -> None:
    assert clean(text).isprintable()


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("two\nlines", "two\\nlines"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\udc80", "\\udc80"),
        ("[red]x[/red]", "[red]x[/red]"),
    ],
)
def test_characters_that_are_not_printable_are_shown_as_escapes(hostile: str, shown: str) -> None:
    assert clean(hostile) == shown


@given(st.text(min_size=0, max_size=60), st.integers(5, 40))
def test_a_fitted_text_takes_exactly_its_columns(text: str, width: int) -> None:
    assert cell_len(fitted(clean(text), width, UNICODE)) == width


def test_a_long_name_is_shortened_in_the_middle_because_the_ends_distinguish_names() -> None:
    assert fitted("provider/anthropic/claude", 13, UNICODE) == "provid…claude"


@given(st.text(alphabet="ab 日", max_size=200), st.integers(20, 60), st.integers(0, 15))
def test_wrapped_lines_fit_and_lose_no_letter(text: str, width: int, indent: int) -> None:
    lines = wrapped(Text(text), width, indent)
    assert all(cell_len(line.plain) <= width for line in lines)
    assert "".join(line.plain for line in lines).replace(" ", "") == text.replace(" ", "")


def test_a_pipe_of_unknown_width_wraps_nothing() -> None:
    assert [line.plain for line in wrapped(Text("word " * 100), None, 4)] == ["word " * 100]


def test_only_symbols_of_the_encoding_are_used() -> None:
    assert signs_for(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) is UNICODE
    assert signs_for(io.TextIOWrapper(io.BytesIO(), encoding="ascii")) is ASCII
    assert signs_for(io.TextIOWrapper(io.BytesIO(), encoding="latin-1")) is ASCII
    assert "".join(ASCII).isascii()


def test_a_bar_is_full_only_at_a_trip_and_empty_only_at_0() -> None:
    assert bar(0.0, 8, ASCII) == "........"
    assert bar(0.001, 8, ASCII) == "#......."
    assert bar(0.999, 8, ASCII) == "#######."
    assert bar(1.0, 8, ASCII) == "########"
    assert bar(7.5, 8, ASCII) == "########"


def test_heat_is_never_rounded_up_to_a_trip() -> None:
    assert percent(0.999) == "99%"
    assert percent(1.0) == "100%"
    assert percent(0.29) == "29%"
    assert percent(float("inf")) == percent(1.7) == "100%"


def test_money_keeps_its_last_digit() -> None:
    assert dollars(0) == "$0.00"
    assert dollars(1) == "$0.000001"
    assert dollars(12_500) == "$0.0125"
    assert dollars(1_234_500_000) == "$1,234.50"


def test_times_beyond_the_calendar_do_not_stop_the_page() -> None:
    assert clock_time(9e15, 0.0) == "second 9000000000000000"


@pytest.mark.parametrize("width", range(12, 40))
def test_a_number_and_its_unit_stay_in_one_line(width: int) -> None:
    text = Text("5 failures in a row; next try in 60 s, at the latest in 5 min or 2 h")
    lines = [line.plain for line in wrapped(text, width, 2)]
    assert all(any(whole in line for line in lines) for whole in ("60 s,", "5 min", "2 h"))


class Tty(io.StringIO):
    """A stream that looks like a terminal."""

    def isatty(self) -> bool:
        return True


def test_messages_are_wrapped_between_words_only_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "the circuit is open and a reason\n- a way out that is rather long"
    monkeypatch.setenv("COLUMNS", "20")
    terminal, pipe = Tty(), io.StringIO()
    monkeypatch.setattr("sys.stderr", terminal)
    say_lines(text)
    shown = terminal.getvalue().splitlines()
    assert max(map(len, shown)) <= 20
    assert " ".join(line.strip() for line in shown) == text.replace("\n", " ")
    monkeypatch.setattr("sys.stderr", pipe)
    say_lines(text)
    assert pipe.getvalue() == f"{text}\n"


def test_a_text_that_is_too_long_is_cut_after_a_word() -> None:
    assert clean("alpha beta gamma delta", 16) == "alpha beta..."
    assert clean("x" * 40, 10) == "x" * 7 + "..."
    assert clean("short", 5) == "short"


def test_the_lines_of_a_message_that_say_what_to_do_have_no_prefix(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Fail("it cannot be done\n- do this\n- or that").show()
    assert capsys.readouterr().err == "switchgear: it cannot be done\n- do this\n- or that\n"
