"""Claude Code: transcripts under `~/.claude/projects`, and what `--output-format stream-json` prints.

One JSON object a line. A message of the model is spread over several lines that share its id and
repeat its usage. Sub-agents are in files of their own, or in lines marked as a side chain.
"""

from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import at, count, words
from switchgear._agents.events import Usage
from switchgear._agents.recordings.files import Source
from switchgear._agents.recordings.recorded import Building, Recorded, Tally
from switchgear._agents.recordings.texts import micros, moment, name, word

NAME = "claude"
LABEL = "Claude Code transcript"
PLACES = ("~/.claude/projects",)
PER_LINE = False

_SILENT = frozenset({
    *("summary", "attachment", "queue-operation", "last-prompt", "tools-used", "cost-state"),
    *("api-request", "api-request-blob", "api-request-shape", "atis-latch", "progress", "mode"),
    *("file-history-snapshot", "custom-title", "ai-title", "agent-name", "pr-link", "tag"),
    *("stream_event", "rate_limit_event", "permission-mode", "worktree-state", "agent-setting"),
})  # fmt: skip
_SPEAKING = ("user", "assistant")


def recognises(head: list[dict[str, Any]], source: Source) -> bool:
    """Lines with a session and one of the types."""
    del source
    known = _SILENT.union(_SPEAKING, ("system",))
    return any(
        line.get("type") in known
        and ("sessionId" in line or "session_id" in line or "leafUuid" in line)
        and "projectHash" not in line
        and at(line, "message", "parts") is None
        for line in head
        if isinstance(line.get("type"), str)
    )


def read(source: Source, tally: Tally) -> Iterator[Recorded]:
    """The session of a file, and each sub-agent that it holds."""
    sessions: dict[str, _Session] = {}
    for line in source.lines(tally, NAME):
        kind = word(line.get("type"))
        if kind not in _SPEAKING:
            if kind == "result":
                _ended(sessions, line)
            elif kind != "system" and kind not in _SILENT:
                tally.unknown_line(NAME, kind)
            continue
        key = _key(line)
        if key not in sessions:
            sessions[key] = _Session(Recorded(key or source.name, source.path, NAME, "claude"))
        sessions[key].hear(kind, line)
    for session in sessions.values():
        yield session.building.finish()


def _key(line: dict[str, Any]) -> str:
    session = name(line.get("sessionId") or line.get("session_id"))
    parent = line.get("parent_tool_use_id")
    if line.get("isSidechain") is True or parent:
        return f"{session}/{name(line.get('agentId') or parent) or 'sub-agent'}"
    return session


def _ended(sessions: "dict[str, _Session]", line: dict[str, Any]) -> None:
    session = sessions.get(_key(line))
    if session is not None:
        session.building.know(
            ended=name(line.get("subtype")), cost_micros=micros(line.get("total_cost_usd"))
        )


class _Session:
    """One run while its lines are read."""

    def __init__(self, run: Recorded) -> None:
        self.building = Building(run)
        self._answer: object = None

    def hear(self, kind: str, line: dict[str, Any]) -> None:
        message, at_s = line.get("message"), moment(line.get("timestamp"))
        content = at(message, "content")
        if kind == "user":
            self._user(content, at_s, human=line.get("isMeta") is not True)
        else:
            self._assistant(message, content, at_s)

    def _user(self, content: object, at_s: float | None, *, human: bool) -> None:
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        for part in parts:
            if at(part, "type") == "tool_result":
                output = words(at(part, "content"))
                ok = at(part, "is_error") is not True
                self.building.result(at(part, "tool_use_id"), output, at_s, ok=ok)
            elif at(part, "type") == "text":
                self.building.turn(at_s)
                if human:
                    self.building.know(task=name(at(part, "text")))

    def _assistant(self, message: object, content: object, at_s: float | None) -> None:
        if at(message, "id") != self._answer or self._answer is None:
            self._answer = at(message, "id")
            self.building.turn(at_s)
            self._use(message)
        for part in content if isinstance(content, list) else []:
            kind = word(at(part, "type"))
            if kind == "text":
                self.building.say(at(part, "text"))
            elif kind == "thinking":
                self.building.say(at(part, "thinking"))
            elif kind in {"tool_use", "server_tool_use", "mcp_tool_use"}:
                self.building.call(at(part, "id"), at(part, "name"), at(part, "input"), at_s)

    def _use(self, message: object) -> None:
        usage = at(message, "usage")
        model = name(at(message, "model"))
        self.building.know(model=model if model != "<synthetic>" else "")
        read_tokens = count(at(usage, "cache_read_input_tokens"))
        written = count(at(usage, "cache_creation_input_tokens"))
        fresh, said = count(at(usage, "input_tokens")), count(at(usage, "output_tokens"))
        self.building.use(Usage(model, fresh + read_tokens + written, said, read_tokens, written))
