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
    Permit,
    Phase,
    Reading,
    Record,
    Signal,
    Totals,
    Verdict,
)

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
def test_a_value_equals_its_like_and_no_bare_tuple(value: Any) -> None:
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
