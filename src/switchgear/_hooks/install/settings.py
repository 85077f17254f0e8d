"""Hooks in the files of agents: entries in settings, and plugins for OpenCode and pi.

The real programs react differently to an invalid settings file: Claude Code and Qwen Code ignore it silently,
Gemini CLI does not start, and Codex reports it in the middle of a run. A plugin has two parts, the call of the
hook and the events of the agent; a line with the command identifies it as a Switchgear plugin.
"""

import json
import os
import shlex
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Any, NamedTuple

from switchgear._agents.fields import at, parsed
from switchgear._agents.hook_protocol import PROJECT, USER, HookSettings
from switchgear._agents.registry import ROWS, hook_names, hook_settings, hooks_of
from switchgear._hooks.command import AGENTS, OR_REFUSE, hook_command
from switchgear._hooks.install import edit, files
from switchgear._hooks.install.edit import Group, NotJson, parse
from switchgear._hooks.install.files import CannotChange, Journal, SavedState
from switchgear._system.files import read_regular


class InstallChange(NamedTuple):
    path: str
    changed: bool
    """`False`: the file had the intended content already."""
    backup: str | None = None
    """The path of a copy of the original file; `None`: there was no file, or nothing changed."""
    removed: bool = False
    """Whether the file was removed: it contained only the hooks."""


class InstallState(NamedTuple):
    path: str
    exists: bool = True
    commands: tuple[str, ...] = ()
    """The different Switchgear command lines in the file."""
    events: tuple[str, ...] = ()
    """The events that have one of the commands."""
    missing: tuple[str, ...] = ()
    """The events that have none, although this version installs one."""
    outdated: bool = False
    """Whether this version would install something else."""
    missing_paths: tuple[str, ...] = ()
    """The programs and files that the commands need and that do not exist."""
    switched_off: str = ""
    """The setting that switches hooks off, and its file."""
    trouble: str = ""
    """Why the file could not be read."""

    @property
    def installed(self) -> bool:
        return bool(self.commands)


class HookFile(ABC):
    """One file that can contain the hook: shared settings, or a plugin of Switchgear.

    All methods but `state` raise `CannotChange` for a file that they cannot read or change. Used by one thread.
    """

    def __init__(self, agent: HookSettings, scope: str, folder: str) -> None:
        self.agent = agent
        self.path = agent.file(scope, folder)
        self._saved_state = SavedState(self.path)

    def install(self) -> InstallChange:
        """Install the hook. Idempotent."""
        with self._saved_state.locked():
            now = files.read(self.path)
            if self._is_current(now):
                return InstallChange(self.path, changed=False)
            journal = self._saved_state.journal()
            before = self._before(now, journal)
            data, containers = self._with_hook(before)
            backup = None if now is None else self._saved_state.back_up(now)
            folders = files.write(self.path, data, now)
            if journal is not None and before is None:
                folders = (*folders, *journal.folders)
            self._saved_state.save(Journal(files.digest(data), before, containers, folders))
        return InstallChange(self.path, changed=True, backup=backup)

    def uninstall(self) -> InstallChange:
        """Restore the original content if nothing else has changed since; else remove only the hook."""
        if not os.path.lexists(self.path):
            return InstallChange(self.path, changed=False)
        with self._saved_state.locked():
            now = files.read(self.path)
            if now is None or not self._has_hook(now):
                return InstallChange(self.path, changed=False)
            journal = self._saved_state.journal()
            before = self._before(now, journal)
            backup = self._saved_state.back_up(now)
            if before is None:
                files.remove(self.path, now, () if journal is None else journal.folders)
            else:
                files.write(self.path, before, now)
            self._saved_state.forget()
        return InstallChange(self.path, changed=True, backup=backup, removed=before is None)

    @abstractmethod
    def state(self) -> InstallState:
        """The state of the file. Never raises for its content."""

    @abstractmethod
    def commands(self) -> dict[str, str]:
        """The command in the file that the agent runs for each event."""

    @abstractmethod
    def _has_hook(self, now: bytes) -> bool: ...

    @abstractmethod
    def _is_current(self, now: bytes | None) -> bool:
        """Whether the file has exactly the hook of this version. Raises `CannotChange`."""

    @abstractmethod
    def _with_hook(self, before: bytes | None) -> tuple[bytes, edit.Containers]:
        """The content with the hook, and the containers that were empty before."""

    @abstractmethod
    def _before(self, now: bytes | None, journal: Journal | None) -> bytes | None:
        """The content without the hook; `None`: the file would not exist."""


