"""Texts, numbers and times out of recordings, and what a step did to the work as far as it shows.

Whatever the file holds, each has its type: what is not as it should be is empty or `None`.
"""

import json
import math
import re
from datetime import datetime
from functools import lru_cache
from typing import Any

from switchgear._agents.provider_messages import looks_failed
from switchgear._text.agent_text import files_of
from switchgear._text.fingerprint import gist
from switchgear._text.redact import LONGEST_TEXT, redact, redact_lines

LONGEST_NAME = 200
_SHELLS = frozenset({
    *("bash", "shell", "exec_command", "run_shell_command", "execute_bash", "terminal", "run"),
    *("local_shell_call", "container.exec", "run_command", "execute_command", "cmdrunaction"),
})  # fmt: skip
_LOOKING = frozenset({
    *("read", "read_file", "read_many_files", "glob", "grep", "ls", "list_directory", "search"),
    *("search_file_content", "webfetch", "web_fetch", "websearch", "web_search", "view", "think"),
    *("grep_search", "list_files", "google_web_search", "todowrite", "update_plan", "finish"),
})  # fmt: skip
_LOOKING_COMMANDS = frozenset({
    *("ls", "cat", "head", "tail", "grep", "rg", "find", "pwd", "wc", "which", "echo", "stat"),
    *("file", "tree", "du", "df", "env", "ps", "sort", "uniq", "cut", "diff", "true", "cd"),
})  # fmt: skip
_LOOKING_GIT = frozenset({"log", "status", "diff", "show", "blame", "branch", "grep"})
_WRITING = re.compile(r"(?<![<>&\d])>{1,2}(?![&>])|\bsed -i|\btee\b|\bpatch\b|\bgit apply\b|<<")
_WRITING_SIGNS = (">", "<<", "sed -i", "tee", "patch", "git apply")
"""Without one of these `_WRITING` is not tried: it is slow on what it does not match."""
_BETWEEN = re.compile(r"\|\||&&|[;|\n]")
_EXIT_CODE = re.compile(r"(?im)^(?:process )?exit(?:ed with)? code:? (-?\d{1,10})$")
_LATEST_S = 4e11
"""Beyond this a number of seconds is none: they were milliseconds or nanoseconds."""


def name(value: object) -> str:
    """A name in one safe line; empty where there is none."""
    if not isinstance(value, str):
        return ""
    return _safe_name(value) if len(value) <= LONGEST_NAME else redact(value, LONGEST_NAME)


@lru_cache(maxsize=1024)
def _safe_name(text: str) -> str:
    """The same sessions, tools and models come in every line of a file."""
    return redact(text, LONGEST_NAME)


def word(value: object) -> str:
    """A word that tells kinds apart; empty for whatever is none, a list in its place for example."""
    return value if isinstance(value, str) else ""


def body(value: object) -> str | None:
    """A text as a detector may read it: its two ends, without secrets; `None` where there is none."""
    if value is None:
        return None
    text = value if isinstance(value, str) else as_json(value)
    if len(text) > LONGEST_TEXT:
        text = f"{text[: LONGEST_TEXT // 2]}\n{text[1 - LONGEST_TEXT // 2 :]}"
    return redact_lines(text)


def as_json(value: Any) -> str:
    """Arguments as one text; equal ones make equal texts."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(type(value))


def error_line(output: str | None) -> str:
    """The error that an output tells, in one line."""
    return redact(gist(output or "")) or "failed without a word"


def number(value: object) -> float | None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e20 and math.isfinite(value) else None


def whole(value: object) -> int | None:
    """A count."""
    found = number(value)
    return None if found is None or found < 0 else int(found)


def micros(dollars: object) -> int | None:
    """Dollars in millionths."""
    found = number(dollars)
    return None if found is None or not 0 <= found <= 1e9 else round(found * 1_000_000)


def moment(value: object) -> float | None:
    """A time in seconds: out of an ISO text, or a number of seconds, milliseconds, nanoseconds."""
    if isinstance(value, str):
        if value.isascii() and value.isdecimal():
            return moment(int(value[:25]))
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError, OSError):
            return None
    found = number(value)
    while found is not None and found > _LATEST_S:
        found /= 1000
    return found if found is None or found >= 0 else None


def exit_code(output: str) -> int | None:
    """The exit code that an output names in a line of its own, the last one."""
    found = _EXIT_CODE.findall(output[-2000:])
    return int(found[-1]) if found else None


def succeeded(tool: str, output: str) -> bool:
    """Whether a step whose recording has no verdict went well, as far as its output shows."""
    code = exit_code(output) if exit_code(output) is not None else exit_code(output[:300])
    if code is not None:
        return code == 0
    return not (is_shell(tool) and looks_failed(output))


def is_shell(tool: str) -> bool:
    """Whether a tool runs commands."""
    return bare(tool) in _SHELLS


def bare(tool: str) -> str:
    """A tool's name without its server and its case."""
    return tool.rsplit("__", 1)[-1].rsplit(".", 1)[-1].lower()


def changed(tool: str, arguments: object, *, ok: bool | None) -> bool | None:
    """Whether a step changed the work; `None`: nobody can tell from outside.

    >>> changed("Edit", {"file_path": "a.py"}, ok=True), changed("Read", {}, ok=True)
    (True, False)
    >>> changed("bash", {"command": "ls | head"}, ok=True), changed("bash", "make", ok=True)
    (False, None)
    """
    if not tool or bare(tool) in _LOOKING:
        return False
    if files_of(tool, arguments):
        return ok is not False
    if isinstance(arguments, dict) and word(arguments.get("command")) in {"view", "read"}:
        return False
    return _changed_by(command_of(arguments)) if is_shell(tool) else None


def command_of(arguments: object) -> str:
    """The command line of a shell's arguments."""
    if isinstance(arguments, dict):
        arguments = arguments.get("command", arguments.get("cmd"))
    if isinstance(arguments, list):
        return " ".join(str(part) for part in arguments[:50])
    return arguments if isinstance(arguments, str) else ""


def _changed_by(command: str) -> bool | None:
    if not command.strip():
        return None
    if any(sign in command for sign in _WRITING_SIGNS) and _WRITING.search(command):
        return True
    for part in _BETWEEN.split(command[:4000]):
        words = part.split()
        looking = not words or words[0] in _LOOKING_COMMANDS
        if not looking and not (words[0] == "git" and words[1:2] and words[1] in _LOOKING_GIT):
            return None
    return False
