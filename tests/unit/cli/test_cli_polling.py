"""Verbs that poll: they create no store, find a new one, and survive its loss."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from switchgear._cli import main, status
from switchgear._cli.views import circuits
from switchgear._core.errors import StoreUnavailable
from switchgear._core.types import Signal
from switchgear._panel.panel import Panel
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock


def run(*args: str, panel: Panel | None = None) -> Result:
    # Workers of a parallel test run are told a width of their own.
    return CliRunner().invoke(main, args, obj=panel, env={"COLUMNS": ""})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    for variable in ("SWITCHGEAR_STORE", "SWITCHGEAR_CONFIG", "SWITCHGEAR_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def between_looks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run these functions between two polls, one after the other; then press Ctrl-C."""

    def happens(*what: Callable[[], object]) -> None:
        left = list(what)

        def sleep(_: float) -> None:
            if not left:
                raise KeyboardInterrupt
            left.pop(0)()

        for room in (status, circuits):
            monkeypatch.setattr(room.time, "sleep", sleep)

    return happens


@pytest.mark.parametrize("verb", [("watch",), ("events", "--follow")], ids=" ".join)
def test_polling_creates_no_store_and_finds_one_that_appears(
    project: Path, between_looks: Callable[..., None], verb: tuple[str, ...]
) -> None:
    there: list[bool] = []
    between_looks(
        lambda: there.append((project / ".switchgear").exists()),
        lambda: run("record", "api", "failure", "--count", "5"),
    )
    told = run(*verb)
    assert there == [False]
    assert "api" in told.stdout


@pytest.mark.parametrize("target", ["api", "a*"])
@pytest.mark.parametrize("verb", [("hold", "open"), ("release",), ("reset",)], ids=" ".join)
def test_an_override_of_no_circuit_creates_no_store(
    project: Path, verb: tuple[str, ...], target: str
) -> None:
    refused = run(*verb, target, "--why", "x")
    assert refused.exit_code == 2
    assert not (project / ".switchgear").exists()
    assert run("hold", "open", "api", "--create", "--why", "x").exit_code == 0
    assert run(*verb, target, "--why", "x").exit_code == 0


@pytest.mark.parametrize("verb", [("watch",), ("events", "--follow")], ids=" ".join)
def test_watch_reports_a_lost_store_once_and_waits_for_it(
    between_looks: Callable[..., None], monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    clock = FakeClock()
    panel = Panel("memory:", clock=clock)
    panel.breaker("before").record(Signal(ok=False, count=5))

    whole = panel.store.inner
    broken = MemoryStore()

    def gone(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("redis://db", "connection refused", "check that it runs")

    for method in ("find", "events"):
        monkeypatch.setattr(broken, method, gone)

    def go() -> None:
        panel.store.inner = broken

    def come_back() -> None:
        panel.store.inner = whole
        clock.advance(2)  # it is tried again after a second
        panel.breaker("after").record(Signal(ok=False, count=5))

    between_looks(go, lambda: None, come_back)
    told = run(*verb, panel=panel)
    assert told.stderr.count("store redis://db cannot be reached: connection refused") == 1
    lines = [line for line in told.stdout.splitlines() if line]
    assert len(lines) == 2
    assert "before" in lines[0]
    assert "after" in lines[1]
