"""The agents by name, for the command line and the configuration."""

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from switchgear.agents.aider import Aider
from switchgear.agents.base import Agent
from switchgear.agents.claude import Claude
from switchgear.agents.codex import Codex
from switchgear.agents.command import Command
from switchgear.agents.demo_agent import Demo
from switchgear.agents.gemini import Gemini
from switchgear.agents.goose import Goose
from switchgear.agents.mini import Mini
from switchgear.agents.opencode import OpenCode
from switchgear.agents.pi import Pi
from switchgear.agents.qwen import Qwen

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