def missing_paths(command: str) -> list[str]:
    """The absolute paths in a command line that do not exist.

    >>> missing_paths("/no/such/python -I entry.py")
    ['/no/such/python']
    """
    words = shlex.split(command)
    return [word for word in words if os.path.isabs(word) and not os.path.exists(word)]


HOOKED = {name: hook_settings(name) for name in hook_names()}
"""The settings of each agent that has hooks, by its name in the hook command."""
ALIASES = {alias: row.hook_name for row in ROWS for alias in row.aliases}
"""Other names by which people call the agents."""
MAX_SETTINGS_BYTES = 4_000_000
"""Larger settings are not searched for a hook."""
_ENTRY = "switchgear/hooks/entry.py"
_SCRIPT = "switchgear-hook"


def command_line(agent: HookSettings, scope: str, folder: str) -> str:
    root = None if scope == USER else os.path.abspath(folder)
    return shlex.join(hook_command(agent.name, root=root))


def groups(agent: HookSettings, command: str) -> dict[str, Group]:
    """The entries for the settings of an agent, by event."""
    hook: dict[str, object] = {"type": "command", "command": command, "timeout": agent.timeout}
    if agent.named:
        hook = {"name": "switchgear", **hook}
    matched = {event: {"matcher": "*", "hooks": [hook]} for event in agent.tool_events}
    for event in agent.before_tool:
        matched[event] = {"matcher": "*", "hooks": [{**hook, "command": command + OR_REFUSE}]}
    return {**matched, **{event: {"hooks": [hook]} for event in agent.other_events}}


def files_with_hooks(folder: str) -> list[str]:
    """The settings and plugins of all agents with a Switchgear hook."""
    files = {agent.file(scope, folder) for agent in HOOKED.values() for scope in agent.scopes}
    return sorted(path for path in files if _mentions_us(path))


def _mentions_us(path: str) -> bool:
    try:
        text = read_regular(path, MAX_SETTINGS_BYTES).decode(errors="replace")
    except OSError:
        return False
    return any(sign in text for sign in (_ENTRY, _SCRIPT, "/hooks/claude-code"))


def is_ours(command: str) -> bool:
    """Whether a command line runs a Switchgear hook of this or another installation.

    >>> is_ours("python3 -I -S /opt/switchgear/hooks/entry.py codex"), is_ours("ls")
    (True, False)
    """
    try:
        words = [word.replace("\\", "/") for word in shlex.split(command)]
    except ValueError:
        return False
    for word, next_word in pairwise(words):
        is_entry = word.endswith(f"/{_ENTRY}") or word == _ENTRY
        if (is_entry or os.path.basename(word) == _SCRIPT) and next_word in HOOKED:
            return True
    return False


_PLUGIN_HEADER = "const SWITCHGEAR = "
_PLUGIN_COMMENT = """\
// Switchgear in {title}: checks each tool call before it runs and records its result.
// Written by `switchgear hooks install {name}`, which replaces it; `switchgear hooks uninstall
// {name}` removes it. Changes made here are lost.
"""
_PLUGIN_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "plugin_files")


