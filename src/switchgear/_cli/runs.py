"""`switchgear runs`: lists the runs of this project, how they ended, and what each iteration did."""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from switchgear._cli.context import say_json
from switchgear._cli.options import fail, json_option
from switchgear._cli.views.terminal import Screen
from switchgear._cli.views.text import clean, plural, say, warn
from switchgear._console.runs import listed_runs, run_row, run_status
from switchgear._report.run_page import write_report
from switchgear._run.formats import iteration, spent
from switchgear._run.options import seconds
from switchgear._run.record import find_run, ids_in, is_alive, list_runs, prunable, prune, runs_root
from switchgear._run.result import NO_CHANGE, receipt_of, receipt_text
from switchgear._run.result import as_json as receipt_json
from switchgear._text.formats import elapsed

UNWRAPPED = ("folder: ", "kept: ", "report: ", "receipt: ", "continue: ", "files: ")
"""Beginnings of lines that are not wrapped, so that they can be copied."""
_ACTIVE = ("running", "waiting")


last_option = click.option(
    "--last",
    type=click.IntRange(1),
    metavar="N",
    help="Show only the newest N runs. [default: all]",
)


@click.group(invoke_without_command=True)
@last_option
@json_option
@click.pass_context
def runs(ctx: click.Context, *, last: int | None, as_json: bool) -> None:
    """List the runs of this project with start, end and duration, or show one: `runs show RUN`."""
    if ctx.invoked_subcommand is None:
        _list(last, as_json=as_json)


@runs.command("list", short_help="List the runs, the newest last.")
@last_option
@json_option
def list_verb(*, last: int | None, as_json: bool) -> None:
    """List the runs of this project, the newest last."""
    _list(last, as_json=as_json)


@runs.command("show", short_help="Show one run with its iterations, or its receipt.")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--receipt",
    is_flag=True,
    help="Print only the receipt: result, reason, cost, savings, next command.",
)
@json_option
def show_verb(run_id: str, *, receipt: bool, as_json: bool) -> None:
    """Show RUN (its id, the beginning or end of it, or `last`) with its iterations."""
    record = find_run(runs_root(Path.cwd()), run_id)
    run, iterations = record.read(), list(record.iterations())
    if receipt:
        made = receipt_of(run, alive=is_alive(run))
        say(receipt_json(made) if as_json else receipt_text(made))
        return
    if as_json:
        say_json({**run, "status": run_status(run), "iterations": iterations})
        return
    screen = Screen()
    for line in (*_page(run, iterations), f"files: {record.path}"):
        if line.startswith(UNWRAPPED):
            say(line)
        else:
            screen.line(line, indent=4)


@runs.command("prune", short_help="Remove the folders of old runs.")
@click.option(
    "--older-than", metavar="D", help="Remove runs that ended more than D ago (30d, 12h)."
)
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Keep the newest N runs.")
@click.option("--dry-run", is_flag=True, help="List what would be removed; remove nothing.")
@json_option
def prune_verb(*, older_than: str | None, keep: int | None, dry_run: bool, as_json: bool) -> None:
    """Remove the folders of runs that have ended: prompts, logs, reports and receipts.

    With both options, a run is removed if it is old enough and not among the newest N. Active
    runs and unreadable runs are kept. Checkpoints in git (refs/switchgear/runs/) stay; without
    git, the checkpoint is an archive in the folder of the run and is removed with it.
    """
    if older_than is None and keep is None:
        fail("specify what to remove: --older-than D, --keep N or both")
    age_s = None if older_than is None else seconds("--older-than", older_than)
    root = runs_root(Path.cwd())
    found = prunable(root, now_s=time.time(), older_than_s=age_s, keep=keep)
    removed, left = (found, []) if dry_run else prune(root, found)
    if as_json:
        ids = [each.id for each in removed]
        say_json({"removed": ids, "dry_run": dry_run, "left": [list(each) for each in left]})
        return
    for each in removed:
        say(f"{'would remove' if dry_run else 'removed'} {each.id}")
    for name, why in left:
        warn(f"{name} could not be removed: {why}")
    verb = "would be removed" if dry_run else "removed"
    say(f"{plural(len(removed), 'run')} {verb}")


@runs.command("report", short_help="Write the HTML report of a run again.")
@click.argument("run_id", metavar="RUN")
def report_verb(run_id: str) -> None:
    """Write the HTML report of RUN (its id, a part of it, or `last`) and print its path.

    Also works for a run that is active or was interrupted.
    """
    say(str(write_report(find_run(runs_root(Path.cwd()), run_id))))


