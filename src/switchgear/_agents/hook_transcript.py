"""What an answer of the model has used: hooks do not tell, but the agents' transcripts do.

A transcript grows by lines of JSON. Each agent has a line that names an answer, its model and its
tokens, and may write it again; what was read stays read, so a hook looks only at what is new.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from switchgear._agents.hook_fields import LONGEST_THOUGHT

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


_MOST_TOKENS = 100_000_000
"""More than any answer has; a larger number is a defect, or meant badly."""


class Used(NamedTuple):
    """The tokens of one answer."""

    id: str
    """The same for lines about the same answer."""
    model: str
    input_tokens: int
    """All that was sent, with what came from the cache or went there."""
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    window: int | None = None
    """How many tokens the model can hold, where the agent says so; 0: another line will say."""
    at: str = ""
    """When, as ISO 8601 in UTC."""
    aside: bool = False
    """Whether it is an answer to a sub-agent, in the transcript of who sent it."""

    @property
    def tokens(self) -> tuple[int, int, int, int]:
        """The four counts: input, output, read from the cache, written to it."""
        _, _, sent, said, read, written, *_ = self
        return sent, said, read, written


def usages_in(agent: str, lines: list[bytes]) -> Iterator[Used]:
    """What the lines of a transcript tell of answers, in their order. Never raises."""
    if agent not in _READERS:
        return
    mark, read = _READERS[agent]
    for line in lines:
        if mark not in line:
            continue
        try:
            told: Any = json.loads(line.decode(errors="replace"))
        except (ValueError, RecursionError):
            continue
        used = read(told) if isinstance(told, dict) else None
        if used is not None and used.id and (used.input_tokens or used.output_tokens):
            yield used


def _claude(line: dict[str, Any]) -> Used | None:
    message = _part(line, "message")
    usage = _part(message, "usage")
    read, written = (_count(usage, f"cache_{kind}_input_tokens") for kind in ("read", "creation"))
    return Used(
        _text(message.get("id")),
        _text(message.get("model")),
        _count(usage, "input_tokens") + read + written,
        _count(usage, "output_tokens"),
        read,
        written,
        at=_text(line.get("timestamp")),
        aside=line.get("isSidechain") is True,
    )


def _codex(line: dict[str, Any]) -> Used | None:
    """Told with each answer, again after its tools and with the limits.

    What the thread has used in all is the same in each of these lines, and so names the answer.
    """
    payload = _part(line, "payload")
    info = _part(payload, "info")
    last = _part(info, "last_token_usage") or _part(payload, "usage")
    total = _part(info, "total_token_usage") or _part(payload, "thread_token_usage")
    return Used(
        str(_count(total, "total_tokens") or ""),
        "",
        _count(last, "input_tokens"),
        _count(last, "output_tokens"),
        _count(last, "cached_input_tokens"),
        _count(last, "cache_write_input_tokens"),
        (_count(info, "model_context_window") or None) if info else 0,
        _text(line.get("timestamp")),
    )


def _gemini(line: dict[str, Any]) -> Used | None:
    tokens = _part(line, "tokens")
    return Used(
        _text(line.get("id")),
        _text(line.get("model")),
        _count(tokens, "input"),
        _count(tokens, "output") + _count(tokens, "thoughts"),
        _count(tokens, "cached"),
        at=_text(line.get("timestamp")),
    )


def _qwen(line: dict[str, Any]) -> Used | None:
    usage = _part(line, "usageMetadata")
    return Used(
        _text(line.get("uuid")),
        _text(line.get("model")),
        _count(usage, "promptTokenCount"),
        _count(usage, "candidatesTokenCount") + _count(usage, "thoughtsTokenCount"),
        _count(usage, "cachedContentTokenCount"),
        window=_count(line, "contextWindowSize") or None,
        at=_text(line.get("timestamp")),
    )


_READERS: dict[str, tuple[bytes, Callable[[dict[str, Any]], Used | None]]] = {
    "claude-code": (b'"usage"', _claude),
    "codex": (b'"total_tokens"', _codex),
    "gemini": (b'"tokens"', _gemini),
    "qwen": (b'"usageMetadata"', _qwen),
}
"""By the agent: what a line must have in it to be looked at, and who reads it."""


def _part(data: dict[str, Any], name: str) -> dict[str, Any]:
    part = data.get(name)
    return part if isinstance(part, dict) else {}


def _text(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def _count(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 <= value <= _MOST_TOKENS else 0
