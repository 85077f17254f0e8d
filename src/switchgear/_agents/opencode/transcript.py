"""OpenCode: its database, the session files of earlier versions, and what `opencode export` prints.

All three hold the same: messages with parts. A tool part says "completed" even when the command
failed: `metadata.exit` is the truth. A cost of 0 only means that it knows no price.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

from switchgear._agents.base import at, count, words
from switchgear._agents.events import Usage
from switchgear._agents.recordings.files import Source, Unreadable, parsed
from switchgear._agents.recordings.recorded import Building, Recorded, Tally
from switchgear._agents.recordings.texts import micros, moment, name, word

NAME = "opencode"
LABEL = "OpenCode session"
PLACES = ("~/.local/share/opencode",)
PER_LINE = False

_SILENT = frozenset({
    *("step-start", "snapshot", "patch", "file", "agent", "compaction", "retry", "subtask"),
})  # fmt: skip
_MOST_FILES = 100_000


def recognises(head: list[dict[str, Any]], source: Source) -> bool:
    """An export, or a session file that lies in a storage folder."""
    first = head[0] if head else {}
    exported = isinstance(first.get("info"), dict) and isinstance(first.get("messages"), list)
    if exported:
        return str(at(first, "info", "id")).startswith("ses")
    return str(first.get("id")).startswith("ses") and _storage(source.path) is not None


def read(source: Source, tally: Tally) -> Iterator[Recorded]:
    """The session of a file, or all sessions of a database."""
    if source.is_database:
        yield from _database(source, tally)
        return
    document = source.document()
    if isinstance(at(document, "messages"), list):
        session = _Session(document.get("info"), source, tally)
        for message in document["messages"]:
            session.hear(at(message, "info"), at(message, "parts"))
    else:
        session = _Session(document, source, tally)
        for info, parts in _stored(source.path, str(document.get("id"))):
            session.hear(info, parts)
    yield session.building.finish()


def is_database(source: Source) -> bool:
    """Whether a SQLite file is one of OpenCode's."""
    try:
        with closing(_opened(source.path)) as link:
            known = "select count(*) from sqlite_master where type = 'table' and name in (?, ?, ?)"
            return bool(link.execute(known, ("session", "message", "part")).fetchone()[0] == 3)
    except (sqlite3.Error, Unreadable):
        return False


class _Session:
    """One run while its messages are read."""

    def __init__(self, info: object, source: Source, tally: Tally) -> None:
        run = Recorded(name(at(info, "id")) or source.name, source.path, NAME, "opencode")
        self.building = Building(run)
        self._tally = tally

    def hear(self, info: object, parts: object) -> None:
        parts = (
            [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        )
        at_s = moment(at(info, "time", "created"))
        if at(info, "role") == "user":
            self.building.turn(at_s)
            self.building.know(task=name(_first_text(parts)))
            return
        self.building.turn(at_s)
        self._use(info)
        for part in parts:
            kind = word(part.get("type"))
            if kind in {"text", "reasoning"}:
                self.building.say(part.get("text"))
            elif kind == "tool":
                self._tool(part)
            elif kind not in _SILENT and kind != "step-finish":
                self._tally.unknown_line(NAME, kind)
        problem = at(info, "error")
        if problem:
            self.building.run = self.building.run._replace(ended=name(at(problem, "name")))

    def _use(self, info: object) -> None:
        provider, model = name(at(info, "providerID")), name(at(info, "modelID"))
        full = f"{provider}/{model}" if provider and model else model
        self.building.know(model=full)
        tokens = at(info, "tokens")
        read_tokens, written = (count(at(tokens, "cache", key)) for key in ("read", "write"))
        self.building.use(
            Usage(
                full or None,
                count(at(tokens, "input")) + read_tokens + written,
                count(at(tokens, "output")) + count(at(tokens, "reasoning")),
                read_tokens,
                written,
                micros(at(info, "cost")) or None,
            )
        )

    def _tool(self, part: dict[str, Any]) -> None:
        state = part.get("state")
        began_s, ended_s = (moment(at(state, "time", key)) for key in ("start", "end"))
        self.building.call(part.get("callID"), part.get("tool"), at(state, "input"), began_s)
        status, code = word(at(state, "status")), at(state, "metadata", "exit")
        if status in {"completed", "error"}:
            output = words(at(state, "output")) or words(at(state, "error"))
            ok = status == "completed" and code in (None, 0)
            self.building.result(part.get("callID"), output, ended_s, ok=ok)


def _first_text(parts: list[dict[str, Any]]) -> str:
    return next((words(part.get("text")) for part in parts if part.get("type") == "text"), "")


# Session files: storage/session/<project>/<session>.json, with message/ and part/ beside session/


def _storage(path: str) -> str | None:
    """The storage folder that a session file lies in."""
    folder = os.path.dirname(os.path.abspath(path))
    for _ in range(3):
        if os.path.basename(folder) == "session":
            above = os.path.dirname(folder)
            return above if os.path.isdir(os.path.join(above, "message")) else None
        folder = os.path.dirname(folder)
    return None


def _stored(path: str, session: str) -> Iterator[tuple[Any, list[Any]]]:
    storage = _storage(path)
    if storage is None or os.sep in session or session in {"", ".", ".."}:
        return
    for info in _documents(os.path.join(storage, "message", session)):
        key = str(at(info, "id"))
        safe = os.sep not in key and key not in {"", ".", ".."}
        yield info, list(_documents(os.path.join(storage, "part", key))) if safe else []


def _documents(folder: str) -> Iterator[Any]:
    try:
        names = sorted(os.listdir(folder))[:_MOST_FILES]
    except (OSError, ValueError):
        return
    for each in names:
        if each.endswith(".json"):
            try:
                yield Source(os.path.join(folder, each)).document()
            except Unreadable:
                continue


# The database


def _opened(path: str) -> sqlite3.Connection:
    """Open for reading only; where not even its helper files may be written, as it lies there."""
    place = quote(os.path.abspath(path))
    problem = ""
    for how in ("mode=ro", "immutable=1"):
        link = None
        try:
            link = sqlite3.connect(f"file:{place}?{how}", uri=True, timeout=5.0)
            link.execute("pragma trusted_schema = off")
            link.execute("select 1 from sqlite_master limit 1").fetchone()
        except sqlite3.Error as error:
            problem = str(error)
            if link is not None:
                link.close()
        else:
            return link
    raise Unreadable(f"cannot be read: {problem}")


def _database(source: Source, tally: Tally) -> Iterator[Recorded]:
    try:
        with closing(_opened(source.path)) as link:
            link.text_factory = _text
            for (session,) in link.execute("select id from session order by time_created, id"):
                reading = _Session({"id": session}, source, tally)
                for info, parts in _messages(link, session):
                    reading.hear(info, parts)
                yield reading.building.finish()
    except sqlite3.Error as error:
        raise Unreadable(f"cannot be read: {error}") from error


def _messages(link: sqlite3.Connection, session: str) -> Iterator[tuple[Any, list[Any]]]:
    messages = "select id, data from message where session_id = ? order by time_created, id"
    parts = "select data from part where message_id = ? order by id"
    for key, data in link.execute(messages, (session,)):
        found = link.execute(parts, (key,)).fetchmany(_MOST_FILES)
        yield _value(data), [_value(part) for (part,) in found]


def _value(data: object) -> Any:
    return parsed(data.encode("utf-8", "replace")) if isinstance(data, str) else None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
