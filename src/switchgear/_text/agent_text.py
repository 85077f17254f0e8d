"""Cleans the texts of agents before they are stored: bounded, redacted, without control characters.

An agent's output may come from a web page, a file or a command that it ran, so readers treat all of
it as hostile: no escape sequence reaches a terminal, no API key reaches a log.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from switchgear._text.redact import redact

LONGEST_TEXT = 4_000
LONGEST_ERROR = 600
LONGEST_OUTPUT = 2_000
LONGEST_ARGUMENTS = 300
"""Maximum number of characters that are kept of a text, an error, an output and of arguments."""
_LONGEST_LINE = 1_000

_EDITING = frozenset({
    *("edit", "multiedit", "write", "notebookedit", "notebook_edit", "apply_patch", "patch"),
    *("edit_file", "write_file", "replace", "create_file", "text_editor", "str_replace", "insert"),
})  # fmt: skip
_FRAMES = (
    r"(?:command )?exit(?:ed with)? code:? ?-?\d{1,10}",
    r"\((?:no output|empty)\)",
    r"(?:output|stdout|stderr|error|signal|background pids): ?(?:\((?:empty|none)\)|0)?",
    r"(?:command|directory|process group pgid): .*",
)
"""Lines that agents add before and after the output of a command."""
_FRAME = re.compile("|".join(_FRAMES), re.IGNORECASE)
_PATH_KEYS = ("file_path", "filePath", "notebook_path", "absolute_path", "path", "file")
_READ_ONLY_EDITOR_COMMANDS = frozenset({"view", "read"})


def clean(text: str, longest: int = LONGEST_TEXT) -> str:
    r"""The lines without secrets and control characters, at most `longest` characters without the middle.

    >>> clean("one\x1b[2J\r\ntwo sk-proj-abcdefghijklmnop")
    'one\ntwo [redacted]'
    """
    if len(text) > 4 * longest:  # bounds the work
        text = f"{text[: longest * 2]}\n{text[-longest * 2 :]}"
    lines = (redact(line, _LONGEST_LINE) for line in text.splitlines())
    whole = "\n".join(line for line in lines if line)
    if len(whole) <= longest:
        return whole
    head = longest // 3
    return f"{whole[:head]}\n…\n{whole[len(whole) - (longest - head - 3) :]}"


def one_line(text: str, longest: int = LONGEST_ARGUMENTS) -> str:
    """The first `longest` characters of a text as one line, without secrets and control characters."""
    return redact(text, longest)


def summarise(arguments: object) -> str:
    """A summary of the arguments of a tool call: the command, the path, or the start of the arguments.

    >>> summarise({"command": ["bash", "-lc", "make test"], "timeout": 5})
    'bash -lc make test'
    >>> summarise({"file_path": "src/a.py", "content": "…"})
    'src/a.py'
    """
    if isinstance(arguments, Mapping):
        for key in ("command", "cmd", *_PATH_KEYS):
            value = arguments.get(key)
            if isinstance(value, str) and value:
                return one_line(value)
            if isinstance(value, list) and value:
                return one_line(" ".join(str(part) for part in value[:50]))
    return one_line(_canonical(arguments))


def call_key(tool: str, arguments: object) -> str:
    """A digest of a call: equal calls have equal keys, whatever the order of the arguments."""
    whole = f"{tool}\0{_canonical(arguments)}"
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def files_of(tool: str, arguments: object) -> tuple[str, ...]:
    """The file that a call to an editing tool changes; empty for other tools and calls.

    >>> files_of("Edit", {"file_path": "a.py"}), files_of("Read", {"file_path": "a.py"})
    (('a.py',), ())
    """
    name = tool.rsplit("__", 1)[-1].rsplit(".", 1)[-1].lower()
    if name not in _EDITING or not isinstance(arguments, Mapping):
        return ()
    if str(arguments.get("command")) in _READ_ONLY_EDITOR_COMMANDS:
        return ()
    for key in _PATH_KEYS:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return (one_line(value),)
    return ()


def final_question(text: str) -> str | None:
    """The question in the last line of a text; `None`: there is none, or it is only polite.

    >>> final_question("Two designs are possible. Which one do you want?")
    'Two designs are possible. Which one do you want?'
    >>> final_question("Done. Anything else?") is None
    True
    """
    lines = text.strip().splitlines()
    last = lines[-1].strip(" *_`\"')") if lines else ""
    if not last.endswith("?"):
        return None
    polite = ("anything else", "what's next", "what next", "what would you like to do next")
    return None if any(phrase in last.lower() for phrase in polite) else one_line(last)


def is_only_frame(output: str) -> bool:
    r"""Whether an output has no text of the command itself, only the lines that an agent adds.

    >>> is_only_frame("Output: (empty)\nExit Code: 1"), is_only_frame("Exit code 1\nno rule for a")
    (True, False)
    """
    lines = (line.strip() for line in output.splitlines())
    return all(_FRAME.fullmatch(line) for line in lines if line)


def _canonical(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(type(value))
