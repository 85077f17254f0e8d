"""Keeps the input that a session has written to running shells, so that the next input is checked with it.

It is in a small file in the project's `.switchgear` folder, not in the store, because rules are also evaluated
while the store is unavailable. Only sessions that write to running shells have such a file.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from switchgear._agents.hook_protocol import HookFacts
from switchgear._rules.effects import typed_keys, types_into_shell
from switchgear._stores.url import default_file

LONGEST_INPUT = 65_536
"""Maximum number of characters that one shell may receive; then a new one must be started."""
_MOVED = "\0"
"""Stands for a key after which the content of the line is unknown."""
_ENDS = "\r\n"
_IGNORED = "\x04\x07\x0c\x11\x13\x1a\x1c"
"""End of file, bell, redraw, flow control, suspend, quit: keys that do not change the current line."""


class Typed(NamedTuple):
    text: str
    """The complete lines and the current one."""
    unread: str = ""
    """Why a line could not be read; empty: all were read."""


def typed(before: str, keys: str) -> Typed:
    r"""What the shell has received after these keys; `before` is the earlier `text`.

    >>> typed("cd src\nr", "m x\x7fy\n").text
    'cd src\nrm y\n'
    """
    line = before.rpartition("\n")[2]
    done = [before[: len(before) - len(line)]]
    unread = ""
    for key in _keys(keys):
        if key in _ENDS:
            whole = line.replace(_MOVED, "")
            if _MOVED in line and whole.strip():
                unread = unread or "a line with cursor keys cannot be checked; send it without them"
            done.append(whole + "\n")
            line = ""
        else:
            line = _apply_key(line, key)
    text = "".join(done) + line
    if len(text) > LONGEST_INPUT:
        unread = f"this shell has received more than {LONGEST_INPUT:,} characters; start a new one"
    return Typed(text, unread)


def _keys(text: str) -> list[str]:
    """The single keys; an escape sequence is one key."""
    keys, at = list[str](), 0
    while at < len(text):
        end = at + 1
        if text[at : at + 2] == "\x1b:":
            at = end  # an editor's command, such as `:wq`; a shell has nothing on these keys
            continue
        if text[at] == "\x1b" and text[end : end + 1] in {"[", "O"}:
            end += 1
            while end < len(text) and not "@" <= text[end] <= "~":
                end += 1
            end += 1
        keys.append(text[at:end])
        at = end
    return keys


def _apply_key(line: str, key: str) -> str:
    """The current line after a key that does not end it."""
    if key in {"\x7f", "\x08"}:
        return line[:-1]
    if key in {"\x03", "\x15"}:
        return ""
    if key == "\x17":
        kept = line.rstrip()
        return kept[: kept.rfind(" ") + 1]
    if key == "\t":  # the shell completes the word
        return f"{line}*" if line and not line[-1].isspace() else f"{line}\t"
    if key in _IGNORED:
        return line
    return line + key if key.isprintable() else line + _MOVED


LONGEST_START = 4_000
OLD_S = 7 * 86_400.0
"""Seconds after which the file of an unused session is removed."""
MOST_SHELLS = 16
"""Maximum number of shells of a session whose input is kept, and of commands that started one."""
LARGEST_FILE = 4_000_000
LOCKED_S = 1.0
UNKEPT = "earlier input of this shell is unknown, so only whole lines are checked"
_SHELL_IDS = ("session_id", "sessionId", "shell_id", "terminal_id", "bash_id", "process_id", "id")
_SHELLS = frozenset(
    (
        *("bash", "sh", "zsh", "dash", "ksh", "fish", "ash", "busybox", "script", "screen", "tmux"),
        *("python", "python3", "ipython", "node", "irb", "ruby", "perl", "php", "lua", "expect"),
        *("ssh", "docker", "podman", "su", "sudo", "nix-shell", "pwsh", "login", "socat"),
    )
)
_COMMANDS = ("command", "cmd")


class Piece(NamedTuple):
    """Input to a running shell, as the calls that are checked in its place."""

    calls: tuple[Mapping[str, Any], ...]
    """The arguments of equivalent calls, one for each shell that may receive the input."""
    unread: str
    """Why the input cannot be checked; empty: it can."""


def keep_start(facts: HookFacts, root: str) -> None:
    """Save a call that may start a program to which input is written later. Never raises."""
    args = facts.args if isinstance(facts.args, dict) else {}
    command = next((args[key] for key in _COMMANDS if key in args), "")
    text = " ".join(map(str, command)) if isinstance(command, list) else str(command)
    names = {word.rpartition("/")[2] for word in text.split()}
    if not text or (args.get("tty") is not True and names.isdisjoint(_SHELLS)):
        return
    start = {"command": text[:LONGEST_START]}
    start |= {key: args[key] for key in ("workdir", "cwd") if isinstance(args.get(key), str)}
    with suppress(OSError, ValueError), _saved_input(facts, root) as kept:
        starts = [each for each in kept["starts"] if each != start]
        kept["starts"] = [*starts, start][-MOST_SHELLS:]


def piece(facts: HookFacts, root: str) -> Piece | None:
    """The input that a call writes to a running shell, after all earlier input; `None`: it writes none."""
    name = types_into_shell(facts.tool, facts.args)
    if name is None:
        return None
    keys = typed_keys(facts.args[name])
    try:
        with _saved_input(facts, root) as kept:
            shells, starts = kept["shells"], kept["starts"]
            before = shells.get(_shell_of(facts.args), "")
    except (OSError, ValueError):
        alone = typed("", keys)
        whole = alone.text.endswith("\n") or not alone.text.strip()
        calls = ({"command": alone.text},) if whole else ()
        return Piece(calls, alone.unread or ("" if whole else UNKEPT))
    now = typed(before, keys)
    others = [{**each, "command": f"{each['command']}\n{now.text}"} for each in starts]
    return Piece(({name: now.text}, *others), now.unread)


def keep_piece(facts: HookFacts, root: str) -> None:
    """Save the input of a call, after `piece` was checked and admitted. Never raises."""
    name = types_into_shell(facts.tool, facts.args)
    with suppress(OSError, ValueError), _saved_input(facts, root) as kept:
        shells, shell = kept["shells"], _shell_of(facts.args)
        shells[shell] = typed(shells.pop(shell, ""), typed_keys(facts.args[name])).text
        while len(shells) > MOST_SHELLS:
            del shells[next(iter(shells))]


def _shell_of(args: Any) -> str:
    found = next((args[key] for key in _SHELL_IDS if key in args), "") if type(args) is dict else ""
    return str(found)[:120]


@contextmanager
def _saved_input(facts: HookFacts, root: str) -> Iterator[dict[str, Any]]:
    """The saved input of a session, locked; changes are written at the end.

    Raises OSError or ValueError if the file cannot be read, locked or written.
    """
    folder = os.path.dirname(default_file(root))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    name = f"shell-input-{facts.agent}-{facts.session}.json"
    file = os.open(os.path.join(folder, name), flags, 0o600)
    try:
        until_s = time.monotonic() + LOCKED_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until_s:
                    raise
                time.sleep(0.01)
        raw = os.read(file, LARGEST_FILE)
        if not raw:
            _remove_old(folder, time.time())
        kept = _check_saved(json.loads(raw)) if raw else {"shells": {}, "starts": []}
        before = json.dumps(kept)
        yield kept
        after = json.dumps(kept)
        if after != before:
            os.ftruncate(file, 0)
            os.pwrite(file, after.encode(), 0)
    finally:
        os.close(file)


def _remove_old(folder: str, now_s: float) -> None:
    for entry in os.scandir(folder):
        is_ours = entry.name.startswith("shell-input-")
        if is_ours and now_s - entry.stat(follow_symlinks=False).st_mtime > OLD_S:
            os.unlink(entry.path)


def _check_saved(data: Any) -> dict[str, Any]:
    """Return the data of a file. Raises ValueError if it does not have the form that is written here."""
    fields = data if type(data) is dict else {}
    shells, starts = fields.get("shells"), fields.get("starts")
    is_ours = (
        isinstance(shells, dict)
        and isinstance(starts, list)
        and all(isinstance(text, str) for text in shells.values())
        and all(isinstance(each, dict) and type(each.get("command")) is str for each in starts)
    )
    if not is_ours:
        raise ValueError
    return dict(fields)
