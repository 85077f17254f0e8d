"""Gemini CLI, headless: `--output-format stream-json`.

A tool result has the status "success" even if the command failed. The text contains the exit code only if the
command had no output; otherwise the output is checked for signs of a failure. Tokens are reported only at the end,
retries are not reported, and a run that its own loop guard stopped ends with "success".
"""

import re
from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import Agent, Invocation, JsonReader, NotUnderstood, as_argument
from switchgear._agents.events import (
    AgentResult,
    Question,
    StreamEvent,
    Usage,
    error_from_text,
    looks_failed,
)
from switchgear._agents.fields import at, items, objects, words
from switchgear._agents.gemini.hooks import token_counts
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
from switchgear._text.agent_text import clean

_EXIT_CODE = re.compile(r"(?:exited with code|Exit Code): ?(-?\d{1,10})\b")
_QUESTION_TOOLS = frozenset({"ask_user", "ask_user_question"})


class GeminiReader(JsonReader):
    def __init__(self, *, model: str | None = None) -> None:
        super().__init__(model=model)
        self._stopped_itself = False

    def read(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        kind = line.get("type")
        if kind == "tool_use":
            self._last_text = ""
            tool, arguments = line.get("tool_name"), line.get("parameters")
            yield from self.started(line.get("tool_id"), tool, arguments)
            if tool in _QUESTION_TOOLS:
                yield Question(clean(str(arguments)), by_tool=True)
        elif kind == "tool_result":
            yield from self._tool_result(line)
        elif kind == "message":
            if line.get("role") == "assistant":
                text = words(line.get("content"))
                self._last_text = (self._last_text + text)[-20_000:]
                yield from self.message(text)
        elif kind == "error":
            error = error_from_text(words(line.get("message")))
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
            keys = ("input_tokens", "output_tokens", "cached")
            yield self.meter.set(model, *(at(usage, key) for key in keys))
        ok = line.get("status") == "success"
        text = self._last_text or words(at(line, "error", "message"))
        if ok:
            yield from self.question_in(text)
        else:
            yield error_from_text(text or "failed without an error message", final=True)
        own, status = self._stopped_itself, str(line.get("status"))
        reason = "stopped by its own guard" if own else status
        yield AgentResult(clean(text), ok and not own, reason)


class Gemini(Agent):
    name = "gemini"
    install = "npm install -g @google/gemini-cli"
    reader_class = GeminiReader

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        """All tools are allowed and the directory is trusted, because there is no user to confirm."""
        argv = ["gemini", "--output-format", "stream-json", "--approval-mode", "yolo"]
        argv += ["--skip-trust"]
        return Invocation((*argv, *options, f"--prompt={as_argument(prompt)}"))


# Transcripts

_FORMAT = "gemini"

_HELD_MESSAGES = 4
"""Number of last messages that may be repeated with changes."""
_IGNORED_MESSAGES = frozenset({"info", "warning", "error", "system", "compression"})
_ENVELOPE = re.compile(
    r"\A(?:<untrusted_context>\n)?Output: (?:\(empty\))?|</?untrusted_context>\n?"
    r"|(?m:^(?:Process Group PGID|Exit Code): -?\d+$)\n?"
)


def _recognises(source: RecordingFile) -> bool:
    """Whether a line has a session and the hash of its project."""
    return any("projectHash" in line and "sessionId" in line for line in source.head())


def _read(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    chat = _GeminiChat(RecordedRun(source.name, source.path, _FORMAT, "gemini"), tally)
    held: dict[str, dict[str, Any]] = {}
    in_lines = "messages" not in source.first
    for line in source.lines(tally, _FORMAT) if in_lines else [source.document()]:
        if "sessionId" in line:
            chat.set(id=name(line["sessionId"]) or "chat")
            chat.read_messages(line.get("messages"))
        elif "$set" in line:
            chat.read_messages(at(line, "$set", "messages"))
        elif isinstance(line.get("type"), str):
            held[str(line.get("id"))] = line
            while len(held) > _HELD_MESSAGES:
                chat.read_message(held.pop(next(iter(held))))
        elif "$rewindTo" not in line:
            chat.unknown(next(iter(line), None))
    for message in held.values():
        chat.read_message(message)
    yield chat.finish()


class _GeminiChat(RunBuilder):
    def read_messages(self, messages: object) -> None:
        for message in objects(messages):
            self.read_message(message)

    def read_message(self, message: dict[str, Any]) -> None:
        kind, self.at_s = word(message.get("type")), timestamp(message.get("timestamp"))
        if kind == "user":
            text = words(message.get("content"))
            if text:  # otherwise the message contains results of tools
                self.turn()
                if not text.startswith("<session_context>"):
                    self.user(text)
        elif kind in {"gemini", "qwen", "assistant"}:
            self._answer(message)
        elif kind not in _IGNORED_MESSAGES:
            self.unknown(kind)

    def _answer(self, message: dict[str, Any]) -> None:
        self.turn()
        model, tokens = name(message.get("model")), message.get("tokens")
        self.fill(model=model)
        self.add_usage(Usage(model or None, *token_counts(tokens)))
        for thought in items(message.get("thoughts")):
            self.text(words(at(thought, "description") or at(thought, "subject")))
        self.text(words(message.get("content")))
        for call in items(message.get("toolCalls")):
            self._call(call)

    def _call(self, call: object) -> None:
        call_id, began_s = at(call, "id"), self.at_s
        self.call(call_id, at(call, "name"), at(call, "args"))
        output = "\n".join(map(_result_text, items(at(call, "result"))))
        status, code = word(at(call, "status")), exit_code(output)
        if status in {"success", "error", "cancelled"}:
            ok = False if status == "error" else None if code is None else code == 0
            self.at_s = timestamp(at(call, "timestamp")) or began_s
            self.result(call_id, _ENVELOPE.sub("", output).strip("\n"), ok=ok)
            self.at_s = began_s


def _result_text(part: object) -> str:
    response = at(part, "functionResponse", "response")
    return words(at(response, "output") or at(response, "error") or at(response, "content"))


TRANSCRIPTS = RecordingFormat(_FORMAT, "Gemini CLI chat", _recognises, _read, ("~/.gemini/tmp",))
