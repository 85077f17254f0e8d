"""Overrides with an end, and "probe now"."""

import json
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchgear import (
    CircuitBreaker,
    Cooldown,
    Event,
    Latched,
    Mode,
    Panel,
    Policy,
    Rejected,
    Signal,
    WindowEnd,
    detectors,
)
from switchgear._cli import main
from switchgear._core.errors import OverrideRefused
from switchgear._core.types import EventKind, Override
from switchgear._core.wire import WireError, dump_circuit, dump_message, load_circuit, load_message
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock

HOLDS = [CircuitBreaker.hold_open, CircuitBreaker.hold_closed, CircuitBreaker.shadow]


@pytest.mark.parametrize("hold", HOLDS)
def test_a_hold_ends_at_its_time_with_an_event(hold: Callable[..., None]) -> None:
    clock, seen = FakeClock(), list[Event]()
    breaker = CircuitBreaker("api", clock=clock, sinks=[seen.append])
    hold(breaker, by="ada", why="deploy", for_s=7200.0)
    clock.advance(7199.9)
    assert breaker.mode != "auto"
    clock.advance(0.1)
    assert breaker.mode == "auto"
    assert [event.kind for event in seen] == ["ordered", "hold_ended"]
    assert seen[0].reason.endswith("for 2 h")
    assert (seen[1].by, seen[1].why, seen[1].mode) == ("ada", "deploy", "auto")


def test_calls_are_refused_until_the_end_and_admitted_after_it_without_a_message() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", clock=clock)
    breaker.hold_open(by="ada", why="deploy", for_s=100.0)
    with pytest.raises(Rejected) as refused:
        breaker.call(len, "abc")
    assert refused.value.retry_after_s == 100.0
    assert str(refused.value) == (
        "circuit 'api' is held open by ada: deploy; the hold ends in 100 s"
    )
    clock.advance(99.0)
    with pytest.raises(Rejected):
        breaker.call(len, "abc")
    clock.advance(1.0)
    assert breaker.call(len, "abc") == 3


def test_after_the_end_the_evidence_decides() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, base_timeout=300.0, clock=clock)
    breaker.hold_closed(by="ada", why="demo", for_s=60.0)
    breaker.record(Signal(ok=False))
    assert breaker.call(len, "abc") == 3
    clock.advance(60.0)
    with pytest.raises(Rejected, match="1 failure in a row"):
        breaker.call(len, "abc")


def test_a_new_override_replaces_the_end() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", clock=clock)
    breaker.hold_open(by="ada", why="deploy", for_s=10.0)
    breaker.hold_open(by="bob", why="longer")
    clock.advance(1e6)
    assert breaker.mode == "held_open"
    breaker.hold_open(by="bob", why="short", for_s=10.0)
    breaker.release(by="bob", why="done")
    clock.advance(10.0)
    assert breaker.mode == "auto"
    assert breaker.snapshot().event_seq == 4, "what was released does not end again"


def test_a_reset_leaves_the_end_of_a_hold() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", clock=clock)
    breaker.hold_open(by="ada", why="deploy", for_s=10.0)
    breaker.reset(by="ada", why="new key")
    assert breaker.mode == "held_open"
    clock.advance(10.0)
    assert breaker.mode == "auto"


@pytest.mark.parametrize("for_s", [0, -1, float("nan"), float("inf"), "2h", True])
def test_an_invalid_time_is_refused(for_s: Any) -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    with pytest.raises(ValueError, match="for_s is"):
        breaker.hold_open(by="ada", why="x", for_s=for_s)
    with pytest.raises(ValueError, match="until_s"):
        breaker.send(Override("ada", "x", Mode.HELD_OPEN, until_s=float("nan")))


def test_the_end_of_a_hold_is_stored_and_overrides_without_one_load() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", clock=clock)
    breaker.hold_open(by="ada", why="deploy", for_s=10.0)
    data = dump_circuit(breaker.policy, breaker.snapshot())
    assert load_circuit(breaker.policy, json.loads(json.dumps(data))) == breaker.snapshot()
    data["order"] = data["order"][:4]
    assert load_circuit(breaker.policy, data).order == Override("ada", "deploy", Mode.HELD_OPEN)
    data["order"] = [*data["order"], 1.0, 2.0]
    with pytest.raises(WireError, match="order has 6 fields"):
        load_circuit(breaker.policy, data)


def test_messages_are_passed_on_with_all_their_fields() -> None:
    order = Override("ada", "x", Mode.SHADOW, until_s=12.5, probe=True)
    assert load_message(json.loads(json.dumps(dump_message(order)))) == order
    assert load_message(["order", ["ada", "x", None, True, "ordered"]]) == Override(
        "ada", "x", reset=True
    )


def test_the_end_of_a_hold_of_a_panel_uses_the_clock_of_the_store() -> None:
    clock = FakeClock(1e9)
    panel = Panel(MemoryStore(clock=clock), clock=clock)
    panel.order("api", by="ada", why="deploy", mode=Mode.HELD_OPEN, for_s=10.0)
    view = panel.view("api")
    assert view is not None
    assert view.hold_left_s == 10.0
    clock.advance(4.0)
    view = panel.view("api")
    assert view is not None
    assert view.hold_left_s == 6.0
    clock.advance(6.0)
    view = panel.view("api")
    assert view is not None
    assert (view.circuit.mode, view.hold_left_s) == ("auto", None)


