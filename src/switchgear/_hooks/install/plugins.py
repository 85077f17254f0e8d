"""Our plugin for OpenCode and our extension for pi: files that are ours alone.

They are shipped in two parts: how the hook is asked, and what the agent's events have to do with
it. An installation puts them together and fills in the command line; the line with it is how a file
is known to be ours.
"""

import json
import os
import shlex
from typing import Any

from switchgear._hooks.command import hook_command
from switchgear._hooks.install import files
from switchgear._hooks.install.agents import PROJECT, HookSettings
from switchgear._hooks.install.files import CannotChange, Journal, Memory
from switchgear._hooks.install.outcome import InstallChange, InstallState, gone

_MARK = "const SWITCHGEAR = "
_HEAD = """\
// Switchgear in {title}: asks before each tool call, tells after it, and does what it is told.
// Written by `switchgear hooks install {name}`, which replaces it; `switchgear hooks uninstall
// {name}` removes it. Changes made here are lost.
"""
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plugin_files")


class PluginFile:
    """The plugin of one agent for one scope; see `Place`. Used by one thread."""

    def __init__(self, agent: HookSettings, scope: str, folder: str) -> None:
        self.agent = agent
        self.path = agent.file(scope, folder)
        root = os.path.abspath(folder) if scope == PROJECT else None
        self._command = hook_command(agent.name, root=root)
        self._memory = Memory(self.path)

    def install(self) -> InstallChange:
        """Write our file; somebody else's of the same name is left alone."""
        data = self._made()
        with self._memory.locked():
            now = files.read(self.path)
            if now == data:
                return InstallChange(self.path, changed=False)
            if now is not None and _told(now) is None:
                why = "there is another file of that name, and it is not ours"
                raise CannotChange(self.path, why, "move it away, then try again")
            backup = None if now is None else self._memory.back_up(now)
            journal = self._memory.journal()
            folders = files.write(self.path, data, now)
            folders = (*folders, *(journal.folders if journal else ()))
            self._memory.keep(Journal(files.digest(data), None, {}, folders))
        return InstallChange(self.path, changed=True, backup=backup)

    def uninstall(self) -> InstallChange:
        """Remove our file, and the folders that were made for it."""
        if not os.path.lexists(self.path):
            return InstallChange(self.path, changed=False)
        with self._memory.locked():
            now = files.read(self.path)
            if now is None or _told(now) is None:
                return InstallChange(self.path, changed=False)
            backup = self._memory.back_up(now)
            journal = self._memory.journal()
            files.remove(self.path, now, journal.folders if journal else ())
            self._memory.forget()
        return InstallChange(self.path, changed=True, backup=backup, removed=True)

    def look(self) -> InstallState:
        """What is there."""
        try:
            now = files.read(self.path)
        except CannotChange as error:
            return InstallState(self.path, trouble=error.args[1])
        told = None if now is None else _told(now)
        if told is None:
            return InstallState(self.path, exists=now is not None, missing=self.agent.events)
        command = shlex.join(told["command"])
        return InstallState(
            self.path,
            commands=(command,),
            events=self.agent.events,
            outdated=now != self._made(),
            gone=tuple(gone(command)),
        )

    def commands(self) -> dict[str, str]:
        """The command of the plugin, for each event that it passes on."""
        now = files.read(self.path)
        told = None if now is None else _told(now)
        command = "" if told is None else shlex.join(told["command"])
        return dict.fromkeys(self.agent.events, command) if command else {}

    def _made(self) -> bytes:
        facts = {"command": self._command, "timeout_s": self.agent.timeout}
        asking = _part("asking").replace(_MARK + "{}", _MARK + json.dumps(facts))
        head = _HEAD.format(title=self.agent.title, name=self.agent.name)
        return f"{head}{asking}\n{_part(self.agent.name)}".encode()


def _part(name: str) -> str:
    with open(os.path.join(_FOLDER, f"{name}.js"), encoding="utf-8") as file:
        return file.read()


def _told(data: bytes) -> dict[str, Any] | None:
    """What a file of ours says of itself; `None`: it is not ours."""
    for line in data.decode(errors="replace").splitlines():
        if line.startswith(_MARK):
            try:
                told = json.loads(line.removeprefix(_MARK))
            except ValueError:
                return None
            words = told.get("command") if isinstance(told, dict) else None
            good = isinstance(words, list) and all(isinstance(word, str) for word in words)
            return told if good and words else None
    return None
