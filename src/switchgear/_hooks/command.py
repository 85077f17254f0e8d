"""The command line of the hook process, as agents' settings hold it.

It works from any folder and with any environment: an absolute interpreter that ignores the
environment and the user's site-packages (`-I -S`), and the absolute path of `entry.py`, which
finds the rest of Switchgear beside itself.
"""

import os
import sys
from typing import NoReturn

from switchgear._agents.registry import hook_names

AGENTS = hook_names()
"""The agents that have hooks, a plugin or an extension, by the names of the command."""


OR_REFUSE = " || exit 2"
"""Behind the command of an event before a tool: a hook that cannot even start refuses the call.

A missing interpreter, a process that is killed: the shell that the agent starts sees their exit code,
and only exit code 2 is a refusal to agents.
"""


def hook_command(agent: str, *, root: str | None = None) -> list[str]:
    """The words of the command that an agent runs for each of its events.

    - `agent`: one of `AGENTS`; else ValueError.
    - `root`: the project that is guarded, whatever folder the agent works in at the moment. A
      project's own installation names it; without it the agent's own project folder is used.

    >>> hook_command("codex")[1:3]
    ['-I', '-S']
    >>> hook_command("codex", root="/srv/shop")[-2:]
    ['--root', '/srv/shop']
    """
    if agent not in AGENTS:
        raise ValueError(f"agent is {agent!r}: it must be one of {', '.join(AGENTS)}")
    # That of the virtual environment, if there is one: a changed configuration is read by its YAML.
    python = sys.executable
    entry = os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "hooks", "entry.py"
    )
    words = [os.path.abspath(python), "-I", "-S", entry, agent]
    return words if root is None else [*words, "--root", os.path.abspath(root)]


def run() -> NoReturn:
    """The console script `switchgear-hook AGENT [--root FOLDER]`: becomes the hook process."""
    words = sys.argv[1:]
    agent = words[0] if words and words[0] in AGENTS else AGENTS[0]
    command = [*hook_command(agent)[:4], *words]  # the process reports what is wrong with them
    try:
        os.execv(command[0], command)  # noqa: S606  our own interpreter and script
    except OSError as error:
        sys.stderr.write(f"switchgear-hook: cannot start {command[0]}: {error}\n")
        sys.exit(2)  # an agent must not take it for an approval
