"""The score of a session: the sum of the weighted detectors, or that of one detector alone."""

from switchgear import AgentStep, Signal
from switchgear._core.types import Reading
from switchgear._stuck.score import Score, evidence_score, session_policy
from switchgear.config import preset_policy


def test_evidence_names_the_detector_that_decides_the_score_before_it_trips() -> None:
    policy = session_policy(preset_policy("stuck"), preset_policy("default"))
    step = Signal(ok=True, step=AgentStep("Read", "a.py", "the same text"))
    memories = [detector.start() for detector in policy.detectors]
    for _ in range(6):
        memories = [
            detector.fold(memory, step, 0.0)
            for detector, memory in zip(policy.detectors, memories, strict=True)
        ]
    score = evidence_score(policy, policy.readings(tuple(memories), 0.0))
    assert score.points > 40.0
    assert any("(+40)" in each for each in score.evidence)
    assert any(
        each.startswith("no progress") and each.endswith(f"({score.points:.0f} on its own)")
        for each in score.evidence
    )


def scored(**heats: float) -> Score:
    """The score of a session whose detectors have these heats."""
    policy = session_policy(preset_policy("stuck"), preset_policy("default"))
    readings = [
        Reading(heats.get(detector.kind, 0.0), f"{detector.kind} said so")
        for detector in policy.detectors
    ]
    return evidence_score(policy, readings)


def test_evidence_adds_up_to_the_score() -> None:
    score = scored(same_tool=1.0, stagnation=1.1)
    assert score.points == 60.0
    assert score.evidence == ("same_tool said so (+40)", "stagnation said so (60 on its own)")


def test_a_score_is_at_most_100() -> None:
    score = scored(silence=1.0, same_tool=1.0, tool_flood=1.0, same_error=1.0)
    assert (score.points, score.text) == (100.0, "100/100")


def test_a_score_is_shown_in_whole_points() -> None:
    assert scored(stagnation=7 / 9).text == "47/100"
    assert Score(0.75, 1.0, ()).text == "0.75/1"