class PluginFile(HookFile):
    """The plugin of one agent for one scope."""

    def __init__(self, agent: HookSettings, scope: str, folder: str) -> None:
        super().__init__(agent, scope, folder)
        root = os.path.abspath(folder) if scope == PROJECT else None
        self._command = hook_command(agent.name, root=root)

    def _is_current(self, now: bytes | None) -> bool:
        if now is not None and _header_of(now) is None:
            why = "there is another file with this name, which Switchgear did not write"
            raise CannotChange(self.path, why, "move it away, then try again")
        return now == self._plugin_bytes()

    def _with_hook(self, before: bytes | None) -> tuple[bytes, edit.Containers]:
        del before
        return self._plugin_bytes(), {}

    def _has_hook(self, now: bytes) -> bool:
        return _header_of(now) is not None

    def _before(self, now: bytes | None, journal: Journal | None) -> bytes | None:
        del now, journal  # the whole file is the hook
        return None

    def state(self) -> InstallState:
        try:
            now = files.read(self.path)
        except CannotChange as error:
            return InstallState(self.path, trouble=error.args[1])
        header = _header_of(now)
        if header is None:
            return InstallState(self.path, exists=now is not None, missing=self.agent.events)
        command = shlex.join(header["command"])
        return InstallState(
            self.path,
            commands=(command,),
            events=self.agent.events,
            outdated=now != self._plugin_bytes(),
            missing_paths=tuple(missing_paths(command)),
        )

    def commands(self) -> dict[str, str]:
        header = _header_of(files.read(self.path))
        command = "" if header is None else shlex.join(header["command"])
        return dict.fromkeys(self.agent.events, command) if command else {}

    def _plugin_bytes(self) -> bytes:
        facts = {"command": self._command, "timeout_s": self.agent.timeout}
        header = _PLUGIN_HEADER + json.dumps(facts)
        asking = _plugin_part("asking").replace(_PLUGIN_HEADER + "{}", header)
        comment = _PLUGIN_COMMENT.format(title=self.agent.title, name=self.agent.name)
        return f"{comment}{asking}\n{_plugin_part(self.agent.name)}".encode()


def _plugin_part(name: str) -> str:
    with open(os.path.join(_PLUGIN_FOLDER, f"{name}.js"), encoding="utf-8") as file:
        return file.read()


def _header_of(data: bytes | None) -> dict[str, Any] | None:
    """The header of a plugin; `None`: it is not a plugin of Switchgear."""
    for line in (data or b"").decode(errors="replace").splitlines():
        if line.startswith(_PLUGIN_HEADER):
            header = parsed(line.removeprefix(_PLUGIN_HEADER))
            words = at(header, "command")
            good = isinstance(words, list) and all(isinstance(word, str) for word in words)
            return header if good and words else None
    return None


_BYTE_ORDER_MARK = "\ufeff"


def switched_off(agent: HookSettings, folder: str) -> str:
    """The setting that switches hooks off, and its file; empty: none. Unreadable files are skipped."""
    for path in switch_files(agent, folder):
        found = switch_in(agent, path)
        if found:
            return f"{found} in {path}"
    return ""


def switch_files(agent: HookSettings, folder: str) -> list[str]:
    """The files in which hooks of an agent can be switched off."""
    paths = [] if agent.is_plugin else [agent.file(scope, folder) for scope in agent.scopes]
    if agent.other_file:
        paths += [os.path.join(os.path.dirname(path), agent.other_file) for path in paths]
    return list(dict.fromkeys(paths))


def switch_in(agent: HookSettings, path: str) -> str:
    """The setting in a file that switches the agent's hooks off; empty: there is none."""
    switch_off = getattr(hooks_of(agent.name), "switch_off", None)
    return str(switch_off(_read_settings(path))) if switch_off is not None else ""


