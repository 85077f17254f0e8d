"""A stuck agent within a run, with real processes: it is stopped, escalated step by step, and given up."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchgear import CircuitBreaker
from switchgear._agents.command import CommandAgent
from switchgear._agents.events import ToolStep
from switchgear._agents.process import AgentProcess
from switchgear._config import preset_policy
from switchgear._console.sessions import session_rows
from switchgear._core.errors import StoreUnavailable
from switchgear._hooks import session
from switchgear._hooks.session import Notes
from switchgear._run.loop import Runner
from switchgear._run.state import RunState
from switchgear._run.stuck import STUCK, StuckWatch
from switchgear._stores.base import Transaction
from switchgear._stuck.escalation import Interventions, escalation_key
from switchgear._stuck.messages import Option
from unit.runner_stage import Hands, Stage, Watching

LOOPS = """
for _ in range(30):
    tell(type="tool", name="read", arguments={"path": "a"}, ok=True)
time.sleep(60)
"""
"""Reads the same file again and again, and would then hang."""
WORKS = """
write("done.txt", prompt)
tell(type="result", text="done", success=True)
"""


class Ticking(Watching):
    """Lets time pass with each iteration, so that the stuck score starts again."""

    def __init__(self, hands: Hands) -> None:
        super().__init__()
        self._hands = hands

    def iteration_started(self, number: int, run: dict[str, Any]) -> None:
        self._hands.now_s += 0.01


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.view = Ticking(stage.hands)
    stage.dependencies = stage.dependencies._replace(view=stage.view)
    with_plan(stage)
    return stage


def with_plan(stage: Stage, **fields: object) -> None:
    """The escalation of stuck agents, which are detected by their stuck score alone."""
    plan = Interventions(**{"progress": False, **fields})  # type: ignore[arg-type]
    stage.dependencies = stage.dependencies._replace(interventions=plan)


def test_a_stuck_agent_is_stopped_and_the_next_prompt_has_the_evidence_and_the_hint(
    stage: Stage,
) -> None:
    result = stage.run(f"if n == 1:{_indented(LOOPS)}\n{WORKS}", stuck=True)
    first = stage.iterations()[0]
    assert (first["outcome"], first["stopped"]) == ("stuck", "score")
    assert result.exit_reason == "completed"
    prompt = stage.prompt(2)
    assert "AGENT APPEARS STUCK" in prompt
    assert (
        "- read called 21 times in a row with the same outcome (more than 5 trips) (+40)" in prompt
    )
    assert "Try a different approach." in prompt
    assert "stuck, score 90/100: nudge, by the escalation" in stage.view.notes


def test_the_reported_score_is_that_of_the_trip() -> None:
    moments = itertools.count(1.0, 0.01)
    policy = preset_policy("stuck")
    circuit = CircuitBreaker("session/s1", policy=policy, clock=lambda: next(moments))
    watch = StuckWatch(circuit, lambda: 0)
    step = ToolStep("read", "a", ok=True, error=None, call_key="k", output_key="o")
    assert [watch.see(step) for _ in range(21)][-1] == STUCK
    assert watch.score is not None
    assert watch.score.points == 90.0
    assert len(watch.score.evidence) == 2


def test_without_the_option_the_score_is_not_used(stage: Stage) -> None:
    stage.run(LOOPS.replace("time.sleep(60)", WORKS.strip()))
    assert [each["outcome"] for each in stage.iterations()] == ["completed"]


def test_the_session_of_a_run_shows_its_task_folder_and_cost(stage: Stage) -> None:
    stage.run(f"usage(0.25)\n{WORKS}", stuck=True, task="fix it\nwith password=hunter2x")
    [row] = session_rows(stage.panel)
    assert (row.task, row.project) == ("fix it with password=[redacted]", str(stage.folder))
    assert (row.state, row.spent_micros) == ("ended", stage.run_json()["state"]["spent_micros"])
    assert row.spent_micros


def test_each_step_is_tried_once_and_then_the_task_is_given_up(stage: Stage) -> None:
    with_plan(stage, escalate=stage.command(LOOPS, "klaus.py") + " {prompt}")
    result = stage.run(LOOPS, stuck=True)
    assert [note.rpartition(": ")[2] for note in stage.view.notes if note.startswith("stuck")] == [
        "nudge, by the escalation",
        "reset, by the escalation",
        "escalate, by the escalation",
        "skip, by the escalation",
    ]
    assert (result.exit_reason, result.exit_code) == ("circuit_breaker", 10)
    assert result.reason == "the agent was stuck, and the escalation gave up the task"
    assert len(stage.iterations()) == 4
    assert "An agent before you was stopped" in stage.prompt(3)
    assert "Tried so far: nudge, reset." in stage.prompt(3)


def test_the_escalation_agent_takes_over_with_the_evidence_in_a_file(stage: Stage) -> None:
    klaus = """
