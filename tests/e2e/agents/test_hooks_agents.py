"""Real agents guarded from inside: warned, refused and stopped by the hooks that we installed."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.agents.hooked import HOOK_NAMES, Guarded, ScriptedModel, shell
from e2e.agents.installation import REQUIRED, program
from e2e.agents.scripts_of_models import Turn
from e2e.agents.worlds import world_of

pytestmark = [pytest.mark.e2e_agents, pytest.mark.timeout(600)]
Guard = Callable[..., tuple[Guarded, ScriptedModel]]
FAILING = shell(*(f"cat settings-{number}.toml" for number in range(200)))
"""Never twice the same command, so that no agent's own guard is faster than ours."""


@pytest.fixture(params=HOOK_NAMES)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    if not program(chosen).exists():
        message = f"{chosen} is not installed; `make e2e` installs it"
        if chosen in REQUIRED:
            pytest.fail(message)
        pytest.skip(message)
    return chosen


@pytest.fixture
def guard(name: str, project: Path, homes: Path) -> Iterator[Guard]:
    """The agent with installed hooks, and its scripted model."""
    running: list[ScriptedModel] = []

    def make(*turns: Turn) -> tuple[Guarded, ScriptedModel]:
        model = ScriptedModel(*turns)
        running.append(model)
        world = world_of(name, model.__enter__().url, homes / f"hooked-{name}")
        guarded = Guarded(name, world, project)
        guarded.switchgear("hooks", "install", guarded.name)
        return guarded, model

    yield make
    for model in running:
        model.__exit__(None, None, None)
        assert model.problems == []


def test_a_loop_of_failing_calls_is_warned_and_then_stopped(guard: Guard) -> None:
    guarded, model = guard(*FAILING)
    ended = guarded.run()
    opened = [
        event["reason"]
        for event in guarded.events()
        if event["circuit"].startswith("session/") and "the same error" in event["reason"]
    ]
    # Once for the nudge and once for the end.
    assert len(opened) >= 2, ended.output[-3000:]
    assert model.requests < 40, "nobody stopped it"
    assert "the same error" in opened[-1]
    assert model.was_told("AGENT APPEARS STUCK"), model.bodies[-1][-3000:]
    assert model.was_told("the same error 4 times in a row")
    # It ran headless: a person reads on its error output why it ended, and what to do.
    assert "Switchgear stopped session " in ended.output, ended.output[-3000:]
    assert " --why TEXT" in ended.output


def test_an_open_circuit_of_git_blocks_git_and_nothing_else(guard: Guard, project: Path) -> None:
    guarded, model = guard(
        *shell("git tag released", "echo done > made.txt", "cd . && git tag again", "ls")
    )
    guarded.switchgear("hold", "open", "op/git_operations", "--create", "--why", "a trial")
    ended = guarded.run()
    tags = subprocess.run(["git", "tag"], cwd=project, capture_output=True, text=True, check=True)
    assert tags.stdout == "", ended.output[-3000:]
    assert (project / "made.txt").read_text() == "done\n"
    assert model.was_told("circuit 'op/git_operations' is")
    assert model.requests == 5


def test_an_agent_cannot_release_its_own_circuit(guard: Guard, name: str, project: Path) -> None:
    guarded, model = guard(
        *shell(
            "switchgear release op/git_operations --why 'I am done'",
            f"switchgear hooks uninstall {HOOK_NAMES[name]}",
            "echo 'circuits: []' > switchgear.yaml",
            "git tag released",
        )
    )
    guarded.switchgear("hold", "open", "op/git_operations", "--create", "--why", "a trial")
    ended = guarded.run()
    broken = [event for event in guarded.events() if event["kind"] == "rule_broken"]
    assert len(broken) >= 3, ended.output[-3000:]
    guarded.switchgear("hooks", "status", guarded.name)
    assert not (project / "switchgear.yaml").exists()
    tags = subprocess.run(["git", "tag"], cwd=project, capture_output=True, text=True, check=True)
    assert tags.stdout == ""
    assert model.was_told("Switchgear refused this call")


def test_the_doctor_asks_codex_itself_which_hooks_it_trusts(project: Path, homes: Path) -> None:
    if not program("codex").exists():
        pytest.fail("codex is not installed; `make e2e` installs it")
    world = world_of("codex", "http://127.0.0.1:1", homes / "doctored-codex")
    guarded = Guarded("codex", world, project)
    guarded.switchgear("hooks", "install", "codex")
    told = guarded.switchgear("hooks", "doctor", "codex", good=(2,))
    assert "Codex ignores this project's hooks" in told
    guarded.switchgear("hooks", "uninstall", "codex")
    guarded.switchgear("hooks", "install", "codex", "--scope", "user")
    told = guarded.switchgear("hooks", "doctor", "codex", good=(2,))
    assert "Codex trusts 0 of 8 hooks, and skips the others silently" in told


TOLD_BY_TRANSCRIPTS = {"claude": 150_000 * 3 + 1_000 * 15, "codex": 197_500, "gemini": 197_500}
"""Millionths of a dollar for an answer of 150,000 tokens and 1,000 of output, by the price list."""


@pytest.mark.parametrize("name", TOLD_BY_TRANSCRIPTS)
def test_the_cost_of_an_answer_is_charged_to_the_task_once(
    name: str, guard: Guard, project: Path
) -> None:
    if not program(name).exists():
        pytest.fail(f"{name} is not installed; `make e2e` installs it")
    budget = "{total_cost: {budget_micros: 300000, threshold: 1}}"
    (project / "switchgear.yaml").write_text(
        f"circuits: [{{match: story/*, policy: {{detectors: [{budget}], recovery: latched}}}}]\n"
        "hooks: {story: S-1}\n"
    )
    # More than an agent can make before it is interrupted: Codex makes 25 in a second.
    turns = [Turn(shell=f"echo {n}", input_tokens=150_000, output_tokens=1_000) for n in range(90)]
    guarded, model = guard(*turns)
    ended = guarded.run()
    told = json.loads(guarded.switchgear("show", "story/S-1", "--json", good=(0, 1)))
    charged, rest = divmod(told["totals"]["cost_micros"], TOLD_BY_TRANSCRIPTS[name])
    assert rest == 0, ended.output[-3000:]
    assert charged * TOLD_BY_TRANSCRIPTS[name] > 300_000
    # The last answer may not have been written down when the agent is interrupted.
    assert charged in {model.requests, model.requests - 1}
    assert model.requests < len(turns), "it was not stopped"
