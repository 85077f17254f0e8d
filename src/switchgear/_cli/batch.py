"""`switchgear batch`: many tasks with dependencies, in order or side by side, under the circuits."""

import os
import shlex
from collections.abc import Callable
from contextlib import nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from switchgear._cli.context import STORE_VARIABLE, Session, file_of, open_session, say_json
from switchgear._cli.options import F, fail, json_option, report_defect, store_options, token_option
from switchgear._cli.run_options import check_node, notify_option
from switchgear._cli.views.batch import BatchTable, as_values, batch_view, summary_lines, table
from switchgear._cli.views.terminal import Screen, chooser
from switchgear._cli.views.text import clean, say, warn
from switchgear._config.loader import VARIABLE
from switchgear._core.errors import StoreError
from switchgear._fleet.targets import Target
from switchgear._remote.dispatch import RemoteAttempts, RemoteContext
from switchgear._remote.jobs import Jobs, held_elsewhere
from switchgear._report.run_page import write_report
from switchgear._run.batch.attempt import (
    SPAWN,
    Admission,
    AttemptDependencies,
    options_of,
    run_attempt,
)
from switchgear._run.batch.file import read_batch
from switchgear._run.batch.model import (
    OPEN_CHOICES,
    SATISFIED,
    TIMEOUT_CHOICES,
    Batch,
    BatchEnd,
    Progress,
    Status,
    Task,
    clash,
)
from switchgear._run.batch.record import (
    BatchFolder,
    BatchState,
    TaskFolders,
    batches_of,
    batches_root,
    find_batch,
    new_batch,
    resumed_progress,
    with_run_state,
)
from switchgear._run.batch.scheduler import BatchDependencies, Scheduler
from switchgear._run.cost import coverage
from switchgear._run.exit_reasons import EXIT_CODES, ExitReason
from switchgear._run.interrupt import Interrupt
from switchgear._run.loop import agent_of
from switchgear._run.options import RunOptions
from switchgear._run.prompt import check_plan
from switchgear._run.record import RunFolder, RunUnreadable, runs_root
from switchgear._run.result import failed_notices, notify_batch_end, targets_of
from switchgear._run.run_lock import RunConflict, RunLock, folder_lock
from switchgear._stores.base import ledger_of
from switchgear._system.login import login_name
from switchgear._text.redact import redact, redact_lines

if TYPE_CHECKING:
    from switchgear._remote.app import Broker

LAST = "last"
ALONE = {"timeout": TIMEOUT_CHOICES, "open": OPEN_CHOICES}


class Prepared(NamedTuple):
    batch: Batch
    kept: BatchState
    home: BatchFolder
    notes: tuple[str, ...]
    lock: RunLock
    """Held until the process ends: no other one continues with this batch in the meantime."""
    unsettled: frozenset[str] = frozenset()
    """Tasks that were running when the last process of this batch ended."""


def broker_option(what: str) -> Callable[[F], F]:
    return click.option(
        "--broker",
        metavar="URL",
        envvar="SWITCHGEAR_BROKER",
        help=f"{what} [default: SWITCHGEAR_BROKER, else the Redis store]",
    )