# Probe now


def test_an_open_circuit_probes_at_once() -> None:
    clock, seen = FakeClock(), list[Event]()
    breaker = CircuitBreaker("api", threshold=1, clock=clock, sinks=[seen.append])
    breaker.record(Signal(ok=False))
    breaker.probe_now(by="ada", why="they say it is back")
    assert breaker.state == "half_open"
    assert breaker.call(len, "abc") == 3
    assert breaker.state == "closed"
    assert [(event.kind, event.reason) for event in seen[1:3]] == [
        (EventKind.ORDERED, "probe"),
        (EventKind.MOVED, "probe requested by ada"),
    ]


def test_a_requested_probe_that_fails_doubles_the_wait_as_usual() -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    breaker.record(Signal(ok=False))
    breaker.probe_now(by="ada", why="try")
    breaker.record(Signal(ok=False), breaker.enter())
    assert breaker.snapshot().outage.cooldown_s == 120.0


def test_a_circuit_that_is_not_open_stays_as_it_is() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    breaker.probe_now(by="ada", why="try")
    assert breaker.state == "closed"


@pytest.mark.parametrize("recovery", [Latched(), WindowEnd(3600.0)])
def test_a_circuit_without_probes_refuses_a_requested_probe(recovery: Any) -> None:
    policy = Policy([detectors.ConsecutiveFailures(1)], recovery)
    breaker = CircuitBreaker("api", policy=policy, clock=FakeClock())
    breaker.record(Signal(ok=False))
    with pytest.raises(ValueError, match=r"recovers without probes .*: reset it instead"):
        breaker.probe_now(by="ada", why="try")
    panel = Panel("memory:", policies={"api": policy})
    with pytest.raises(ValueError, match="recovers without probes"):
        panel.order("api", by="ada", why="try", probe=True)
    breaker.send(Override("ada", "try", probe=True))
    assert breaker.state == "open"


def test_a_held_circuit_probes_after_its_hold() -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    breaker.record(Signal(ok=False))
    breaker.hold_open(by="ada", why="wait")
    breaker.probe_now(by="ada", why="try")
    with pytest.raises(Rejected, match="held open"):
        breaker.call(len, "abc")


# The command


def run(store: Path, *args: str, **options: Any) -> Any:
    return CliRunner().invoke(main, [*args, "--store", f"sqlite:///{store}"], **options)


def test_the_command_holds_for_a_time_and_shows_it(tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    done = run(
        store, "hold", "open", "api", "--for", "2h", "--why", "deploy", "--by", "ada", "--create"
    )
    assert done.exit_code == 0, done.output
    assert "api: held open for 2 h by ada: deploy" in done.output
    shown = run(store, "status")
    assert "held open for 2 h more by ada: deploy" in " ".join(shown.output.split())
    page = run(store, "show", "api")
    assert "ends in 2 h" in " ".join(page.output.split())
    row = json.loads(run(store, "show", "api", "--json").output)
    assert 7000.0 < row["hold_left_s"] <= 7200.0
    assert run(store, "hold", "open", "api", "--for", "soon", "--why", "x").exit_code == 2
    assert run(store, "hold", "open", "api", "--for", "0s", "--why", "x").exit_code == 2


def test_the_command_requests_a_probe(tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    with Panel(f"sqlite:///{store}") as panel:
        panel.breaker("api").record(Signal(ok=False, count=5))
        latched = Policy([detectors.ConsecutiveFailures(1)], Latched())
        panel.breaker("rules", latched).record(Signal(ok=False))
    done = run(store, "probe", "api", "--why", "try", "--by", "ada")
    assert done.exit_code == 0, done.output
    assert "api: probe requested by ada: try; phase half-open" in done.output
    refused = run(store, "probe", "rules", "--why", "try")
    assert refused.exit_code == 2
    assert "recovers without probes (latched)" in refused.output


def test_a_hold_that_ended_shows_in_the_events(tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    with Panel(f"sqlite:///{store}") as panel:
        panel.send("api", Override("ada", "deploy", Mode.HELD_OPEN, until_s=time.time() - 1.0))
    shown = run(store, "events")
    assert "mode held open ended, held by ada: deploy" in shown.output
    assert Cooldown().of is None


def test_where_a_token_is_configured_holds_and_probes_need_it(tmp_path: Path) -> None:
    digest = sha256(b"secret").hexdigest()
    url = f"sqlite:///{tmp_path}/state.db"
    with Panel(url, operator_token_sha256=digest, token="secret") as panel:
        panel.breaker("api").record(Signal(ok=False, count=5))
    with Panel(url) as panel:
        with pytest.raises(OverrideRefused):
            panel.order("api", by="agent", why="x", probe=True)
        with pytest.raises(OverrideRefused):
            panel.breaker("api").probe_now(by="agent", why="x")
        with pytest.raises(OverrideRefused):
            panel.breaker("api").hold_closed(by="agent", why="x", for_s=60.0)
        assert panel.breaker("api").state == "open"
    refused = run(tmp_path / "state.db", "probe", "api", "--why", "x")
    assert refused.exit_code == 2
    assert "operator token" in refused.output
