"""OpenAI Codex, headless: `codex exec --json`.

Items start and complete; a command's exit code is the truth about it. Retries appear as errors
that say "Reconnecting". The stream names neither the model nor a price.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from switchgear._agents.base import (
    Agent,
    Invocation,
    JsonReader,
    NotUnderstood,
    StreamReader,
    at,
    words,
)
from switchgear._agents.events import Question, Result, StreamEvent
from switchgear._agents.provider_messages import complaint, known_complaint
from switchgear._text.agent_text import clean, one_line

_SILENT = frozenset({"thread.started", "turn.started", "item.updated"})
_FAILED = frozenset({"failed", "declined", "error"})


class CodexReader(JsonReader):
    """Reads the events of one `codex exec`."""

    def __init__(self, *, model: str | None = None) -> None:
        super().__init__(model=model)
        self._last_words = ""

    def read(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        """The events of one line, by its type."""
        kind = line.get("type")
        if kind == "item.started":
            yield from self._started(line["item"])
        elif kind == "item.completed":
            yield from self._completed(line["item"])
        elif kind == "turn.completed":
            yield from self._turn_completed(line.get("usage"))
        elif kind == "turn.failed":
            text = words(at(line, "error", "message"))
            yield complaint(text, final=True)
            yield Result(clean(text), claimed_success=False, reason="turn.failed")
        elif kind == "error":
            yield complaint(words(line.get("message")))
        elif kind not in _SILENT:
            raise NotUnderstood

    def _started(self, item: dict[str, Any]) -> Iterator[StreamEvent]:
        kind = item["type"]
        if kind == "command_execution":
            yield from self.started(item.get("id"), "shell", {"command": item.get("command")})
        elif kind == "file_change":
            yield from self.started(item.get("id"), "apply_patch", {"path": _paths(item)})
        elif kind == "mcp_tool_call":
            tool = f"{item.get('server')}.{item.get('tool')}"
            yield from self.started(item.get("id"), tool, item.get("arguments"))
        elif kind == "web_search":
            yield from self.started(item.get("id"), "web_search", {"query": item.get("query")})

    def _completed(self, item: dict[str, Any]) -> Iterator[StreamEvent]:
        kind = item["type"]
        if kind == "agent_message":
            self._last_words = words(item.get("text"))
            yield from self.said(self._last_words)
        elif kind == "error":  # also mere remarks, such as unknown metadata of a model
            found = known_complaint(words(item.get("message")))
            yield from [found] if found else []
        elif kind in {"command_execution", "file_change", "mcp_tool_call", "web_search"}:
            if str(item.get("id")) not in self._calls:
                yield from self._started(item)
            yield from self._outcome(item)
        elif kind == "request_user_input":
            yield Question(clean(words(item.get("question"))), by_tool=True)

    def _outcome(self, item: dict[str, Any]) -> Iterator[StreamEvent]:
        code = item.get("exit_code")
        ok = item.get("status") not in _FAILED and code in {None, 0} and not item.get("error")
        output = words(item.get("aggregated_output")) or words(at(item, "error", "message"))
        if not ok and isinstance(code, int):
            output = f"{output}\nexit code {code}".strip()
        files = tuple(_paths(item)) if item["type"] == "file_change" else ()
        yield from self.finished(item.get("id"), ok=ok, output=output, files=files)

    def _turn_completed(self, usage: object) -> Iterator[StreamEvent]:
        if isinstance(usage, dict):
            yield self.meter.set(
                self.model,
                usage.get("input_tokens"),
                usage.get("output_tokens"),
                usage.get("cached_input_tokens"),
                usage.get("cache_write_input_tokens"),
            )
        yield from self.question_in(self._last_words)
        yield Result(clean(self._last_words), claimed_success=True, reason="turn.completed")


class Codex(Agent):
    """OpenAI's Codex CLI."""

    name = "codex"
    install = "npm install -g @openai/codex"

    def invocation(
        self, prompt: str, cwd: Path, *, model: str | None = None, extra: tuple[str, ...] = ()
    ) -> Invocation:
        """It may write in the working directory only; the prompt is on stdin.

        The sandbox is set by `-c`, which `extra` may repeat with another value.
        """
        del cwd
        argv = ["codex", "exec", "--json", "--skip-git-repo-check"]
        argv += ["-c", 'sandbox_mode="workspace-write"', "-c", 'approval_policy="never"']
        argv += ["--model", model] if model else []
        return Invocation((*argv, *extra, "-"), prompt)

    def reader(self, *, model: str | None = None) -> StreamReader:
        """A reader for one run."""
        return CodexReader(model=model)


def _paths(item: dict[str, Any]) -> list[str]:
    changes = item.get("changes")
    paths = (at(change, "path") for change in changes) if isinstance(changes, list) else ()
    return [one_line(path) for path in paths if isinstance(path, str)]
