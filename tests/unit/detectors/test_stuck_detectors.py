"""The detectors of stuck agents by hand: their defaults, exact limits, and what they refuse."""

from typing import Any

import pytest

from switchgear import _detectors
from switchgear._core.detector import Detector
from switchgear._core.types import AgentStep, Signal
from switchgear._detectors.same_tool import EqualCalls
from switchgear._detectors.usage import Burn
from switchgear._text.fingerprint import digest


@pytest.mark.parametrize(
    ("detector", "fields"),
    [
        (_detectors.Silence(), {"limit_s": 120.0}),
        (_detectors.SameTool(), {"threshold": 5, "match": "outcome"}),
        (_detectors.ToolFlood(), {"threshold": 20}),
        (_detectors.ContextBurn(), {"per_minute": 0.05, "window_s": 60.0}),
    ],
)
def test_the_defaults_are_those_of_the_documentation(detector: Detector, fields: Any) -> None:
    assert detector.fields() == fields


def folded(detector: Detector, *signals: Signal, every_s: float = 60.0) -> Any:
    memory = detector.start()
    for number, signal in enumerate(signals):
        memory = detector.fold(memory, signal, number * every_s)
    return memory


@pytest.mark.parametrize(
    ("detector", "below", "above"),
    [
        (_detectors.Silence(), [Signal(idle_s=120.0)], [Signal(idle_s=120.5)]),
        (
            _detectors.SameTool(),
            [Signal(step=AgentStep("Read"), count=5)],
            [Signal(step=AgentStep("Read"), count=6)],
        ),
        (
            _detectors.ToolFlood(),
            [Signal(step=AgentStep("Read"), count=20)],
            [Signal(step=AgentStep("Read"), count=21)],
        ),
        (
            _detectors.ContextBurn(),
            [Signal(context_used=0.15), Signal(context_used=0.20)],
            [Signal(context_used=0.15), Signal(context_used=0.2001)],
        ),
    ],
)
def test_exactly_the_limit_warns_and_more_trips(
    detector: Detector, below: list[Signal], above: list[Signal]
) -> None:
    assert 0.8 < detector.heat(folded(detector, *below), 0.0) < 1
    assert detector.heat(folded(detector, *above), 0.0) >= 1


def test_text_without_a_tool_call_is_not_a_call() -> None:
    talks = Signal(ok=True, step=AgentStep(thought="hm"))
    assert folded(_detectors.ToolFlood(), talks) == 0
    assert folded(_detectors.SameTool(), talks) == EqualCalls()
    assert folded(_detectors.Silence(), Signal(idle_s=9.0), talks) == 9.0


def test_a_call_ends_a_silence_and_a_change_of_files_a_flood() -> None:
    call = Signal(ok=True, step=AgentStep("Read"))
    assert folded(_detectors.Silence(), Signal(idle_s=300.0), call) == 0.0
    assert folded(_detectors.ToolFlood(), call, Signal(files_changed=1), call) == 1


@pytest.mark.parametrize(
    ("match", "rows"),
    [("outcome", [1, 1, 1, 1, 2]), ("call", [1, 2, 3, 1, 2]), ("tool", [1, 2, 3, 4, 5])],
)
def test_match_defines_which_calls_are_the_same(match: str, rows: list[int]) -> None:
    detector = _detectors.SameTool(match=match)
    calls = [
        Signal(ok=True, step=AgentStep("Bash", "make", "1 of 3")),
        Signal(ok=True, step=AgentStep("Bash", "make", "2 of 3")),
        Signal(ok=False, step=AgentStep("Bash", "make", "2 of 3"), error="no rule after 3 s"),
        Signal(ok=False, step=AgentStep("Bash", "make all", "2 of 3"), error="no rule after 3 s"),
        Signal(ok=False, step=AgentStep("Bash", "make all", "x"), error="no rule after 41 ms"),
    ]
    memory, seen = detector.start(), []
    for call in calls:
        memory = detector.fold(memory, call, 0.0)
        seen.append(memory.times)
    assert seen == rows


