"""Saved copies of the settings and plugins with Switchgear hooks, and the repair of changed files.

`switchgear hooks install` saves a copy of each file, and `uninstall` removes it. A file that lacks the entries
or switches hooks off was changed without an operator. The entries are restored, and the rest of the file stays
as it is; a file that was removed or cannot be parsed is restored as a whole. The copies are in the user's state
folder, not in the project. Repairs do not follow links.
"""

import json
import os
import re
import secrets
import stat
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

from switchgear._agents.hook_protocol import USER, HookSettings
from switchgear._hooks.install import edit, files, settings
from switchgear._hooks.install.edit import NotJson, parse
from switchgear._hooks.install.files import CannotChange
from switchgear._hooks.install.settings import HOOKED, hook_file, is_ours, scopes_of, switch_files
from switchgear._system.files import read_private, state_folder, write_private

MAX_RECORD_BYTES = 2 * files.MAX_BYTES
MAX_CHANGED_FILES = 20
"""Maximum number of copies of changed files; the oldest are removed."""
_BYTE_ORDER_MARK = "\ufeff"
_TOML_SWITCH = re.compile(r"(\bhooks[ \t]*=[ \t]*)false\b")


class SavedHooks(NamedTuple):
    """A file as the operator left it."""

    agent: str
    scope: str
    folder: str
    path: str
    data: bytes
    mode: int = 0o644
    linked: bool = False
    """Whether the path contained a link: then the target of the link is repaired."""
    switched: tuple[str, ...] = ()
    """The files in which the user had switched hooks off."""


class Repaired(NamedTuple):
    done: tuple[str, ...] = ()
    """Changes that were reverted, one line each."""
    failed: tuple[str, ...] = ()
    """Changes that could not be reverted, and why."""


def save(agent: str, scope: str, folder: str) -> None:
    """Save a copy of the file in which an operator has installed hooks. Raises OSError."""
    hooked, path = HOOKED[agent], _settings_path(agent, scope, folder)
    data = files.read(path)
    if data is None:
        return
    mode = stat.S_IMODE(os.stat(path).st_mode)
    linked = os.path.realpath(path) != path
    switched = tuple(
        each
        for each in switch_files(hooked, os.path.realpath(folder))
        if settings.switch_in(hooked, each)
    )
    _write(SavedHooks(agent, scope, os.path.realpath(folder), path, data, mode, linked, switched))


def is_saved(agent: str, scope: str, folder: str) -> bool:
    """Whether there is a copy: an operator has installed hooks and not removed them."""
    return _read(_settings_path(agent, scope, folder)) is not None


def forget(agent: str, scope: str, folder: str) -> None:
    """Remove the copy of a file from which an operator removes the hooks. Raises OSError.

    An empty record stays: it distinguishes this from a copy that was removed by something else.
    """
    record = _record_path(_settings_path(agent, scope, folder))
    if os.path.lexists(record):
        write_private(record, b"null")


def is_forgotten(path: str) -> bool:
    """Whether an operator removed the hooks from a file and has not installed them since."""
    try:
        with open(_record_path(path), "rb") as file:
            return file.read(8).strip() == b"null"
    except OSError:
        return False


def missing_copies(paths: Iterable[str]) -> list[str]:
    """The files whose copies were removed without an operator."""
    return [path for path in paths if not os.path.lexists(_record_path(path))]


def watched_files(folder: str) -> list[str]:
    """The files whose changes must be noticed: those with a copy, and those that can switch hooks off."""
    found: list[str] = []
    for saved in saved_in(folder):
        found += [saved.path, *switch_files(HOOKED[saved.agent], saved.folder)]
    return sorted(set(found))


def saved_in(folder: str) -> list[SavedHooks]:
    """The copies of all files that apply to a project, including the user's."""
    real = os.path.realpath(folder)
    try:
        names = os.listdir(state_folder("guard"))
    except OSError:
        return []
    found = (_load(os.path.join(state_folder("guard"), name)) for name in sorted(names))
    return [each for each in found if each is not None and _concerns(each, real)]


def _concerns(saved: SavedHooks, real: str) -> bool:
    if saved.scope == USER:
        return saved.path == _settings_path(saved.agent, USER, real)
    return (saved.folder + os.sep).startswith(os.path.join(real, ""))


def repair(folder: str) -> Repaired:
    """Check every settings file and plugin that guards a project, and revert changes that no operator made.

    A file of an earlier installation that has no copy yet is saved.
    """
    _save_unsaved(folder)
    done: list[str] = []
    failed: list[str] = []
    for saved in saved_in(folder):
        for step in (_repair_file, _repair_switches):
            try:
                done += step(saved)
            except (OSError, CannotChange, ValueError) as error:
                failed.append(f"{saved.path} could not be restored: {error}")
    return Repaired(tuple(done), tuple(dict.fromkeys(failed)))


