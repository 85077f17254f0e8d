"""The pytest plugin, in pytest runs of their own; and the functions behind it."""

import subprocess
import sys
from pathlib import Path

import pytest

from switchgear import CircuitBreaker, Panel, Phase, Policy, Rejected, WindowEnd
from switchgear._stores.base import Amended
from switchgear.detectors import ConsecutiveFailures
from switchgear.errors import StoreUnavailable
from switchgear.testing import FakeClock, FlakyStore, assert_tripped, force_state


def pytest_run(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


def test_the_fixtures_are_there_without_an_import(tmp_path: Path) -> None:
    done = pytest_run(
        tmp_path,
        """
import pytest

def test_opens(switchgear_panel, switchgear_clock, assert_tripped):
    breaker = switchgear_panel.breaker("api")
    for _ in range(5):
        with pytest.raises(OSError), breaker:
            raise OSError("down")
    assert_tripped(breaker, because="5 failures in a row")
    switchgear_clock.advance(61)
    assert breaker.state == "half_open"

def test_forced(switchgear_panel, force_state):
    breaker = switchgear_panel.breaker("api")
    force_state(breaker, "open")
    from switchgear import Rejected
    with pytest.raises(Rejected), breaker:
        pass
""",
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_a_run_that_does_not_use_it_does_not_import_switchgear(tmp_path: Path) -> None:
    done = pytest_run(
        tmp_path,
        "import sys\ndef test_nothing():\n"
        "    assert not [name for name in sys.modules if name.split('.')[0] == 'switchgear']\n",
        "-W",
        "error",
    )
    assert done.returncode == 0, done.stdout


def test_an_open_circuit_waits_and_probes_as_usual() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", clock=clock)
    force_state(breaker, "open", retry_after_s=30.0)
    with pytest.raises(Rejected) as caught, breaker:
        pass
    assert caught.value.retry_after_s == pytest.approx(30.0)
    clock.advance(31.0)
    with breaker:
        pass
    assert breaker.state is Phase.CLOSED


@pytest.mark.parametrize("shared", [False, True])
def test_each_state_can_be_forced(shared: bool) -> None:
    clock = FakeClock(1000.0)
    panel = Panel("memory:", clock=clock)
    breaker = panel.breaker("api") if shared else CircuitBreaker("api", clock=clock)
    force_state(breaker, Phase.HALF_OPEN)
    assert breaker.state == "half_open"
    with pytest.raises(OSError, match="down"), breaker:
        raise OSError("down")
    assert_tripped(breaker)
    force_state(breaker, "closed")
    assert breaker.state == "closed"
    force_state(breaker, "open", retry_after_s=None)
    clock.advance(1e6)
    assert breaker.state == "open"


def test_a_state_that_cannot_be_forced_is_refused() -> None:
    with pytest.raises(ValueError, match="follows from evidence"):
        force_state(CircuitBreaker("api"), "tripping")
    with pytest.raises(ValueError, match="not a valid Phase"):
        force_state(CircuitBreaker("api"), "ajar")
    policy = Policy([ConsecutiveFailures(3)], WindowEnd(60.0))
    with pytest.raises(ValueError, match="without probes"):
        force_state(CircuitBreaker("api", policy=policy), "half_open")


def test_an_assertion_that_fails_reports_the_state_of_the_circuit() -> None:
    breaker = CircuitBreaker("api")
    with pytest.raises(AssertionError, match="circuit 'api' is closed, not open: 0 failures"):
        assert_tripped(breaker)
    force_state(breaker, "open", reason="5 failures in a row")
    with pytest.raises(AssertionError, match="not because of 'budget'"):
        assert_tripped(breaker, because="budget")


def test_a_store_that_is_cut_off_fails_at_every_operation_and_works_again() -> None:
    store = FlakyStore(clock=FakeClock(1000.0))
    ledger = store.ledger()
    ledger.amend("shelf", "key", lambda value, now_s: Amended(None, [now_s]))
    store.cut()
    for operation in (
        lambda: store.get("api"),
        lambda: store.find("*"),
        store.events,
        store.facts,
        lambda: store.forget("api"),
        lambda: store.vacuum(keep_events=1, idle_s=1.0, now_s=1000.0),
        store.operator_digest,
        lambda: store.set_operator_digest(None, instead_of=None),
        lambda: ledger.value("shelf", "key"),
        lambda: store.ledger().keys("shelf"),
    ):
        with pytest.raises(StoreUnavailable, match="it was cut off"):
            operation()
    assert store.tries == 10
    assert ledger.now_s() == 1000.0, "the time continues"
    store.mend()
    assert ledger.value("shelf", "key") == [1000.0]
    assert store.find("*") == []


def test_a_store_that_returns_empty_has_no_budgets_for_a_panel_that_used_them() -> None:
    store = FlakyStore()
    budgets = Panel(store).budgets
    budgets.open("atlas", limit="$5")
    store.cut()
    store.mend(empty=True)
    assert budgets.roots() == []
