"""Gemini CLI, headless: `--output-format stream-json`.

A tool result says "success" even when the command failed. Where the command printed nothing, its
exit code is in the text; where it printed something, only its own words tell, so they are read.
Tokens come only at the end, retries not at all, and a loop it stopped itself ends as "success".
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
    words,
)
from switchgear._agents.events import Question, Result, StreamEvent
from switchgear._agents.provider_messages import complaint, looks_failed
from switchgear._text.agent_text import clean

_EXIT_CODE = re.compile(r"(?:exited with code|Exit Code): ?(-?\d{1,10})\b")
_ASKING = frozenset({"ask_user", "ask_user_question"})


class GeminiReader(JsonReader):
    """Reads the events of one headless run."""

    def __init__(self, *, model: str | None = None) -> None:
        super().__init__(model=model)
        self._last_words = ""
        self._stopped_itself = False

    def read(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        """The events of one line, by its type."""
        kind = line.get("type")
        if kind == "tool_use":
            self._last_words = ""
            yield from self.started(
                line.get("tool_id"), line.get("tool_name"), line.get("parameters")
            )
            if line.get("tool_name") in _ASKING:
                yield Question(clean(str(line.get("parameters"))), by_tool=True)
        elif kind == "tool_result":
            yield from self._tool_result(line)
        elif kind == "message":
            if line.get("role") == "assistant":
                text = words(line.get("content"))
                self._last_words = (self._last_words + text)[-20_000:]
                yield from self.said(text)
        elif kind == "error":
            error = complaint(words(line.get("message")))
            self._stopped_itself |= error.kind in {"loop", "limit"}
            yield error._replace(final=error.kind in {"loop", "limit"})
        elif kind == "result":
            yield from self._result(line)
        elif kind == "init":
            self.model = line["model"] if isinstance(line.get("model"), str) else self.model
        else:
            raise NotUnderstood

    def _tool_result(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        output = words(line.get("output")) or words(at(line, "error", "message"))
        code = None
        for match in _EXIT_CODE.finditer(output[-2_000:]):
            code = int(match[1])
        ok = line.get("status") == "success" and code in {None, 0}
        call = self._calls.get(str(line.get("tool_id")))
        if ok and code is None and call is not None and call.tool == "run_shell_command":
            ok = not looks_failed(output)
        yield from self.finished(line.get("tool_id"), ok=ok, output=output)

    def _result(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        models = at(line, "stats", "models")
        stats = models if isinstance(models, dict) and models else {self.model: line.get("stats")}
        for model, usage in stats.items():
            yield self.meter.set(
                model,
                at(usage, "input_tokens"),
                at(usage, "output_tokens"),
                at(usage, "cached"),
            )
        ok = line.get("status") == "success"
        text = self._last_words or words(at(line, "error", "message"))
        if ok:
            yield from self.question_in(text)
        else:
            yield complaint(text or "failed without a word", final=True)
        yield Result(
            clean(text),
            ok and not self._stopped_itself,
            "stopped by its own guard" if self._stopped_itself else str(line.get("status")),
        )


class Gemini(Agent):
    """Google's Gemini CLI."""

    name = "gemini"
    install = "npm install -g @google/gemini-cli"

    def invocation(
        self, prompt: str, cwd: Path, *, model: str | None = None, extra: tuple[str, ...] = ()
    ) -> Invocation:
        """Every tool is allowed and the directory trusted, for nobody is there to ask."""
        del cwd
        argv = ["gemini", "--output-format", "stream-json", "--approval-mode", "yolo"]
        argv += ["--skip-trust", *(("--model", model) if model else ())]
        return Invocation((*argv, *extra, f"--prompt={as_argument(prompt)}"))

    def reader(self, *, model: str | None = None) -> StreamReader:
        """A reader for one run."""
        return GeminiReader(model=model)
