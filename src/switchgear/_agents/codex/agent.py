"""OpenAI Codex, headless: `codex exec --json`.

Items start and complete. A command failed if its exit code is not 0. Retries are errors with the text
"Reconnecting". The stream contains neither the model nor the cost.
"""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import IO, Any, NamedTuple, cast

from switchgear._agents.base import Agent, Invocation, JsonReader, NotUnderstood
from switchgear._agents.codex.hooks import token_counts
from switchgear._agents.events import (
    AgentResult,
    Question,
    StreamEvent,
    Usage,
    error_from_text,
    recognised_error,
)
from switchgear._agents.fields import at, command_output, number, parsed, words
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
from switchgear._text.agent_text import clean, one_line

ANSWER_TIMEOUT_S = 20.0


class Trust(NamedTuple):
    """What Codex reports about the hooks of Switchgear."""

    asked: bool
    """Whether Codex could be queried at all."""
    seen: int = 0
    """The number of Switchgear commands that Codex has found."""
    trusted: int = 0


def ask_codex(program: str, folder: str, commands: Iterable[str], home: str) -> Trust:
    """How many of the commands Codex finds and trusts in a folder. Never raises.

    Codex would create files in an unconfigured `home` (`~/.codex`), so a temporary copy is used in its place.
    """
    if os.path.exists(os.path.join(home, "config.toml")):
        return _query(program, folder, commands, home)
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as copy:
            with suppress(OSError):
                shutil.copy(os.path.join(home, "hooks.json"), copy)
            return _query(program, folder, commands, copy)
    except OSError:  # the temporary copy cannot be written
        return Trust(asked=False)


