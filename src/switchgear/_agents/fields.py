"""Reads typed values from untrusted JSON: a value of another type becomes empty, 0 or `None`.

Every hook process imports this module, so it imports little itself.
"""

import json
import math
import re
from typing import Any, NamedTuple

MAX_RESULT_CHARS = 20_000
"""Maximum length of a tool's output that is examined."""
MAX_THOUGHT_CHARS = 2_000
_MAX_COUNT = 2**53
_HEADER_STARTS = ("Chunk ID: ", "Exit code: ", "Wall time: ", "Process exited ", "Process running ")
_MAX_HEADER_CHARS = 600
_HEADER_END = "\nOutput:\n"
_HEADER_CODE = r"(?m)^(?:Process exited with code|Exit code:) (-?\d{1,10})$"
_ENVELOPE_STARTS = ("<untrusted_context>", "Command: ", "Output: ", "Directory: ")
_ENVELOPE_MARK = "\nProcess Group PGID: "
_ENVELOPE = (
    r"\A(?:<untrusted_context>\n)?(?:Command: (?s:.{0,4000}?)\nDirectory: .*\n)?Output: (?:\(empty\))?"
    r"|(?:\n(?:Error: \(none\)|(?:Exit Code|Signal|Background PIDs|Process Group PGID): .*)){1,5}"
    r"(?:\n</untrusted_context>)?\Z"
)
"""The lines that Gemini CLI and Qwen Code add around the output of a command."""
_MAX_EXIT_CHARS = 4_000
_FIRST_LINE_EXIT = r"\A(?:Error: )?Exit code (-?\d{1,9})\n"
_EXIT = r"(?im)^\W{0,40}(?:process |command )?exit(?:ed with)?(?: code)?:? +(-?\d{1,9})\b"


class TokenCounts(NamedTuple):
    """The tokens of one or several responses of a model, in the same form for all agents."""

    input: int = 0
    """All input, including tokens read from and written to the cache."""
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


def parsed(text: str | bytes) -> Any:
    """The JSON value in a text; `None`: it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def at(value: object, *path: str) -> Any:
    """The value at a path of keys; `None`: there is none."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def part(data: Any, name: str) -> dict[str, Any]:
    """The object under a key; empty if there is none."""
    found = at(data, name)
    return found if isinstance(found, dict) else {}


def items(value: object) -> list[Any]:
    """The items of a list; empty for anything else."""
    return value if isinstance(value, list) else []


def objects(value: object) -> list[dict[str, Any]]:
    """The objects of a list; empty for anything else."""
    return [each for each in items(value) if isinstance(each, dict)]


def count(value: object) -> int:
    """A number of tokens; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= _MAX_COUNT else 0


def words(value: object) -> str:
    """The text of a message's content, in any of the usual forms."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        return "" if value is None else str(value)
    parts = (each if isinstance(each, str) else at(each, "text") for each in value)
    return "\n".join(each for each in parts if isinstance(each, str))


def text(value: Any) -> str:
    """A string; empty for anything else."""
    return value if isinstance(value, str) else ""


def whole_text(value: Any) -> str | None:
    """The result of a tool as one text of at most `MAX_RESULT_CHARS`; `None`: it has none."""
    if value is None:
        return None
    if isinstance(value, str):
        return value[:MAX_RESULT_CHARS]
    try:
        return json.dumps(value, ensure_ascii=False)[:MAX_RESULT_CHARS]
    except (TypeError, ValueError, RecursionError):
        return str(type(value))


def number(value: Any) -> float | None:
    """A finite number of at least 0; `None` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def milliseconds(value: Any) -> float | None:
    """A duration in milliseconds, converted to seconds."""
    found = number(value)
    return None if found is None else found / 1000


def share(value: Any) -> float | None:
    """A share from 0 to 1; larger values become 1."""
    found = number(value)
    return None if found is None else min(found, 1.0)


def window_share(usage: Any) -> float | None:
    """The share of the context window in use, from `{"tokens", "contextWindow"}`."""
    tokens, window = number(at(usage, "tokens")), number(at(usage, "contextWindow"))
    return min(tokens / window, 1.0) if tokens is not None and window else None


def thought(value: Any) -> str | None:
    """The agent's text before a call; `None` if it is empty."""
    return value[:MAX_THOUGHT_CHARS] if isinstance(value, str) and value.strip() else None


def micros(dollars: object) -> int | None:
    """Dollars converted to millionths; `None` for anything but an amount up to a billion."""
    found = number(dollars)
    return None if found is None or found > 1e9 else round(found * 1e6)


def exit_code(output: str | None) -> int | None:
    r"""The exit code that a text reports on a separate line at its beginning or end; the last one counts.

    >>> exit_code("Output: (empty)\nExit Code: 1\n"), exit_code("no problems found")
    (1, None)
    """
    if not output or "exit" not in (ends := f"{output[:100]}\n{output[-_MAX_EXIT_CHARS:]}").lower():
        return None
    _, code = command_output(output)
    if code is not None:
        return code
    if len(output) <= _MAX_EXIT_CHARS:
        found = re.findall(_EXIT, output)
    else:  # at the beginning of a long output, only Claude Code's form counts
        found = re.findall(_EXIT, output[-_MAX_EXIT_CHARS:]) or re.findall(_FIRST_LINE_EXIT, ends)
    return int(found[-1]) if found else None


def command_output(text: str) -> tuple[str, int | None]:
    r"""The output of a command without the lines that agents add, and its exit code.

    These lines contain ids and durations, so that equal outputs would differ, or they are the same for all
    outputs. The exit code is that of Codex; `exit_code` finds those of other agents.

    >>> command_output("Chunk ID: 8b0e82\nWall time: 0.1 seconds\nProcess exited with code 1\nOutput:\nno such file")
    ('no such file', 1)
    >>> command_output("<untrusted_context>\nOutput: hi\nExit Code: 1\nProcess Group PGID: 71\n</untrusted_context>")
    ('hi', None)
    """
    head, marker, rest = text[:_MAX_HEADER_CHARS].partition(_HEADER_END)
    has_header = bool(marker) and head.startswith(_HEADER_STARTS)
    if not has_header and not (_ENVELOPE_MARK in text and text.startswith(_ENVELOPE_STARTS)):
        return text, None
    if not has_header:
        return re.sub(_ENVELOPE, "", text), None
    found = re.search(_HEADER_CODE, head)
    return rest + text[_MAX_HEADER_CHARS:], int(found[1]) if found else None
