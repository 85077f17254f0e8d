"""The live view at a terminal: it redraws itself, leaves no trace, and cannot affect the run."""

import io
import re
import threading
from typing import Any

import click
import pytest
from rich.console import Console

from switchgear._agents.events import TextOutput
from switchgear._breaker.loop_breaker import LoopStats
from switchgear._cli import main
from switchgear._cli.views.run import LiveView, run_view
from switchgear._cli.views.terminal import Screen
from switchgear._cli.views.text import UNICODE
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.options import RunOptions
from switchgear._run.result import RunResult
from switchgear._run.state import RunState
from switchgear._run.view import LineView
from switchgear.testing import FakeClock
from timeouts import LIMIT_S
from unit.run_facts import facts, readings, run

STAMPED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  run 20270115-080000-abcdef: demo on loop/")


class Terminal(io.StringIO):
    """A terminal of our own; `seen` is set as soon as a text was written."""

    encoding = "utf-8"

    def __init__(self, awaited: str = "") -> None:
        super().__init__()
        self.awaited = awaited
        self.seen = threading.Event()

    def write(self, text: str) -> int:
        done = super().write(text)
        if self.awaited and self.awaited in text:
            self.seen.set()
        return done

    def isatty(self) -> bool:
        return True


def screen_on(terminal: io.StringIO, **how: Any) -> Screen:
    screen = Screen.__new__(Screen)
    screen.console = Console(
        file=terminal, force_terminal=True, highlight=False, width=80, height=24, **how
    )
    screen.signs = UNICODE
    return screen


LONG = "the same error 3 times (threshold 5): a long error of words"


def result(**changed: Any) -> RunResult:
    return RunResult(
        run="20270115-080000-abcdef",
        exit_reason=ExitReason.CIRCUIT_BREAKER,
        reason="Circuit breaker tripped",
        evidence=(readings(1.0)[0]["reason"], "a proof of its own", LONG),
        stats=LoopStats(3, 3, 1),
        state=RunState(),
        options=RunOptions("t", agent="demo"),
        circuit="loop/1234abcd",
        report="/somewhere/" + "deep/" * 20 + "report.html",
    )._replace(**changed)


ENTER, LEAVE, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


def test_the_view_is_redrawn_without_events() -> None:
    clock, terminal = FakeClock(), Terminal("4:07")
    view = LiveView(screen_on(terminal), lambda: 0, clock)
    view.started(run(time_left_s=300.0))
    clock.advance(53.0)
    try:
        assert terminal.seen.wait(LIMIT_S), "its own timer draws"
    finally:
        view.close()


def test_the_end_leaves_the_live_screen_and_prints_the_summary_on_the_normal_one() -> None:
    terminal = Terminal("iteration 1 of 30")
    view = LiveView(screen_on(terminal), lambda: 0)
    view.started(run())
    view.iteration_started(1, run())
    assert terminal.seen.wait(LIMIT_S)
    held = run(phase="open", readings=readings(1.0))
    held["readings"].append({"kind": "budget", "heat": 1.0, "reason": LONG})
    view.iteration_ended(facts(), held)
    view.ended(result())
    view.close()
    live, _, normal = terminal.getvalue().rpartition(LEAVE)
    assert live.startswith(ENTER)
    assert ENTER not in normal
    assert terminal.getvalue().count(SHOW_CURSOR) == 1
    assert "circuit_breaker: Circuit breaker tripped" in normal
    assert "a proof of its own" in normal
    assert normal.count(readings(1.0)[0]["reason"]) == 1, "the detector's line says it already"
    assert LONG in normal, "one that does not fit is said in full"
    assert f"report: {result().report}\n" in normal, "a path is not broken, so it can be copied"


def test_a_stopped_terminal_does_not_delay_the_run() -> None:
    released = threading.Event()

    class Stopped(Terminal):
        def write(self, text: str) -> int:
            released.wait(LIMIT_S)
            return super().write(text)

    terminal = Stopped("iteration 2")
    view = LiveView(screen_on(terminal), lambda: 0)
    view.started(run())
    for number in range(1, 50):
        view.iteration_started(number, run())
        view.event(TextOutput("words"))
        view.iteration_ended(facts(number), run())
    assert not released.is_set(), "all of it was told while nothing could be written"
    released.set()
    view.close()


def test_a_view_that_fails_is_reported_at_the_end_and_affects_nothing_else() -> None:
    class Broken(Terminal):
        def write(self, text: str) -> int:
            if threading.current_thread().name == "switchgear-view":
                self.seen.set()
                raise OSError(5, "the terminal is gone")
            return super().write(text)

    terminal = Broken()
    view = LiveView(screen_on(terminal), lambda: 0)
    view.started(run())
    assert terminal.seen.wait(LIMIT_S)
    view.iteration_started(1, run())
    view.ended(result())
    assert "note: the live view failed: OSError" in terminal.getvalue()
    assert "circuit_breaker: Circuit breaker tripped" in terminal.getvalue()


def test_no_color_prints_no_colour() -> None:
    terminal = Terminal("iteration 1 of 30")
    view = LiveView(screen_on(terminal, no_color=True), lambda: 0)
    view.started(run())
    view.iteration_started(1, run())
    assert terminal.seen.wait(LIMIT_S)
    view.ended(result())
    assert "\x1b[31m" not in terminal.getvalue()
    assert "\x1b[1;31m" not in terminal.getvalue()


@pytest.mark.parametrize(("tty", "term"), [(False, "xterm"), (True, "dumb")])
def test_pipes_and_dumb_terminals_get_plain_lines(
    tty: bool, term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if tty else io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("TERM", term)
    with click.Context(main), run_view(as_json=False, stopping=lambda: 0) as view:
        assert isinstance(view, LineView)
        view.started(run())
    assert STAMPED.match(stream.getvalue())
    assert "\x1b" not in stream.getvalue()


def test_with_json_the_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with run_view(as_json=True, stopping=lambda: 0) as view:
        view.started(run())
    said = capsys.readouterr()
    assert said.out == ""
    assert STAMPED.match(said.err)
