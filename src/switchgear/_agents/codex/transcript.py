"""Codex: rollouts under `~/.codex/sessions`, one JSON object a line.

Each line wraps a payload: an item of the conversation, or an event about it. Early versions wrote
the items without the wrapper. The usage of an answer is told after its call.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import at, count, words
from switchgear._agents.events import Usage
from switchgear._agents.recordings.files import Source
from switchgear._agents.recordings.recorded import Building, Recorded, Tally
from switchgear._agents.recordings.texts import moment, name, number, word

NAME = "codex"
LABEL = "Codex rollout"
PLACES = ("~/.codex/sessions",)
PER_LINE = False

_LINES = frozenset({
    *("session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state"),
    *("token_usage_record", "ghost_snapshot"),
})  # fmt: skip
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_ITEMS = frozenset({
    *_CALLS, "message", "reasoning", "function_call_output", "custom_tool_call_output",
    "web_search_call", "ghost_snapshot", "compaction", "local_shell_call_output",
})  # fmt: skip
_CODE = re.compile(r"(?m)^(?:Process exited with code|Exit code:) (-?\d{1,10})$")
_OUTPUT = "\nOutput:\n"


def recognises(head: list[dict[str, Any]], source: Source) -> bool:
    """Wrapped items, or the items of early versions behind the line that opens them."""
    del source
    wrapped = any(word(line.get("type")) in _LINES and "payload" in line for line in head)
    first = head[0] if head else {}
    early = {"id", "timestamp"} <= first.keys() and "type" not in first and "steps" not in first
    bare = early and any(word(line.get("type")) in _ITEMS for line in head[1:])
    return wrapped or bare


def read(source: Source, tally: Tally) -> Iterator[Recorded]:
    """The session of a file."""
    session = _Session(Recorded(source.name, source.path, NAME, "codex"))
    for line in source.lines(tally, NAME):
        kind, payload = word(line.get("type")), line.get("payload", line)
        at_s = moment(line.get("timestamp"))
        if kind == "session_meta" or (not kind and "id" in line):
            session.building.run = session.building.run._replace(
                id=name(at(payload, "id")) or source.name
            )
        elif kind == "turn_context":
            session.model = name(at(payload, "model")) or session.model
            session.building.know(model=session.model)
        elif kind == "event_msg":
            session.event(payload, at_s)
        elif kind == "response_item" or kind in _ITEMS:
            if not session.item(payload, at_s):
                tally.unknown_line(NAME, at(payload, "type"))
        elif kind not in _LINES and at(line, "record_type") != "state":
            tally.unknown_line(NAME, kind)
    yield session.building.finish()


class _Session:
    """One run while its lines are read."""

    def __init__(self, run: Recorded) -> None:
        self.building = Building(run)
        self.model: str | None = None

    def event(self, payload: object, at_s: float | None) -> None:
        kind = at(payload, "type")
        if kind == "token_count":
            last = at(payload, "info", "last_token_usage")
            self.building.used(
                Usage(
                    self.model,
                    count(at(last, "input_tokens")),
                    count(at(last, "output_tokens")),
                    count(at(last, "cached_input_tokens")),
                    count(at(last, "cache_write_input_tokens")),
                )
            )
        elif kind == "task_complete":
            self.building.turn(at_s)
            self.building.run = self.building.run._replace(ended="completed")
        elif kind == "turn_aborted":
            self.building.run = self.building.run._replace(ended="interrupted")

    def item(self, payload: object, at_s: float | None) -> bool:
        """Hear one item; False: it is of a kind that is not known."""
        kind = word(at(payload, "type"))
        if kind == "message":
            self._message(payload, at_s)
        elif kind == "reasoning":
            self.building.say(words(at(payload, "summary")))
        elif kind in _CALLS:
            arguments = at(payload, _CALLS[kind])
            self.building.call(
                at(payload, "call_id") or at(payload, "id"),
                at(payload, "name") or "shell",
                _arguments(arguments),
                at_s,
            )
        elif kind.endswith("_call_output"):
            self._output(payload, at_s)
        elif kind == "web_search_call":
            self.building.call(at(payload, "id"), "web_search", at(payload, "action"), at_s)
            self.building.result(at(payload, "id"), "", at_s, ok=True)
        else:
            return kind in _ITEMS
        return True

    def _message(self, payload: object, at_s: float | None) -> None:
        text = words(at(payload, "content"))
        if at(payload, "role") == "assistant":
            self.building.say(text)
        elif at(payload, "role") == "user":
            self.building.turn(at_s)
            if not text.startswith("<"):  # what the agent tells the model of its surroundings
                self.building.know(task=name(text))

    def _output(self, payload: object, at_s: float | None) -> None:
        output, seconds, code = at(payload, "output"), None, None
        if isinstance(output, str) and output.startswith("{"):
            output = _arguments(output)
        if isinstance(output, dict):
            seconds = number(at(output, "metadata", "duration_seconds"))
            code = at(output, "metadata", "exit_code")
            output = at(output, "output") or at(output, "content")
        text = words(output)
        head, marker, rest = text[:600].partition(_OUTPUT)
        if marker and (told := _CODE.search(head)):
            code = int(told[1])
        if marker:
            text = rest + text[600:]
        ok = None if not isinstance(code, int) else code == 0
        self.building.result(at(payload, "call_id"), text, at_s, ok=ok, seconds=seconds)


def _arguments(value: object) -> object:
    if isinstance(value, str) and value.startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value
