"""Values equal only values of their own type, and become dictionaries that JSON can hold."""

import json
import pickle
from typing import Any

import pytest

from switchgear import (
    AgentStep,
    Event,
    EventKind,
    Mode,
    Override,
    Panel,
    Permit,
    Phase,
    Policy,
    Reading,
    Record,
    Rejected,
    Signal,
    Totals,
    Verdict,
    detectors,
)
from switchgear._sinks.dispatch import Call, CallOutcome

VALUES: list[Any] = [
    Signal(ok=False, error="no", step=AgentStep("Bash", "ls")),
    AgentStep("Bash", "ls"),
    Permit(3, 1, 9.0),
    Totals(1, 2),
    Reading(0.5, "1 of 2", 1.0, 2.0, "failures"),
    Verdict(True, Phase.CLOSED, permit=Permit(1)),
    Event("api", 1, 2.0, EventKind.MOVED, Phase.CLOSED, Phase.OPEN, Mode.AUTO, 2),
    Override("ada", "drill", Mode.SHADOW),
    Record(Signal(ok=True), Permit(1)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_equals_its_copy_and_not_a_plain_tuple(value: Any) -> None:
    assert value == pickle.loads(pickle.dumps(value))
    assert hash(value) == hash(pickle.loads(pickle.dumps(value)))
    assert value != tuple(value)
    assert tuple(value) != value
    assert not value == tuple(value)  # noqa: SIM201  both operators are ours


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_becomes_a_dictionary_that_json_can_hold(value: Any) -> None:
    data = value.to_dict()
    assert list(data) == list(value._fields)
    assert json.loads(json.dumps(data)) == data


def test_members_become_dictionaries_too() -> None:
    data = VALUES[0].to_dict()
    assert data["step"]["tool"] == "Bash"
    assert VALUES[6].to_dict()["after"] == "open"


def test_a_signal_takes_keywords_only() -> None:
    make: Any = Signal
    with pytest.raises(TypeError):
        make(False)
    assert Signal(ok=False)._replace(error="no") == Signal(ok=False, error="no")


class Unspeakable(Exception):
    """An exception whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_circuit_a_view_and_a_call_become_dictionaries_that_json_can_hold() -> None:
    calls: list[Call] = []
    with Panel("memory:") as panel:
        policy = Policy([detectors.FailureRate(window=2), detectors.Spend(hard_cap="$1")])
        breaker = panel.breaker("api", policy, on_call=[calls.append])
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                breaker.call(lambda: 1 / 0)
        with pytest.raises(Rejected):
            breaker.call(int)
        circuit, view = breaker.snapshot().to_dict(), panel.view("api")
    assert view is not None
    data = view.to_dict()
    for value in (circuit, data, *(call.to_dict() for call in calls)):
        assert json.loads(json.dumps(value)) == value
    assert circuit["phase"] == data["circuit"]["phase"] == "open"
    assert circuit["totals"]["failed"] == 2
    assert not {"memories", "recent"} & set(circuit)
    assert data["readings"]["failure_rate"]["heat"] >= 1.0
    assert [call.to_dict()["outcome"] for call in calls] == ["failure", "failure", "rejected"]
    assert "ZeroDivisionError" in calls[0].to_dict()["exception"]


def test_the_exception_of_a_call_is_redacted_and_may_have_no_text() -> None:
    secret = "sk-proj-abcdefghijklmnop"
    call = Call("api", CallOutcome.FAILURE, 0.1, ValueError(f"bad key {secret}"))
    assert secret not in json.dumps(call.to_dict())
    assert Call("api", CallOutcome.FAILURE, 0.1, Unspeakable()).to_dict()["exception"]
