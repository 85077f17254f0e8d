"""What was written to the running shells of a session, kept so that the next piece can be evaluated with it.

In a small file in Switchgear's own folder of the project, not in the store: rules are evaluated whether or not the
store can be reached. Only sessions that write to running shells have one.
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
"""Characters that one shell may receive before a new one must be started."""
_MOVED = "\0"
"""Replaces a key that makes the rest of the line unknown."""
_ENDS = "\r\n"
_IGNORED = "\x04\x07\x0c\x11\x13\x1a\x1c"
"""End of file, bell, redraw, flow control, suspend, quit: the line that is being typed stays as it is."""


class Typed(NamedTuple):
    text: str
    """Complete lines, and the one that is being typed."""
    unread: str = ""
    """Why a line could not be read, if one could not."""


def typed(before: str, keys: str) -> Typed:
    r"""What the shell has received after these keys; `before` is the `text` of the last time.

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
    """The line after one key that does not end it."""
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
"""Age at which the input of an abandoned session is removed."""
MOST_SHELLS = 16
"""Shells of a session, and commands that started one, of which the input is kept."""
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
    """A piece of input to a running shell, with the calls that are judged instead of it."""

    calls: tuple[Mapping[str, Any], ...]
    """The inputs of equivalent calls: one for each shell that may receive it."""
    unread: str
    """Why it cannot be judged, if it cannot."""


def keep_start(facts: HookFacts, root: str) -> None:
    """Remember a call that may start a program which later receives input. Never raises."""
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
    """What a call writes to a running shell, with all earlier input; `None`: it writes to none."""
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
    """Remember a piece that `piece` has found and that was admitted. Never raises."""
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
    """What is kept of a session, to be read and changed by one hook at a time.

    Raises OSError or ValueError where it cannot be read, locked or written.
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
    """Raises ValueError for anything but what is written here."""
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