def _read_settings(path: str) -> dict[str, Any]:
    try:
        text = (files.read(path) or b"").decode().removeprefix(_BYTE_ORDER_MARK)
        if path.endswith(".toml"):
            return tomllib.loads(text)
        value = parse(text).value
    except (CannotChange, UnicodeDecodeError, NotJson, tomllib.TOMLDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


class SettingsFile(HookFile):
    """The settings of one agent for one scope."""

    def __init__(self, agent: HookSettings, scope: str, folder: str) -> None:
        super().__init__(agent, scope, folder)
        self._folder = folder
        self._groups = groups(agent, command_line(agent, scope, folder))

    def _is_current(self, now: bytes | None) -> bool:
        return self._is_complete(self._find_hooks(now))

    def _with_hook(self, before: bytes | None) -> tuple[bytes, edit.Containers]:
        with self._readable():
            text, containers = edit.insert(self._text(before), self._groups)
        return _bytes(text, before), containers

    def _has_hook(self, now: bytes) -> bool:
        return bool(self._find_hooks(now))

    def state(self) -> InstallState:
        try:
            data = files.read(self.path)
            found = self._find_hooks(data)
        except CannotChange as error:
            return InstallState(self.path, trouble=error.args[1])
        commands = tuple(dict.fromkeys(each.command.removesuffix(OR_REFUSE) for each in found))
        events = tuple(dict.fromkeys(each.event for each in found))
        return InstallState(
            self.path,
            exists=data is not None,
            commands=commands,
            events=events,
            missing=tuple(event for event in self._groups if event not in events),
            outdated=bool(commands) and not self._is_complete(found),
            missing_paths=tuple(dict.fromkeys(chain.from_iterable(map(missing_paths, commands)))),
            switched_off=switched_off(self.agent, self._folder),
        )

    def commands(self) -> dict[str, str]:
        return {each.event: each.command for each in self._find_hooks(files.read(self.path))}

    def _find_hooks(self, data: bytes | None) -> list[edit.FoundHook]:
        text = self._text(data)
        with self._readable():
            return edit.find(text, is_ours, comments=self.agent.comments) if text.strip() else []

    def _is_complete(self, found: list[edit.FoundHook]) -> bool:
        """Whether each event has exactly the group that this version installs."""
        return len(found) == len(self._groups) and all(
            self._groups.get(each.event) == each.group for each in found
        )

    def _before(self, now: bytes | None, journal: Journal | None) -> bytes | None:
        if now is None:
            return None
        if journal is not None and files.digest(now) == journal.after_sha256:
            return journal.before
        text = self._text(now)
        if not text.strip():
            return now
        with self._readable():
            rest = edit.cut(text, is_ours, None if journal is None else journal.containers)
        if journal is not None and journal.before is None and rest.strip() == "{}":
            return None
        return _bytes(rest, now)

    def _text(self, data: bytes | None) -> str:
        try:
            text = (data or b"").decode()
        except UnicodeDecodeError as error:
            why = f"it is not UTF-8 text (byte {error.start})"
            raise CannotChange(self.path, why, "save it as UTF-8") from None
        if text.startswith(_BYTE_ORDER_MARK) and not self.agent.byte_order_mark:
            why = f"it begins with a byte order mark, and {self.agent.title} cannot read that"
            raise CannotChange(self.path, why, "save it as UTF-8 without one")
        return text.removeprefix(_BYTE_ORDER_MARK)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Convert errors about invalid settings to `CannotChange`."""
        try:
            yield
        except NotJson as error:
            why = f"invalid JSON at {error}"
            raise CannotChange(self.path, why, "fix it and try again") from None
        except edit.WrongShape as error:
            raise CannotChange(self.path, str(error), "fix it and try again") from None


def _bytes(text: str, model: bytes | None) -> bytes:
    has_mark = model is not None and model.startswith(_BYTE_ORDER_MARK.encode())
    mark = _BYTE_ORDER_MARK if has_mark else ""
    return (mark + text).encode()


def hook_file(agent: str, scope: str, folder: str) -> HookFile:
    """The file for the hook of an agent in a scope: `project` or `local` in `folder`, or `user`.

    Raises ValueError for an agent without hooks.
    """
    if agent not in HOOKED:
        raise ValueError(f"agent is {agent!r}: it must be one of {', '.join(AGENTS)}")
    agent_settings = HOOKED[agent]
    if agent_settings.is_plugin:
        return PluginFile(agent_settings, scope, folder)
    return SettingsFile(agent_settings, scope, folder)


def scopes_of(agent: str, folder: str) -> tuple[str, ...]:
    """The scopes with different files: in the home folder, the project's settings can be the user's."""
    agent_settings = HOOKED[agent]
    shared = os.path.realpath(agent_settings.file(USER, folder))
    differing = [
        scope
        for scope in agent_settings.scopes
        if scope == USER or os.path.realpath(agent_settings.file(scope, folder)) != shared
    ]
    return tuple(differing) if PROJECT in differing else (USER,)
