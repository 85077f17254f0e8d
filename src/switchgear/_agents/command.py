"""Any other agent: a command with a placeholder for the prompt, and Switchgear's own stream format.

The output of a command can be plain text. A command that prints JSON lines of the following types reports more;
`docs/agents.md` describes them for authors of agents. In other JSON, texts count as output (`text`, `result`,
`content`, `message`, `output`, …, also in lists).

    {"type": "tool", "name": "bash", "arguments": {…}, "ok": false, "error": "…", "files": ["a.py"]}
    {"type": "text", "text": "…"}
    {"type": "usage", "model": "…", "input_tokens": 900, "output_tokens": 50, "cost_usd": 0.01}
    {"type": "error", "message": "…", "status": 429, "retry_after_s": 20, "final": false}
    {"type": "question", "text": "…"}
    {"type": "result", "text": "…", "success": true}
"""

import shlex
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

from switchgear._agents.base import Agent, Invocation, StreamReader, as_argument, money
from switchgear._agents.events import AgentResult, Question, StreamEvent, error_from_text
from switchgear._agents.fields import at, count, parsed, words
from switchgear._text.agent_text import clean, one_line

PLACEHOLDER = "{prompt}"
_TEXT_KEYS = (
    *("text", "result", "content", "message", "output", "response", "answer", "completion"),
    *("delta", "parts", "choices", "messages", "item", "data"),
)
"""Keys whose values can be text in the JSON of other agents; the first one with text counts."""
_METADATA_KEYS = frozenset({
    *("type", "subtype", "id", "uuid", "session_id", "model", "role", "status", "name", "event"),
    *("timestamp", "time", "date", "stop_reason", "finish_reason", "version", "level", "path"),
})  # fmt: skip
"""Keys whose values are not text of the agent."""
_MAX_DEPTH = 12
_MAX_KEPT_CHARS = 100_000
_KINDS = frozenset({"tool", "text", "usage", "error", "question", "result"})


class CommandReader(StreamReader):
    """Reads Switchgear's own stream format; every other line is text of the agent."""

    def __init__(self, *, model: str | None = None) -> None:
        super().__init__(model=model)
        self._recent_text = ""
        """The end of the agent's text, to recognise a result that repeats it."""
        self._steps = 0
        self._result: AgentResult | None = None

    def read_line(self, text: str) -> Iterator[StreamEvent]:
        value = parsed(text) if text.lstrip().startswith(("{", "[")) else None
        if isinstance(value, dict) and at(value, "type") in _KINDS:
            yield from self._read(value)
        else:
            yield from self._add_text(_text_in(value) or text)

    def _add_text(self, text: str) -> Iterator[StreamEvent]:
        self._last_text = text.strip() or self._last_text
        self._recent_text = f"{self._recent_text}\n{text}"[-_MAX_KEPT_CHARS:]
        yield from self.message(text)

    def _count_once(self, text: str) -> None:
        """Count the text of a summary or a question, unless it was printed before."""
        if text.strip() not in self._recent_text:
            self.output_chars += len(text)

    def read_end(self, exit_code: int | None) -> Iterator[StreamEvent]:
        """The result; a command that reports none claims success with exit code 0."""
        if self._result is None and exit_code is not None:
            if exit_code == 0:
                yield from self.question_in(self._last_text)
            yield AgentResult(clean(self._last_text), exit_code == 0, f"exit code {exit_code}")

    def _read(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        kind = line["type"]
        if kind == "tool":
            yield from self._tool_events(line)
        elif kind == "text":
            yield from self._add_text(_text_in(line))
        elif kind == "usage":
            yield self.meter.add(
                line["model"] if isinstance(line.get("model"), str) else self.model,
                line.get("input_tokens"),
                line.get("output_tokens"),
                line.get("cache_read_tokens"),
                line.get("cache_write_tokens"),
                dollars=line.get("cost_usd"),
            )
        elif kind == "error":
            wait_s = money(line.get("retry_after_s"))
            yield error_from_text(
                words(line.get("message")),
                status=count(line.get("status")) or None,
                retry_after_s=None if wait_s is None else float(wait_s),
                final=line.get("final") is True,
            )
        elif kind == "question":
            question = _text_in(line)
            self._count_once(question)
            yield Question(clean(question), by_tool=True)
        else:
            success = line.get("success")
            claimed = success if isinstance(success, bool) else None
            summary = _text_in(line)
            self._count_once(summary)
            self._result = AgentResult(clean(summary), claimed, "result")
            yield self._result

    def _tool_events(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        self._steps += 1
        files = line.get("files")
        named = tuple(one_line(str(file)) for file in files) if isinstance(files, list) else ()
        yield from self.started(self._steps, line.get("name"), line.get("arguments"))
        yield from self.finished(
            self._steps,
            ok=line.get("ok") is not False,
            output=words(line.get("error") or line.get("output")),
            files=named,
        )


class CommandAgent(Agent):
    """Any command as an agent.

    `{prompt}` stands for the prompt, as an argument or a part of one; without it, the prompt is on standard
    input. Raises ValueError for a command that cannot be parsed.
    """

    name = "command"
    install = ""  # the user named the command
    model_option = ""

    def __init__(self, command: str, reader: Callable[..., StreamReader] = CommandReader) -> None:
        try:
            self.argv = tuple(shlex.split(command))
        except ValueError as problem:
            raise ValueError(f"the agent's command {command!r} cannot be read: {problem}") from None
        if not self.argv or PLACEHOLDER in self.argv[0]:
            raise ValueError(f"the agent's command {command!r} must begin with a program")
        self._reader = reader

    @property
    def program(self) -> str:
        return PurePath(self.argv[0]).name

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        """The command with the prompt; the options are at its end."""
        if not any(PLACEHOLDER in part for part in self.argv):
            return Invocation((*self.argv, *options), prompt)
        argument = as_argument(prompt)
        return Invocation((*(part.replace(PLACEHOLDER, argument) for part in self.argv), *options))

    def reader(self, *, model: str | None = None) -> StreamReader:
        return self._reader(model=model)


def _text_in(value: object, depth: int = 0) -> str:
    """The agent's text in a JSON value, in any of the usual forms; empty: none.

    >>> _text_in({"type": "assistant", "message": {"content": [{"type": "text", "text": "hi"}]}})
    'hi'
    """
    if isinstance(value, str):
        return value
    if depth >= _MAX_DEPTH:
        return ""
    if isinstance(value, list):
        return "\n".join(part for part in (_text_in(each, depth + 1) for each in value) if part)
    if isinstance(value, dict):
        found = (_text_in(value[key], depth + 1) for key in _TEXT_KEYS if key in value)
        known = next((text for text in found if text), "")
        rest = (key for key in value if key not in _METADATA_KEYS and key not in _TEXT_KEYS)
        others = (_text_in(value[key], depth + 1) for key in rest)
        return known or max(others, key=len, default="")
    return ""
