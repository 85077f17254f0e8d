"""Our own runs: the folder that `switchgear run` writes, under `.switchgear/runs`.

The log of an iteration has a line for each step of the agent; behind them stand the facts that were
measured of the iteration as a whole.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

from switchgear.agents.base import at, count
from switchgear.agents.events import Usage
from switchgear.recordings.building import Building
from switchgear.recordings.files import Source, Unreadable
from switchgear.recordings.recorded import Recorded, RecordedStep, Tally
from switchgear.recordings.texts import changed, error_line, moment, name, number, whole

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
    if isinstance(log, str) and re.fullmatch(r"logs/\d{1,9}\.log", log):
        _steps(building, os.path.join(folder, log), tally)
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
    building.add(
        RecordedStep(
            "iteration",
            name(f"{facts.get('number')}: {facts.get('outcome')}"),
            ok=ok if isinstance(ok, bool) else None,
            error=error_line(error) if isinstance(error, str) and ok is False else None,
            at_s=at_s,
            seconds=number(facts.get("seconds")),
            usages=(usage,),
            changed=None if files is None else files > 0,
            files_changed=files,
            tests_passing=whole(facts.get("tests_passing")),
            output_chars=whole(facts.get("output_chars")),
            is_act=False,
        )
    )


def _steps(building: Building, path: str, tally: Tally) -> None:
    """The steps of a log; what stands between them is what the agent said, or an error's text."""
    told: list[str] = []
    tool, arguments, how = "", "", ""

    def close() -> None:
        nonlocal told
        text = "\n".join(line.removeprefix("    ") for line in told)
        told = []
        if how != "failed":
            _add(building, tool, arguments, how, "")
            building.say(text)
        else:
            _add(building, tool, arguments, how, text)

    try:
        lines = [line.decode("utf-8", "replace") for line in Source(path).raw_lines(tally, NAME)]
    except Unreadable as problem:
        tally.problem(path, str(problem))
        return
    for line in lines:
        found = _STEP.fullmatch(line.rstrip("\n"))
        if line.startswith("[end] "):  # what follows is the raw end of the agent's output
            break
        if found or _REMARK.match(line):
            close()
            tool, arguments, how = found.groups() if found else ("", "", "")
        else:
            told.append(line.rstrip("\n"))
    close()
    building.said()


def _add(building: Building, tool: str, arguments: str, how: str, text: str) -> None:
    if not tool:
        return
    ok = None if how == "?" else how == "ok"
    building.add(
        RecordedStep(
            name(tool),
            name(arguments),
            text or None,
            building.said(),
            ok=ok,
            error=error_line(text) if ok is False else None,
            changed=changed(tool, {"command": arguments, "path": arguments}, ok=ok),
        )
    )
