"""mini-swe-agent: a `.traj.json` file is the conversation; commands stand in the answers.

The first format has the command in a fenced block and the outcome in the next message; the second
has calls of a tool, or a list of actions beside the text.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import at, count, words
from switchgear._agents.events import Usage
from switchgear._agents.recordings.files import Source
from switchgear._agents.recordings.recorded import Building, Recorded, Tally
from switchgear._agents.recordings.texts import micros, moment, name, word

NAME = "mini-swe-agent"
LABEL = "mini-swe-agent trajectory"
PLACES = ("~/.config/mini-swe-agent",)
PER_LINE = False

_BLOCK = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)
_CODE = re.compile(r"<returncode>\s*(-?\d{1,10})\s*</returncode>")
_TAGS = re.compile(r"</?(?:returncode|output|output_head|output_tail|elided_chars)>")


def recognises(head: list[dict[str, Any]], source: Source) -> bool:
    """A conversation with the format's name, or with the statistics of its model."""
    del source
    first = head[0] if head else {}
    if not isinstance(first.get("messages"), list):
        return False
    named = str(first.get("trajectory_format")).startswith("mini-swe-agent")
    return named or at(first, "info", "mini_version") is not None


def read(source: Source, tally: Tally) -> Iterator[Recorded]:
    """The run of a file."""
    document = source.document()
    info = document.get("info")
    task = source.name.removesuffix(".gz").removesuffix(".traj.json").removesuffix(".json")
    run = Recorded(
        name(task),
        source.path,
        NAME,
        NAME,
        name(at(info, "config", "model", "model_name")) or None,
        name(document.get("instance_id")) or name(task),
        ended=name(at(info, "exit_status")),
        cost_micros=micros(at(info, "model_stats", "instance_cost")),
    )
    reading = _Reading(run, tally)
    for message in document["messages"]:
        reading.hear(message)
    done = reading.building.finish()
    priced = any(usage.cost_micros for step in done.steps for usage in step.usages)
    yield done._replace(cost_micros=None) if priced else done


class _Reading:
    """One run while its messages are read."""

    def __init__(self, run: Recorded, tally: Tally) -> None:
        self.building = Building(run)
        self._tally = tally
        self._waiting: list[object] = []
        self._calls = 0

    def hear(self, message: object) -> None:
        role, at_s = word(at(message, "role")), moment(at(message, "extra", "timestamp"))
        if role == "assistant":
            self._answer(message, at_s)
        elif role in {"user", "tool"}:
            self._outcome(message, at_s)
        elif role not in {"system", "exit"}:
            self._tally.unknown_line(NAME, role)

    def _answer(self, message: object, at_s: float | None) -> None:
        text = words(at(message, "content"))
        usage = at(message, "extra", "response", "usage")
        self.building.use(
            Usage(
                self.building.run.model,
                count(at(usage, "prompt_tokens")),
                count(at(usage, "completion_tokens")),
                cost_micros=micros(at(message, "extra", "cost")) or None,
            )
        )
        commands = list(_commands(message))
        blocks = [] if commands else _BLOCK.findall(text[:200_000])
        self.building.say(_BLOCK.sub("", text[:200_000]) if blocks else text)
        for call_id, command in commands or [(None, block) for block in blocks[:1]]:
            self._calls += 1
            key = call_id or self._calls
            self._waiting.append(key)
            self.building.call(key, "bash", {"command": command}, at_s)
        if not (commands or blocks):
            self.building.turn(at_s)

    def _outcome(self, message: object, at_s: float | None) -> None:
        key = at(message, "tool_call_id")
        if key not in self._waiting:
            key = self._waiting[0] if self._waiting else None
        if key is None:
            return
        self._waiting.remove(key)
        text = words(at(message, "content"))
        told = _CODE.search(text)
        code = at(message, "extra", "returncode")
        code = int(told[1]) if told and not isinstance(code, int) else code
        output = _TAGS.sub("", _CODE.sub("", text)).strip("\n")
        ok = None if not isinstance(code, int) else code == 0
        self.building.result(key, output, at_s, ok=ok)


def _commands(message: object) -> Iterator[tuple[object, str]]:
    actions = at(message, "extra", "actions")
    for action in actions if isinstance(actions, list) else []:
        if isinstance(at(action, "command"), str):
            yield at(action, "tool_call_id"), at(action, "command")
    if isinstance(actions, list) and actions:
        return
    calls = at(message, "tool_calls")
    for call in calls if isinstance(calls, list) else []:
        try:
            given = json.loads(str(at(call, "function", "arguments")))
        except (ValueError, RecursionError):
            continue
        if isinstance(at(given, "command"), str):
            yield at(call, "id"), at(given, "command")