def _save_unsaved(folder: str) -> None:
    for name in HOOKED:
        for scope in scopes_of(name, folder):
            path = _settings_path(name, scope, folder)
            if os.path.isfile(path) and _read(path) is None:
                state = hook_file(name, scope, folder).state()
                if state.installed and not state.missing and not state.switched_off:
                    with suppress(OSError, CannotChange):
                        save(name, scope, folder)


# Files with entries of Switchgear


def _repair_file(saved: SavedHooks) -> Iterator[str]:
    hooked = HOOKED[saved.agent]
    now, wrong = _read_current(saved)
    if now is None:
        _restore(saved, saved.data)
        yield f"{saved.path} {wrong}: restored from the saved copy"
        return
    if hooked.is_plugin:
        if now != saved.data:
            keep_changed_file(saved.path, now)
            _restore(saved, saved.data)
            yield f"{saved.path} was changed: restored from the saved copy"
        return
    expected = _entries(saved.data)
    try:
        found = _entries(now, hooked)
        if all(entry in found for entry in expected):
            if now != saved.data:
                _write(saved._replace(data=now))  # other settings may change
            return
        repaired = _with_entries(now, saved.data)
        if not all(entry in _entries(repaired, hooked) for entry in expected):
            raise ValueError("the entries of Switchgear could not be added")
    except (NotJson, ValueError):
        keep_changed_file(saved.path, now)
        _restore(saved, saved.data)
        yield f"{saved.path} cannot be parsed: restored from the saved copy"
        return
    keep_changed_file(saved.path, now)
    _restore(saved, repaired)
    _write(saved._replace(data=repaired))
    yield f"{saved.path} lacked hooks of Switchgear: they were restored"


def _read_current(saved: SavedHooks) -> tuple[bytes | None, str]:
    """The content of the file; or `None`, and what is wrong with the file."""
    try:
        found = os.lstat(saved.path)
    except FileNotFoundError:
        return None, "was removed"
    except OSError as error:
        return None, f"cannot be reached ({error.strerror})"
    if not saved.linked:
        wrong = {
            "was replaced by a link": os.path.realpath(saved.path) != saved.path,
            "is no longer a file": not stat.S_ISREG(found.st_mode),
            "was made unreadable": not found.st_mode & stat.S_IRUSR,
        }
        for what, is_so in wrong.items():
            if is_so:
                return None, what
    try:
        data = files.read(saved.path)
    except CannotChange as error:
        return None, f"cannot be read ({error.args[1]})"
    return data, "was removed" if data is None else ""


def _text(data: bytes) -> str:
    return data.decode().removeprefix(_BYTE_ORDER_MARK)


def _entries(data: bytes, reader: HookSettings | None = None) -> list[tuple[str, str, str]]:
    """The Switchgear entries in settings: the event, the matcher and the hook. Raises ValueError, NotJson.

    `reader`: the agent that must be able to read the settings; default: any.
    """
    text = _text(data)
    has_mark = data.startswith(_BYTE_ORDER_MARK.encode())
    if reader is not None and has_mark and not reader.byte_order_mark:
        raise ValueError("it begins with a byte order mark")
    comments = reader is None or reader.comments
    found: list[tuple[str, str, str]] = []
    for each in edit.find(text, is_ours, comments=comments) if text.strip() else []:
        matcher = json.dumps(each.group.get("matcher"))
        found += [
            (each.event, matcher, json.dumps(hook, sort_keys=True))
            for hook in each.group["hooks"]
            if isinstance(hook, dict) and hook.get("command") == each.command
        ]
    return found


def _with_entries(now: bytes, good: bytes) -> bytes:
    """The current settings with the Switchgear entries of the saved copy.

    An entry that was changed into an invalid command is removed: it would refuse every call.
    """
    groups: dict[str, edit.Group] = {}
    for each in edit.find(_text(good), is_ours):
        ours = [hook for hook in each.group["hooks"] if hook.get("command") == each.command]
        groups[each.event] = {**each.group, "hooks": ours}

    def is_removed(command: str) -> bool:
        is_new = json.dumps(command) not in _text(good)
        return is_ours(command) or (is_new and "switchgear" in command.lower())

    text, _ = edit.insert(edit.cut(_text(now), is_removed) if _text(now).strip() else "", groups)
    mark = _BYTE_ORDER_MARK.encode() if now.startswith(_BYTE_ORDER_MARK.encode()) else b""
    return mark + text.encode()


# Switches


def _repair_switches(saved: SavedHooks) -> Iterator[str]:
    hooked = HOOKED[saved.agent]
    for path in switch_files(hooked, saved.folder):
        switch = "" if path in saved.switched else settings.switch_in(hooked, path)
        if not switch:
            continue
        now = files.read(path) or b""
        keep_changed_file(path, now)
        changed = _with_hooks_on(hooked, path, now.decode())
        files.write(path, changed.encode(), now)
        if settings.switch_in(hooked, path):
            raise ValueError(f"{path}: {switch}, and hooks could not be switched on again")
        yield f"{path}: {switch}: switched on again"


