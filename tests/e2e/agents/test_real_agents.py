"""Real agent CLIs run headless through our process and our reader, against the scripted API."""

from pathlib import Path

import pytest

from e2e.agents.fake_llm import ScriptedApi
from e2e.agents.worlds import World
from switchgear._agents.events import AgentError, ToolStep
from switchgear._agents.prices import cost_of
from switchgear._agents.process import AgentProcess, AgentRun, ProcessEnd

pytestmark = [pytest.mark.e2e_agents, pytest.mark.timeout(240)]


def run(world: World, project: Path, deadline_s: float = 150.0) -> AgentRun:
    process = AgentProcess(
        world.agent,
        "Check the settings.",
        project,
        model=world.model,
        env=world.env,
        deadline_s=deadline_s,
        grace_s=2.0,
    )
    return process.run()


def steps_of(done: AgentRun) -> list[ToolStep]:
    return [event for event in done.events if isinstance(event, ToolStep)]


def test_steps_outcomes_usage_and_result_are_read(
    world: World, api: ScriptedApi, project: Path
) -> None:
    done = run(world, project)
    assert done.end is ProcessEnd.EXITED, done
    assert done.exit_code == 0, done.tail
    [step] = steps_of(done)
    assert step.ok is True
    assert "echo hello" in step.arguments
    assert done.result is not None
    assert done.result.text == "Done."
    assert done.result.claimed_success is True
    assert sum(usage.input_tokens for usage in done.usage) >= 2_000
    assert sum(usage.output_tokens for usage in done.usage) >= 40
    cost = cost_of(done.usage)
    assert cost.micros is not None, cost.unknown
    assert cost.micros > 0
    assert done.unknown_lines == 0, done.tail


def test_a_failing_command_is_a_failed_step_with_its_error(
    world: World, api: ScriptedApi, project: Path
) -> None:
    api.play("same-error")
    done = run(world, project)
    [step] = steps_of(done)
    assert step.ok is False
    assert "No such file" in str(step.error)


def test_an_endless_loop_is_stopped_from_outside_and_repeats_one_call(
    world: World, api: ScriptedApi, project: Path
) -> None:
    api.play("same-error-for-ever")
    process = AgentProcess(
        world.agent,
        "Check the settings.",
        project,
        model=world.model,
        env=world.env,
        deadline_s=150.0,
        grace_s=2.0,
        on_event=lambda event: process.stop() if seen(event) else None,
    )
    failed: list[ToolStep] = []

    def seen(event: object) -> bool:
        if isinstance(event, ToolStep) and event.ok is False:
            failed.append(event)
        return len(failed) == 3

    done = process.run()
    assert done.end is ProcessEnd.STOPPED, done
    assert len({step.call_key for step in failed}) == 1


SILENT = ("qwen",)
"""They try again for minutes without a word; `switchgear run` has a test that waits for the end."""


@pytest.mark.parametrize("scenario", ["server-errors", "refused"])
def test_a_dead_provider_is_reported_as_soon_as_the_agent_reports_it(
    world: World, api: ScriptedApi, project: Path, scenario: str
) -> None:
    if world.agent.name in SILENT:
        pytest.skip(f"{world.agent.name} says nothing while it tries again")
    if scenario == "refused":
        api.refuse()
    else:
        api.play(scenario)
    process = AgentProcess(
        world.agent,
        "Check the settings.",
        project,
        model=world.model,
        env=world.env,
        deadline_s=150.0,
        grace_s=2.0,
        on_event=lambda event: process.stop() if isinstance(event, AgentError) else None,
    )
    done = process.run()
    errors = [event for event in done.events if isinstance(event, AgentError)]
    assert errors, done
    assert errors[0].kind in {"server", "connection", "overloaded"}, errors
    assert done.result is None or done.result.claimed_success is False
    assert steps_of(done) == []
