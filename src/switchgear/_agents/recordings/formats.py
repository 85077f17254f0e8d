"""Finds recordings and recognises their formats by content; reads plain JSONL and the folders of runs."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import Any

from switchgear._agents.base import PARSE_ERRORS
from switchgear._agents.events import Usage
from switchgear._agents.fields import TokenCounts, at, count, items, micros, number
from switchgear._agents.recordings import otel, swe_trajectories
from switchgear._agents.recordings.recording import (
    RecordedRun,
    RecordedStep,
    RecordingFile,
    RecordingFormat,
    RecordingTally,
    RunBuilder,
    UnreadableRecording,
    as_json,
    body,
    changed,
    error_line,
    name,
    timestamp,
    whole_number,
)
from switchgear._agents.recordings.swe_trajectories import is_events_folder
from switchgear._agents.registry import transcript_formats

_PLAIN = "plain"

_SOLVED = frozenset({"solved", "success", "succeeded", "passed", "resolved", "completed", "ok"})
_FAILED = frozenset(
    {"unsolved", "failed", "failure", "unresolved", "error", "exhausted", "gave_up"}
)


def _read_plain(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    head = source.head()
    lines = source.lines(tally, _PLAIN) if len(head) > 1 or source.is_part else [source.document()]
    for place, line in enumerate(lines, source.first_line):
        if isinstance(at(line, "steps"), list):
            yield _run(line, source, place, tally)
        else:
            tally.unknown_line(_PLAIN, "a line without steps")


def _run(
    line: dict[str, Any], source: RecordingFile, place: int, tally: RecordingTally
) -> RecordedRun:
    outcome = line.get("outcome", line.get("exit"))
    builder = RunBuilder(
        RecordedRun(
            *(name(line.get("id")) or f"{source.name}:{place}", source.path, _PLAIN),
            *(name(line.get("agent")), name(line.get("model")) or None, name(line.get("task"))),
            *(_outcome(line.get("solved"), outcome), name(outcome)),
            cost_micros=_cost(line),
        ),
        tally,
    )
    for step in line["steps"]:
        if isinstance(step, dict):
            builder.add(_step(step, builder.run.model))
        else:
            builder.unknown("a step that is not an object")
    return builder.finish()


def _outcome(solved: object, outcome: object) -> bool | None:
    if isinstance(solved, bool):
        return solved
    word = outcome.strip().lower() if isinstance(outcome, str) else ""
    return True if word in _SOLVED else False if word in _FAILED else None


def _step(step: dict[str, Any], model: str | None) -> RecordedStep:
    tool, arguments = name(step.get("tool")), step.get("args")
    result = body(step.get("result", step.get("observation")))
    error = step.get("error")
    failed = step.get("ok") is False or error is True or (isinstance(error, str) and error != "")
    known = failed or step.get("ok") is True or error is False or "error" in step
    text = error if isinstance(error, str) and error else result
    reported_change = step.get("changed")
    return RecordedStep(
        tool,
        body(as_json(arguments)) or "" if arguments is not None else "",
        result,
        body(step.get("thought")),
        ok=not failed if known else None,
        error=error_line(text) if failed else None,
        at_s=timestamp(step.get("t")),
        seconds=number(step.get("seconds")),
        usages=_usages(step, model),
        changed=reported_change
        if isinstance(reported_change, bool)
        else changed(tool, arguments, ok=not failed),
        files_changed=whole_number(step.get("files_changed")),
        tests_passing=whole_number(step.get("tests_passing")),
        output_chars=whole_number(step.get("output_chars")),
    )


def _usages(step: dict[str, Any], model: str | None) -> tuple[Usage, ...]:
    counts = step.get("tokens")
    tokens: dict[str, Any] = counts if isinstance(counts, dict) else {"total": counts}
    input_tokens, output = count(tokens.get("input")), count(tokens.get("output"))
    cost = _cost(step)
    if not (input_tokens or output):
        # Input and output have different prices, so their sum cannot be priced.
        input_tokens, model = count(tokens.get("total")), None
    if not (input_tokens or output or cost is not None):
        return ()
    return (Usage(model, input_tokens, output, count(tokens.get("cached")), 0, cost),)


def _cost(step: dict[str, Any]) -> int | None:
    found = whole_number(step.get("cost_micros"))
    return micros(step.get("cost")) if found is None else found


# The folder that `switchgear run` writes

_RUNS = "switchgear"

_STEP = re.compile(r"\[([^\]\n]{1,80})\] (.*): (ok|failed|\?)")
_REMARK = re.compile(r"\[(?:end|result|question|[a-z_]+)\] ")


def _read_run_folder(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    run = source.document()
    end = run.get("end")
    success = at(end, "success")
    builder = RunBuilder(
        RecordedRun(
            *(name(run.get("id")) or source.name, source.path, _RUNS, name(run.get("agent"))),
            *(name(at(run, "options", "model")) or None, name(run.get("task"))),
            *(success if isinstance(success, bool) else None, name(at(end, "exit_reason"))),
        )
    )
    folder = os.path.dirname(source.path)
    iterations = RecordingFile(os.path.join(folder, "iterations.jsonl"))
    try:
        for facts in iterations.lines(tally, _RUNS):
            _iteration(builder, facts, folder, tally)
    except UnreadableRecording as problem:
        tally.problem(iterations.path, str(problem))
    yield builder.finish()


def _iteration(
    builder: RunBuilder, facts: dict[str, Any], folder: str, tally: RecordingTally
) -> None:
    at_s, log = timestamp(facts.get("ended_at")), facts.get("log")
    steps: list[RecordedStep] = []
    if isinstance(log, str) and re.fullmatch(r"logs/\d{1,9}\.log", log):
        steps = _log_steps(os.path.join(folder, log), tally)
    ok, error = facts.get("ok"), facts.get("error")
    tokens = facts.get("tokens")
    models = items(facts.get("models"))
    usage = Usage(
        models[0] if len(models) == 1 and isinstance(models[0], str) else builder.run.model,
        *TokenCounts(*(count(at(tokens, field)) for field in TokenCounts._fields)),
        whole_number(facts.get("cost_micros")),
    )
    files = whole_number(facts.get("files_changed"))
    usages = _divided(usage, len(steps) + 1)
    for step, part in zip(steps, usages, strict=False):
        builder.add(step._replace(usages=(part,)))
    builder.add(
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
            tests_passing=whole_number(facts.get("tests_passing")),
            output_chars=whole_number(facts.get("output_chars")),
            is_act=False,
        )
    )


def _divided(usage: Usage, parts: int) -> list[Usage]:
    """The usage of an iteration divided evenly among its steps; it is not recorded for each step."""
    amounts = {field: value for field, value in usage._asdict().items() if type(value) is int}
    even = {field: amount // parts for field, amount in amounts.items()}
    rest = {field: amount - even[field] * (parts - 1) for field, amount in amounts.items()}
    first, last = usage._replace(**even), usage._replace(**rest)  # type: ignore[arg-type]
    return [*[first] * (parts - 1), last]


def _log_steps(path: str, tally: RecordingTally) -> list[RecordedStep]:
    """The steps in a log; the lines between them are text of the agent or error output."""
    try:
        lines = [
            line.decode("utf-8", "replace") for line in RecordingFile(path).raw_lines(tally, _RUNS)
        ]
    except UnreadableRecording as problem:
        tally.problem(path, str(problem))
        return []
    found: list[RecordedStep] = []
    thought_lines: list[str] = []
    for line in lines:
        if line.startswith("[end] "):  # followed by the end of the agent's raw output
            break
        step = _STEP.fullmatch(line.rstrip("\n"))
        if step:
            tool, arguments, how = step.groups()
            ok = None if how == "?" else how == "ok"
            did_change = changed(tool, {"command": arguments, "path": arguments}, ok=ok)
            thought = body("\n".join(thought_lines)) if thought_lines else None
            thought_lines = []
            step_facts = (name(tool), name(arguments), None, thought)
            found.append(RecordedStep(*step_facts, ok=ok, changed=did_change))
        elif _REMARK.match(line):
            continue
        elif found and found[-1].ok is False and not thought_lines:
            more = (found[-1].result, line.rstrip("\n").removeprefix("    "))
            text = "\n".join(each for each in more if each is not None)
            found[-1] = found[-1]._replace(result=body(text), error=error_line(text))
        else:
            thought_lines.append(line.rstrip("\n"))
    return found


PLAIN = RecordingFormat(
    *(_PLAIN, "plain JSONL, one run per line"),
    lambda source: any(isinstance(line.get("steps"), list) for line in source.head()),
    _read_plain,
    per_line=True,
)
RUN_FOLDER = RecordingFormat(
    *(_RUNS, "run of switchgear run"),
    lambda source: source.first.keys() >= {"schema", "id", "task", "options", "state", "circuit"},
    _read_run_folder,
    (".switchgear/runs",),
)


FORMATS: dict[str, RecordingFormat] = {
    each.name: each
    for each in (
        *(RUN_FOLDER, PLAIN, *transcript_formats()),
        *(swe_trajectories.OPENHANDS, swe_trajectories.SWE_AGENT, otel.SPANS),
    )
}
"""The formats by name; a file is read by the first one that recognises it."""


def recognise(source: RecordingFile) -> RecordingFormat:
    """The format of a file. Raises `UnreadableRecording`."""
    if is_events_folder(source.path):
        return swe_trajectories.OPENHANDS
    if source.is_database:
        for each in FORMATS.values():
            if each.is_database is not None and each.is_database(source):
                return each
        raise UnreadableRecording("is a database of another program")
    source.head()  # raises if the file cannot be read
    for each in FORMATS.values():
        try:
            if each.recognises(source):
                return each
        except (*PARSE_ERRORS, OSError):
            continue
    raise UnreadableRecording("has no known format; --format NAME forces one")


def runs_in(
    source: RecordingFile, tally: RecordingTally, force: str | None = None
) -> Iterator[RecordedRun]:
    """The runs of a file that have at least one step. Never raises; problems are added to the tally."""
    try:
        found = FORMATS[force] if force else recognise(source)
        tally.formats[found.name] += source.first_line == 1
        for run in found.read(source, tally):
            if run.steps:
                tally.runs += 1
                yield run
            else:
                tally.empty += 1
    except UnreadableRecording as problem:
        tally.problem(source.path, str(problem))
    except (*PARSE_ERRORS, OSError) as error:
        # Data of an unexpected form: the rest of this file is skipped.
        tally.problem(source.path, f"does not match its format: {type(error).__name__}")


# Finding files

MAX_FILES = 200_000
_ENDINGS = (".jsonl", ".json", ".ndjson", ".traj", ".db", ".jsonl.gz", ".json.gz", ".traj.gz")
_OPENCODE_FOLDERS = frozenset({"message", "part", "session_diff", "todo", "project"})
"""Folders of OpenCode beside `session`; their files belong to sessions."""
RUNS_PARENT = ".switchgear"
_RUN, _ITERATIONS = "run.json", "iterations.jsonl"


def find(paths: Sequence[str], tally: RecordingTally) -> Iterator[str]:
    """The files that may contain runs, each once, sorted by name within each of the paths."""
    seen: set[tuple[int, int]] = set()
    for path in paths:
        for found in _files_below(path, tally):
            key = _identity(found)
            if key is None or key in seen:
                continue
            if len(seen) >= MAX_FILES:
                tally.problem(path, f"has more than {MAX_FILES:,} files: the rest is skipped")
                return
            seen.add(key)
            yield found


def usual_places() -> list[tuple[str, str, int]]:
    """The format, the folder and the number of files, for each usual folder of an agent that exists."""
    found = []
    for each in FORMATS.values():
        for place in each.places:
            path = os.path.expanduser(place)
            if os.path.isdir(path) and (files := sum(1 for _ in find([path], RecordingTally()))):
                found.append((each.name, place, files))
    return found


def _files_below(path: str, tally: RecordingTally) -> Iterator[str]:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        tally.problem(path, getattr(error, "strerror", None) or "is not a path")
        return
    if not stat.S_ISDIR(mode) or is_events_folder(path):
        yield path
        return
    for folder, folders, files in os.walk(path, followlinks=False):
        if _RUN in files and _ITERATIONS in files:
            folders.clear()
            yield os.path.join(folder, _RUN)
            continue
        if os.path.basename(folder) == RUNS_PARENT:
            folders[:] = [each for each in folders if each == "runs"]
            continue
        if "session" in folders:
            folders[:] = [each for each in folders if each not in _OPENCODE_FOLDERS]
        events = os.path.join(folder, "events")
        if "events" in folders and is_events_folder(events) and _has_events(events):
            folders.remove("events")
            yield events
        folders.sort()
        for each in sorted(files):
            if each.endswith(_ENDINGS) and each != "base_state.json":
                yield os.path.join(folder, each)


def _has_events(folder: str) -> bool:
    try:
        return any(each.startswith("event-") for each in os.listdir(folder))
    except OSError:
        return False


def _identity(path: str) -> tuple[int, int] | None:
    """The device and inode of a file; `None`: it no longer exists."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
