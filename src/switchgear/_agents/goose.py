"""goose, headless: `goose run --output-format stream-json`.

A banner before the JSON contains the model; the last line contains the tokens. If the provider stays unavailable,
the error is reported as a text of the agent, and the run completes with exit code 0.
"""

import re
from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import Agent, Invocation, JsonReader, NotUnderstood
from switchgear._agents.events import AgentResult, StreamEvent, error_from_text
from switchgear._agents.fields import at, items, words
from switchgear._text.agent_text import clean, one_line

_BANNER = re.compile(r"new session · \S{1,80} (\S{1,120})")

_GAVE_UP = re.compile(
    r"^Ran into this error: |^Please resend your message to try again", re.MULTILINE
)


class GooseReader(JsonReader):
    def read_line(self, text: str) -> Iterator[StreamEvent]:
        """The events of a line; the banner has none."""
        if not text.lstrip().startswith("{"):
            if match := _BANNER.search(text[:500]):
                self.model = self.model or one_line(match[1])
            return
        yield from super().read_line(text)

    def read(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        kind = line.get("type")
        if kind == "message":
            for part in items(at(line, "message", "content")):
                yield from self._part(part, at(line, "message", "role"))
        elif kind == "complete":
            yield self.meter.set(self.model, line.get("input_tokens"), line.get("output_tokens"))
            if failed := _GAVE_UP.search(self._last_text[-4_000:]) is not None:
                yield error_from_text(self._last_text, final=True)
            else:
                yield from self.question_in(self._last_text)
            yield AgentResult(clean(self._last_text), not failed, "complete")
        elif kind == "error":
            text = words(line.get("error") or line.get("message"))
            yield error_from_text(text, final=True)
            yield AgentResult(clean(text), claimed_success=False, reason="error")
        elif kind not in {"notification", "model_change"}:
            raise NotUnderstood

    def _part(self, part: object, role: object) -> Iterator[StreamEvent]:
        kind = at(part, "type")
        if kind == "toolRequest":
            self._last_text = ""
            call = at(part, "toolCall", "value")
            yield from self.started(at(part, "id"), at(call, "name"), at(call, "arguments"))
        elif kind == "toolResponse":
            yield from self._response(part)
        elif kind == "text" and role == "assistant":
            text = words(at(part, "text"))
            self._last_text = (self._last_text + text)[-20_000:]
            yield from self.message(text)

    def _response(self, part: object) -> Iterator[StreamEvent]:
        result = at(part, "toolResult")
        value = at(result, "value")
        code = at(value, "structuredContent", "exit_code")
        failed = at(result, "status") != "success" or at(value, "isError") is True
        ok = not failed and code in {None, 0}
        output = words(at(value, "content")) or words(at(result, "error"))
        yield from self.finished(at(part, "id"), ok=ok, output=output)


class Goose(Agent):
    name = "goose"
    install = "npm install -g @aaif/goose"
    reader_class = GooseReader

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        """The mode allows all actions without confirmation; the prompt is on stdin."""
        argv = ["goose", "run", "--output-format", "stream-json", "--no-session"]
        return Invocation((*argv, *options, "-i", "-"), prompt, {"GOOSE_MODE": "auto"})
