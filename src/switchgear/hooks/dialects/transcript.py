"""What an agent said before it called a tool: its hooks do not tell, but its transcript does.

The transcript is a file of one JSON object a line, to which the agent adds while it works; hooks
are told where it is. Claude Code, Codex and Qwen Code write what the model says as messages of the assistant,
before the call that follows from it. Whatever else is found there means: not known.
"""

import json
import os
import stat
from typing import Any

from switchgear.hooks.dialects.reading import LONGEST_THOUGHT

LOOKED_AT_BYTES = 256 * 1024
"""The end of the file that is read: the call was made a moment ago."""
MOST_NEW_BYTES = 1024 * 1024
"""Read at a time of what was added since the last hook."""
_SPEAKERS = ("assistant", "model")
_MOST_LINES = 40
"""Lines before the call that are looked at."""


def thought_before(transcript: str, call_id: str) -> str | None:
    """What was said before a call, in the same answer; `None`: not known. Never raises."""
    if not transcript or not call_id:
        return None
    name = json.dumps(call_id).encode()
    lines = end_of(transcript).splitlines()
    calls = [index for index, line in enumerate(lines) if name in line and _calls(line, call_id)]
    if not calls:
        return None
    for line in reversed(lines[max(0, calls[0] - _MOST_LINES) : calls[0] + 1]):
        message = _message(line)
        said = _said(message)
        if said and message.get("role") in _SPEAKERS:
            return said[:LONGEST_THOUGHT]
        if message.get("role") == "user" or str(message.get("type")).endswith("_output"):
            return None  # the answer began here
    return None


def last_thought(transcript: str) -> str | None:
    """What Gemini CLI's model said last: its calls have no names. Never raises."""
    if not transcript:
        return None
    for line in reversed(end_of(transcript).splitlines()[-_MOST_LINES:]):
        if b'"type":"gemini"' in line.replace(b": ", b":"):
            return _gemini_said(line)
    return None


def _gemini_said(line: bytes) -> str | None:
    try:
        told: Any = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    thoughts = told.get("thoughts")
    parts = (
        [part for part in thoughts if isinstance(part, dict)] if isinstance(thoughts, list) else []
    )
    texts = [
        *(part.get("description") or part.get("subject") for part in parts),
        told.get("content"),
    ]
    said = "\n".join(text for text in texts if isinstance(text, str) and text.strip())
    return said[:LONGEST_THOUGHT] or None


def end_of(path: str) -> bytes:
    """The end of a file; nothing, if it is none that can be read. Never raises."""
    return _read_from(path, 0, LOOKED_AT_BYTES)[1]


def lines_since(path: str, offset: int) -> tuple[int, list[bytes]]:
    """The whole lines of a file from there on, and where the next begins. Never raises.

    Of more than `MOST_NEW_BYTES` only the end is read. A file that has become shorter is another
    one: what it holds by then counts as read.
    """
    if not path:
        return offset, []
    start, data = _read_from(path, offset, MOST_NEW_BYTES)
    end = data.rfind(b"\n") + 1
    return start + end, data[:end].splitlines()


def _read_from(path: str, offset: int, most: int) -> tuple[int, bytes]:
    """The bytes of a file from there on, `most` at most, and where they begin."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return offset, b""
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return offset, b""
        start = min(max(offset, found.st_size - most), found.st_size)
        return start, os.pread(file, most, start)
    except OSError:
        return offset, b""
    finally:
        os.close(file)


def _calls(line: bytes, call_id: str) -> bool:
    """Whether a line is the call itself, and not its outcome."""
    message = _message(line)
    if message.get("call_id") == call_id:
        return not str(message.get("type")).endswith("_output")
    for part in _parts(message):
        call = part.get("functionCall")
        if part.get("id") == call_id or (isinstance(call, dict) and call.get("id") == call_id):
            return True
    return False


def _said(message: dict[str, Any]) -> str:
    texts = [part.get("thinking") or part.get("text") for part in _parts(message)]
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip())


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content", message.get("parts"))
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _message(line: bytes) -> dict[str, Any]:
    try:
        told: Any = json.loads(line.decode(errors="replace"))
        found = told.get("message") or told.get("payload")
    except (ValueError, AttributeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