@click.command()
@click.argument("tasks", metavar="TASKS.YAML", required=False)
@click.option(
    "--parallel",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Run at most N tasks at a time. [default: `parallel` in the file, else 1]",
)
@click.option(
    "--resume",
    "resumed",
    metavar="[ID]",
    is_flag=False,
    flag_value=LAST,
    help="Resume batch ID; without ID: the last batch of this file.",
)
@click.option("--retry-failed", is_flag=True, help="With --resume: also retry failed tasks.")
@click.option(
    "--when-alone",
    multiple=True,
    metavar="WHAT=CHOICE",
    help="Decide without a terminal after a timeout (timeout=resume|accept|retry|skip) or for an open circuit (open=wait|force|skip|abort); overrides the file.",
)
@click.option(
    "--budget-node",
    metavar="NODE",
    help="Reserve the budget of each task from this node; overrides the file.",
)
@notify_option("batch")
@click.option(
    "--on",
    "engine",
    type=click.Choice(("local", "celery")),
    default="local",
    help="Run tasks on this host, or with Celery on hosts that run `switchgear worker`.",
)
@broker_option("With --on celery: URL of the broker.")
@click.option(
    "--repository",
    metavar="URL",
    help="With --on celery: a git repository that every host can fetch from and push to.",
)
@json_option
@token_option
@store_options
def batch(
    tasks: str | None,
    *,
    parallel: int | None,
    resumed: str | None,
    retry_failed: bool,
    when_alone: tuple[str, ...],
    budget_node: str | None,
    notify: tuple[str, ...],
    engine: str,
    broker: str | None,
    repository: str | None,
    as_json: bool,
) -> None:
    """Run the tasks of TASKS.YAML in dependency order, up to --parallel at a time.

    Checks the circuit `op/agent_spawn` before each task and records the result. A failed task
    blocks the tasks that depend on it. When a task times out, its changes are kept, and you or
    the policy decide: resume it with more time, accept it, retry it from scratch, or skip it.
    Exit codes: done 0, disk_full 17, conflict 19, partial 20, incomplete 21, aborted 22,
    interrupted 130; 2: the file is invalid and nothing was started.
    """
    if tasks is None and resumed is not None and Path(resumed).is_file():
        tasks, resumed = resumed, LAST  # what follows --resume was the file
    if tasks is None:
        fail("TASKS.YAML is missing: name the file with the tasks")
    if retry_failed and resumed is None:
        fail("--retry-failed belongs to --resume")
    targets = targets_of(notify)
    if problem := _repository_problem(repository or ""):
        fail(f"--repository: {problem}")
    with open_session() as session:
        place = workplace(session)
        wanted = _load_batch(place, tasks, parallel, when_alone)
        wanted = _paid_from(place, wanted, budget_node)
        if any(task.worktree for task in wanted.tasks):
            # Hooks of agents in worktrees use the same circuits: there they would look for others.
            if file := file_of(session.store):
                os.environ.setdefault(STORE_VARIABLE, f"sqlite:///{file}")
            if session.config.source is not None:
                os.environ.setdefault(VARIABLE, session.config.source)
        link = broker_of(session, broker) if engine == "celery" else None
        prepared = _prepare(wanted, tasks, resumed, place.runs, failed_too=retry_failed)
        with prepared.lock:
            if link is None:
                _refuse_elsewhere(session, place, prepared)
            remote = None if link is None else (link, repository or "")
            code = _schedule(session, place, prepared, targets, remote, as_json=as_json)
    raise SystemExit(code)


def broker_of(session: Session, broker: str | None) -> "Broker":
    """The broker. Ends the command where hosts could not share the store."""
    url = session.panel.store.url or ""
    if url.startswith("memory:"):
        fail("several hosts need a store that they share: set `store: redis://…`")
    if find_spec("celery") is None:
        fail("this needs Celery: python3 -m pip install 'switchgear[celery]'")
    from switchgear._remote.app import broker_of_store  # noqa: PLC0415  needs Celery

    found = broker_of_store(url)
    if broker and "://" not in broker:
        fail(
            f"the broker {broker!r} is not a URL: use one such as redis://HOST:6379/0 or amqp://HOST//"
        )
    if broker:
        is_valkey = broker.startswith(("valkey:", "valkeys:"))
        return found._replace(url=broker.replace("valkey", "redis", 1) if is_valkey else broker)
    if not found.url:
        fail("there is no broker: use --broker URL, SWITCHGEAR_BROKER or a Redis store")
    return found


def _repository_problem(url: str) -> str:
    """Why this URL cannot be given to other hosts; empty: it can."""
    if url.startswith("-"):
        return f"{url!r} is neither a URL nor the path of a repository"
    if redact_lines(url) != url:
        return (
            f"{redact(url)} contains a password or a token, which would be saved in the store; leave it out, "
            "and configure a credential helper or an SSH key on each host"
        )
    return ""


def workplace(session: Session) -> AttemptDependencies:
    config = session.config
    return AttemptDependencies(
        session.panel,
        runs_root(Path.cwd()),
        config.loop_presets,
        config.timeouts,
        config.interventions,
        config.policy_for,
        tuple(config.sinks),
        write_report,
        config.second_opinion,
        session.owner_of,
    )


def _load_batch(
    place: AttemptDependencies, tasks: str, parallel: int | None, when_alone: tuple[str, ...]
) -> Batch:
    """The batch of the file as the options have it; everything is checked before anything starts."""
    read = read_batch(tasks, presets=place.presets)
    alone = _parse_choices(when_alone)
    if "open" in alone:
        read = read._replace(on_open=alone["open"])
    if "timeout" in alone:
        choice = alone["timeout"]
        read = read._replace(tasks=tuple(task._replace(on_timeout=choice) for task in read.tasks))
    checked = set()
    for task in read.tasks:
        try:
            options = options_of(place, task)
            check_plan(Path(task.cwd or "."), options.plan)
        except ValueError as problem:
            fail(f"task {task.name!r}: {problem}")
        kind = (options._replace(task=""), task.cwd)
        if kind not in checked:  # once for all tasks that differ only in what the agent is to do
            _refuse_unknown_cost(place, task, options, limited=read.budget_micros is not None)
            checked.add(kind)
    return read if parallel is None else read._replace(parallel=parallel)


