"""One preset, one verdict: hooks, `run` and `backtest` stop the same steps at the same place."""

from pathlib import Path

import pytest

from switchgear import CircuitBreaker
from switchgear._agents.events import ToolStep
from switchgear._agents.recordings.recording import RecordedRun, RecordedStep
from switchgear._analysis.backtest.replay import Named, replay
from switchgear._config import preset_policy
from switchgear._run.stuck import STUCK, StuckWatch
from switchgear._stuck.score import session_policy
from switchgear.testing import FakeClock
from unit.hook_calls import Guarded

FAILS = ("Bash", "make check", "Exit code 1\nE assert 3 == 4", False)
READS = ("Bash", "cat a.py", "x = 1", True)
STUCK_STEPS = [FAILS, FAILS, FAILS, READS] * 5
WORKING_STEPS = [("Bash", f"cat src/{name}.py", f"def {name}", True) for name in "abcdefghijklmnop"]

Steps = list[tuple[str, str, str, bool]]


def by_hooks(folder: Path, preset: str, steps: Steps) -> int | None:
    agent = Guarded(folder, f"circuits:\n  - {{match: 'progress/*', policy: {preset}}}\n")
    for number, (tool, command, result, ok) in enumerate(steps, 1):
        more = {"result": result} if ok else {"error": result}
        ruling = agent.call(tool, {"command": command}, f"t{number}", **more)
        if "AGENT APPEARS STUCK" in ruling.text:
            assert "no progress for" in ruling.text
            return number
    return None


def by_run(preset: str, steps: Steps) -> int | None:
    policy = session_policy(preset_policy("stuck"), preset_policy(preset))
    watch = StuckWatch(CircuitBreaker("session/x", policy=policy, clock=FakeClock()), lambda: None)
    for number, (tool, command, result, ok) in enumerate(steps, 1):
        error, output = (None, result) if ok else (result, "")
        if watch.see(ToolStep(tool, command, ok, error, (), output=output)) == STUCK:
            return number
    return None


def by_backtest(preset: str, steps: Steps) -> int | None:
    recorded = [
        RecordedStep(
            tool, f'{{"command": "{command}"}}', result, ok=ok, error=None if ok else result
        )
        for tool, command, result, ok in steps
    ]
    run = RecordedRun("r1", "runs.jsonl", "plain", steps=tuple(recorded))
    return replay(Named(preset, preset_policy(preset)), run).tripped_at


@pytest.mark.parametrize(("preset", "expected"), [("eager", 7), ("default", 7), ("careful", 10)])
def test_the_same_steps_are_stopped_at_the_same_place(
    tmp_path: Path, preset: str, expected: int
) -> None:
    found = [
        by_hooks(tmp_path, preset, STUCK_STEPS),
        by_run(preset, STUCK_STEPS),
        by_backtest(preset, STUCK_STEPS),
    ]
    assert found == [expected] * 3


@pytest.mark.parametrize("preset", ["eager", "default", "careful"])
def test_the_same_steps_continue_everywhere(tmp_path: Path, preset: str) -> None:
    assert by_hooks(tmp_path, preset, WORKING_STEPS) is None
    assert by_run(preset, WORKING_STEPS) is None
    assert by_backtest(preset, WORKING_STEPS) is None
