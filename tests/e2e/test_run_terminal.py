"""`switchgear run` at a real terminal: the live screen, its size, Ctrl-C, and what is left."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.terminal import ENTER, LEAVE, Terminal


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    terminals: list[Terminal] = []

    def start(*args: str, size: tuple[int, int] = (24, 80), **env: str) -> Terminal:
        terminals.append(Terminal(tmp_path, *args, size=size, **env))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


def test_a_run_is_drawn_live_and_its_summary_stays_on_the_screen(
    opened: Callable[..., Terminal],
) -> None:
    terminal = opened("run", "--agent", "demo:same-error")
    terminal.read_until("iteration 2")
    assert terminal.wait() == 10
    assert terminal.output.startswith(ENTER)
    assert terminal.output.count(ENTER) == terminal.output.count(LEAVE) == 1
    assert terminal.left_clean()
    assert "circuit_breaker: Circuit breaker tripped" in terminal.normal
    report = re.search(r"report: (\S+)", terminal.normal)
    assert report is not None
    assert Path(report[1]).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_screen_follows_the_size_of_the_terminal(opened: Callable[..., Terminal]) -> None:
    terminal = opened("run", "--agent", "demo:hangs", size=(30, 100))
    terminal.read_until("Ctrl-C: stop gracefully; Ctrl-C again: stop now; the work is kept")
    start = len(terminal.output)
    terminal.resize(20, 40)
    terminal.read_until("Ctrl-C: stop gracefully\x1b[0m   ", start)
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.wait() == 130


def test_control_c_is_answered_at_once_and_leaves_a_summary(
    opened: Callable[..., Terminal],
) -> None:
    terminal = opened("run", "--agent", "demo:hangs")
    terminal.read_until("waiting for the language server")
    os.kill(terminal.process.pid, signal.SIGINT)
    assert terminal.wait() == 130
    assert terminal.left_clean()
    assert "interrupted: " in terminal.normal
    assert re.search(r"continue: \S*(switchgear|python\S* -m switchgear) resume", terminal.normal)


def test_without_colour_there_is_none_and_a_dumb_terminal_gets_plain_lines(
    opened: Callable[..., Terminal],
) -> None:
    plain = opened("run", "--agent", "demo:same-error", NO_COLOR="1")
    dumb = opened("run", "--agent", "demo:same-error", TERM="dumb")
    assert plain.wait() == dumb.wait() == 10
    assert ENTER in plain.output
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain.output)
    assert "\x1b" not in dumb.output
    assert "iteration 1 of 30" in dumb.output
