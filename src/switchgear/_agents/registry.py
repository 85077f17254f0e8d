"""The agents by name, for the command line and the configuration."""

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from switchgear._agents.aider import Aider
from switchgear._agents.base import Agent
from switchgear._agents.claude_code.command import Claude
from switchgear._agents.codex.command import Codex
from switchgear._agents.command import Command
from switchgear._agents.demo.agent import Demo
from switchgear._agents.gemini.command import Gemini
from switchgear._agents.goose import Goose
from switchgear._agents.mini_swe_agent.command import Mini
from switchgear._agents.opencode.command import OpenCode
from switchgear._agents.pi.command import Pi
from switchgear._agents.qwen.command import Qwen

AGENTS: Mapping[str, Agent] = MappingProxyType(
    {
        agent.name: agent
        for agent in (
            Aider(),
            Claude(),
            Codex(),
            Demo(),
            Gemini(),
            Goose(),
            Mini(),
            OpenCode(),
            Pi(),
            Qwen(),
        )
    }
)  # fmt: skip


def agent_named(name: str) -> Agent:
    """The agent of that name; `demo:hangs` is the stand-in in one of its scenarios.

    Raises ValueError that names the nearest, else all.

    >>> agent_named("codex").name
    'codex'
    """
    base, _, scenario = name.partition(":")
    if base == "demo" and scenario:
        return Demo(scenario)
    if name in AGENTS:
        return AGENTS[name]
    near = difflib.get_close_matches(name, AGENTS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(AGENTS)}."
    raise ValueError(
        f"there is no agent {name!r}; {hint}"
        " For any other give its command, with {prompt} where the prompt belongs"
    )


def agent_of_command(command: str) -> Agent:
    """An agent for any command. One of a known program that prints JSON is read as that agent.

    >>> agent_of_command("my-agent --task {prompt}").name
    'command'
    """
    plain = Command(command)
    known = AGENTS.get(plain.program)
    if known is not None and any("json" in part for part in plain.argv):
        return Command(command, known.reader)
    return plain


def helper_named(who: str) -> Agent:
    """Who takes over from a stuck agent: an agent by its name, or any command.

    Raises ValueError for one word that is no agent's name.

    >>> helper_named("codex").name, helper_named("./debug.sh {prompt}").name
    ('codex', 'command')
    """
    known = who.partition(":")[0] in AGENTS
    return agent_named(who) if known or not who.split()[1:] else agent_of_command(who)
