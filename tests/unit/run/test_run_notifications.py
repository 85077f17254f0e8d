"""Notifications of a tripped run to configured targets: one per trip, with its owner and the receipt."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from switchgear import Latched, Policy, Signal
from switchgear._config import DEFAULT
from switchgear._fleet.delivery import Delivery, Outcome
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.manifest import Crew
from switchgear._fleet.targets import Command, Message, Target, Unsendable
from switchgear._hooks import drain
from switchgear._run.result import notify_configured
from switchgear.detectors import ConsecutiveFailures
from unit.runner_stage import Stage

FAILS = "fail('Error: boom')"


class Notified:
    """A run whose circuit trips, and a target that writes what it receives to a file."""

    def __init__(self, path: Path) -> None:
        self.stage = Stage(path)
        self.stage.dependencies = self.stage.dependencies._replace(owner="ana")
        self.fleet = Fleet(self.stage.panel, Crew())
        self.taken = path / "taken"
        self.target = Command(f"tee -a {self.taken}", name="ops")

    def end(self, *targets: Target, **options: Any) -> list[Outcome]:
        result = self.stage.run(options.pop("body", FAILS), **options)
        return notify_configured(self.fleet, targets or [self.target], result.receipt(), "ana")

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.taken.read_text().splitlines()]

    @property
    def alarms(self) -> list[dict[str, Any]]:
        return [each for each in self.messages if each["severity"] != "INFO"]


@pytest.fixture
def notified(tmp_path: Path) -> Notified:
    return Notified(tmp_path)


def test_a_trip_and_the_end_of_its_run_are_one_notification(notified: Notified) -> None:
    assert notified.end() == [Outcome("ops", True)]
    assert Delivery(notified.fleet, notified.target).run_once() == 0
    [alarm] = notified.alarms
    assert (alarm["kind"], alarm["severity"], alarm["owners"]) == ("run_ended", "SEV2", ["ana"])
    assert alarm["receipt"]["exit_reason"] == "circuit_breaker"
    assert alarm["text"].startswith("[SEV2] run ")
    assert alarm["after"] == "open"
    assert alarm["id"] == f"{alarm['circuit']}#{alarm['seq']}", "duplicates can be detected"
    assert all(each["owners"] == ["ana"] for each in notified.messages)


def test_a_trip_that_another_process_has_sent_is_not_sent_again(notified: Notified) -> None:
    result = notified.stage.run(FAILS)
    assert Delivery(notified.fleet, notified.target).run_once() > 0
    outcomes = notify_configured(notified.fleet, [notified.target], result.receipt(), "ana")
    assert outcomes == [Outcome("ops", True)]
    [alarm] = notified.alarms
    assert (alarm["kind"], alarm["severity"], alarm["owners"]) == ("moved", "SEV2", ["ana"])


def test_a_receipt_that_does_not_arrive_is_sent_again_later(notified: Notified) -> None:
    gate = notified.taken.parent / "gate"
    script = f"sh -c 'test -e {gate} && cat >> {notified.taken}'"
    target = Command(script, name="ops")
    [outcome] = notified.end(target)
    assert not outcome.sent
    assert outcome.why.endswith("it stays pending, `switchgear fleet deliver` sends it")
    gate.touch()
    assert Delivery(notified.fleet, target).run_once(now=True) > 0
    [alarm] = notified.alarms
    assert (alarm["kind"], alarm["owners"]) == ("run_ended", ["ana"])


def test_a_receipt_that_a_slow_target_has_not_answered_is_due_at_once(
    notified: Notified, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchgear._run.result.TIMEOUT_S", 0.5)
    slow = Command("sleep 600", timeout_s=30.0, name="ops")
    [outcome] = notified.end(slow)
    assert outcome.why == (
        "no answer within 0.5 s; it stays pending, `switchgear fleet deliver` sends it"
    )
    config = DEFAULT._replace(notifications=(slow,))
    assert drain.is_due(config, notified.fleet.panel), "the command starts the background delivery"
    assert Delivery(notified.fleet, notified.target).run_once() > 0
    [alarm] = notified.alarms
    assert (alarm["kind"], alarm["owners"]) == ("run_ended", ["ana"])


def test_a_target_that_fails_after_its_turn_was_ended_sets_nothing_aside(
    notified: Notified,
) -> None:
    notified.stage.run(FAILS)
    delivery = Delivery(notified.fleet, notified.target)

    class Late(Command):
        def send(self, message: Message, now_s: float) -> None:
            delivery.stop()
            raise Unsendable("the answer cannot be read")

    delivery.target = Late("true", name="ops")
    assert delivery.run_once() == 0
    assert delivery.set_aside() == []
    assert Delivery(notified.fleet, notified.target).run_once() > 0


def test_a_busy_store_delays_the_end_of_a_run_by_a_second_at_most(
    notified: Notified, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchgear._run.result.TIMEOUT_S", 0.2)
    monkeypatch.setattr("switchgear._fleet.delivery.STOP_S", 0.2)
    is_over = threading.Event()
    monkeypatch.setattr(Delivery, "stop", lambda _: is_over.wait())
    [outcome] = notified.end(Command("sleep 600", timeout_s=30.0, name="ops"))
    is_over.set()
    assert outcome.why.startswith("no answer within 0.2 s")


def test_a_run_that_ends_without_a_trip_is_one_notification(notified: Notified) -> None:
    notified.end(body="usage(0.3)", max_iterations=1)
    [alarm] = notified.alarms
    assert (alarm["kind"], alarm["owners"]) == ("run_ended", ["ana"])
    assert alarm["receipt"]["exit_reason"] == "max_iterations"


def test_a_stuck_run_that_is_given_up_is_one_notification(notified: Notified) -> None:
    circuit = "ladder/loop/x-1"
    notified.stage.dependencies = notified.stage.dependencies._replace(circuit="loop/x-1")
    result = notified.stage.run(FAILS, max_iterations=1)
    escalation = notified.fleet.panel.breaker(circuit, Policy([ConsecutiveFailures(1)], Latched()))
    escalation.record(Signal(ok=False))
    receipt = {**result.receipt(), "exit_reason": "circuit_breaker", "exit_signal": "circuit_open"}
    notify_configured(notified.fleet, [notified.target], receipt, "ana")
    [alarm] = notified.alarms
    assert (alarm["circuit"], alarm["kind"], alarm["severity"]) == ("loop/x-1", "run_ended", "SEV2")
    assert alarm["owners"] == ["ana"]


def test_a_target_that_matches_other_circuits_is_not_notified(notified: Notified) -> None:
    assert notified.end(Command("false", match="provider/*", name="other")) == []
