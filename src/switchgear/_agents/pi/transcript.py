"""pi: sessions under `~/.pi/agent/sessions`, one JSON object a line, with tokens and costs."""

from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import at, count, words
from switchgear._agents.events import Usage
from switchgear._agents.recordings.files import Source
from switchgear._agents.recordings.recorded import Building, Recorded, Tally
from switchgear._agents.recordings.texts import micros, moment, name, word

NAME = "pi"
LABEL = "pi session"
PLACES = ("~/.pi/agent/sessions",)
PER_LINE = False

_SILENT = frozenset({
    *("model_change", "thinking_level_change", "compaction", "branch_summary", "custom", "label"),
    *("custom_message", "session_info"),
})  # fmt: skip


def recognises(head: list[dict[str, Any]], source: Source) -> bool:
    """The line that opens a session."""
    del source
    first = head[0] if head else {}
    return first.get("type") == "session" and {"id", "cwd"} <= first.keys()


def read(source: Source, tally: Tally) -> Iterator[Recorded]:
    """The session of a file."""
    building = Building(Recorded(source.name, source.path, NAME, NAME))
    for line in source.lines(tally, NAME):
        kind = word(line.get("type"))
        if kind == "session":
            building.run = building.run._replace(id=name(line.get("id")) or source.name)
        elif kind == "message":
            _message(building, line.get("message"), moment(line.get("timestamp")), tally)
        elif kind not in _SILENT:
            tally.unknown_line(NAME, kind)
    yield building.finish()


def _message(building: Building, message: object, at_s: float | None, tally: Tally) -> None:
    role = word(at(message, "role"))
    if role == "user":
        building.turn(at_s)
        building.know(task=name(words(at(message, "content"))))
    elif role == "assistant":
        _answer(building, message, at_s)
    elif role == "toolResult":
        output = words(at(message, "content"))
        ok = at(message, "isError") is not True
        building.result(at(message, "toolCallId"), output, at_s, ok=ok)
    elif role not in {"bashExecution", "custom", "compactionSummary", "branchSummary"}:
        tally.unknown_line(NAME, role)


def _answer(building: Building, message: object, at_s: float | None) -> None:
    building.turn(at_s)
    provider, model = name(at(message, "provider")), name(at(message, "model"))
    full = f"{provider}/{model}" if provider and model else model
    building.know(model=full)
    usage = at(message, "usage")
    read_tokens, written = count(at(usage, "cacheRead")), count(at(usage, "cacheWrite"))
    building.use(
        Usage(
            full or None,
            count(at(usage, "input")) + read_tokens + written,
            count(at(usage, "output")),
            read_tokens,
            written,
            micros(at(usage, "cost", "total")) or None,
        )
    )
    content = at(message, "content")
    for part in content if isinstance(content, list) else []:
        kind = word(at(part, "type"))
        if kind in {"text", "thinking"}:
            building.say(at(part, kind))
        elif kind == "toolCall":
            building.call(at(part, "id"), at(part, "name"), at(part, "arguments"), at_s)
