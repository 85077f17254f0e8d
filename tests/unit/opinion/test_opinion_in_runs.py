"""The second opinion in `switchgear run`: requested before the agent is stopped, with the same limits."""

import threading
import time
from pathlib import Path

import pytest

from switchgear._opinion.opinion import SecondOpinion
from switchgear._run.interrupt import Interrupt
from timeouts import LIMIT_S
from unit.opinion.test_consult import judge
from unit.run.test_runner_stuck import LOOPS, WORKS, Ticking, _indented, with_plan
from unit.runner_stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.view = Ticking(stage.hands)
    stage.dependencies = stage.dependencies._replace(view=stage.view)
    with_plan(stage)
    return stage


def with_judge(stage: Stage, body: str, delay_steps: int = 10) -> None:
    asked = SecondOpinion(
        judge(stage.folder.parent, body), timeout_s=120.0, delay_steps=delay_steps
    )
    stage.dependencies = stage.dependencies._replace(second_opinion=asked)


def test_a_confirmed_stop_is_a_stop(stage: Stage) -> None:
    with_judge(stage, """print('{"verdict": "confirm", "reason": "it repeats itself"}')""")
    stage.run(f"if n == 1:{_indented(LOOPS)}\n{WORKS}", stuck=True)
    assert stage.iterations()[0]["stopped"] == "score"
    assert any(note.startswith("second opinion: confirm: it repeats") for note in stage.view.notes)


def test_a_hint_replaces_the_text_of_the_nudge(stage: Stage) -> None:
    with_judge(stage, """print('{"verdict": "hint", "hint": "read b instead"}')""")
    stage.run(f"if n == 1:{_indented(LOOPS)}\n{WORKS}", stuck=True)
    assert 'A reviewer suggests: "read b instead"' in stage.prompt(2)
    assert "Try a different approach" not in stage.prompt(2)


def test_a_delay_lets_the_agent_continue_for_a_number_of_steps(stage: Stage) -> None:
    with_judge(stage, """print('{"verdict": "delay", "reason": "nearly there", "steps": 50}')""")
    nearly = LOOPS.replace("range(30)", "range(25)").replace("time.sleep(60)", WORKS.strip())
    result = stage.run(nearly, stuck=True)
    assert [each["outcome"] for each in stage.iterations()] == ["completed"]
    assert result.exit_reason == "completed"


def test_without_progress_the_delayed_stop_takes_effect(stage: Stage) -> None:
    with_judge(stage, """print('{"verdict": "delay", "reason": "nearly there"}')""", delay_steps=4)
    stage.run(f"if n == 1:{_indented(LOOPS)}\n{WORKS}", stuck=True)
    assert stage.iterations()[0]["stopped"] == "score"
    assert sum("second opinion: delay" in note for note in stage.view.notes) == 1


def test_without_an_opinion_the_stop_takes_effect(stage: Stage) -> None:
    with_judge(stage, "sys.exit(1)")
    stage.run(f"if n == 1:{_indented(LOOPS)}\n{WORKS}", stuck=True)
    assert stage.iterations()[0]["stopped"] == "score"
    assert "Try a different approach" in stage.prompt(2)


def test_the_agent_is_suspended_while_its_stop_is_reviewed(stage: Stage) -> None:
    """Nothing reads its output meanwhile: it could exceed its budget."""
    noted = stage.folder.parent / "agent.pid"
    body = f"""
pid, due_s = open({str(noted)!r}).read(), time.monotonic() + {LIMIT_S}
def state():
    return open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0]
while state() != "T" and time.monotonic() < due_s:
    time.sleep(0.01)
print(json.dumps({{"verdict": "confirm", "reason": "its state is " + state()}}))
"""
    with_judge(stage, body)
    agent = f"pathlib.Path({str(noted)!r}).write_text(str(os.getpid())){LOOPS}"
    stage.run(f"if n == 1:{_indented(chr(10) + agent)}\n{WORKS}", stuck=True)
    assert stage.iterations()[0]["stopped"] == "score"
    assert any("its state is T" in note for note in stage.view.notes)
    assert stage.iterations()[1]["outcome"] == "completed"


@pytest.mark.parametrize("ends", ["interrupt", "time"])
def test_a_run_that_ends_does_not_wait_for_an_opinion(stage: Stage, ends: str) -> None:
    asks = stage.folder.parent / "asks"
    with_judge(stage, f"open({str(asks)!r}, 'w').close(); time.sleep(600)")
    interrupt = Interrupt()
    stage.dependencies = stage.dependencies._replace(interrupt=interrupt)

    def end() -> None:
        due_s = time.monotonic() + LIMIT_S
        while not asks.exists() and time.monotonic() < due_s:
            time.sleep(0.01)
        if ends == "time":
            stage.hands.now_s += 10_000.0
        else:
            interrupt.ask()

    ending = threading.Thread(target=end)
    ending.start()
    result = stage.run(LOOPS, stuck=True, timeout_s=3000.0)
    ending.join()
    assert result.exit_reason == ("interrupted" if ends == "interrupt" else "timeout")
    assert any("none: not waited for: the run ends" in note for note in stage.view.notes)
