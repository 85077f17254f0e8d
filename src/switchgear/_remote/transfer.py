"""Tasks, outcomes and records of runs as JSON values, and back."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from switchgear._breaker.loop_breaker import LoopStats
from switchgear._run.batch.attempt import AttemptDependencies, AttemptOutcome, options_of
from switchgear._run.batch.model import Task
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.formats import iso
from switchgear._run.record import RunFolder, RunUnreadable, has_started
from switchgear._run.result import Checkpoint, RunResult, write_receipt
from switchgear._run.state import RunState
from switchgear._stuck.timeouts import Estimate

MISSING = "work_is_missing"
"""The key in run.json that marks a run that ended elsewhere and whose work is not in its folder."""
MAX_LOG_CHARS = 100_000
"""Characters of an agent's log that are saved with an iteration, from the end."""


def task_values(task: Task) -> dict[str, Any]:
    return {**task._asdict(), "estimate": task.estimate._asdict(), "flags": dict(task.flags)}


def task_of(values: Mapping[str, Any]) -> Task:
    known = {key: values[key] for key in Task._fields if key in values}
    known["estimate"] = Estimate(**known.get("estimate", {}))
    for key in ("needs", "labels"):
        known[key] = tuple(known.get(key, ()))
    return Task(**known)


def outcome_values(outcome: AttemptOutcome) -> dict[str, Any]:
    """What a batch needs of the outcome of an attempt, as JSON values."""
    values: dict[str, Any] = {
        "problem": outcome.problem,
        "gave_up": outcome.gave_up,
        "unpriced": outcome.unpriced,
        "began": outcome.began,
        "exit_reason": None,
    }
    result = outcome.result
    if result is None:
        return values
    checkpoint = result.checkpoint
    return {
        **values,
        "exit_reason": str(result.exit_reason),
        "reason": result.reason,
        "evidence": list(result.evidence),
        "circuit": result.circuit,
        "held": result.held,
        "notes": list(result.notes),
        "state": result.state.dump(),
        "checkpoint": None if checkpoint is None else checkpoint.dump(),
    }


def outcome_of(
    values: Mapping[str, Any], shared: AttemptDependencies, task: Task, run: str, *, shown_by: str
) -> AttemptOutcome:
    """The inverse of `outcome_values`; `shown_by` is the command that shows the work on the host of the batch."""
    rest = {key: values[key] for key in ("problem", "gave_up", "unpriced", "began")}
    if values["exit_reason"] is None:
        return AttemptOutcome(None, **rest)
    checkpoint = values["checkpoint"]
    if checkpoint is not None:
        checkpoint = Checkpoint(
            **{
                **checkpoint,
                "files": tuple(checkpoint["files"]),
                "how": shown_by or checkpoint["how"],
            }
        )
    result = RunResult(
        run,
        ExitReason(values["exit_reason"]),
        values["reason"],
        tuple(values["evidence"]),
        LoopStats(None, 0, None),
        RunState.load(values["state"]),
        options_of(shared, task),
        values["circuit"],
        held=values["held"],
        checkpoint=checkpoint,
        notes=tuple(values["notes"]),
    )
    return AttemptOutcome(result, **rest)


def iteration_values(record: RunFolder, facts: Mapping[str, Any]) -> dict[str, Any]:
    """An iteration with its prompt and the end of its log."""
    number = int(facts["number"])
    texts = {}
    for key, file in (("prompt", record.prompt_file(number)), ("log", record.log_file(number))):
        with suppress(OSError):
            texts[key] = file.read_text(encoding="utf-8", errors="replace")[-MAX_LOG_CHARS:]
    return {"facts": facts, "number": number, **texts}


def write_iterations(record: RunFolder, iterations: Iterable[Mapping[str, Any]]) -> int:
    """Write the iterations that the folder does not have. Returns the number that it has now."""
    have = sum(1 for _ in record.iterations())
    total = 0
    for total, each in enumerate(iterations, 1):
        if total <= have:
            continue
        record.make()
        number = int(each["number"])  # part of a path
        for key, file in (
            ("prompt", record.prompt_file(number)),
            ("log", record.log_file(number)),
        ):
            if key in each:
                file.write_text(each[key], encoding="utf-8", errors="replace")
        record.add(each["facts"])
    return max(have, total)


def read_run(record: RunFolder) -> dict[str, Any] | None:
    """What run.json holds; `None`: the run has not started, or cannot be read."""
    try:
        run = record.read()
    except RunUnreadable:
        return None
    return run if has_started(run) else None


def without_work(values: Mapping[str, Any], problem: str) -> dict[str, Any]:
    """The outcome of an attempt whose work did not arrive: the task is not done."""
    if values["exit_reason"] is None:
        return {**values, "problem": f"{values['problem']}; {problem}"}
    if values["exit_reason"] != ExitReason.COMPLETED:
        return {**values, "notes": [*values["notes"], problem]}
    return {**values, "exit_reason": str(ExitReason.AGENT_ERROR), "reason": problem}


def write_end(
    record: RunFolder,
    result: RunResult,
    shown_by: str,
    report: Callable[[RunFolder], Path] | None,
    *,
    is_missing: bool,
) -> RunResult:
    """Complete the record of a run that ended elsewhere with the paths, report and receipt of this host.

    `shown_by` is the command that shows the work on this host; empty: there is none. `is_missing`: the work
    did not arrive, or could not be applied yet. Returns the result with the paths.
    """
    try:
        run = record.read()
    except RunUnreadable:
        return result
    end = run.get("end")
    if not isinstance(end, dict) or is_missing:
        end = run["end"] = result.dump()
        run["ended_at"] = run.get("ended_at") or iso(time.time())
    run[MISSING] = is_missing
    checkpoint = end.get("checkpoint")
    if isinstance(checkpoint, dict) and shown_by:
        checkpoint["how"] = shown_by
    end["report"] = end["receipt"] = None
    run.pop("schema", None)
    with suppress(OSError):
        record.write(run)
        if report is not None:
            end["report"] = str(report(record))
        end["receipt"] = str(write_receipt(record, run))
        record.write(run)
    return result._replace(report=end["report"], receipt_file=end["receipt"] or "")
