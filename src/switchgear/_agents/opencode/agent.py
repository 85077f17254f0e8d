"""OpenCode, headless: `opencode run --format json`.

A tool part has the status "completed" even if the command failed; `metadata.exit` is the exit code. Input tokens do
not include the cache. A cost of 0 means that the price is unknown. There is no line with the result. While OpenCode
retries an unavailable provider, for a minute, only its log reports that, so the log's errors are written to standard
error.
"""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

from switchgear._agents.base import Agent, Invocation, JsonReader, NotUnderstood, as_argument
from switchgear._agents.events import AgentResult, Question, StreamEvent, Usage, error_from_text
from switchgear._agents.fields import at, count, micros, objects, parsed, words
from switchgear._agents.opencode.hooks import token_counts
from switchgear._agents.recordings.recording import (
    RecordedRun,
    RecordingFile,
    RecordingFormat,
    RecordingTally,
    RunBuilder,
    UnreadableRecording,
    name,
    timestamp,
    word,
)
from switchgear._text.agent_text import clean

_LOGGED = re.compile(r'\bmessage="stream error".{0,1000}?\berror\.error="((?:[^"\\]|\\.){1,2000})')
_MAX_LOG_CHARS = 4_000
_TITLE_CALL = " small=true "
"""In a line of the log: a call for the title of the session, which is not part of the work."""