def test_failures_are_the_same_by_their_errors_or_else_by_their_results() -> None:
    act = AgentStep("Bash", "make", "1 of 3")
    another = Signal(ok=False, step=act, error="disk full")
    silent = [
        Signal(ok=False, step=act),
        Signal(ok=False, step=AgentStep("Bash", "make", "2 of 3")),
    ]
    told = [Signal(ok=False, step=act, error="no rule"), another, another]
    assert folded(_detectors.SameTool(), *told).times == 2
    assert folded(_detectors.SameTool(), *silent).times == 1
    warned = [Signal(ok=True, step=one.step, error="a warning") for one in silent]
    assert folded(_detectors.SameTool(), *warned).times == 1


def test_the_longest_name_of_a_tool_is_loaded_again() -> None:
    detector = _detectors.SameTool()
    memory = folded(detector, Signal(ok=True, step=AgentStep("x" * 100)))
    assert len(memory.tool) == 80
    assert detector.load(detector.dump(memory)) == memory


def test_compacting_the_context_restarts_the_measurement() -> None:
    detector = _detectors.ContextBurn()
    fast = (Signal(context_used=0.2), Signal(context_used=0.4))
    assert folded(detector, *fast) == Burn(60.0, 0.4, 0.2)
    assert folded(detector, *fast, Signal(context_used=0.1)) == Burn(120.0, 0.1, 0.0)


def test_a_period_that_is_too_short_is_not_evaluated_yet() -> None:
    signals = (Signal(context_used=0.1), Signal(context_used=0.9))
    assert folded(_detectors.ContextBurn(), *signals, every_s=59.0) == Burn(0.0, 0.1, 0.0)


NEVER: dict[type[Detector], tuple[Any, ...]] = {
    _detectors.Silence: (None, -1, "x", []),
    _detectors.ToolFlood: (None, -1, "x", 1.5),
    _detectors.SameTool: (
        *(None, [], ["a", "b"], ["a", "b", -1], [1, "b", 1], ["a", 2, 1]),
        *(["", "b", 1], ["a", "", 1], ["a" * 81, "b", 1], ["a", "b" * 81, 1]),
    ),
    _detectors.ContextBurn: (
        *(None, [], [None, 0.1, 0.0], [None, 0.0, 0.1], ["x", 0, 0], [1.0, "x", 0]),
        *([1.0, 0.1, -1.0], [1.0, 0.1, "x"]),
    ),
}
"""What the memory of a detector never looks like."""


@pytest.mark.parametrize(
    ("kind", "data"), [(kind, data) for kind, many in NEVER.items() for data in many]
)
def test_an_invalid_dump_is_refused(kind: type[Detector], data: Any) -> None:
    with pytest.raises(ValueError):
        kind().load(data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: _detectors.Silence(0), "Silence.limit_s is 0"),
        (lambda: _detectors.SameTool(0), "SameTool.threshold is 0"),
        (lambda: _detectors.SameTool(match="x"), "SameTool.match is 'x'"),
        (lambda: _detectors.ToolFlood(0), "ToolFlood.threshold is 0"),
        (lambda: _detectors.ContextBurn(0), "ContextBurn.per_minute is 0"),
        (lambda: _detectors.ContextBurn(1.0), "ContextBurn.per_minute is 1.0"),
        (lambda: _detectors.ContextBurn(window_s=0), "ContextBurn.window_s is 0"),
    ],
)
def test_a_bad_field_is_refused_by_name_and_value(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_digest_is_the_length_and_a_remainder() -> None:
    assert digest("") == "0.0"
    assert digest("ab") == f"2.{ord('a') + 256 * ord('b'):x}"
    assert digest("a" * 100) == f"64.{int.from_bytes(b'a' * 100, 'little') % (2**61 - 1):x}"
    assert digest("\ud800") == digest("\ud800")  # what cannot be encoded has one, too
