"""Values out of untrusted JSON, each with its type: what is not as it should be is empty, 0 or `None`.

Every hook process imports this module, so it imports little itself.
"""

import json
import math
import re
from typing import Any, NamedTuple

LONGEST_RESULT = 20_000
"""Characters of a tool's output that are examined."""
LONGEST_THOUGHT = 2_000
_LARGEST_COUNT = 2**53
_HEADER_STARTS = ("Chunk ID: ", "Exit code: ", "Wall time: ", "Process exited ", "Process running ")
_HEADER_CHARS = 600
_HEADER_END = "\nOutput:\n"
_HEADER_CODE = r"(?m)^(?:Process exited with code|Exit code:) (-?\d{1,10})$"
_ENVELOPE_STARTS = ("<untrusted_context>", "Command: ", "Output: ", "Directory: ")
_ENVELOPE_MARK = "\nProcess Group PGID: "
_ENVELOPE = (
    r"\A(?:<untrusted_context>\n)?(?:Command: (?s:.{0,4000}?)\nDirectory: .*\n)?Output: (?:\(empty\))?"
    r"|(?:\n(?:Error: \(none\)|(?:Exit Code|Signal|Background PIDs|Process Group PGID): .*)){1,5}"
    r"(?:\n</untrusted_context>)?\Z"
)
"""What Gemini CLI and Qwen Code write around the output of a command."""
_EXIT_CHARS = 4_000
_FIRST_LINE_EXIT = r"\A(?:Error: )?Exit code (-?\d{1,9})\n"
_EXIT = r"(?im)^\W{0,40}(?:process |command )?exit(?:ed with)?(?: code)?:? +(-?\d{1,9})\b"


class TokenCounts(NamedTuple):
    """The tokens of one or several answers of a model, as every agent's parser returns them."""

    input: int = 0
    """All input, tokens read from and written to the cache included."""
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


def parsed(text: str | bytes) -> Any:
    """A text as JSON; `None`: it is not valid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def at(value: object, *path: str) -> Any:
    """The value under these keys; `None` where there is none."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def part(data: Any, name: str) -> dict[str, Any]:
    """The object under a key; empty where there is none."""
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
    return int(value) if 0 <= value <= _LARGEST_COUNT else 0


def words(value: object) -> str:
    """The text of a message's content in any of the usual shapes."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        return "" if value is None else str(value)
    parts = (each if isinstance(each, str) else at(each, "text") for each in value)
    return "\n".join(each for each in parts if isinstance(each, str))


def text(value: Any) -> str:
    """A text; empty for anything else."""
    return value if isinstance(value, str) else ""


def whole_text(value: Any) -> str | None:
    """What a tool returned as one text, at most `LONGEST_RESULT` characters; `None`: nothing."""
    if value is None:
        return None
    if isinstance(value, str):
        return value[:LONGEST_RESULT]
    try:
        return json.dumps(value, ensure_ascii=False)[:LONGEST_RESULT]
    except (TypeError, ValueError, RecursionError):
        return str(type(value))


def number(value: Any) -> float | None:
    """A finite number of at least 0; anything else was not measured."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def milliseconds(value: Any) -> float | None:
    """A duration in milliseconds, as seconds."""
    found = number(value)
    return None if found is None else found / 1000


def share(value: Any) -> float | None:
    """A share from 0 to 1; larger values are 1."""
    found = number(value)
    return None if found is None else min(found, 1.0)


def window_share(usage: Any) -> float | None:
    """The share of the context window in use, of `{"tokens", "contextWindow"}`."""
    tokens, window = number(at(usage, "tokens")), number(at(usage, "contextWindow"))
    return min(tokens / window, 1.0) if tokens is not None and window else None


def thought(value: Any) -> str | None:
    """The agent's text before a call; `None` if it is empty."""
    return value[:LONGEST_THOUGHT] if isinstance(value, str) and value.strip() else None


def micros(dollars: object) -> int | None:
    """Dollars in millionths; `None` for anything but an amount up to a billion."""
    found = number(dollars)
    return None if found is None or found > 1e9 else round(found * 1e6)


def exit_code(output: str | None) -> int | None:
    r"""The exit code that a text reports on a separate line at its beginning or end; the last one counts.

    >>> exit_code("Output: (empty)\nExit Code: 1\n"), exit_code("no problems found")
    (1, None)
    """
    if not output or "exit" not in (ends := f"{output[:100]}\n{output[-_EXIT_CHARS:]}").lower():
        return None
    _, code = command_output(output)
    if code is not None:
        return code
    if len(output) <= _EXIT_CHARS:
        found = re.findall(_EXIT, output)
    else:  # the head of a long output counts only in the form that Claude Code writes
        found = re.findall(_EXIT, output[-_EXIT_CHARS:]) or re.findall(_FIRST_LINE_EXIT, ends)
    return int(found[-1]) if found else None


def command_output(text: str) -> tuple[str, int | None]:
    r"""The output of a command and its exit code, without what agents write around it.

    That differs every time (an id, a duration, a process id), or is the same for every output, so
    that equal outputs would differ, and different ones resemble each other. The exit code is that
    of Codex; `exit_code` finds others.

    >>> command_output("Chunk ID: 8b0e82\nWall time: 0.1 seconds\nProcess exited with code 1\nOutput:\nno such file")
    ('no such file', 1)
    >>> command_output("<untrusted_context>\nOutput: hi\nExit Code: 1\nProcess Group PGID: 71\n</untrusted_context>")
    ('hi', None)
    """
    head, marker, rest = text[:_HEADER_CHARS].partition(_HEADER_END)
    has_header = bool(marker) and head.startswith(_HEADER_STARTS)
    if not has_header and not (_ENVELOPE_MARK in text and text.startswith(_ENVELOPE_STARTS)):
        return text, None
    if not has_header:
        return re.sub(_ENVELOPE, "", text), None
    found = re.search(_HEADER_CODE, head)
    return rest + text[_HEADER_CHARS:], int(found[1]) if found else None
