"""`switchgear resume`: continues a run with its task, options, circuit and cost."""

import re
import shlex
from pathlib import Path
from typing import Any

import click

from switchgear._cli.context import open_session
from switchgear._cli.options import fail, json_option, store_options, token_option
from switchgear._cli.run import Start, configured_policy, conflict_text, perform
from switchgear._cli.run_options import (
    check_node,
    given_flags,
    limit_flags,
    split_timeout,
    with_timeout,
)
from switchgear._cli.views.text import say
from switchgear._remote.jobs import held_elsewhere
from switchgear._run.exit_reasons import EXIT_CODES, ExitReason
from switchgear._run.options import RunOptions, seconds
from switchgear._run.record import RunFolder, RunUnreadable, find_run, runs_root
from switchgear._run.result import program, targets_of
from switchgear._run.run_lock import RunConflict, RunLock, folder_lock
from switchgear._run.state import RunState
from switchgear._stores.base import ledger_of


def _without_defaults(verb: click.Command) -> click.Command:
    """Remove the defaults from the help texts: a resumed run keeps the values that it has."""
    for parameter in verb.params:
        if isinstance(parameter, click.Option) and parameter.help:
            parameter.help = re.sub(r" \[default: [^]]*]$", "", parameter.help)
    return verb


@_without_defaults
@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--more-time", metavar="D", help="Add D (30m, 2h) to the time limit of the run.")
@click.option("--answer", metavar="TEXT", help="Answer the agent's question with TEXT.")
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
    notify: tuple[str, ...],
    force_close: bool,
    why: str | None,
    **flags: Any,
) -> None:
    """Resume RUN: its id, the beginning or end of the id, or `last`.

    The run keeps its task, options, circuit, cost and elapsed time. Options given here replace
    those of the run.
    """
    targets = targets_of(notify)
    record = find_run(runs_root(Path.cwd()), run_id)
    extra_s = None if more_time is None else seconds("--more-time", more_time)
    given, timeout = split_timeout(given_flags(flags))
    # Lock the run before reading it, or this process could repeat what another one did.
    with _lock_run(record) as lock, open_session() as session:
        if elsewhere := held_elsewhere(ledger_of(session.panel.store.inner), record.read()):
            fail(elsewhere)
        start = _start(record, given, extra_s)._replace(lock=lock)
        options, note = with_timeout(start.options, timeout, session.config.timeouts)
        check_node(session.panel.budgets, options.budget_node)
        start = start._replace(options=options, note=note)
        policy = configured_policy(session, start.options, start.folder)
        start = start._replace(
            answer=answer, force=force_close, why=why, policy=policy, targets=targets
        )
        code = perform(session, start, as_json=as_json)
    raise SystemExit(code)


def _lock_run(record: RunFolder) -> RunLock:
    """The lock of the run. Ends the command if another process has it."""
    record.read()  # an unknown run is reported, and gets no lock file
    try:
        return folder_lock(record.path, f"run {record.id}")
    except RunConflict as conflict:
        say(conflict_text(conflict), err=True)
        raise SystemExit(EXIT_CODES[ExitReason.CONFLICT].code) from None


def _start(record: RunFolder, flags: dict[str, Any], extra_s: float | None) -> Start:
    run = record.read()
    if (run.get("end") or {}).get("success"):
        fail(f"run {record.id!r} is completed: there is nothing to resume")
    try:
        state = RunState.load(run["state"])
        options = RunOptions.load(run["options"]).changed(flags)
    except (AttributeError, TypeError, ValueError) as problem:
        raise RunUnreadable(record.id, f"cannot be read: {problem}") from problem
    if extra_s is not None:
        # Extensions that were granted during the run are in the state and are added to the limit.
        begun_s = state.seconds - state.extra_s
        limit_s = begun_s if options.timeout_s is None else options.timeout_s
        options = options._replace(timeout_s=max(limit_s, begun_s) + extra_s)
    folder = Path(run["folder"])
    if not folder.is_dir():
        fail(f"run {record.id!r} worked in {folder}, which no longer exists")
    command = f"{program()} resume {shlex.quote(record.id)}"
    return Start(options, folder, record, state, command=command, circuit=str(run["circuit"]))
