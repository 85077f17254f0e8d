"""What an answer of the model has used: hooks do not tell, but the agents' transcripts do.

A transcript grows by lines of JSON. Each agent has a line that names an answer, its model and its
tokens, and may write it again; what was read stays read, so a hook looks only at what is new.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
