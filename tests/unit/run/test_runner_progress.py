"""The progress detectors in a run: an agent without progress is warned, stopped and restarted."""

from pathlib import Path

import pytest

from switchgear import CircuitBreaker
from switchgear._agents.events import AgentResult, StreamEvent, TextOutput, ToolStarted, ToolStep
from switchgear._config import preset_policy
from switchgear._measure.test_counts import SuiteCounts
from switchgear._run.stuck import STUCK, StuckWatch
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.score import session_policy
from switchgear.testing import FakeClock
from unit.run.test_runner_stuck import WORKS, Ticking, _indented
from unit.runner_stage import Stage

REWORDS = """
thoughts = (
    "The parser still rejects the header, so I look at how the header is parsed once more.",
    "Looking again at how the parser parses the header, as it still rejects it once more.",
    "I look once more at the header and how the parser parses it, since it is still rejected.",
)
for k in range(STEPS):
    tell(type="text", text=thoughts[k % 3])
    tell(type="tool", name="read", arguments={"path": "parser.py", "line": k}, ok=True, output="x = 1")
"""
FOREVER = REWORDS.replace("STEPS", "40") + "time.sleep(60)\n"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.view = Ticking(stage.hands)
    stage.dependencies = stage.dependencies._replace(view=stage.view)
    return stage


POLICY = session_policy(preset_policy("stuck"), preset_policy("progress"))


def test_an_agent_without_progress_in_new_words_is_stopped_with_the_score(
    stage: Stage,
) -> None:
    result = stage.run(f"if n == 1:{_indented(FOREVER)}\n{WORKS}", stuck=True)
    first = stage.iterations()[0]
    assert (first["outcome"], first["stopped"]) == ("stuck", "score")
    assert result.exit_reason == "completed"
    prompt = stage.prompt(2)
    assert "AGENT APPEARS STUCK" in prompt
    assert "no progress for" in prompt
    assert "(60 on its own)" in prompt
    assert any(note.endswith("nudge, by the escalation") for note in stage.view.notes)


def test_each_stop_is_a_step_and_at_the_end_the_task_is_given_up(stage: Stage) -> None:
    stage.dependencies = stage.dependencies._replace(
        interventions=Interventions(when_alone=("nudge",))
    )
    result = stage.run(FOREVER, stuck=True)
    assert (result.exit_reason, len(stage.iterations())) == ("circuit_breaker", 2)
    assert any("no progress for" in each for each in result.evidence)


def test_a_warning_waits_for_the_next_prompt(stage: Stage) -> None:
    for steps in range(3, 20):
        fresh = Stage(stage.folder.parent / f"try{steps}")
        fresh.view = Ticking(fresh.hands)
        fresh.dependencies = fresh.dependencies._replace(view=fresh.view)
        told = REWORDS.replace("STEPS", str(steps))
        fresh.run(f"if n == 1:{_indented(told)}\nelse:{_indented(WORKS)}", stuck=True)
        prompt = fresh.prompt(2)
        if "Switchgear warns: score " in prompt:
            assert " (trips at 60): no progress for " in prompt
            return
    pytest.fail("no number of steps led to a warning")


def test_the_progress_detectors_can_be_switched_off(stage: Stage) -> None:
    stage.dependencies = stage.dependencies._replace(interventions=Interventions(progress=False))
    stage.run(REWORDS.replace("STEPS", "15") + WORKS, stuck=True)
    assert [each["outcome"] for each in stage.iterations()] == ["completed"]


def watch(state: list[str] | None = None) -> StuckWatch:
    states = iter(state or [])
    clock = FakeClock()
    circuit = CircuitBreaker("session/x", policy=POLICY, clock=clock)
    return StuckWatch(circuit, lambda: 1, state=lambda: next(states, None))


def fed(seen: StuckWatch, *events: StreamEvent) -> list[str | None]:
    return [seen.see(event) for event in events]


def test_new_states_of_the_folder_reduce_the_score_and_undoing_does_not() -> None:
    def edits(states: list[str]) -> list[str | None]:
        seen = watch(states)
        step = ToolStep("edit", "a.py", True, None, ("a.py",), output="edited")
        return [
            answer
            for n in range(len(states))
            for answer in fed(seen, TextOutput(f"I try value {n} in the file"), step)
        ]

    assert STUCK not in edits([f"state {n}" for n in range(30)])
    assert STUCK in edits(["one", "two"] * 15)


def delegating(*, apart: bool) -> list[str | None]:
    """Three sub-agents that fail in the same way, each only twice, as one or as three."""
    made: list[str] = []
    clock = FakeClock()

    def circuit(name: str) -> CircuitBreaker:
        made.append(name)
        return CircuitBreaker(f"session/x/agent/{name}", policy=POLICY, clock=clock)

    seen = StuckWatch(circuit(""), lambda: 0, sub_agent=circuit if apart else None)
    heard = [
        seen.see(ToolStep("bash", "make", False, "make: no rule", output="no rule", agent=agent))
        for _ in range(2)
        for agent in ("a", "b", "c")
    ]
    assert made == (["", "a", "b", "c"] if apart else [""])
    return heard


def test_each_sub_agent_is_evaluated_by_its_own_steps() -> None:
    assert STUCK in delegating(apart=False)
    assert STUCK not in delegating(apart=True)


def test_a_stuck_sub_agent_ends_the_iteration_and_is_named() -> None:
    clock = FakeClock()
    sub = CircuitBreaker("session/x/agent/a", policy=preset_policy("stuck"), clock=clock)
    own = CircuitBreaker("session/x", policy=POLICY, clock=clock)
    seen = StuckWatch(own, lambda: 0, sub_agent=lambda _: sub)
    step = ToolStep("bash", "make", False, "make: no rule", output="no rule", agent="a")
    assert STUCK in fed(seen, *[step] * 5)
    assert seen.score is not None
    assert "the same error" in "".join(seen.score.evidence)


def test_a_different_set_of_failing_tests_reduces_the_score() -> None:
    points = []
    for last in (("a", "b"), ("b",)):
        seen = watch()
        for _ in range(2):
            seen.see(ToolStep("bash", "make", False, "make: no rule", output="no rule"))
            seen.validated(SuiteCounts(5, 2, ("a", "b")), ok=False)
        seen.validated(SuiteCounts(6, len(last), last), ok=False)
        circuit = seen._own.circuit
        kinds = [detector.kind for detector in circuit.policy.detectors]
        memories = circuit._circuit.memories
        points.append(memories[kinds.index("stagnation")].points)
    assert points[0] > points[1]


def test_the_same_reply_without_a_tool_is_recognised_across_iterations() -> None:
    seen = watch()
    reply = AgentResult("I cannot go on without the password of the database server", None)
    assert fed(seen, *[reply] * 5)[-1] == STUCK
    assert seen.score is not None
    assert "no tool call, the same reply" in seen.score.evidence[0]


def test_clock_times_in_the_output_of_a_poll_are_not_new_information() -> None:
    def polled(percent: list[int]) -> list[str | None]:
        seen = watch()
        return [
            answer
            for n, each in enumerate(percent)
            for answer in fed(
                seen,
                ToolStarted("bash", "curl status", "k"),
                ToolStep(
                    *("bash", "curl status", True, None, (), f"k{n}", 9, False, f"o{n}"),
                    f"12:00:{n:02} the build is at {each} %",
                ),
            )
        ]

    assert STUCK in polled([30] * 20)
    assert STUCK not in polled(list(range(20)))