def _refuse_unknown_cost(
    place: AttemptDependencies, task: Task, options: RunOptions, *, limited: bool
) -> None:
    """End the command if a task has a budget, or the batch, and its cost cannot be known."""
    if options.allow_unknown_price or not (limited or options.budget_micros is not None):
        return
    priced = coverage(options, agent_of(options), Path(task.cwd or ".").absolute(), place.runs)
    if not priced.known:
        fail(
            f"task {task.name!r}: its budget cannot be enforced: {priced.why}; nothing was started\n"
            '- let its agent print {"type": "usage", "cost_usd": …}\n'
            "- allow_unknown_price: true enforces it on the cost that is reported\n"
            "- leave out the budget, and limit the task by max_iterations and timeout"
        )


def _paid_from(place: AttemptDependencies, wanted: Batch, node: str | None) -> Batch:
    """With the node of the option, if one is given; a node that is not open is reported before the start."""
    if node is not None:
        paid = (task._replace(flags={**task.flags, "budget_node": node}) for task in wanted.tasks)
        wanted = wanted._replace(tasks=tuple(paid))
    for each in dict.fromkeys(task.flags.get("budget_node") for task in wanted.tasks):
        check_node(place.panel.budgets, each)
    return wanted


def _parse_choices(given: tuple[str, ...]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for each in given:
        what, _, choice = each.partition("=")
        if choice not in ALONE.get(what, ()):
            ways = "; ".join(f"{what}={'|'.join(choices)}" for what, choices in ALONE.items())
            fail(f"--when-alone is {each!r}: it must be one of {ways}")
        chosen[what] = choice
    return chosen


def _prepare(
    wanted: Batch, tasks: str, resumed: str | None, runs: Path, *, failed_too: bool
) -> Prepared:
    root, file = batches_root(Path.cwd()), str(Path(tasks).resolve())
    if resumed is not None:
        home = find_batch(root, resumed, file)
        home.read()  # an unknown batch is reported, and gets no lock file
        lock = _lock_batch(home)
        kept, _ = home.read()
        unsettled = frozenset(
            name for name, each in kept.progress.items() if each.status is Status.RUNNING
        )
        known = {name: with_run_state(each, runs) for name, each in kept.progress.items()}
        progress, notes = resumed_progress(known, wanted.tasks, failed_too=failed_too)
        if kept.file != file:
            notes.insert(0, f"it was started with {kept.file}")
        places = TaskFolders(home.path, Path(kept.folder), [task.name for task in wanted.tasks])
        for task in wanted.tasks:
            before, now = kept.progress.get(task.name), progress[task.name]
            if before is not None and before.status not in SATISFIED and now.status in SATISFIED:
                # No process of this batch noticed its end: its work is not in its branch yet.
                notes += [f"{task.name}: {why}"] if (why := places.commit(task, now)) else []
        _refuse_clash(wanted, home, kept.folder)
        kept = kept._replace(file=file, progress=progress, end=None)
        return Prepared(wanted, kept, home, tuple(notes), lock, unsettled)
    notes = [note for home in batches_of(root, file)[-1:] if (note := _about(home))]
    here = str(Path.cwd())
    _refuse_clash(wanted, None, here)
    home = new_batch(root)
    progress = {task.name: Progress(digest=task.digest) for task in wanted.tasks}
    kept = BatchState(home.id, file, here, progress)
    return Prepared(wanted, kept, home, tuple(notes), _lock_batch(home))


def _refuse_elsewhere(session: Session, place: AttemptDependencies, prepared: Prepared) -> None:
    """End the command if workers have tasks of this batch: they would be run twice."""
    for run in (each.run for each in prepared.kept.progress.values() if each.run is not None):
        with suppress(RunUnreadable):
            record = RunFolder(place.runs / run).read()
            if elsewhere := held_elsewhere(ledger_of(session.panel.store.inner), record):
                fail(elsewhere)


def _lock_batch(home: BatchFolder) -> RunLock:
    """The lock of a batch; one that another process runs ends the command."""
    try:
        return folder_lock(home.path, f"batch {home.id}")
    except RunConflict as conflict:
        pid = conflict.holder.pid
        stop = "stop that process" if pid is None else f"kill {pid}"
        say(f"{conflict}\n- wait until it ends\n- stop it, its work is saved: {stop}", err=True)
        raise SystemExit(EXIT_CODES[ExitReason.CONFLICT].code) from None


def _about(home: BatchFolder) -> str:
    """What is to be known of an earlier batch of the same file; empty: it is over."""
    kept, alive = home.read()
    if alive:
        return f"batch {home.id} of this file is also running"
    if kept.end in {"done", "partial"}:
        return ""
    return f"batch {home.id} of this file is not finished; --resume continues it"


def _refuse_clash(wanted: Batch, home: BatchFolder | None, base: str) -> None:
    """Two agents in one working tree would count each other's changes as their own."""
    if wanted.parallel == 1:
        return
    places = TaskFolders(Path(base) if home is None else home.path, Path(base))
    trees = {task.name: tree for task in wanted.tasks if (tree := places.tree_of(task))}
    pair = clash(wanted.tasks, trees)
    if pair is not None:
        one, other = pair
        fail(
            f"tasks {one!r} and {other!r} could run at the same time in {trees[one]}; make one need "
            "the other, give each a 'cwd' outside the other's repository, set 'worktree: true', "
            "or leave out --parallel"
        )


def _schedule(
    session: Session,
    place: AttemptDependencies,
    prepared: Prepared,
    targets: tuple[Target, ...],
    remote: "tuple[Broker, str] | None",
    *,
    as_json: bool,
) -> int:
    wanted, kept = prepared.batch, prepared.kept
    with (
        Interrupt().installed() as interrupt,
        batch_view(as_json=as_json, stopping=lambda: interrupt.asked) as view,
    ):
        paused = view.paused if isinstance(view, BatchTable) else nullcontext
        ask_s, stopped = session.config.interventions.ask_s, lambda: interrupt.asked
        choose = None if as_json else chooser(paused, ask_s, "the policy decides", stopped)
        for note in prepared.notes:
            view.message(f"note: {note}")
        admission = Admission(
            session.panel,
            view,
            policy=wanted.on_open,
            circuit_policy=session.config.policy_for(SPAWN),
            choose=choose,
            by=login_name(),
            forces=kept.forces,
        )
        act = None if remote is None else _remote_attempts(session, prepared, *remote, view.message)
        names = [task.name for task in wanted.tasks]
        conductor = Scheduler(
            wanted,
            kept,
            prepared.home,
            shared=place,
            folders=TaskFolders(prepared.home.path, Path(kept.folder), names),
            dependencies=BatchDependencies(interrupt, view, choose),
            admission=admission,
            perform=run_attempt if act is None else act,
        )
        try:
            end = conductor.run()
        except Exception as error:
            if not conductor.has_begun:
                raise
            return report_defect(
                error, f"batch {shlex.quote(kept.file)} --resume {prepared.home.id}"
            )
        if act is not None:
            with suppress(StoreError):
                act.forget(each.run for each in kept.progress.values() if each.run is not None)
    targets = (*session.config.notifications, *targets)
    _notify(place, prepared, end, admission.aborted, targets, as_json=as_json)
    return end.code


def _remote_attempts(
    session: Session,
    prepared: Prepared,
    broker: "Broker",
    repository: str,
    report: Callable[[str], None],
) -> RemoteAttempts:
    from switchgear._remote.app import Publisher  # noqa: PLC0415  needs Celery

    publisher = Publisher(broker)
    return RemoteAttempts(
        RemoteContext(
            Jobs(ledger_of(session.panel.store.inner)),
            publisher,
            prepared.home.id,
            {task.name: task.labels for task in prepared.batch.tasks},
            prepared.unsettled,
            repository,
            report,
            publisher.label,
        )
    )


def _notify(
    place: AttemptDependencies,
    prepared: Prepared,
    end: BatchEnd,
    aborted: str | None,
    targets: tuple[Target, ...],
    *,
    as_json: bool,
) -> None:
    kept = prepared.kept
    resume = f"switchgear batch {shlex.quote(kept.file)} --resume {prepared.home.id}"
    notes = [*prepared.notes, *([] if aborted is None else [f"aborted: {aborted}"])]
    values = as_values(prepared.home.id, end, kept.progress, notes, resume)
    words = summary_lines(prepared.home.id, end, kept.progress, resume)
    agents = {options_of(place, task).agent_label: None for task in prepared.batch.tasks}
    owners = dict.fromkeys(place.owner_of(agent) for agent in agents)
    outcomes = notify_batch_end(targets, values, " | ".join(line.strip() for line in words), owners)
    for failure in failed_notices(outcomes):
        warn(failure)
    if as_json:
        say_json({**values, "notifications": [each._asdict() for each in outcomes]})
        return
    said = [f"  note: {clean(note, 600)}" for note in notes]
    for line in (*table(kept.progress, Screen().width), *words, *said):
        say(line)