class OpenCodeReader(JsonReader):
    def __init__(self, *, model: str | None = None) -> None:
        super().__init__(model=model)
        self._failed: str | None = None
        self._stop_reason: str | None = None

    def read(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        kind, part = line.get("type"), line.get("part")
        if kind == "tool_use":
            self._last_text = ""
            yield from self._tool(part)
        elif kind == "text":
            self._last_text = words(at(part, "text"))
            yield from self.message(self._last_text)
        elif kind == "step_finish":
            yield from self._step_finish(part)
        elif kind == "error":
            yield from self._error(line.get("error"))
        elif kind not in {"step_start", "reasoning"}:
            raise NotUnderstood

    def read_error_line(self, text: str) -> Iterator[StreamEvent]:
        """The error of a model call that is retried, from a line of the log."""
        if not text.startswith("timestamp="):
            yield from super().read_error_line(text)
        elif _TITLE_CALL not in text and (logged := _LOGGED.search(text[:_MAX_LOG_CHARS])):
            yield error_from_text(logged[1].replace('\\"', '"'))

    def read_end(self, exit_code: int | None) -> Iterator[StreamEvent]:
        """The result, which OpenCode does not report itself."""
        if self._stop_reason is None and self._failed is None:
            return
        ok = self._failed is None and self._stop_reason == "stop" and exit_code in {0, None}
        if ok:
            yield from self.question_in(self._last_text)
        yield AgentResult(clean(self._last_text or self._failed or ""), ok, self._stop_reason)

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
        tokens = token_counts(at(part, "tokens"))
        yield self.meter.add(self.model, *tokens, dollars=at(part, "cost") or None)

    def _error(self, error: object) -> Iterator[StreamEvent]:
        text = words(at(error, "data", "message") or at(error, "message") or at(error, "name"))
        self._failed = text or "failed without an error message"
        after = at(error, "data", "responseHeaders", "retry-after")
        yield error_from_text(
            self._failed,
            status=count(at(error, "data", "statusCode")) or None,
            retry_after_s=float(after) if str(after).isdecimal() else None,
            final=True,
        )


class OpenCode(Agent):
    name = "opencode"
    install = "npm install -g opencode-ai"
    reader_class = OpenCodeReader

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        """OpenCode's own configuration determines what is allowed; `model` is PROVIDER/MODEL."""
        argv = ["opencode", "run", "--format", "json", "--print-logs", "--log-level", "ERROR"]
        return Invocation((*argv, *options, "--", as_argument(prompt)))


# Transcripts

_FORMAT = "opencode"

_IGNORED_PARTS = frozenset({
    *("step-start", "step-finish", "snapshot", "patch", "file", "agent", "compaction", "retry"),
    "subtask",
})  # fmt: skip
_MAX_FILES = 100_000


def _recognises(source: RecordingFile) -> bool:
    """Whether it is an export, or the file of a session in a storage folder."""
    first = source.first
    exported = isinstance(first.get("info"), dict) and isinstance(first.get("messages"), list)
    if exported:
        return str(at(first, "info", "id")).startswith("ses")
    return str(first.get("id")).startswith("ses") and _storage(source.path) is not None


def _read(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    """The session in a file, or all sessions in a database."""
    if source.is_database:
        yield from _read_database(source, tally)
        return
    document = source.document()
    if isinstance(at(document, "messages"), list):
        session = _OpenCodeSession(document.get("info"), source, tally)
        for message in document["messages"]:
            session.read_message(at(message, "info"), at(message, "parts"))
    else:
        session = _OpenCodeSession(document, source, tally)
        for info, parts in _read_stored_messages(source.path, str(document.get("id"))):
            session.read_message(info, parts)
    yield session.finish()


def _is_database(source: RecordingFile) -> bool:
    try:
        with closing(_open_read_only(source.path)) as connection:
            query = "select count(*) from sqlite_master where type = 'table' and name in (?, ?, ?)"
            (count,) = connection.execute(query, ("session", "message", "part")).fetchone()
            return bool(count == 3)
    except (sqlite3.Error, UnreadableRecording):
        return False


class _OpenCodeSession(RunBuilder):
    def __init__(self, info: object, source: RecordingFile, tally: RecordingTally) -> None:
        run = RecordedRun(name(at(info, "id")) or source.name, source.path, _FORMAT, "opencode")
        super().__init__(run, tally)

    def read_message(self, info: object, content: object) -> None:
        parts = objects(content)
        self.at_s = timestamp(at(info, "time", "created"))
        self.turn()
        if at(info, "role") == "user":
            texts = (words(part.get("text")) for part in parts if part.get("type") == "text")
            self.user(next(texts, ""))
            return
        self._use(info)
        for part in parts:
            kind = word(part.get("type"))
            if kind in {"text", "reasoning"}:
                self.text(part.get("text"))
            elif kind == "tool":
                self._tool(part)
            elif kind not in _IGNORED_PARTS:
                self.unknown(kind)
        if at(info, "error"):
            self.set(ended=name(at(info, "error", "name")))

    def _use(self, info: object) -> None:
        provider, model = name(at(info, "providerID")), name(at(info, "modelID"))
        full = f"{provider}/{model}" if provider and model else model
        self.fill(model=full)
        tokens, cost = token_counts(at(info, "tokens")), micros(at(info, "cost"))
        self.add_usage(Usage(full or None, *tokens, cost or None))

    def _tool(self, part: dict[str, Any]) -> None:
        state = part.get("state")
        self.at_s = timestamp(at(state, "time", "start"))
        self.call(part.get("callID"), part.get("tool"), at(state, "input"))
        status, code = word(at(state, "status")), at(state, "metadata", "exit")
        if status in {"completed", "error"}:
            output = words(at(state, "output")) or words(at(state, "error"))
            ok = status == "completed" and code in (None, 0)
            self.at_s = timestamp(at(state, "time", "end"))
            self.result(part.get("callID"), output, ok=ok)


# Session files: storage/session/<project>/<session>.json, with message/ and part/ beside session/


def _storage(path: str) -> str | None:
    folder = os.path.dirname(os.path.abspath(path))
    for _ in range(3):
        if os.path.basename(folder) == "session":
            above = os.path.dirname(folder)
            return above if os.path.isdir(os.path.join(above, "message")) else None
        folder = os.path.dirname(folder)
    return None


def _read_stored_messages(path: str, session: str) -> Iterator[tuple[Any, list[Any]]]:
    storage = _storage(path)
    if storage is None or os.sep in session or session in {"", ".", ".."}:
        return
    for info in _documents(os.path.join(storage, "message", session)):
        key = str(at(info, "id"))
        safe = os.sep not in key and key not in {"", ".", ".."}
        yield info, list(_documents(os.path.join(storage, "part", key))) if safe else []


def _documents(folder: str) -> Iterator[Any]:
    try:
        names = sorted(os.listdir(folder))[:_MAX_FILES]
    except (OSError, ValueError):
        return
    for each in names:
        if each.endswith(".json"):
            try:
                yield RecordingFile(os.path.join(folder, each)).document()
            except UnreadableRecording:
                continue


# The database


def _open_read_only(path: str) -> sqlite3.Connection:
    """Open a database read-only, or as immutable if the helper files of SQLite cannot be written."""
    place = quote(os.path.abspath(path))
    problem = ""
    for how in ("mode=ro", "immutable=1"):
        connection = None
        try:
            connection = sqlite3.connect(f"file:{place}?{how}", uri=True, timeout=5.0)
            connection.execute("pragma trusted_schema = off")
            connection.execute("select 1 from sqlite_master limit 1").fetchone()
        except sqlite3.Error as error:
            problem = str(error)
            if connection is not None:
                connection.close()
        else:
            return connection
    raise UnreadableRecording(f"cannot be read: {problem}")


def _read_database(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    try:
        with closing(_open_read_only(source.path)) as connection:
            connection.text_factory = _text
            sessions = "select id from session order by time_created, id"
            for (session,) in connection.execute(sessions):
                builder = _OpenCodeSession({"id": session}, source, tally)
                for info, parts in _stored_messages(connection, session):
                    builder.read_message(info, parts)
                yield builder.finish()
    except sqlite3.Error as error:
        raise UnreadableRecording(f"cannot be read: {error}") from error


def _stored_messages(
    connection: sqlite3.Connection, session: str
) -> Iterator[tuple[Any, list[Any]]]:
    messages = "select id, data from message where session_id = ? order by time_created, id"
    parts = "select data from part where message_id = ? order by id"
    for key, data in connection.execute(messages, (session,)):
        found = connection.execute(parts, (key,)).fetchmany(_MAX_FILES)
        yield parsed(str(data)), [parsed(str(part)) for (part,) in found]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


TRANSCRIPTS = RecordingFormat(
    *(_FORMAT, "OpenCode session", _recognises, _read, ("~/.local/share/opencode",)),
    is_database=_is_database,
)