def _query(program: str, folder: str, commands: Iterable[str], home: str) -> Trust:
    client = {"name": "switchgear", "title": "Switchgear", "version": "1"}
    requests = [
        {"id": 1, "method": "initialize", "params": {"clientInfo": client}},
        {"method": "initialized"},
        {"id": 2, "method": "hooks/list", "params": {"cwds": [folder]}},
    ]
    try:
        process = subprocess.Popen(  # noqa: S603  found by its name, as a shell does
            [program, "app-server"],
            cwd=folder,
            env={**os.environ, "CODEX_HOME": home},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return Trust(asked=False)
    try:
        sent, received = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        sent.writelines(json.dumps(request).encode() + b"\n" for request in requests)
        sent.flush()
        answer = _answer(received.fileno(), 2, time.monotonic() + ANSWER_TIMEOUT_S)
    except OSError:
        answer = None
    finally:
        process.kill()
        process.communicate()
    return Trust(asked=False) if answer is None else _count_trusted(answer, set(commands))


def _answer(pipe: int, number: int, until_s: float) -> Any:
    """The result of a request; `None`: none arrived in time."""
    rest = b""
    while select.select([pipe], [], [], max(0.0, until_s - time.monotonic()))[0]:
        chunk = os.read(pipe, 65_536)
        *lines, rest = (rest + chunk).split(b"\n")
        for message in map(parsed, lines):
            if at(message, "id") == number:
                return at(message, "result")
        if not chunk:
            break
    return None


def _count_trusted(answer: Any, commands: set[str]) -> Trust:
    try:
        hooks = [hook for folder in answer["data"] for hook in folder["hooks"]]
        ours = [hook for hook in hooks if hook["command"] in commands and hook["enabled"]]
        trusted = sum(hook["trustStatus"] == "trusted" or hook["isManaged"] for hook in ours)
    except (KeyError, TypeError):
        return Trust(asked=False)
    return Trust(asked=True, seen=len(ours), trusted=trusted)


_SILENT = frozenset({"thread.started", "turn.started", "item.updated"})
_FAILED = frozenset({"failed", "declined", "error"})


class CodexReader(JsonReader):
    def read(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        kind = line.get("type")
        if kind == "item.started":
            yield from self._item_started(line["item"])
        elif kind == "item.completed":
            yield from self._item_completed(line["item"])
        elif kind == "turn.completed":
            yield from self._turn_completed(line.get("usage"))
        elif kind == "turn.failed":
            text = words(at(line, "error", "message"))
            yield error_from_text(text, final=True)
            yield AgentResult(clean(text), claimed_success=False, reason="turn.failed")
        elif kind == "error":
            yield error_from_text(words(line.get("message")))
        elif kind not in _SILENT:
            raise NotUnderstood

    def _item_started(self, item: dict[str, Any]) -> Iterator[StreamEvent]:
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

    def _item_completed(self, item: dict[str, Any]) -> Iterator[StreamEvent]:
        kind = item["type"]
        if kind == "agent_message":
            self._last_text = words(item.get("text"))
            yield from self.message(self._last_text)
        elif kind == "error":  # also mere remarks, such as unknown metadata of a model
            found = recognised_error(words(item.get("message")))
            yield from [found] if found else []
        elif kind in {"command_execution", "file_change", "mcp_tool_call", "web_search"}:
            if str(item.get("id")) not in self._calls:
                yield from self._item_started(item)
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
            yield self.meter.set(self.model, *token_counts(usage))
        yield from self.question_in(self._last_text)
        yield AgentResult(clean(self._last_text), claimed_success=True, reason="turn.completed")


class Codex(Agent):
    name = "codex"
    install = "npm install -g @openai/codex"
    reader_class = CodexReader

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        """Codex may write only in the working directory; the prompt is on stdin.

        The sandbox is set with `-c`, so that `extra` can override it.
        """
        argv = ["codex", "exec", "--json", "--skip-git-repo-check"]
        argv += ["-c", 'sandbox_mode="workspace-write"', "-c", 'approval_policy="never"']
        return Invocation((*argv, *options, "-"), prompt)


def _paths(item: dict[str, Any]) -> list[str]:
    changes = item.get("changes")
    paths = (at(change, "path") for change in changes) if isinstance(changes, list) else ()
    return [one_line(path) for path in paths if isinstance(path, str)]


# Transcripts

_FORMAT = "codex"

_LINES = frozenset({
    *("session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state"),
    *("token_usage_record", "ghost_snapshot"),
})  # fmt: skip
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_ITEMS = frozenset({
    *_CALLS, "message", "reasoning", "function_call_output", "custom_tool_call_output",
    "web_search_call", "ghost_snapshot", "compaction", "local_shell_call_output",
})  # fmt: skip


def _recognises(source: RecordingFile) -> bool:
    """Whether items are in a `payload`, or follow the line of the session as in early versions."""
    head, first = source.head(), source.first
    wrapped = any(word(line.get("type")) in _LINES and "payload" in line for line in head)
    early = {"id", "timestamp"} <= first.keys() and "type" not in first and "steps" not in first
    bare = early and any(word(line.get("type")) in _ITEMS for line in head[1:])
    return wrapped or bare


def _read(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    session = _CodexSession(RecordedRun(source.name, source.path, _FORMAT, "codex"), tally)
    for line in source.lines(tally, _FORMAT):
        kind, payload = word(line.get("type")), line.get("payload", line)
        session.at_s = timestamp(line.get("timestamp"))
        if kind == "session_meta" or (not kind and "id" in line):
            run_id = name(at(payload, "id")) or source.name
            session.set(id=run_id, folder=word(at(payload, "cwd")))
        elif kind == "turn_context":
            session.model = name(at(payload, "model")) or session.model
            session.fill(model=session.model)
        elif kind == "event_msg":
            session.event(payload)
        elif kind == "response_item" or kind in _ITEMS:
            session.item(payload)
        elif kind not in _LINES and at(line, "record_type") != "state":
            session.unknown(kind)
    yield session.finish()


class _CodexSession(RunBuilder):
    model: str | None = None

    def event(self, payload: object) -> None:
        kind = at(payload, "type")
        if kind == "token_count":
            last = at(payload, "info", "last_token_usage")
            self.add_usage_of_last(Usage(self.model, *token_counts(last)))
        elif kind == "task_complete":
            self.turn()
            self.set(ended="completed")
        elif kind == "turn_aborted":
            self.set(ended="interrupted")

    def item(self, payload: object) -> None:
        kind = word(at(payload, "type"))
        if kind == "message":
            self._message(payload)
        elif kind == "reasoning":
            self.text(words(at(payload, "summary")))
        elif kind in _CALLS:
            call_id = at(payload, "call_id") or at(payload, "id")
            arguments = _arguments(at(payload, _CALLS[kind]))
            self.call(call_id, at(payload, "name") or "shell", arguments)
        elif kind.endswith("_call_output"):
            self._output(payload)
        elif kind == "web_search_call":
            self.call(at(payload, "id"), "web_search", at(payload, "action"))
            self.result(at(payload, "id"), "", ok=True)
        elif kind not in _ITEMS:
            self.unknown(at(payload, "type"))

    def _message(self, payload: object) -> None:
        text = words(at(payload, "content"))
        if at(payload, "role") == "assistant":
            self.text(text)
        elif at(payload, "role") == "user":
            self.turn()
            if not text.startswith("<"):  # otherwise Codex describes the environment to the model
                self.user(text)

    def _output(self, payload: object) -> None:
        output, seconds, code = _arguments(at(payload, "output")), None, None
        if isinstance(output, dict):
            seconds = number(at(output, "metadata", "duration_seconds"))
            code = at(output, "metadata", "exit_code")
            output = at(output, "output") or at(output, "content")
        text, reported = command_output(words(output))
        code = code if reported is None else reported
        ok = None if not isinstance(code, int) else code == 0
        self.result(at(payload, "call_id"), text, ok=ok, seconds=seconds)


def _arguments(value: object) -> object:
    found = parsed(value) if isinstance(value, str) and value.startswith("{") else None
    return value if found is None else found


TRANSCRIPTS = RecordingFormat(_FORMAT, "Codex rollout", _recognises, _read, ("~/.codex/sessions",))
