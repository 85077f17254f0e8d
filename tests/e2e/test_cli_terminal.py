"""The command at a terminal: live screens, keys, prompts, colour, and a terminal left as it was."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import quick_command
from e2e.terminal import ENTER, LEAVE, LIMIT_S, Terminal

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]")
"""An escape that sets the colour of letters."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("op/git", "provider/anthropic"):
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        words = ("record", name, "failure", "--count", "5")
        assert quick_command.run(*words, cwd=tmp_path, env=env).returncode == 0
    return tmp_path


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_watching_ends_with_q_and_leaves_the_terminal_as_it_was(
    home: Path, terminals: list[Terminal]
) -> None:
    terminal = Terminal(home, "watch", "--interval", "0.1")
    terminals.append(terminal)
    terminal.read_until("provider/anthropic")
    terminal.read_until("Newest events")
    terminal.type("q")
    assert terminal.wait() == 0
    assert ENTER in terminal.output, "the alternate screen is entered"
    assert terminal.output.rindex(LEAVE) > terminal.output.rindex(ENTER)
    assert terminal.after == terminal.before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_ends_watching_and_leaves_the_terminal_as_it_was(
    home: Path, terminals: list[Terminal], number: signal.Signals, code: int
) -> None:
    terminal = Terminal(home, "watch", "--interval", "0.1")
    terminals.append(terminal)
    terminal.read_until("q: quit")
    terminal.process.send_signal(number)
    assert terminal.wait() == code
    assert LEAVE in terminal.output
    assert terminal.after == terminal.before
    assert "Traceback" not in terminal.output


def test_watching_ends_when_its_terminal_closes(home: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(home, "watch", "--interval", "0.1")
    terminals.append(terminal)
    terminal.read_until("q: quit")
    terminal.hang_up()
    terminal.process.wait(LIMIT_S)


def test_watching_shows_what_needs_attention_first_with_what_to_do(
    home: Path, terminals: list[Terminal]
) -> None:
    terminal = Terminal(home, "watch", "--interval", "0.1")
    terminals.append(terminal)
    terminal.read_until("Needs attention (2)")
    terminal.read_until("(circuit): 5 failures in a row")
    terminal.read_until("switchgear probe 'op/git'")
    terminal.read_until("q: quit")
    terminal.type("q")
    assert terminal.wait() == 0


def test_an_override_without_a_reason_prompts_for_it(home: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(home, "hold", "open", "op/git")
    terminals.append(terminal)
    terminal.read_until("Why:")
    terminal.type("provider maintenance\n")
    assert terminal.wait() == 0
    assert "held open by " in terminal.output
    assert "provider maintenance" in terminal.output


def test_ctrl_c_at_a_prompt_sends_no_override(home: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(home, "hold", "open", "op/git")
    terminals.append(terminal)
    terminal.read_until("Why:")
    terminal.interrupt()
    assert terminal.wait() == 130
    assert "Traceback" not in terminal.output


def test_several_matching_circuits_are_listed_and_no_changes_none(
    home: Path, terminals: list[Terminal]
) -> None:
    terminal = Terminal(home, "hold", "closed", "*", "--why", "x")
    terminals.append(terminal)
    terminal.read_until("Change 2 circuits?")
    assert "op/git" in terminal.output
    terminal.type("n\n")
    assert terminal.wait() == 2
    assert "nothing was changed" in terminal.output


def test_a_terminal_gets_colour_unless_it_is_switched_off(
    home: Path, terminals: list[Terminal]
) -> None:
    coloured = Terminal(home, "status")
    plain = Terminal(home, "status", NO_COLOR="1")
    also_plain = Terminal(home, "status", "--no-color")
    terminals += [coloured, plain, also_plain]
    assert [terminal.wait() for terminal in terminals] == [0, 0, 0]
    assert [bool(COLOUR.search(terminal.output)) for terminal in terminals] == [True, False, False]
    assert "provider/anthropic" in plain.output


def test_a_narrow_terminal_gets_narrow_lines(home: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(home, "status", size=(24, 40), NO_COLOR="1", TERM="dumb")
    terminals.append(terminal)
    assert terminal.wait() == 0
    lines = terminal.output.splitlines()
    assert "op/git" in lines
    assert all(len(line) <= 40 for line in lines)
