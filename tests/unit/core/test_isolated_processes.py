"""A process that isolates itself is visible to operators, in the state of the shared circuit."""

import json
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from switchgear import CircuitBreaker, Cooldown, Panel, Policy, Rejected, detectors
from switchgear._breaker.views import view_of
from switchgear._cli import main
from switchgear._core.errors import StoreUnavailable
from switchgear._core.machine import FORGET_ISOLATED_S, MOST_ISOLATED, step
from switchgear._core.types import EventKind, Mode, Override, Record, ReportSource, Signal
from switchgear._core.wire import dump_circuit, dump_message, load_circuit, load_message
from switchgear._stores.base import StoredCircuit
from timeouts import LIMIT_S

THREE = Policy([detectors.ConsecutiveFailures(3)], Cooldown(30.0))


def isolated(process: str, until_s: float) -> Override:
    why = f"{process} is isolated: 3 failures in a row (threshold 3); other processes succeed"
    kind = EventKind.ISOLATED
    return Override("switchgear", why, kind=kind, until_s=until_s, process=process)


def rejoined(process: str) -> Override:
    return Override(
        "switchgear", f"{process} calls again", kind=EventKind.REJOINED, process=process
    )


# The state


def test_a_circuit_lists_each_isolated_process_once_since_it_was_isolated() -> None:
    circuit = THREE.start("api", 0.0)
    circuit = step(THREE, circuit, isolated("process 1 on a", 31.0), 1.0).circuit
    circuit = step(THREE, circuit, isolated("process 2 on b", 32.0), 2.0).circuit
    circuit = step(THREE, circuit, isolated("process 1 on a", 63.0), 33.0).circuit
    assert [one[0] for one in circuit.isolated] == ["process 2 on b", "process 1 on a"]
    assert [(one.since_s, one.retry_at_s) for one in circuit.isolated] == [(2.0, 32.0), (1.0, 63.0)]
    circuit = step(THREE, circuit, rejoined("process 2 on b"), 34.0).circuit
    assert [one.process for one in circuit.isolated] == ["process 1 on a"]


def test_the_list_is_bounded_and_drops_processes_that_report_nothing() -> None:
    circuit = THREE.start("api", 0.0)
    for number in range(MOST_ISOLATED + 3):
        circuit = step(THREE, circuit, isolated(f"process {number}", 30.0), 1.0).circuit
    assert len(circuit.isolated) == MOST_ISOLATED
    assert circuit.isolated[-1].process == f"process {MOST_ISOLATED + 2}"
    late_s = 30.0 + FORGET_ISOLATED_S
    assert view_of(StoredCircuit(circuit, THREE), late_s).isolated == ()
    circuit = step(THREE, circuit, isolated("new", late_s + 30.0), late_s).circuit
    assert [one.process for one in circuit.isolated] == ["new"]


def test_a_remark_without_a_next_probe_lists_nothing() -> None:
    without = isolated("process 1", 30.0)._replace(until_s=None)
    assert step(THREE, THREE.start("api", 0.0), without, 1.0).circuit.isolated == ()


@pytest.mark.parametrize("ends", ["open", "reset"])
def test_the_list_of_isolated_processes_is_cleared_when_the_circuit_opens_or_is_reset(
    ends: str,
) -> None:
    circuit = step(THREE, THREE.start("api", 0.0), isolated("process 1", 30.0), 1.0).circuit
    last = Record(Signal(ok=False, count=3)) if ends == "open" else Override("ada", "x", reset=True)
    assert step(THREE, circuit, last, 2.0).circuit.isolated == ()


def test_a_held_circuit_shows_no_isolated_processes() -> None:
    circuit = step(THREE, THREE.start("api", 0.0), isolated("process 1", 30.0), 1.0).circuit
    assert len(view_of(StoredCircuit(circuit, THREE), 2.0).isolated) == 1
    held = step(THREE, circuit, Override("ada", "x", mode=Mode.HELD_CLOSED), 2.0).circuit
    assert view_of(StoredCircuit(held, THREE), 3.0).isolated == ()


def test_the_list_of_isolated_processes_is_stored_only_if_it_has_entries() -> None:
    circuit = THREE.start("api", 0.0)
    assert "isolated" not in dump_circuit(THREE, circuit)
    circuit = step(THREE, circuit, isolated("process 1", 30.0), 1.0).circuit
    stored = json.loads(json.dumps(dump_circuit(THREE, circuit)))
    assert load_circuit(THREE, stored) == circuit


def test_messages_keep_their_source_and_their_process_between_processes() -> None:
    tell = Record(Signal(ok=True, count=3), None, ReportSource("p", 5.0, ((4.0, 2), (4.5, 1))))
    for message in (tell, tell._replace(source=None), isolated("process 1", 30.0)):
        assert load_message(json.loads(json.dumps(dump_message(message)))) == message


