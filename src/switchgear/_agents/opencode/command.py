"""OpenCode, headless: `opencode run --format json`.

A tool part says "completed" even when the command failed: `metadata.exit` is the truth. Input
tokens do not include the cache. A cost of 0 only means that it knows no price. There is no closing
line: the end of the stream is the result. While it tries a dead provider again, for a minute, only
its log tells; so the errors of the log are asked for on standard error.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from switchgear._agents.base import (
    Agent,
    Invocation,
    JsonReader,
    NotUnderstood,
    StreamReader,
    as_argument,
    at,
    count,
    words,
)
from switchgear._agents.events import Question, Result, StreamEvent
from switchgear._agents.provider_messages import complaint
from switchgear._text.agent_text import clean

_LOGGED = re.compile(r'\bmessage="stream error".{0,1000}?\berror\.error="((?:[^"\\]|\\.){1,2000})')
_LONGEST_LOGGED = 4_000
_ASIDE = " small=true "
"""In a line of the log: about a title for the session, which is nobody's work."""


class OpenCodeReader(JsonReader):
    """Reads the events of one `opencode run`."""

    def __init__(self, *, model: str | None = None) -> None:
        super().__init__(model=model)
        self._last_words = ""
        self._failed: str | None = None
        self._stop_reason: str | None = None

    def read(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        """The events of one line, by its type."""
        kind, part = line.get("type"), line.get("part")
        if kind == "tool_use":
            self._last_words = ""
            yield from self._tool(part)
        elif kind == "text":
            self._last_words = words(at(part, "text"))
            yield from self.said(self._last_words)
        elif kind == "step_finish":
            yield from self._step_finish(part)
        elif kind == "error":
            yield from self._error(line.get("error"))
        elif kind not in {"step_start", "reasoning"}:
            raise NotUnderstood

    def read_error_line(self, text: str) -> Iterator[StreamEvent]:
        """A call of the model that failed and is tried again, from the log."""
        if not text.startswith("timestamp="):
            yield from super().read_error_line(text)
        elif _ASIDE not in text and (logged := _LOGGED.search(text[:_LONGEST_LOGGED])):
            yield complaint(logged[1].replace('\\"', '"'))

    def read_end(self, exit_code: int | None) -> Iterator[StreamEvent]:
        """The result, which this agent leaves to be concluded."""
        if self._stop_reason is None and self._failed is None:
            return
        ok = self._failed is None and self._stop_reason == "stop" and exit_code in {0, None}
        if ok:
            yield from self.question_in(self._last_words)
        yield Result(clean(self._last_words or self._failed or ""), ok, self._stop_reason)

    def _tool(self, part: object) -> Iterator[StreamEvent]:
        state, call_id = at(part, "state"), at(part, "callID")
        yield from self.started(call_id, at(part, "tool"), at(state, "input"))
        if at(part, "tool") == "question":
            yield Question(clean(str(at(state, "input"))), by_tool=True)
        status, code = at(state, "status"), at(state, "metadata", "exit")
        if status not in {"completed", "error"}:
            return
        output = words(at(state, "output")) or words(at(state, "error"))
        ok = status == "completed" and code in {None, 0}
        if not ok and isinstance(code, int):
            output = f"{output}\nexit code {code}".strip()
        yield from self.finished(call_id, ok=ok, output=output)

    def _step_finish(self, part: object) -> Iterator[StreamEvent]:
        self._stop_reason = str(at(part, "reason"))
        tokens = at(part, "tokens")
        read, written = count(at(tokens, "cache", "read")), count(at(tokens, "cache", "write"))
        yield self.meter.add(
            self.model,
            count(at(tokens, "input")) + read + written,
            count(at(tokens, "output")) + count(at(tokens, "reasoning")),
            read,
            written,
            dollars=at(part, "cost") or None,
        )

    def _error(self, error: object) -> Iterator[StreamEvent]:
        text = words(at(error, "data", "message") or at(error, "message") or at(error, "name"))
        self._failed = text or "failed without a word"
        after = at(error, "data", "responseHeaders", "retry-after")
        yield complaint(
            self._failed,
            status=count(at(error, "data", "statusCode")) or None,
            retry_after_s=float(after) if str(after).isdecimal() else None,
            final=True,
        )


class OpenCode(Agent):
    """OpenCode."""

    name = "opencode"
    install = "npm install -g opencode-ai"

    def invocation(
        self, prompt: str, cwd: Path, *, model: str | None = None, extra: tuple[str, ...] = ()
    ) -> Invocation:
        """What its configuration allows is allowed; `model` is provider/model."""
        del cwd
        argv = ["opencode", "run", "--format", "json", "--print-logs", "--log-level", "ERROR"]
        argv += ["--model", model] if model else []
        return Invocation((*argv, *extra, "--", as_argument(prompt)))

    def reader(self, *, model: str | None = None) -> StreamReader:
        """A reader for one run."""
        return OpenCodeReader(model=model)
