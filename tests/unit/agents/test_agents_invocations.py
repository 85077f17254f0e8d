"""The command lines: what is started, with the prompt where it cannot be mistaken."""

import pytest

from switchgear._agents.base import as_argument
from switchgear._agents.command import CommandAgent
from switchgear._agents.registry import AGENTS, agent_named, agent_of_command

NASTY = "--help; $(rm -rf .) 'quoted' \"twice\" \n@file"


def test_every_agent_has_a_name_and_an_install_command() -> None:
    assert list(AGENTS) == sorted(AGENTS)
    for name in AGENTS:
        agent = agent_named(name)
        assert agent.name == name
        assert agent.install


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_the_prompt_is_one_argument_or_stdin_and_never_an_option(name: str) -> None:
    invocation = agent_named(name).invocation(NASTY)
    holders = [part for part in invocation.argv if NASTY in part]
    if invocation.stdin is not None:
        assert invocation.stdin == NASTY
        assert holders == []
    else:
        [holder] = holders
        assert not holder.startswith("--help")


@pytest.mark.parametrize("name", sorted(set(AGENTS) - {"demo"}))
def test_a_model_and_further_arguments_are_passed_on(name: str) -> None:
    argv = agent_named(name).invocation("do it", model="some/model", extra=("--more", "x")).argv
    assert argv[argv.index("--model") + 1] == "some/model"
    assert argv[argv.index("--more") + 1] == "x"
    assert "--model" not in agent_named(name).invocation("do it").argv


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("claude", ("claude", "-p", "--output-format", "stream-json", "--verbose")),
        ("codex", ("codex", "exec", "--json", "--skip-git-repo-check")),
        ("gemini", ("gemini", "--output-format", "stream-json", "--approval-mode", "yolo")),
        ("qwen", ("qwen", "--output-format", "stream-json", "--approval-mode", "yolo")),
        ("opencode", ("opencode", "run", "--format", "json", "--print-logs")),
        ("pi", ("pi", "--mode", "json", "-p")),
        ("goose", ("goose", "run", "--output-format", "stream-json")),
        ("aider", ("aider", "--yes-always", "--no-pretty")),
        ("mini", ("mini", "--yolo", "--exit-immediately")),
    ],
)
def test_agents_are_started_headless_by_their_own_commands(
    name: str, parts: tuple[str, ...]
) -> None:
    assert agent_named(name).invocation("do it").argv[: len(parts)] == parts


def test_a_prompt_too_long_for_an_argument_is_refused_with_the_solution() -> None:
    with pytest.raises(ValueError, match="120000; put the details into a file"):
        as_argument("é" * 60_001)
    assert agent_named("claude").invocation("x" * 1_000_000).stdin


def test_the_placeholder_of_a_command_becomes_the_prompt_as_one_argument() -> None:
    agent = CommandAgent("my-agent --task 'do: {prompt}' --json")
    assert agent.invocation("a 'b' c", extra=("-v",)).argv == (
        *("my-agent", "--task", "do: a 'b' c", "--json", "-v"),
    )
    assert agent.invocation("x").stdin is None


def test_a_command_without_a_placeholder_reads_the_prompt() -> None:
    invocation = CommandAgent("my-agent --stdin").invocation("a prompt")
    assert invocation == (("my-agent", "--stdin"), "a prompt", {})


@pytest.mark.parametrize("command", ["", "  ", "'unclosed", "{prompt} x"])
def test_a_command_without_a_program_is_refused(command: str) -> None:
    with pytest.raises(ValueError, match="the agent's command"):
        CommandAgent(command)


def test_a_misspelt_agent_is_refused_with_the_nearest() -> None:
    told = r"^there is no agent 'cluade'; did you mean 'claude'\? For any other agent, give its command, "
    with pytest.raises(ValueError, match=told):
        agent_named("cluade")
    told = r"^there is no agent 'nope'; choose one of aider, claude, .*\. For any other agent, give its "
    with pytest.raises(ValueError, match=told):
        agent_named("nope")
    with pytest.raises(
        ValueError, match="no scenario 'slep' of the demo agent; known: story, works"
    ):
        agent_named("demo:slep")


def test_a_command_of_an_unknown_program_is_plain() -> None:
    assert isinstance(agent_of_command("mine {prompt}"), CommandAgent)
