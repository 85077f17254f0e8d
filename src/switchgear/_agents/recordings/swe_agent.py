"""SWE-agent: a `.traj` file is one document with the turns of one run under `trajectory`."""

from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import at, words
from switchgear._agents.recordings.files import Source
from switchgear._agents.recordings.recorded import Building, Recorded, Tally
from switchgear._agents.recordings.texts import micros, name, number

NAME = "swe-agent"
LABEL = "SWE-agent trajectory"
PLACES = ()
PER_LINE = False

_COMMANDS = frozenset({
    *("edit", "create", "open", "goto", "scroll_up", "scroll_down", "search_dir", "search_file"),
    *("find_file", "submit", "str_replace_editor", "insert", "append", "view", "undo_edit"),
    *("filemap", "python", "exit_forfeit", "think"),
})  # fmt: skip


def recognises(head: list[dict[str, Any]], source: Source) -> bool:
    """Turns with an action and an observation."""
    del source
    turns = head[0].get("trajectory") if head else None
    return isinstance(turns, list) and (
        not turns or (isinstance(turns[0], dict) and "action" in turns[0])
    )


def read(source: Source, tally: Tally) -> Iterator[Recorded]:
    """The run of a file."""
    document = source.document()
    task = source.name.removesuffix(".gz").removesuffix(".traj")
    info = document.get("info")
    run = Recorded(
        name(task),
        source.path,
        NAME,
        NAME,
        name(at(document, "replay_config", "agent", "model", "name")) or None,
        name(at(document, "instance_id")) or name(task),
        ended=name(at(info, "exit_status")),
        cost_micros=micros(at(info, "model_stats", "instance_cost")),
    )
    building = Building(run)
    elapsed_s = 0.0
    for place, turn in enumerate(document["trajectory"]):
        action = words(at(turn, "action")).strip()
        if not isinstance(turn, dict) or not (action or turn.get("response")):
            tally.unknown_line(NAME, "a turn without an action")
            continue
        building.say(words(turn.get("thought") or (turn.get("response") if not action else "")))
        if not action:
            building.turn()
            continue
        seconds = number(turn.get("execution_time"))
        elapsed_s += max(seconds or 0.0, 0.0)
        at_s = None if seconds is None else elapsed_s
        tool, arguments = _tool_of(action)
        building.call(place, tool, arguments, None)
        building.result(place, words(turn.get("observation")), at_s, seconds=seconds)
    yield building.finish()


def _tool_of(action: str) -> tuple[str, str]:
    """SWE-agent's own commands by their name; all else is a command line."""
    first, _, rest = action.partition(" ")
    return (first, rest) if first in _COMMANDS else ("bash", action)
