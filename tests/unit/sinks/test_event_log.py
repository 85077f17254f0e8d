"""State changes are logged without any configuration."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from switchgear import CircuitBreaker, Panel, Signal
from switchgear._sinks import Log
from switchgear._sinks.log import silenced
from switchgear.testing import FakeClock, FlakyStore
from timeouts import LIMIT_S


def lived(breaker: CircuitBreaker, clock: FakeClock) -> None:
    breaker.record(Signal(ok=False, error="down"))
    clock.advance(60.0)
    breaker.call(int)
    breaker.hold_open(by="ada", why="deploy")


def test_a_trip_is_a_warning_and_the_rest_is_information(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "switchgear")
    clock = FakeClock()
    lived(CircuitBreaker("api", threshold=1, clock=clock), clock)
    assert [(each.name, each.levelname, each.getMessage()) for each in caplog.records] == [
        (
            "switchgear",
            "WARNING",
            "circuit 'api' is open: 1 failure in a row (threshold 1); retries in 60 s",
        ),
        ("switchgear", "INFO", "circuit 'api' is half-open: waited 60 s"),
        ("switchgear", "INFO", "circuit 'api' is closed: probe succeeded"),
        ("switchgear", "INFO", "circuit 'api': held open by ada: deploy"),
    ]


def test_a_panel_logs_too_and_other_sinks_change_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Panel("memory:", sinks=[lambda _: None]) as panel:
        panel.breaker("api").record(Signal(ok=False, count=5))
    assert [each.levelname for each in caplog.records] == ["WARNING"]


def test_the_sink_log_replaces_the_default_log(caplog: pytest.LogCaptureFixture) -> None:
    breaker = CircuitBreaker("api", threshold=1, sinks=[Log("error")])
    breaker.record(Signal(ok=False))
    assert [each.name for each in caplog.records] == ["switchgear.events"]


def test_inside_a_command_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with silenced(), silenced():
        CircuitBreaker("api", threshold=1).record(Signal(ok=False))
    assert not caplog.records
    CircuitBreaker("api", threshold=1).record(Signal(ok=False))
    assert len(caplog.records) == 1


def test_a_handler_that_raises_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            raise SystemExit

    monkeypatch.setattr(logging.getLogger("switchgear"), "handlers", [Broken()])
    breaker = CircuitBreaker("api", threshold=1)
    breaker.record(Signal(ok=False))
    assert breaker.state == "open"


def test_control_sequences_are_escaped(caplog: pytest.LogCaptureFixture) -> None:
    CircuitBreaker("a\x1b[31m\nb", threshold=1).record(Signal(ok=False))
    assert caplog.records[0].getMessage().isprintable()


PROGRAM = """
import sys
from switchgear import CircuitBreaker
assert "logging" not in sys.modules
breaker = CircuitBreaker("api", threshold=1)
breaker.call(len, "abc")
assert "logging" not in sys.modules
def down():
    raise ConnectionError("down")
try:
    breaker.call(down)
except ConnectionError:
    pass
"""


def test_a_program_without_logging_set_up_shows_a_trip_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    assert done.stderr.splitlines() == [
        "circuit 'api' is open: 1 failure in a row (threshold 1); retries in 60 s"
    ]


def test_a_command_prints_a_trip_once(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/state.db"
    args = ["record", "api", "failure", "--count", "5", "--store", store]
    done = subprocess.run(
        [sys.executable, "-m", "switchgear", *args],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    assert "closed → open: 5 failures in a row" in done.stdout
    assert not done.stderr


def test_a_lost_store_is_logged_as_a_remark_and_not_as_an_override(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FlakyStore()
    with Panel(store) as panel:
        breaker = panel.breaker("api")
        breaker.record(Signal(ok=True))
        store.cut()
        breaker.record(Signal(ok=False))
    said = [each.getMessage() for each in caplog.records if "store lost" in each.getMessage()]
    assert len(said) == 1
    assert said[0].endswith("; continues from the last known state")
