"""Our own runs: the folder that `switchgear run` writes, under `.switchgear/runs`.

The log of an iteration has a line for each step of the agent; behind them stand the facts that were
measured of the iteration as a whole.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import at, count
from switchgear._agents.events import Usage
from switchgear._agents.recordings.files import Source, Unreadable
from switchgear._agents.recordings.recorded import Building, Recorded, RecordedStep, Tally
from switchgear._agents.recordings.texts import (
    body,
    changed,
    error_line,
    moment,
    name,
    number,
    whole,
)

NAME = "switchgear"
LABEL = "run of switchgear run"
PLACES = (".switchgear/runs",)
PER_LINE = False

_STEP = re.compile(r"\[([^\]\n]{1,80})\] (.*): (ok|failed|\?)")
_REMARK = re.compile(r"\[(?:end|result|question|[a-z_]+)\] ")


def recognises(head: list[dict[str, Any]], source: Source) -> bool:
    """A run.json of ours."""
    del source
    first = head[0] if head else {}
    return first.keys() >= {"schema", "id", "task", "options", "state", "circuit"}


def read(source: Source, tally: Tally) -> Iterator[Recorded]:
    """The run of a folder."""
    run = source.document()
    end = run.get("end")
    success = at(end, "success")
    building = Building(
        Recorded(
            name(run.get("id")) or source.name,
            source.path,
            NAME,
            name(run.get("agent")),
            name(at(run, "options", "model")) or None,
            name(run.get("task")),
            success if isinstance(success, bool) else None,
            name(at(end, "exit_reason")),
        )
    )
    folder = os.path.dirname(source.path)
    iterations = Source(os.path.join(folder, "iterations.jsonl"))
    try:
        for facts in iterations.lines(tally, NAME):
            _iteration(building, facts, folder, tally)
    except Unreadable as problem:
        tally.problem(iterations.path, str(problem))
    yield building.finish()


def _iteration(building: Building, facts: dict[str, Any], folder: str, tally: Tally) -> None:
    at_s, log = moment(facts.get("ended_at")), facts.get("log")
    steps: list[RecordedStep] = []
    if isinstance(log, str) and re.fullmatch(r"logs/\d{1,9}\.log", log):
        steps = _steps(os.path.join(folder, log), tally)
    ok, error = facts.get("ok"), facts.get("error")
    tokens = facts.get("tokens")
    models = facts.get("models")
    model = models[0] if isinstance(models, list) and len(models) == 1 else None
    usage = Usage(
        model if isinstance(model, str) else building.run.model,
        count(at(tokens, "input")),
        count(at(tokens, "output")),
        count(at(tokens, "cache_read")),
        count(at(tokens, "cache_write")),
        whole(facts.get("cost_micros")),
    )
    files = whole(facts.get("files_changed"))
    usages = _shared_out(usage, len(steps) + 1)
    for step, part in zip(steps, usages, strict=False):
        building.add(step._replace(usages=(part,)))
    building.add(
        RecordedStep(
            "iteration",
            name(f"{facts.get('number')}: {facts.get('outcome')}"),
            ok=ok if isinstance(ok, bool) else None,
            error=error_line(error) if isinstance(error, str) and ok is False else None,
            at_s=at_s,
            seconds=number(facts.get("seconds")),
            usages=(usages[-1],),
            changed=None if files is None else files > 0,
            files_changed=files,
            tests_passing=whole(facts.get("tests_passing")),
            output_chars=whole(facts.get("output_chars")),
            is_act=False,
        )
    )


def _shared_out(usage: Usage, parts: int) -> list[Usage]:
    """What an iteration took, evenly over its steps: the record does not tell it of each."""
    cost = usage.cost_micros
    even = usage._replace(
        input_tokens=usage.input_tokens // parts,
        output_tokens=usage.output_tokens // parts,
        cache_read_tokens=usage.cache_read_tokens // parts,
        cache_write_tokens=usage.cache_write_tokens // parts,
        cost_micros=None if cost is None else cost // parts,
    )
    last = usage._replace(
        input_tokens=usage.input_tokens - even.input_tokens * (parts - 1),
        output_tokens=usage.output_tokens - even.output_tokens * (parts - 1),
        cache_read_tokens=usage.cache_read_tokens - even.cache_read_tokens * (parts - 1),
        cache_write_tokens=usage.cache_write_tokens - even.cache_write_tokens * (parts - 1),
        cost_micros=None if cost is None else cost - (even.cost_micros or 0) * (parts - 1),
    )
    return [*[even] * (parts - 1), last]


def _steps(path: str, tally: Tally) -> list[RecordedStep]:
    """The steps of a log; what stands between them is what the agent said, or an error's text."""
    try:
        lines = [line.decode("utf-8", "replace") for line in Source(path).raw_lines(tally, NAME)]
    except Unreadable as problem:
        tally.problem(path, str(problem))
        return []
    found: list[RecordedStep] = []
    said: list[str] = []
    for line in lines:
        if line.startswith("[end] "):  # what follows is the raw end of the agent's output
            break
        step = _STEP.fullmatch(line.rstrip("\n"))
        if step:
            found.append(_begun(*step.groups(), thought=body("\n".join(said)) if said else None))
            said = []
        elif not _REMARK.match(line) and found and found[-1].ok is False and not said:
            found[-1] = _failed(found[-1], line.rstrip("\n").removeprefix("    "))
        elif not _REMARK.match(line):
            said.append(line.rstrip("\n"))
    return found


def _begun(tool: str, arguments: str, how: str, *, thought: str | None) -> RecordedStep:
    ok = None if how == "?" else how == "ok"
    did = changed(tool, {"command": arguments, "path": arguments}, ok=ok)
    return RecordedStep(name(tool), name(arguments), None, thought, ok=ok, changed=did)


def _failed(step: RecordedStep, line: str) -> RecordedStep:
    """With one more line of what it said when it failed."""
    text = line if step.result is None else f"{step.result}\n{line}"
    return step._replace(result=body(text), error=error_line(text))