def _with_hooks_on(hooked: HookSettings, path: str, text: str) -> str:
    """The settings with hooks switched on, and otherwise unchanged."""
    if path.endswith(".toml"):
        return _TOML_SWITCH.sub(r"\1true", text)
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    text = text.removeprefix(_BYTE_ORDER_MARK)
    root = parse(text)
    if hooked.name != "gemini":
        item = root.get("disableAllHooks")
        return mark + (text if item is None else _replace_node(text, item.node, "false"))
    config = root.get("hooksConfig")
    for key in ("disabled", "enabled"):
        item = None if config is None else config.node.get(key)
        if item is None:
            continue
        names = item.node.value
        value = [each for each in names if each != "switchgear"] if key == "disabled" else True
        text = _replace_node(text, item.node, json.dumps(value))
        config = parse(text).get("hooksConfig")
    return mark + text


def _replace_node(text: str, node: Any, value: str) -> str:
    return text[: node.start] + value + text[node.end :]


# Writing


def _restore(saved: SavedHooks, data: bytes) -> None:
    """Write a file, without following a link unless the user had one there. Raises OSError, CannotChange."""
    if saved.linked:
        files.write(saved.path, data, files.read(saved.path))
        return
    top = os.path.expanduser("~") if saved.scope == USER else saved.folder
    base = os.path.realpath(top)
    if not saved.path.startswith(os.path.join(base, "")):
        base = os.path.dirname(os.path.dirname(saved.path))
    write_without_links(base, saved.path, data, saved.mode)


def write_without_links(base: str, path: str, data: bytes, mode: int) -> None:
    """Write a file below the folder `base` without following links. Raises OSError.

    A link or file in place of a folder, or a folder in place of the file, is renamed.
    """
    *folders, name = os.path.relpath(path, base).split(os.sep)
    parent = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            below = _open_folder_at(parent, part)
            os.close(parent)
            parent = below
        _write_file_at(parent, name, data, mode)
    finally:
        os.close(parent)


def _open_folder_at(parent: int, name: str) -> int:
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        os.mkdir(name, 0o755, dir_fd=parent)
    else:
        if not stat.S_ISDIR(found.st_mode):
            _move_aside(parent, name)
            os.mkdir(name, 0o755, dir_fd=parent)
        elif found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(name, stat.S_IMODE(found.st_mode) | stat.S_IRWXU, dir_fd=parent)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)


def _write_file_at(parent: int, name: str, data: bytes, mode: int) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            _move_aside(parent, name)
    new = f".{name}.switchgear-{secrets.token_hex(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(new, flags, 0o600, dir_fd=parent)
    try:
        with open(file, "wb") as opened:
            opened.write(data)
            os.fchmod(opened.fileno(), mode | stat.S_IRUSR)
        os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(new, dir_fd=parent)
        raise


def _move_aside(parent: int, name: str) -> None:
    new_name = f"{name}.changed-{secrets.token_hex(4)}"
    os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=parent)


def keep_changed_file(path: str, data: bytes) -> str:
    """Copy a changed file to the state folder before it is repaired. Returns the path of the copy; empty: it failed."""
    folder = state_folder("guard", "aside")
    name = f"{os.path.basename(path)}-{sha256(data).hexdigest()[:12]}"
    with suppress(OSError):
        copy = os.path.join(folder, name)
        write_private(copy, data[: files.MAX_BYTES])
        copies = [os.path.join(folder, each) for each in os.listdir(folder)]
        for old in sorted(copies, key=os.path.getmtime)[:-MAX_CHANGED_FILES]:
            os.unlink(old)
        return copy
    return ""


# Records


def _settings_path(agent: str, scope: str, folder: str) -> str:
    """The file of a scope, with the links in `folder` resolved; links below the folder are checked later."""
    return HOOKED[agent].file(scope, os.path.realpath(folder))


def _record_path(path: str) -> str:
    key = sha256(path.encode(errors="surrogateescape")).hexdigest()[:32]
    return os.path.join(state_folder("guard"), f"{key}.json")


def _write(saved: SavedHooks) -> None:
    record = {**saved._asdict(), "data": b64encode(saved.data).decode()}
    write_private(_record_path(saved.path), json.dumps(record).encode())


def _read(path: str) -> SavedHooks | None:
    found = _load(_record_path(path))
    return found if found is not None and found.path == path else None


def _load(path: str) -> SavedHooks | None:
    data = read_private(path, MAX_RECORD_BYTES) if path.endswith(".json") else None
    try:
        record = json.loads(data or b"null")
        found = SavedHooks(**{**record, "data": b64decode(record["data"], validate=True)})
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_valid = found.agent in HOOKED and _record_path(found.path) == path
    return found._replace(switched=tuple(found.switched)) if is_valid else None
