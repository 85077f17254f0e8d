"""Gemini CLI and Qwen Code: chats under `~/.gemini/tmp/*/chats`, as lines or as one document.

In lines, a message is written again when it grows, under the same id, and `$set` lines change the
chat itself. A shell command that failed has the status "success" all the same; its exit code is in
its output.
"""

import re
from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import at, count, words
from switchgear._agents.events import Usage
from switchgear._agents.recordings.files import Source
from switchgear._agents.recordings.recorded import Building, Recorded, Tally
from switchgear._agents.recordings.texts import exit_code, moment, name, word

NAME = "gemini"
LABEL = "Gemini CLI chat"
PLACES = ("~/.gemini/tmp",)
PER_LINE = False

_KEPT_BACK = 4
"""Messages that may still be written again."""
_SILENT = frozenset({"info", "warning", "error", "system", "compression"})
_ENVELOPE = re.compile(
    r"\A(?:<untrusted_context>\n)?Output: (?:\(empty\))?|</?untrusted_context>\n?"
    r"|(?m:^(?:Process Group PGID|Exit Code): -?\d+$)\n?"
)


def recognises(head: list[dict[str, Any]], source: Source) -> bool:
    """A chat says which project it belongs to."""
    del source
    return any("projectHash" in line and "sessionId" in line for line in head)


def read(source: Source, tally: Tally) -> Iterator[Recorded]:
    """The chat of a file."""
    chat = _Chat(Recorded(source.name, source.path, NAME, "gemini"), tally)
    held: dict[str, dict[str, Any]] = {}
    for line in source.lines(tally, NAME) if _is_lines(source) else [source.document()]:
        if "sessionId" in line:
            chat.begin(line)
        elif "$set" in line:
            chat.hear_all(at(line, "$set", "messages"))
        elif isinstance(line.get("type"), str):
            held[str(line.get("id"))] = line
            while len(held) > _KEPT_BACK:
                chat.hear(held.pop(next(iter(held))))
        elif "$rewindTo" not in line:
            tally.unknown_line(NAME, next(iter(line), None))
    for message in held.values():
        chat.hear(message)
    yield chat.building.finish()


def _is_lines(source: Source) -> bool:
    """Whether the chat's messages follow in lines of their own."""
    return "messages" not in source.head()[0]


class _Chat:
    """One run while its messages are read."""

    def __init__(self, run: Recorded, tally: Tally) -> None:
        self.building = Building(run)
        self._tally = tally

    def begin(self, line: dict[str, Any]) -> None:
        self.building.run = self.building.run._replace(id=name(line["sessionId"]) or "chat")
        self.hear_all(line.get("messages"))

    def hear_all(self, messages: object) -> None:
        for message in messages if isinstance(messages, list) else []:
            if isinstance(message, dict):
                self.hear(message)

    def hear(self, message: dict[str, Any]) -> None:
        kind, at_s = word(message.get("type")), moment(message.get("timestamp"))
        if kind == "user":
            self._user(message, at_s)
        elif kind in {"gemini", "qwen", "assistant"}:
            self._answer(message, at_s)
        elif kind not in _SILENT:
            self._tally.unknown_line(NAME, kind)

    def _user(self, message: dict[str, Any], at_s: float | None) -> None:
        text = words(message.get("content"))
        if text:  # else it hands back the results of tools
            self.building.turn(at_s)
            if not text.startswith("<session_context>"):
                self.building.know(task=name(text))

    def _answer(self, message: dict[str, Any], at_s: float | None) -> None:
        self.building.turn(at_s)
        model, tokens = name(message.get("model")), message.get("tokens")
        self.building.know(model=model)
        said = count(at(tokens, "output")) + count(at(tokens, "thoughts"))
        taken = count(at(tokens, "input"))
        self.building.use(Usage(model or None, taken, said, count(at(tokens, "cached"))))
        thoughts, calls = message.get("thoughts"), message.get("toolCalls")
        for thought in thoughts if isinstance(thoughts, list) else []:
            self.building.say(words(at(thought, "description") or at(thought, "subject")))
        self.building.say(words(message.get("content")))
        for call in calls if isinstance(calls, list) else []:
            self._call(call, at_s)

    def _call(self, call: object, at_s: float | None) -> None:
        call_id = at(call, "id")
        self.building.call(call_id, at(call, "name"), at(call, "args"), at_s)
        results = at(call, "result")
        output = "\n".join(map(_output, results if isinstance(results, list) else []))
        status, code = word(at(call, "status")), exit_code(output)
        if status in {"success", "error", "cancelled"}:
            ok = False if status == "error" else None if code is None else code == 0
            ended_s = moment(at(call, "timestamp")) or at_s
            self.building.result(call_id, _ENVELOPE.sub("", output).strip("\n"), ended_s, ok=ok)


def _output(part: object) -> str:
    response = at(part, "functionResponse", "response")
    return words(at(response, "output") or at(response, "error") or at(response, "content"))
