"""Our hooks in settings that belong to somebody else: put in, looked at, taken out."""

import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from switchgear._agents.hook_protocol import HookSettings
from switchgear._agents.registry import hooks_of
from switchgear._hooks.command import OR_REFUSE
from switchgear._hooks.install import edit, files
from switchgear._hooks.install.agents import command_line, groups, is_ours
from switchgear._hooks.install.files import CannotChange, Journal, Memory
from switchgear._hooks.install.jsonc import NotJson, parse
from switchgear._hooks.install.outcome import InstallChange, InstallState, gone

_MARK = "\ufeff"


def switched_off(agent: HookSettings, folder: str) -> str:
    """The setting and its file; empty: hooks are not switched off. What cannot be read says nothing."""
    for scope in agent.scopes:
        path = agent.file(scope, folder)
        for each in (path, *other_files(agent, path)):
            found = switch_in(agent, each)
            if found:
                return f"{found} in {each}"
    return ""


def switch_in(agent: HookSettings, path: str) -> str:
    """The setting in one file by which the agent runs no hooks; empty: there is none."""
    switch_off = getattr(hooks_of(agent.name), "switch_off", None)
    return str(switch_off(_read(path))) if switch_off is not None else ""


def other_files(agent: HookSettings, path: str) -> list[str]:
    """The files beside the settings that the agent reads too."""
    return [os.path.join(os.path.dirname(path), agent.other_file)] if agent.other_file else []


def _read(path: str) -> dict[str, Any]:
    try:
        text = (files.read(path) or b"").decode().removeprefix(_MARK)
        if path.endswith(".toml"):
            return tomllib.loads(text)
        told = parse(text).value
    except (CannotChange, UnicodeDecodeError, NotJson, tomllib.TOMLDecodeError):
        return {}
    return told if isinstance(told, dict) else {}


class SettingsFile:
    """The settings of one agent for one scope; see `Place`. Used by one thread."""

    def __init__(self, agent: HookSettings, scope: str, folder: str) -> None:
        self.agent = agent
        self._folder = folder
        self.path = agent.file(scope, folder)
        self._groups = groups(agent, command_line(agent, scope, folder))
        self._memory = Memory(self.path)

    def install(self) -> InstallChange:
        """Put our hooks in; the owner's bytes stay."""
        with self._memory.locked():
            now = files.read(self.path)
            if self._is_complete(self._found(now)):
                return InstallChange(self.path, changed=False)
            journal = self._memory.journal()
            before = self._before(now, journal)
            with self._readable():
                text, containers = edit.insert(self._text(before), self._groups)
            data = _bytes(text, before)
            backup = None if now is None else self._memory.back_up(now)
            folders = files.write(self.path, data, now)
            if journal is not None and before is None:
                folders = (*folders, *journal.folders)
            self._memory.keep(Journal(files.digest(data), before, containers, folders))
        return InstallChange(self.path, changed=True, backup=backup)

    def uninstall(self) -> InstallChange:
        """The very bytes of before, if nothing else changed; else only what is ours goes."""
        if not os.path.lexists(self.path):
            return InstallChange(self.path, changed=False)
        with self._memory.locked():
            now = files.read(self.path)
            if now is None or not self._found(now):
                return InstallChange(self.path, changed=False)
            journal = self._memory.journal()
            before = self._before(now, journal)
            backup = self._memory.back_up(now)
            if before is None:
                files.remove(self.path, now, () if journal is None else journal.folders)
            else:
                files.write(self.path, before, now)
            self._memory.forget()
        return InstallChange(self.path, changed=True, backup=backup, removed=before is None)

    def look(self) -> InstallState:
        """What is there."""
        try:
            data = files.read(self.path)
            found = self._found(data)
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
            gone=tuple(dict.fromkeys(word for each in commands for word in gone(each))),
            switched_off=switched_off(self.agent, self._folder),
        )

    def commands(self) -> dict[str, str]:
        """Our command for each event."""
        return {each.event: each.command for each in self._found(files.read(self.path))}

    def _found(self, data: bytes | None) -> list[edit.FoundHook]:
        text = self._text(data)
        with self._readable():
            return edit.find(text, is_ours, comments=self.agent.comments) if text.strip() else []

    def _is_complete(self, found: list[edit.FoundHook]) -> bool:
        """Whether each event has our group, as this version makes it, and nothing else is ours."""
        return len(found) == len(self._groups) and all(
            self._groups.get(each.event) == each.group for each in found
        )

    def _before(self, now: bytes | None, journal: Journal | None) -> bytes | None:
        """The file as it would be without us; `None`: there would be none."""
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
            why = f"it is no UTF-8 text (byte {error.start})"
            raise CannotChange(self.path, why, "save it as UTF-8") from None
        if text.startswith(_MARK) and not self.agent.byte_order_mark:
            why = f"it begins with a byte order mark, and {self.agent.title} cannot read that"
            raise CannotChange(self.path, why, "save it as UTF-8 without one")
        return text.removeprefix(_MARK)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Inside it, settings that cannot be used are left alone and said to be so."""
        try:
            yield
        except NotJson as error:
            why = f"it is no JSON that {self.agent.title} could read, {error}"
            raise CannotChange(self.path, why, "mend it, then try again") from None
        except edit.WrongShape as error:
            raise CannotChange(self.path, str(error), "mend it, then try again") from None


def _bytes(text: str, model: bytes | None) -> bytes:
    mark = _MARK if model is not None and model.startswith(_MARK.encode()) else ""
    return (mark + text).encode()