write("done.txt", pathlib.Path(os.environ["SWITCHGEAR_EVIDENCE"]).read_text())
tell(type="result", text="done", success=True)
"""
    with_plan(
        stage, when_alone=("escalate",), escalate=stage.command(klaus, "klaus.py") + " {prompt}"
    )
    result = stage.run(LOOPS, stuck=True, model="theirs")
    assert result.exit_reason == "completed"
    evidence = (stage.folder / "done.txt").read_text()
    assert "AGENT APPEARS STUCK" in evidence
    assert "[Hand over]          - Escalate to " in evidence


def test_progress_restarts_the_escalation(stage: Stage) -> None:
    body = f"""
if n in (1, 3):{_indented(LOOPS)}
write(f"part{{n}}.txt", "done")
tell(type="result", text="one part", success=n == 4)
"""
    stage.run(body, stuck=True, completion_promise=None)
    step_names = [note for note in stage.view.notes if note.startswith("stuck")]
    assert step_names == ["stuck, score 90/100: nudge, by the escalation"] * 2


def test_the_escalation_outlasts_the_run(stage: Stage) -> None:
    with_plan(stage, when_alone=())
    assert stage.run(LOOPS, stuck=True).exit_reason == "circuit_breaker"
    stage.record = None
    again = stage.run(LOOPS, stuck=True)
    assert again.state.iterations == 0
    assert again.reason.endswith("is open: an earlier run was given up as stuck")
    stage.panel.order(escalation_key(again.circuit), by="me", why="it is different now", reset=True)
    stage.record = None
    assert stage.run(LOOPS, stuck=True).state.iterations == 1


def test_a_resumed_run_continues_with_the_agent_that_took_over(stage: Stage) -> None:
    with_plan(stage, escalate=stage.command(WORKS, "klaus.py") + " {prompt}")
    state = RunState(iterations=1, helped=True, advice="what was tried")
    assert stage.run(LOOPS, stuck=True, state=state).exit_reason == "completed"
    assert "what was tried" in stage.prompt(2)


def test_unreported_changes_of_a_shell_are_measured(stage: Stage) -> None:
    body = """
for number in range(25):
    write(f"f{number}", "x")
    tell(type="tool", name="bash", arguments={"command": f"touch {number}"}, ok=True)
