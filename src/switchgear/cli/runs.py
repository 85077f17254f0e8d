"""`switchgear runs`: what was run here, how it ended, and what each iteration did."""

from pathlib import Path
from typing import Any

import click

from switchgear.cli.options import json_option
from switchgear.cli.text import clean, plural, say
from switchgear.core.money import dollars

# ruff: noqa: PLC0415  what a verb needs is imported when it is used

COPIED = ("folder: ", "kept: ", "report: ", "go on: ", "files: ")
"""Lines that are not broken by us, so that what is in them can be copied."""


@click.group(short_help="The runs of this project.", invoke_without_command=True)
@json_option
@click.pass_context
def runs(ctx: click.Context, *, as_json: bool) -> None:
    """List the runs of this project, or show one: `runs show RUN`."""
    if ctx.invoked_subcommand is None:
        _list(as_json=as_json)


@runs.command("list", short_help="List the runs, the newest last.")
@json_option
def list_verb(*, as_json: bool) -> None:
    """List the runs of this project, the newest last."""
    _list(as_json=as_json)


@runs.command("show", short_help="Show one run with its iterations.")
@click.argument("run_id", metavar="RUN")
@json_option
def show_verb(run_id: str, *, as_json: bool) -> None:
    """Show RUN (its id, the beginning or end of it, or `last`) with its iterations."""
    from switchgear.cli.screen import Screen
    from switchgear.cli.values import printed
    from switchgear.runner.record import find_run, runs_root

    record = find_run(runs_root(Path.cwd()), run_id)
    run, iterations = record.read(), list(record.iterations())
    if as_json:
        say(printed({**run, "status": status(run), "iterations": iterations}))
        return
    screen = Screen()
    for line in (*_page(run, iterations), f"files: {record.path}"):
        if line.startswith(COPIED):
            say(line)
        else:
            screen.line(line, indent=4)


@runs.command("report", short_help="Write the HTML report of a run again.")
@click.argument("run_id", metavar="RUN")
def report_verb(run_id: str) -> None:
    """Write the HTML report of RUN (its id, the beginning or end of it, or `last`), and say where.

    One that is running or was broken off can be reported too.
    """
    from switchgear.report.write import write_report
    from switchgear.runner.record import find_run, runs_root

    say(str(write_report(find_run(runs_root(Path.cwd()), run_id))))


def _list(*, as_json: bool) -> None:
    from switchgear.cli.screen import Screen
    from switchgear.cli.values import printed
    from switchgear.runner.record import list_runs, runs_root

    root = runs_root(Path.cwd())
    found = list_runs(root)
    if as_json:
        rows = [
            {"id": each.id, "problem": each.problem}
            if each.run is None
            else {**_row(each.run), "problem": None}
            for each in found
        ]
        say(printed({"runs": rows}))
        return
    if not found:
        say(f"no runs in {root}; `switchgear run TASK --agent NAME` makes one")
        return
    screen = Screen()
    for each in found:
        line = f"{each.id}  {each.problem}" if each.run is None else _line(each.run)
        screen.line(line, indent=4)


def status(run: dict[str, Any]) -> str:
    """How it ended, or that it is running, or that it was broken off."""
    from switchgear.runner.record import is_alive

    end = run.get("end")
    if isinstance(end, dict):
        return str(end.get("exit_reason"))
    return "running" if is_alive(run) else "broken off"


def _row(run: dict[str, Any]) -> dict[str, Any]:
    state = run.get("state") or {}
    return {
        "id": run["id"],
        "status": status(run),
        "agent": run.get("agent"),
        "task": run.get("task"),
        "circuit": run.get("circuit"),
        "started_at": run.get("started_at"),
        "ended_at": run.get("ended_at"),
        "iterations": state.get("iterations"),
        "cost_micros": state.get("spent_micros"),
        "seconds": state.get("seconds"),
    }


def _line(run: dict[str, Any]) -> str:
    row = _row(run)
    cost = dollars(row["cost_micros"] or 0)
    task = clean(" ".join(str(row["task"]).split()), 80)
    count = plural(row["iterations"] or 0, "iteration")
    return f"{row['id']}  {row['status']:15}  {count:>13}  {cost:>8}  {clean(str(row['agent']), 20)}: {task}"


def _page(run: dict[str, Any], iterations: list[dict[str, Any]]) -> list[str]:
    from switchgear.runner.checkpoint import NOTHING

    end = run.get("end") or {}
    lines = [
        _line(run),
        f"circuit: {run['circuit']}",
        f"folder: {clean(str(run['folder']))}",
    ]
    if end:
        lines.append(f"ended: {clean(str(end.get('reason')), 600)}")
        lines += [f"evidence: {clean(str(each), 600)}" for each in end.get("evidence", [])]
    lines += [_iteration(facts) for facts in iterations]
    kept = end.get("checkpoint")
    if isinstance(kept, dict):
        count = kept.get("changed") or 0
        how = f"{plural(count, 'file')}; {clean(str(kept.get('how')))}"
        lines.append(f"kept: {how if count else NOTHING}")
    if end.get("report"):
        lines.append(f"report: {clean(str(end['report']))}")
    if end.get("resume"):
        lines.append(f"go on: {clean(str(end['resume']))}")
    return lines


def _iteration(facts: dict[str, Any]) -> str:
    cost = facts.get("cost_micros")
    parts = [
        f"#{facts.get('number')}",
        str(facts.get("outcome")),
        f"{facts.get('seconds')} s",
        _count(facts.get("files_changed"), "file"),
        _count(facts.get("steps"), "step"),
        *(() if cost == 0 else ("price unknown" if cost is None else dollars(cost),)),
        str(facts.get("phase")),
    ]
    if facts.get("tests_passing") is not None:
        parts.append(_count(facts["tests_passing"], "test"))
    if facts.get("error"):
        parts.append(str(facts["error"]))
    return "  " + clean(", ".join(parts))


def _count(count: Any, noun: str) -> str:
    """`1 file`, `2 files`; what was not measured is said to be so."""
    return plural(count, noun) if isinstance(count, int) else f"{noun}s not measured"
