"""From an agent and a scope to the file that holds its hooks."""

import os

from switchgear._hooks.command import AGENTS
from switchgear._hooks.install.agents import HOOKED, PROJECT, USER
from switchgear._hooks.install.outcome import HookFile
from switchgear._hooks.install.plugins import PluginFile
from switchgear._hooks.install.settings import SettingsFile


def place(agent: str, scope: str, folder: str) -> HookFile:
    """Where the hook of an agent belongs, for `project` or `local` (in `folder`) or `user`.

    Raises ValueError for an agent that has no hooks.
    """
    if agent not in HOOKED:
        raise ValueError(f"agent is {agent!r}: it must be one of {', '.join(AGENTS)}")
    hooked = HOOKED[agent]
    if hooked.is_plugin:
        return PluginFile(hooked, scope, folder)
    return SettingsFile(hooked, scope, folder)


def scopes_of(agent: str, folder: str) -> tuple[str, ...]:
    """The scopes that differ in a folder: in one's home, most projects' settings are the user's."""
    hooked = HOOKED[agent]
    shared = os.path.realpath(hooked.file(USER, folder))
    apart = [
        scope
        for scope in hooked.scopes
        if scope == USER or os.path.realpath(hooked.file(scope, folder)) != shared
    ]
    return tuple(apart) if PROJECT in apart else (USER,)
