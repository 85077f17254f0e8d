"""Our commands in the settings of agents: which there are, and how one is known to be ours.

What agents accept was tried with the real programs: Claude Code and Qwen Code ignore a file silently
if it is not to their liking, Gemini CLI does not start, Codex reports it in the middle of a run.
"""

import os
import shlex
import stat
from itertools import pairwise

from switchgear._agents.hook_protocol import (
    LOCAL,
    PROJECT,
    SCOPES,
    TIMEOUT_S,
    USER,
    HookSettings,
)
from switchgear._agents.registry import ROWS, hook_names, hook_settings
from switchgear._hooks.command import OR_REFUSE, hook_command
from switchgear._hooks.install.edit import Group

__all__ = ["LOCAL", "PROJECT", "SCOPES", "TIMEOUT_S", "USER", "HookSettings"]

HOOKED = {name: hook_settings(name) for name in hook_names()}
"""The settings of each agent that has hooks, by its name in the hook command."""
ALIASES = {alias: row.hook_name for row in ROWS for alias in row.aliases}
"""Other names by which people call the agents."""
LARGEST_SETTINGS = 4_000_000
"""Characters of settings that are searched for a hook."""
_ENTRY = "switchgear/hooks/entry.py"
_SCRIPT = "switchgear-hook"


def command_line(agent: HookSettings, scope: str, folder: str) -> str:
    """The command line that belongs into the settings of an agent."""
    root = None if scope == USER else os.path.abspath(folder)
    return shlex.join(hook_command(agent.name, root=root))


def groups(agent: HookSettings, command: str) -> dict[str, Group]:
    """What belongs into the settings of an agent, for each event."""
    hook: dict[str, object] = {"type": "command", "command": command, "timeout": agent.timeout}
    if agent.named:
        hook = {"name": "switchgear", **hook}
    matched = {event: {"matcher": "*", "hooks": [hook]} for event in agent.tool_events}
    for event in agent.before_tool:
        matched[event] = {"matcher": "*", "hooks": [{**hook, "command": command + OR_REFUSE}]}
    return {**matched, **{event: {"hooks": [hook]} for event in agent.other_events}}


def wired(folder: str) -> list[str]:
    """The settings and plugins of all agents that hold a hook of ours."""
    files = {agent.file(scope, folder) for agent in HOOKED.values() for scope in agent.scopes}
    return sorted(path for path in files if _mentions_us(path))


def _mentions_us(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, encoding="utf-8", errors="replace") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return False
            text = file.read(LARGEST_SETTINGS)
    except OSError:
        return False
    return any(sign in text for sign in (_ENTRY, _SCRIPT, "/hooks/claude-code"))


def is_ours(command: str) -> bool:
    """Whether a command line of some settings runs our hook, of this installation or another.

    >>> is_ours("python3 -I -S /opt/switchgear/hooks/entry.py codex"), is_ours("ls")
    (True, False)
    """
    try:
        words = [word.replace("\\", "/") for word in shlex.split(command)]
    except ValueError:
        return False
    for word, behind in pairwise(words):
        ours = word.endswith(f"/{_ENTRY}") or word == _ENTRY
        if (ours or os.path.basename(word) == _SCRIPT) and behind in HOOKED:
            return True
    return False
