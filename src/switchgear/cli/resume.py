"""`switchgear resume`: a run goes on with its task, options, circuit and what it has spent."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchgear.cli.entry import fail
from switchgear.cli.options import json_option, store_options, token_option
from switchgear.cli.paying import check_node
from switchgear.cli.run import Start, configured, perform
from switchgear.cli.run_flags import given_flags, limit_flags
from switchgear.cli.run_time import settled, taken_out
from switchgear.runner.amounts import seconds

if TYPE_CHECKING:
    from switchgear.runner.record import RunFolder

# ruff: noqa: PLC0415  what a verb needs is imported when it is used


@click.command(short_help="Go on with a run that was stopped.")
@click.argument("run_id", metavar="RUN")
@click.option("--more-time", metavar="D", help="Add D (30m, 2h) to the time of the run.")
@click.option("--answer", metavar="TEXT", help="The answer to the agent's question.")
@limit_flags
@json_option
@token_option
@store_options
def resume(
    run_id: str,
    *,
    more_time: str | None,
    answer: str | None,
    as_json: bool,
    force_close: bool,
    why: str | None,
    **flags: Any,
) -> None:
    """Go on with RUN: its id, the beginning or end of it, or `last`.

    Everything is as it was: the task, the options, the circuit, what was spent and how long it
    took. Options given here replace those of the run.
    """
    from switchgear.cli.opening import open_session
    from switchgear.runner.record import find_run, runs_root

    record = find_run(runs_root(Path.cwd()), run_id)
    extra_s = None if more_time is None else seconds("--more-time", more_time)
    given, wanted = taken_out(given_flags(flags))
    start = _start(record, given, extra_s)
    with open_session() as session:
        options, note = settled(start.options, wanted, session.config.timeouts)
        check_node(session.panel.budgets, options.budget_node)
        start = start._replace(options=options, note=note)
        policy = configured(session, start.options, start.folder)
        start = start._replace(answer=answer, force=force_close, why=why, policy=policy)
        code = perform(session, start, as_json=as_json)
    raise SystemExit(code)


def _start(record: "RunFolder", flags: dict[str, Any], extra_s: float | None) -> Start:
    from switchgear.runner.options import RunOptions
    from switchgear.runner.record import RunUnreadable, is_alive
    from switchgear.runner.result import program
    from switchgear.runner.state import RunState

    held = record.read()
    if is_alive(held):
        fail(f"run {record.id!r} is still running, as process {held['pid']}; stop that first")
    if (held.get("end") or {}).get("success"):
        fail(f"run {record.id!r} is completed: there is nothing to go on with")
    try:
        state = RunState.load(held["state"])
        options = RunOptions.load(held["options"]).changed(flags)
    except (AttributeError, TypeError, ValueError) as problem:
        raise RunUnreadable(record.id, f"cannot be read: {problem}") from problem
    if extra_s is not None:
        # What was granted on the way is in the state, and comes on top of the limit by itself.
        begun_s = state.seconds - state.extra_s
        limit_s = begun_s if options.timeout_s is None else options.timeout_s
        options = options._replace(timeout_s=max(limit_s, begun_s) + extra_s)
    folder = Path(held["folder"])
    if not folder.is_dir():
        fail(f"run {record.id!r} worked in {folder}, which is not there any more")
    how = f"{program()} resume {shlex.quote(record.id)}"
    return Start(options, folder, record, state, how=how)