def _list(last: int | None, *, as_json: bool) -> None:
    root = runs_root(Path.cwd())
    shown = list_runs(root, last)
    if as_json:
        say_json({"runs": listed_runs(shown)})
        return
    if not shown:
        say(f"No runs yet in {root}. Start one: switchgear run TASK --agent NAME")
        return
    screen = Screen()
    for each in shown:
        if each.run is None:
            screen.line(f"{each.id}  {clean(each.problem)}", indent=4)
            continue
        first, second = _lines(each.run)
        if screen.width is None:
            screen.line(f"{first}  {second}")
        else:
            screen.line(first, indent=4)
            screen.line(f"    {second}", indent=4)
    earlier = len(ids_in(root)) - len(shown)
    if last is not None and earlier > 0:
        screen.line(f"{earlier:,} earlier; `switchgear runs` shows all")


def _lines(run: dict[str, Any]) -> tuple[str, str]:
    """A run in two lines: id, status and times; then iterations, cost, agent and task."""
    row = run_row(run)
    cost = f", {spent(row['cost_micros'] or 0, row['unknown_prices'])}"
    if row["status"] in _ACTIVE:
        cost = f" ended{cost} so far" if row["iterations"] else " ended"
    task = clean(" ".join(str(row["task"]).split()), 80)
    count = plural(row["iterations"] or 0, "iteration")
    first = f"{row['id']}  {row['status']:15}  {when(row)}"
    return first, f"{count}{cost}, {clean(str(row['agent']), 20)}: {task}"


def when(row: dict[str, Any]) -> str:
    """`2026-11-16 23:10 to 2026-11-17 01:12, 2 h 2 min`; one date if both are the same."""
    began, ended = (_local_time(row.get(key)) for key in ("started_at", "ended_at"))
    seconds = row.get("seconds")
    took = f", {elapsed(seconds)}" if isinstance(seconds, int | float) else ""
    if began is None:
        return f"start unknown{took}"
    if row.get("status") in _ACTIVE:  # the duration of its current iteration is not recorded yet
        return f"since {began:%Y-%m-%d %H:%M}"
    if ended is None:
        return f"{began:%Y-%m-%d %H:%M}{took}"
    end = f"{ended:%H:%M}" if began.date() == ended.date() else f"{ended:%Y-%m-%d %H:%M}"
    return f"{began:%Y-%m-%d %H:%M} to {end}{took}"


def _local_time(at: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(at).astimezone()
    except (TypeError, ValueError, OverflowError):
        return None


def _page(run: dict[str, Any], iterations: list[dict[str, Any]]) -> list[str]:
    end = run.get("end") or {}
    first, second = _lines(run)
    began, ended = (_local_time(run.get(key)) for key in ("started_at", "ended_at"))
    lines = [
        first,
        f"    {second}",
        f"started: {began:%Y-%m-%d %H:%M:%S}" if began else "started: unknown",
        f"ended: {ended:%Y-%m-%d %H:%M:%S}" if ended else f"ended: not yet ({run_status(run)})",
        f"took: {_duration_text(run)}",
        f"circuit: {clean(str(run['circuit']))}",
        f"folder: {clean(str(run['folder']))}",
    ]
    if run_status(run) == "waiting":
        lines.append("host: none yet; it waits for a worker")
    elif run.get("host"):
        lines.append(f"host: {clean(str(run['host']))}")
    if end:
        lines.append(f"reason: {clean(str(end.get('reason')), 600)}")
        lines += [f"evidence: {clean(str(each), 600)}" for each in end.get("evidence", [])]
    lines += [_iteration(facts) for facts in iterations]
    kept = end.get("checkpoint")
    if isinstance(kept, dict):
        count = kept.get("changed") or 0
        how = f"{plural(count, 'file')}; {clean(str(kept.get('how')))}"
        lines.append(f"kept: {how if count else NO_CHANGE}")
    for name, key in (("report", "report"), ("receipt", "receipt"), ("continue", "resume")):
        if end.get(key):
            lines.append(f"{name}: {clean(str(end[key]))}")
    return lines


def _duration_text(run: dict[str, Any]) -> str:
    seconds = (run.get("state") or {}).get("seconds")
    status = run_status(run)
    if status in _ACTIVE:
        began = _local_time(run.get("started_at"))
        return "not yet known" if began is None else f"{status} since {began:%Y-%m-%d %H:%M:%S}"
    return elapsed(seconds) if isinstance(seconds, int | float) else "unknown"


def _iteration(facts: dict[str, Any]) -> str:
    began = _local_time(facts.get("started_at"))
    at = f" {began:%H:%M:%S}" if began else ""
    steps = facts.get("steps")
    count = plural(steps, "step") if isinstance(steps, int) else "steps not measured"
    parts = [*iteration(facts), count, str(facts.get("phase"))]
    if facts.get("error"):
        parts.append(str(facts["error"]))
    return f"  #{facts.get('number')}{at}  " + clean(", ".join(parts), 700)