# Two processes, played by two panels: each is known to the store under its own name


class Fleet:
    def __init__(self, url: str) -> None:
        self.url = url
        self.good, self.bad = Panel(url), Panel(url)

    def isolate(self, policy: Policy = THREE) -> CircuitBreaker:
        good, bad = self.good.breaker("api", policy), self.bad.breaker("api", policy)
        good.call(int)
        until_s = time.monotonic() + LIMIT_S
        while bad.isolation is None:
            assert time.monotonic() < until_s, "the faulty process does not isolate itself"
            good.call(int)
            good.flush()
            try:
                bad.call(_fails)
            except (ConnectionError, Rejected):
                time.sleep(0.02)
        return bad

    def run(self, *args: str) -> Result:
        done = CliRunner().invoke(main, [*args, "--store", self.url], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return done

    def status(self) -> dict[str, Any]:
        (circuit,) = json.loads(self.run("status", "--json").output)
        assert isinstance(circuit, dict)
        return circuit


def _fails() -> None:
    raise ConnectionError("connection refused")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(f"sqlite:///{tmp_path}/state.db")
    yield fleet
    fleet.good.close()
    fleet.bad.close()


def test_status_and_show_name_the_process_the_reason_and_the_next_probe(fleet: Fleet) -> None:
    fleet.isolate()
    circuit = fleet.status()
    assert circuit["phase"] == "closed"
    (one,) = circuit["isolated"]
    assert one["process"].startswith("process ")
    assert "3 failures in a row (threshold 3); other processes succeed" in one["reason"]
    assert 0 < one["retry_after_s"] <= 30.0
    assert one["since"]
    assert json.loads(fleet.run("show", "api", "--json").output)["isolated"] == [
        one | {"retry_after_s": pytest.approx(one["retry_after_s"], abs=25.0)}
    ]
    for verb in (("status",), ("show", "api")):
        text = " ".join(fleet.run(*verb).output.split())
        assert f"{one['process']} is isolated: 3 failures in a row (threshold 3)" in text
        assert "it probes in " in text
        assert "[1 isolated]" in text
    assert "1 isolated process" in fleet.run("status").output


def test_a_probe_that_succeeds_ends_the_isolation_for_operators_too(fleet: Fleet) -> None:
    bad = fleet.isolate(THREE.replace(recovery=Cooldown(0.3)))
    until_s = time.monotonic() + LIMIT_S
    while bad.isolation is not None:
        assert time.monotonic() < until_s
        try:
            bad.call(int)
        except Rejected:
            time.sleep(0.05)
    assert fleet.status()["isolated"] == []
    kinds = [entry.event.kind for entry in fleet.good.events()]
    assert kinds == ["isolated", "rejoined"]


def test_a_probe_that_fails_is_recorded_with_the_next_one(fleet: Fleet) -> None:
    bad = fleet.isolate(THREE.replace(recovery=Cooldown(0.2)))
    until_s = time.monotonic() + LIMIT_S
    while len(fleet.good.events()) < 2:
        assert time.monotonic() < until_s
        try:
            bad.call(_fails)
        except (ConnectionError, Rejected):
            time.sleep(0.05)
    assert {entry.event.kind for entry in fleet.good.events()} == {"isolated"}
    assert len(fleet.status()["isolated"]) == 1


def test_a_reset_of_the_shared_circuit_ends_the_isolation(fleet: Fleet) -> None:
    bad = fleet.isolate()
    fleet.run("reset", "api", "--why", "repaired")
    assert fleet.status()["isolated"] == []
    until_s = time.monotonic() + LIMIT_S
    while True:
        assert time.monotonic() < until_s, "the process stays isolated after the reset"
        try:
            assert bad.call(lambda: "answer") == "answer"
            break
        except Rejected:
            time.sleep(0.05)
    assert bad.isolation is None


def test_a_process_that_ends_is_no_longer_listed(fleet: Fleet) -> None:
    fleet.isolate()
    fleet.bad.close()
    assert fleet.status()["isolated"] == []
    assert fleet.good.events()[-1].event.reason.endswith("was isolated and has ended")


def test_a_store_that_requires_an_operator_token_records_the_isolation_too(fleet: Fleet) -> None:
    assert fleet.good.store.set_operator_digest(sha256(b"secret").hexdigest(), instead_of=None)
    fleet.isolate()
    assert len(fleet.status()["isolated"]) == 1


def test_an_isolated_process_exits_although_its_store_is_unavailable(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.isolate()

    def gone(*_: Any) -> None:
        raise StoreUnavailable("sqlite:", "it is gone", "wait")

    monkeypatch.setattr(fleet.bad.store.inner, "apply", gone)
    with pytest.raises(ZeroDivisionError), fleet.bad:
        raise ZeroDivisionError
    assert "was isolated and has ended; not recorded" in caplog.text
