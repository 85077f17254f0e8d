"""The command line of the hook process, as it is written to the settings of agents.

It works in any folder and with any environment: it names the interpreter by its absolute path, ignores the
environment and site-packages (`-I -S`), and names the absolute path of `entry.py`, which finds the rest of
Switchgear relative to itself.
"""

import os
import sys
from typing import NoReturn

from switchgear._agents.registry import hook_names

AGENTS = hook_names()
"""The agents that have hooks, a plugin or an extension, by their names in the hook command."""


OR_REFUSE = " || exit 2"
"""Appended to the command of an event before a tool, so that a hook that cannot start refuses the call.

If the interpreter is missing or the process is killed, the agent's shell gets another exit code than 2, and
agents take only exit code 2 as a refusal.
"""


def hook_command(agent: str, *, root: str | None = None) -> list[str]:
    """The words of the command that an agent runs for each of its events.

    - `agent`: one of `AGENTS`; else ValueError.
    - `root`: the project that is guarded, whatever folder the agent works in. Hooks in a project's settings
      name it; without it, the project folder of the agent is used.

    >>> hook_command("codex")[1:3]
    ['-I', '-S']
    >>> hook_command("codex", root="/srv/shop")[-2:]
    ['--root', '/srv/shop']
    """
    if agent not in AGENTS:
        raise ValueError(f"agent is {agent!r}: it must be one of {', '.join(AGENTS)}")
    # The interpreter of the virtual environment, if there is one: it has the YAML parser.
    python = sys.executable
    entry = os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "hooks", "entry.py"
    )
    words = [os.path.abspath(python), "-I", "-S", entry, agent]
    return words if root is None else [*words, "--root", os.path.abspath(root)]


def run() -> NoReturn:
    """The console script `switchgear-hook AGENT [--root FOLDER]`: replaces itself with the hook process."""
    words = sys.argv[1:]
    agent = words[0] if words and words[0] in AGENTS else AGENTS[0]
    command = [*hook_command(agent)[:4], *words]  # the hook process reports invalid arguments
    try:
        os.execv(command[0], command)  # noqa: S606  our own interpreter and script
    except OSError as error:
        sys.stderr.write(f"switchgear-hook: cannot start {command[0]}: {error}\n")
        sys.exit(2)  # agents take other exit codes for an approval
