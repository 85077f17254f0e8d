"""Qwen Code, headless: Claude Code's stream format, with differences.

Input tokens include the cache, output tokens are correct in every message, and costs are not reported. A run that
its own loop guard stopped ends with an error in the result.
"""

import re
from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import Agent, Invocation, as_argument
from switchgear._agents.claude_code.agent import ClaudeReader
from switchgear._agents.claude_code.hooks import token_counts as claude_counts
from switchgear._agents.events import Usage
from switchgear._agents.fields import TokenCounts, at, count, items, words
from switchgear._agents.qwen.hooks import token_counts
from switchgear._agents.recordings.recording import (
    RecordedRun,
    RecordingFile,
    RecordingFormat,
    RecordingTally,
    RunBuilder,
    exit_code,
    name,
    timestamp,
    word,
)


class QwenReader(ClaudeReader):
    placeholder_output = False

    @staticmethod
    def token_counts(usage: object) -> TokenCounts:
        """The tokens of a message. Input tokens include the cache."""
        return claude_counts(usage)._replace(input=count(at(usage, "input_tokens")))


class Qwen(Agent):
    name = "qwen"
    install = "npm install -g @qwen-code/qwen-code"
    reader_class = QwenReader

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        """All tools are allowed, because there is no user to confirm."""
        argv = ["qwen", "--output-format", "stream-json", "--approval-mode", "yolo"]
        return Invocation((*argv, *options, f"--prompt={as_argument(prompt)}"))


# Transcripts

_FORMAT = "qwen"

_TYPES = ("user", "assistant", "tool_result")
_ENVELOPE = re.compile(
    r"\ACommand: .*\nDirectory: .*\nOutput: |(?m:^(?:Error|Signal|Process Group PGID|Exit Code): .*$)\n?"
)


def _recognises(source: RecordingFile) -> bool:
    """Whether the lines of a session have messages with parts."""
    return any(
        word(line.get("type")) in _TYPES and isinstance(at(line, "message", "parts"), list)
        for line in source.head()
        if "sessionId" in line
    )


def _read(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    builder = RunBuilder(RecordedRun(source.name, source.path, _FORMAT, _FORMAT), tally)
    for line in source.lines(tally, _FORMAT):
        kind, builder.at_s = line.get("type"), timestamp(line.get("timestamp"))
        if name(line.get("sessionId")):
            builder.set(id=name(line["sessionId"]))
        parts = items(at(line, "message", "parts"))
        if kind == "user":
            builder.turn()
            builder.user("\n".join(words(at(part, "text")) for part in parts))
        elif kind == "assistant":
            _answer(builder, line, parts)
        elif kind == "tool_result":
            _result(builder, line, parts)
        elif kind != "system":
            builder.unknown(kind)
    yield builder.finish()


def _answer(builder: RunBuilder, line: dict[str, Any], parts: list[Any]) -> None:
    builder.turn()
    model, usage = name(line.get("model")), line.get("usageMetadata")
    builder.fill(model=model)
    builder.add_usage(Usage(model or None, *token_counts(usage)))
    for part in parts:
        builder.text(at(part, "text"))
        call = at(part, "functionCall")
        if call is not None:
            builder.call(at(call, "id"), at(call, "name"), at(call, "args"))


def _result(builder: RunBuilder, line: dict[str, Any], parts: list[Any]) -> None:
    for part in parts:
        answer = at(part, "functionResponse")
        response = at(answer, "response")
        output = words(at(response, "output") or at(response, "error"))
        failed = at(line, "toolCallResult", "status") == "error" or at(response, "error")
        code = exit_code(output)
        ok = False if failed else None if code is None else code == 0
        builder.result(at(answer, "id"), _ENVELOPE.sub("", output).strip("\n"), ok=ok)


TRANSCRIPTS = RecordingFormat(_FORMAT, "Qwen Code chat", _recognises, _read, ("~/.qwen/projects",))
