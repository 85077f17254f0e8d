"""pi, headless: `pi --mode json -p`.

Every change of a message is a line that contains the whole message, so the stream is long; only the last line of a
message is read. Input tokens do not include the cache. If the provider stays unavailable, the exit code is 0.
"""

from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import Agent, Invocation, JsonReader, NotUnderstood, as_argument
from switchgear._agents.events import AgentResult, StreamEvent, Usage, error_from_text
from switchgear._agents.fields import at, items, micros, words
from switchgear._agents.pi.hooks import token_counts
from switchgear._agents.recordings.recording import (
    RecordedRun,
    RecordingFile,
    RecordingFormat,
    RecordingTally,
    RunBuilder,
    name,
    timestamp,
    word,
)
from switchgear._text.agent_text import clean

_IGNORED_EVENTS = frozenset({
    *("session", "agent_start", "turn_start", "turn_end", "message_start", "message_update"),
    *("tool_execution_update", "auto_compaction_start", "auto_compaction_end", "queue_update"),
    *("compaction_start", "compaction_end", "auto_retry_end"),
})  # fmt: skip


class PiReader(JsonReader):
    def __init__(self, *, model: str | None = None) -> None:
        super().__init__(model=model)
        self._stop_reason = ""
        self._failed = ""

    def read(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        kind = line.get("type")
        if kind == "message_end":
            if at(line, "message", "role") == "assistant":
                yield from self._answer(line["message"])
        elif kind == "tool_execution_start":
            yield from self.started(line.get("toolCallId"), line.get("toolName"), line.get("args"))
        elif kind == "tool_execution_end":
            output = words(at(line, "result", "content"))
            ok = line.get("isError") is not True
            yield from self.finished(line.get("toolCallId"), ok=ok, output=output)
        elif kind == "auto_retry_start":
            yield error_from_text(words(line.get("errorMessage")))
        elif kind == "agent_end":
            yield from self._end()
        elif kind not in _IGNORED_EVENTS:
            raise NotUnderstood

    def _answer(self, message: dict[str, Any]) -> Iterator[StreamEvent]:
        model = message.get("model") if isinstance(message.get("model"), str) else self.model
        self._stop_reason = str(message.get("stopReason"))
        self._last_text = words(message.get("content"))
        self._failed = words(message.get("errorMessage")) if self._stop_reason == "error" else ""
        if self._last_text:
            yield from self.message(self._last_text)
        if self._failed:
            yield error_from_text(self._failed)
        usage = message.get("usage")
        tokens = token_counts(usage)
        if tokens.input:
            yield self.meter.add(model, *tokens, dollars=at(usage, "cost", "total") or None)

    def _end(self) -> Iterator[StreamEvent]:
        ok = not self._failed and self._stop_reason == "stop"
        if self._failed:
            yield error_from_text(self._failed, final=True)
        elif ok:
            yield from self.question_in(self._last_text)
        yield AgentResult(clean(self._last_text or self._failed), ok, self._stop_reason or None)


class Pi(Agent):
    name = "pi"
    install = "npm install -g @mariozechner/pi-coding-agent"
    reader_class = PiReader

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        """Pi does not ask for permissions."""
        argv = ["pi", "--mode", "json", "-p"]
        return Invocation((*argv, *options, as_argument(prompt)))


# Transcripts

_FORMAT = "pi"

_IGNORED_LINES = frozenset({
    *("model_change", "thinking_level_change", "compaction", "branch_summary", "custom", "label"),
    *("custom_message", "session_info"),
})  # fmt: skip


def _recognises(source: RecordingFile) -> bool:
    return source.first.get("type") == "session" and {"id", "cwd"} <= source.first.keys()


def _read(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    builder = RunBuilder(RecordedRun(source.name, source.path, _FORMAT, _FORMAT), tally)
    for line in source.lines(tally, _FORMAT):
        kind = word(line.get("type"))
        if kind == "session":
            builder.set(id=name(line.get("id")) or source.name)
        elif kind == "message":
            builder.at_s = timestamp(line.get("timestamp"))
            _message(builder, line.get("message"))
        elif kind not in _IGNORED_LINES:
            builder.unknown(kind)
    yield builder.finish()


def _message(builder: RunBuilder, message: object) -> None:
    role = word(at(message, "role"))
    if role == "user":
        builder.turn()
        builder.user(words(at(message, "content")))
    elif role == "assistant":
        _answer(builder, message)
    elif role == "toolResult":
        output = words(at(message, "content"))
        ok = at(message, "isError") is not True
        builder.result(at(message, "toolCallId"), output, ok=ok)
    elif role not in {"bashExecution", "custom", "compactionSummary", "branchSummary"}:
        builder.unknown(role)


def _answer(builder: RunBuilder, message: object) -> None:
    builder.turn()
    provider, model = name(at(message, "provider")), name(at(message, "model"))
    full = f"{provider}/{model}" if provider and model else model
    builder.fill(model=full)
    usage = at(message, "usage")
    cost = micros(at(usage, "cost", "total")) or None
    builder.add_usage(Usage(full or None, *token_counts(usage), cost))
    for part in items(at(message, "content")):
        kind = word(at(part, "type"))
        if kind in {"text", "thinking"}:
            builder.text(at(part, kind))
        elif kind == "toolCall":
            builder.call(at(part, "id"), at(part, "name"), at(part, "arguments"))


TRANSCRIPTS = RecordingFormat(_FORMAT, "pi session", _recognises, _read, ("~/.pi/agent/sessions",))
