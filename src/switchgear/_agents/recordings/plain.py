"""The plain format: one run a line, with its steps. Described in docs/backtest.md.

Easy to write from whatever one has, and what the other formats are reduced to.
"""

from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import at, count
from switchgear._agents.events import Usage
from switchgear._agents.recordings.files import Source
from switchgear._agents.recordings.recorded import Building, Recorded, RecordedStep, Tally
from switchgear._agents.recordings.texts import (
    as_json,
    body,
    changed,
    error_line,
    micros,
    moment,
    name,
    number,
    whole,
)

NAME = "plain"
LABEL = "plain JSONL, one run a line"
PLACES = ()
PER_LINE = True

_SOLVED = frozenset({"solved", "success", "succeeded", "passed", "resolved", "completed", "ok"})
_FAILED = frozenset(
    {"unsolved", "failed", "failure", "unresolved", "error", "exhausted", "gave_up"}
)


def recognises(head: list[dict[str, Any]], source: Source) -> bool:
    """Objects with steps."""
    del source
    return any(isinstance(line.get("steps"), list) for line in head)


def read(source: Source, tally: Tally) -> Iterator[Recorded]:
    """The runs of a file."""
    head = source.head()
    lines = source.lines(tally, NAME) if len(head) > 1 or source.is_part else [source.document()]
    for place, line in enumerate(lines, source.first_line):
        if isinstance(at(line, "steps"), list):
            yield _run(line, source, place, tally)
        else:
            tally.unknown_line(NAME, "a line without steps")


def _run(line: dict[str, Any], source: Source, place: int, tally: Tally) -> Recorded:
    outcome = line.get("outcome", line.get("exit"))
    building = Building(
        Recorded(
            name(line.get("id")) or f"{source.name}:{place}",
            source.path,
            NAME,
            name(line.get("agent")),
            name(line.get("model")) or None,
            name(line.get("task")),
            _solved(line.get("solved"), outcome),
            name(outcome),
            cost_micros=_cost(line),
        )
    )
    for step in line["steps"]:
        if isinstance(step, dict):
            building.add(_step(step, building.run.model))
        else:
            tally.unknown_line(NAME, "a step that is no object")
    return building.finish()


def _solved(said: object, outcome: object) -> bool | None:
    if isinstance(said, bool):
        return said
    word = outcome.strip().lower() if isinstance(outcome, str) else ""
    return True if word in _SOLVED else False if word in _FAILED else None


def _step(step: dict[str, Any], model: str | None) -> RecordedStep:
    tool, arguments = name(step.get("tool")), step.get("args")
    result = body(step.get("result", step.get("observation")))
    error = step.get("error")
    failed = step.get("ok") is False or error is True or (isinstance(error, str) and error != "")
    known = failed or step.get("ok") is True or error is False or "error" in step
    said = error if isinstance(error, str) and error else result
    did = step.get("changed")
    return RecordedStep(
        tool,
        body(as_json(arguments)) or "" if arguments is not None else "",
        result,
        body(step.get("thought")),
        ok=not failed if known else None,
        error=error_line(said) if failed else None,
        at_s=moment(step.get("t")),
        seconds=number(step.get("seconds")),
        usages=_usages(step, model),
        changed=did if isinstance(did, bool) else changed(tool, arguments, ok=not failed),
        files_changed=whole(step.get("files_changed")),
        tests_passing=whole(step.get("tests_passing")),
        output_chars=whole(step.get("output_chars")),
    )


def _usages(step: dict[str, Any], model: str | None) -> tuple[Usage, ...]:
    told = step.get("tokens")
    tokens: dict[str, Any] = told if isinstance(told, dict) else {"total": told}
    taken, said = count(tokens.get("input")), count(tokens.get("output"))
    cost = _cost(step)
    if not (taken or said):
        # A sum of both has no price: input and output cost differently.
        taken, model = count(tokens.get("total")), None
    if not (taken or said or cost is not None):
        return ()
    return (Usage(model, taken, said, count(tokens.get("cached")), 0, cost),)


def _cost(told: dict[str, Any]) -> int | None:
    found = whole(told.get("cost_micros"))
    return micros(told.get("cost")) if found is None else found
