"""The stuck score, signal by signal, and behaviour that does not raise it."""

from collections.abc import Iterable

import pytest

from switchgear._config import preset_policy
from switchgear._core.machine import step
from switchgear._core.types import AgentStep, Circuit, Override, Phase, Record, Signal
from switchgear._stuck.score import Score, score_of

POLICY = preset_policy("stuck")
FULL = {"silence": 30, "same_tool": 40, "tool_flood": 50, "same_error": 60, "context_burn": 20}


def told(signals: Iterable[Signal], every_s: float = 5.0) -> tuple[Circuit, Score]:
    """The circuit and its score after these signals, or at the moment when it opens."""
    circuit, now_s = POLICY.start("session/x", 0.0), 0.5
    for signal in signals:
        now_s += every_s
        circuit = step(POLICY, circuit, Record(signal), now_s).circuit
        if circuit.phase is Phase.OPEN:
            break
    score = score_of(POLICY, POLICY.readings(circuit.memories, now_s))
    assert score is not None
    return circuit, score


def call(tool: str, args: str, result: str = "", *, files: int | None = 0) -> Signal:
    return Signal(ok=True, step=AgentStep(tool, args, result), files_changed=files)


def failed(args: str, error: str) -> Signal:
    return Signal(ok=False, error=error, step=AgentStep("Bash", args), files_changed=0)


def shares(score: Score) -> dict[str, float]:
    return {share.kind: share.points for share in score.shares if share.trips}


@pytest.mark.parametrize(
    ("kind", "enough", "too_few"),
    [
        ("silence", [Signal(idle_s=121.0)], [Signal(idle_s=120.0)]),
        ("same_tool", [call("Read", "a")] * 6, [call("Read", "a")] * 5),
        (
            "tool_flood",
            [call("Read", str(number)) for number in range(21)],
            [call("Read", str(number)) for number in range(20)],
        ),
        (
            "same_error",
            [failed(str(number), "no such table") for number in range(4)],
            [failed(str(number), "no such table") for number in range(3)],
        ),
        (
            "context_burn",
            [Signal(context_used=used / 100) for used in range(14)],
            [Signal(context_used=used / 250) for used in range(14)],
        ),
    ],
)
def test_more_than_the_threshold_adds_the_weight(
    kind: str, enough: list[Signal], too_few: list[Signal]
) -> None:
    assert shares(told(enough)[1]) == {kind: FULL[kind]}
    assert shares(told(too_few)[1]) == {}


def test_sixty_points_open_the_circuit_and_fewer_only_warn() -> None:
    looping = [call("Read", "a")] * 21
    circuit, score = told(looping)
    assert circuit.phase is Phase.OPEN
    assert score.points == 90
    assert circuit.outage.reason.startswith("score 90 (trips at 60): Read called 21 times in a row")
    assert told(looping[:20])[0].phase is Phase.TRIPPING


def test_each_signal_is_shown_with_its_share() -> None:
    _, score = told([call("Read", "a")] * 21)
    assert score.evidence == (
        "Read called 21 times in a row with the same outcome (more than 5 trips) (+40)",
        "21 calls without a file change (more than 20 trips) (+50)",
    )


def test_silence_and_repetition_together_intervene() -> None:
    circuit, score = told([*[call("Read", "a")] * 6, Signal(idle_s=130.0)])
    assert circuit.phase is Phase.OPEN
    assert score.points == 70


def test_a_session_stays_open_until_it_is_reset_and_then_starts_over() -> None:
    circuit, _ = told([call("Read", "a")] * 21)
    later_s = circuit.seen_s + 86_400.0
    circuit = step(POLICY, circuit, Record(call("Write", "b", files=1)), later_s).circuit
    assert circuit.phase is Phase.OPEN, "what the agent does itself never closes it"
    circuit = step(POLICY, circuit, Override("user", "a message", reset=True), later_s).circuit
    assert circuit.phase is Phase.CLOSED
    score = score_of(POLICY, POLICY.readings(circuit.memories, later_s))
    assert score is not None
    assert score.points == 0


LEGITIMATE = {
    "polling a build that changes": [
        call("Bash", "gh run view 7", f"{done} of 40 jobs done") for done in range(40)
    ],
    "50 reads of different files": [call("Read", f"src/{n}.py", f"text {n}") for n in range(50)],
    "batch edits": [call("Edit", f"src/{n}.py", "ok", files=1) for n in range(60)],
    "red-green test cycles": [
        signal
        for round_ in range(12)
        for signal in (
            failed("pytest", "1 failed: test_total"),
            call("Edit", f"src/total.py {round_}", "ok", files=1),
            failed("pytest", "1 failed: test_total"),
            call("Edit", f"src/total.py again {round_}", "ok", files=1),
            call("Bash", "pytest", "all passed"),
        )
    ],
    "a long silent build": [
        call("Bash", "make", "ok"),
        *[Signal(idle_s=float(idle_s)) for idle_s in range(60, 3600, 60)],
        call("Bash", "make test", "ok"),
    ],
}


@pytest.mark.parametrize("story", LEGITIMATE)
def test_legitimate_behaviour_does_not_open_the_circuit(story: str) -> None:
    assert told(LEGITIMATE[story])[0].phase is not Phase.OPEN
