"""The command at a terminal: live screens, keys, prompts, colour, and a terminal left as it was."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

LIMIT_S = 30.0
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]")
"""An escape that sets the colour of letters."""


class Terminal:
    """A terminal of our own and the command in it."""

    def __init__(self, home: Path, *args: str, columns: int = 80, **env: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._theirs = theirs
        self.before = termios.tcgetattr(theirs)
        self.output = ""
        kept = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "switchgear", *args],
            cwd=home,
            env={**kept, "LANG": "C.UTF-8", "PYTHONUTF8": "1", **env},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )

    def read_until(self, text: str) -> None:
        """Wait for a text on the screen."""
        end_s = time.monotonic() + LIMIT_S
        while text not in self.output:
            assert time.monotonic() < end_s, f"{text!r} is not in {self.output!r}"
            self._read()

    def write(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait(self) -> int:
        """The exit code; what is printed meanwhile is read, or the command could not end."""
        end_s = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < end_s, self.output
            self._read()
        self._read()
        return self.process.returncode

    def interrupt(self) -> None:
        """What Ctrl-C does; again if it came just before the command began to read a key."""
        for _ in range(5):
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=2)
                return

    @property
    def after(self) -> Any:
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def _read(self) -> None:
        ready, _, _ = select.select([self._ours], [], [], 0.1)
        if ready:
            self.output += os.read(self._ours, 65536).decode(errors="replace")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("op/git", "provider/anthropic"):
        subprocess.run(
            [sys.executable, "-m", "switchgear", "record", name, "failure", "--count", "5"],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            check=True,
            capture_output=True,
        )
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
    terminal.write("q")
    assert terminal.wait() == 0
    assert "\x1b[?1049h" in terminal.output, "the alternate screen is entered"
    assert terminal.output.rindex("\x1b[?1049l") > terminal.output.rindex("\x1b[?1049h")
    assert terminal.after == terminal.before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_ends_watching_and_leaves_the_terminal_as_it_was(
    home: Path, terminals: list[Terminal], number: signal.Signals, code: int
) -> None:
    terminal = Terminal(home, "watch", "--interval", "0.1")
    terminals.append(terminal)
    terminal.read_until("q ends")
    terminal.process.send_signal(number)
    assert terminal.wait() == code
    assert "\x1b[?1049l" in terminal.output
    assert terminal.after == terminal.before
    assert "Traceback" not in terminal.output


def test_an_order_without_a_reason_asks_for_it(home: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(home, "hold", "open", "op/git")
    terminals.append(terminal)
    terminal.read_until("Why:")
    terminal.write("provider maintenance\n")
    assert terminal.wait() == 0
    assert "held open by " in terminal.output
    assert "provider maintenance" in terminal.output


def test_ctrl_c_at_a_question_gives_no_order(home: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(home, "hold", "open", "op/git")
    terminals.append(terminal)
    terminal.read_until("Why:")
    terminal.interrupt()
    assert terminal.wait() == 130
    assert "Traceback" not in terminal.output


def test_several_circuits_are_listed_and_a_no_changes_none(
    home: Path, terminals: list[Terminal]
) -> None:
    terminal = Terminal(home, "hold", "closed", "*", "--why", "x")
    terminals.append(terminal)
    terminal.read_until("Give the order to 2 circuits?")
    assert "op/git" in terminal.output
    terminal.write("n\n")
    assert terminal.wait() == 2
    assert "no order was given" in terminal.output


def test_colour_is_there_at_a_terminal_unless_it_is_not_wanted(
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
    terminal = Terminal(home, "status", columns=40, NO_COLOR="1", TERM="dumb")
    terminals.append(terminal)
    assert terminal.wait() == 0
    lines = terminal.output.splitlines()
    assert "op/git" in lines
    assert all(len(line) <= 40 for line in lines)