tell(type="result", text="done", success=True)
"""
    stage.run(body, stuck=True)
    assert [each["outcome"] for each in stage.iterations()] == ["completed"]
    found = stage.panel.view(f"session/run-{stage.record.id if stage.record else ''}")
    assert found is not None
    assert found.circuit.phase == "closed"


# A person chooses


def chosen(stage: Stage, *answers: str | None) -> list[tuple[str, tuple[Option, ...]]]:
    asked: list[tuple[str, tuple[Option, ...]]] = []
    left = list(answers)

    def choose(block: str, options: tuple[Option, ...]) -> str | None:
        asked.append((block, options))
        return left.pop(0)

    stage.dependencies = stage.dependencies._replace(choose=choose)
    return asked


def test_a_person_is_shown_the_block_and_chooses(stage: Stage) -> None:
    asked = chosen(stage, "abort")
    result = stage.run(LOOPS, stuck=True)
    [(block, options)] = asked
    assert block.startswith("AGENT APPEARS STUCK\n\nAgent: python")
    assert "Stuck score: 90/100" in block
    assert [option.key for option in options] == ["nudge", "abort"]  # no help, and no timeout
    assert result.reason == "the agent was stuck, and you gave up the task"


def test_more_time_is_granted_and_reported(stage: Stage) -> None:
    chosen(stage, "extend", "abort")
    result = stage.run(LOOPS, stuck=True, timeout_s=1000.0)
    assert result.state.extra_s == 300.0
    assert "You have more time now." in stage.prompt(2)


def test_without_an_answer_the_escalation_decides(stage: Stage) -> None:
    chosen(stage, None, "abort")
    stage.run(LOOPS, stuck=True)
    assert stage.view.notes[0] == "stuck, score 90/100: nudge, by the escalation"


# An operator steps in from outside


def noted(stage: Stage, change: Callable[[Notes], Notes]) -> None:
    """Change the note of the run, as `switchgear intervene` does."""
    assert stage.record is not None

    def work(tx: Transaction) -> None:
        tx.note = change(Notes.load(tx.note)).dump()

    stage.panel.store.transact(f"session/run-{stage.record.id}", work)


def after_first(stage: Stage, change: Callable[[Notes], Notes]) -> None:
    """Run a function after the first iteration."""
    ended = stage.view.iteration_ended

    def then(facts: dict[str, Any], run: dict[str, Any]) -> None:
        ended(facts, run)
        if facts["number"] == 1:
            noted(stage, change)

    stage.view.iteration_ended = then  # type: ignore[method-assign]


PARTS = 'write(f"f{n}", "x")'


def test_a_hint_from_outside_is_in_the_next_prompt_once(stage: Stage) -> None:
    after_first(stage, lambda notes: session.with_message(notes, "Look at the log."))
    stage.run(PARTS, stuck=True, completion_promise="DONE", max_iterations=3)
    assert ["Look at the log." in stage.prompt(n) for n in (1, 2, 3)] == [False, True, False]


def test_more_time_from_outside_is_granted_once(stage: Stage) -> None:
    after_first(stage, lambda notes: session.with_more_time(notes, 60.0, stage.hands.now_s))
    result = stage.run(
        PARTS, stuck=True, completion_promise="DONE", max_iterations=3, timeout_s=600.0
    )
    assert result.state.extra_s == 60.0


def test_an_abort_from_outside_ends_the_run_and_keeps_the_work(stage: Stage) -> None:
    after_first(stage, lambda notes: notes._replace(stop="why\n\nGiven up."))
    result = stage.run(PARTS, stuck=True, completion_promise="DONE", max_iterations=9)
    assert (result.exit_reason, result.reason) == ("interrupted", "Given up.")
    assert result.state.changed == ("f1",)


def test_an_unavailable_store_stops_no_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str, work: object) -> None:
        raise StoreUnavailable("memory:", "it is gone", "wait")

    monkeypatch.setattr(stage.panel.store, "transact", gone)
    stage.run(f"if n == 1:{_indented(LOOPS)}\n{WORKS}", stuck=True)
    assert [each["outcome"] for each in stage.iterations()] == ["stuck", "completed"]


# Silence


def test_a_silent_process_is_reported_while_it_prints_nothing(tmp_path: Path) -> None:
    told: list[float] = []
    process = AgentProcess(CommandAgent("sleep 5"), "", tmp_path, silence_s=0.05)

    def silent(idle_s: float) -> None:
        told.append(idle_s)
        if len(told) == 3:
            process.stop()

    process.on_silence = silent
    process.run()
    assert len(told) == 3
    assert told == sorted(told)
    assert told[0] >= 0.05


def test_silence_on_top_of_a_loop_stops_the_agent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(process: AgentProcess, began_s: float, last_output_s: float) -> None:
        del began_s, last_output_s
        if process.on_silence is not None:
            process.on_silence(130.0)

    monkeypatch.setattr(AgentProcess, "_check_time", silent)
    chosen(stage, "abort")
    body = LOOPS.replace("range(30)", "range(6)")
    result = stage.run(body, stuck=True)
    assert result.evidence[0].startswith("no tool call for 130 s")


# Time


def test_warnings_are_in_the_prompt_once_each(stage: Stage) -> None:
    body = 'write(f"f{n}", "x")'
    runner = stage.runner(body, timeout_s=600.0, max_iterations=4, completion_promise="DONE")
    advance(runner, stage, 430.0, 500.0, 545.0)
    runner.run()
    said = [
        [line for line in stage.prompt(n).splitlines() if "remaining" in line] for n in (1, 2, 3, 4)
    ]
    assert said[0] == []
    assert said[1][0] == "TIME WARNING: 28% budget remaining. Start wrapping up."
    assert said[2] == []
    assert said[3][0] == "TIME WARNING: 9% budget remaining. Commit now."


def test_hooks_of_the_agent_receive_the_time_of_the_run_and_its_watcher(stage: Stage) -> None:
    body = """
told = [os.environ.get(name, "") for name in ("SWITCHGEAR_TIME", "SWITCHGEAR_WATCHED")]
write("env", json.dumps(told))
"""
    start_s = stage.hands.now_s
    stage.run(body, timeout_s=600.0, stuck=True)
    time, watched = json.loads((stage.folder / "env").read_text())
    began_s, limit_s = session.time_of_run({"SWITCHGEAR_TIME": time}) or (0.0, 0.0)
    assert began_s == pytest.approx(start_s, abs=1.0)
    assert limit_s == 600.0
    assert watched == "1"
    stage.record = None
    stage.run(body.replace('"env"', '"env2"'))
    assert json.loads((stage.folder / "env2").read_text()) == ["", ""]


def advance(runner: Runner, stage: Stage, *marks_s: float) -> None:
    """Move the clock to these times after the iterations, one after the other."""
    start_s, left = stage.hands.now_s, list(marks_s)

    def ended(facts: object, run: object) -> None:
        if left:
            stage.hands.now_s = start_s + left.pop(0)

    runner.context.view.iteration_ended = ended  # type: ignore[method-assign]


def _indented(body: str) -> str:
    return body.replace("\n", "\n    ")
