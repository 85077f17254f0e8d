"""Qwen Code: chats under `~/.qwen/projects/*/chats`, one JSON object a line.

Messages have the parts of Gemini's API; what came back of a tool is a line of its own.
"""

import re
from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import at, count, words
from switchgear._agents.events import Usage
from switchgear._agents.recordings.files import Source
from switchgear._agents.recordings.recorded import Building, Recorded, Tally
from switchgear._agents.recordings.texts import exit_code, moment, name, word

NAME = "qwen"
LABEL = "Qwen Code chat"
PLACES = ("~/.qwen/projects",)
PER_LINE = False

_TYPES = ("user", "assistant", "tool_result")
_ENVELOPE = re.compile(
    r"\ACommand: .*\nDirectory: .*\nOutput: |(?m:^(?:Error|Signal|Process Group PGID|Exit Code): .*$)\n?"
)


def recognises(head: list[dict[str, Any]], source: Source) -> bool:
    """Lines of a session whose messages have parts."""
    del source
    return any(
        word(line.get("type")) in _TYPES and isinstance(at(line, "message", "parts"), list)
        for line in head
        if "sessionId" in line
    )


def read(source: Source, tally: Tally) -> Iterator[Recorded]:
    """The chat of a file."""
    building = Building(Recorded(source.name, source.path, NAME, NAME))
    for line in source.lines(tally, NAME):
        kind, at_s = line.get("type"), moment(line.get("timestamp"))
        if name(line.get("sessionId")):
            building.run = building.run._replace(id=name(line["sessionId"]))
        parts = at(line, "message", "parts")
        parts = parts if isinstance(parts, list) else []
        if kind == "user":
            building.turn(at_s)
            building.know(task=name("\n".join(words(at(part, "text")) for part in parts)))
        elif kind == "assistant":
            _answer(building, line, parts, at_s)
        elif kind == "tool_result":
            _result(building, line, parts, at_s)
        elif kind != "system":
            tally.unknown_line(NAME, kind)
    yield building.finish()


def _answer(building: Building, line: dict[str, Any], parts: list[Any], at_s: float | None) -> None:
    building.turn(at_s)
    model, usage = name(line.get("model")), line.get("usageMetadata")
    building.know(model=model)
    building.use(
        Usage(
            model or None,
            count(at(usage, "promptTokenCount")),
            count(at(usage, "candidatesTokenCount")) + count(at(usage, "thoughtsTokenCount")),
            count(at(usage, "cachedContentTokenCount")),
        )
    )
    for part in parts:
        building.say(at(part, "text"))
        call = at(part, "functionCall")
        if call is not None:
            building.call(at(call, "id"), at(call, "name"), at(call, "args"), at_s)


def _result(building: Building, line: dict[str, Any], parts: list[Any], at_s: float | None) -> None:
    for part in parts:
        answer = at(part, "functionResponse")
        response = at(answer, "response")
        output = words(at(response, "output") or at(response, "error"))
        failed = at(line, "toolCallResult", "status") == "error" or at(response, "error")
        code = exit_code(output)
        ok = False if failed else None if code is None else code == 0
        building.result(at(answer, "id"), _ENVELOPE.sub("", output).strip("\n"), at_s, ok=ok)
