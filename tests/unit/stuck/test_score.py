"""The score of a session: the sum of the weighted detectors, or what one detector comes to alone."""

from switchgear import AgentStep, Signal
from switchgear._stuck.score import grounds_of, session_policy
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
    score = grounds_of(policy, policy.readings(tuple(memories), 0.0))
    assert score.points > 40.0
    assert any("(+40)" in each for each in score.evidence)
    assert any(
        each.startswith("no progress") and each.endswith(f"({score.points:.0f} on its own)")
        for each in score.evidence
    )
