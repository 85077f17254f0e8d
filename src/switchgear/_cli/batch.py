"""`switchgear batch`: runs many tasks in the order of their dependencies, several at a time."""

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
WHEN_ALONE = {"timeout": TIMEOUT_CHOICES, "open": OPEN_CHOICES}
"""The choices of `--when-alone`."""


class Prepared(NamedTuple):
    """A batch that is ready to run."""

    batch: Batch
    state: BatchState
    folder: BatchFolder
    notes: tuple[str, ...]
    lock: RunLock
    """Held until the process ends, so that no other process runs this batch."""
    unsettled: frozenset[str] = frozenset()
    """Tasks that were running when the last process of this batch ended."""


def broker_option(text: str) -> Callable[[F], F]:
    return click.option(
        "--broker",
        metavar="URL",
        envvar="SWITCHGEAR_BROKER",
        help=f"{text} [default: SWITCHGEAR_BROKER, else the Redis store]",
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
        tasks, resumed = resumed, LAST  # --resume took the file as its value
    if tasks is None:
        fail("TASKS.YAML is missing: name the file with the tasks")
    if retry_failed and resumed is None:
        fail("--retry-failed belongs to --resume")
    targets = targets_of(notify)
    if problem := _repository_problem(repository or ""):
        fail(f"--repository: {problem}")
    with open_session() as session:
        context = attempt_dependencies(session)
        loaded = _load_batch(context, tasks, parallel, when_alone)
        loaded = _with_budget_node(context, loaded, budget_node)
        if any(task.worktree for task in loaded.tasks):
            # So that hooks of agents in worktrees use the same store and configuration.
            if file := file_of(session.store):
                os.environ.setdefault(STORE_VARIABLE, f"sqlite:///{file}")
            if session.config.source is not None:
                os.environ.setdefault(VARIABLE, session.config.source)
        link = broker_of(session, broker) if engine == "celery" else None
        prepared = _prepare(loaded, tasks, resumed, context.runs, retry_failed=retry_failed)
        with prepared.lock:
            if link is None:
                _refuse_elsewhere(session, context, prepared)
            remote = None if link is None else (link, repository or "")
            code = _schedule(session, context, prepared, targets, remote, as_json=as_json)
    raise SystemExit(code)


def broker_of(session: Session, broker: str | None) -> "Broker":
    """The broker. Ends the command if hosts cannot share the store, or Celery is missing."""
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
    """Why this URL cannot be sent to other hosts; empty: it can."""
    if url.startswith("-"):
        return f"{url!r} is neither a URL nor the path of a repository"
    if redact_lines(url) != url:
        return (
            f"{redact(url)} contains a password or a token, which would be saved in the store; leave it out, "
            "and configure a credential helper or an SSH key on each host"
        )
    return ""


def attempt_dependencies(session: Session) -> AttemptDependencies:
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
    context: AttemptDependencies, tasks: str, parallel: int | None, when_alone: tuple[str, ...]
) -> Batch:
    """The batch of the file, changed by the options. Checks every task before anything starts."""
    loaded = read_batch(tasks, presets=context.presets)
    choices = _parse_choices(when_alone)
    if "open" in choices:
        loaded = loaded._replace(on_open=choices["open"])
    if "timeout" in choices:
        choice = choices["timeout"]
        changed = (task._replace(on_timeout=choice) for task in loaded.tasks)
        loaded = loaded._replace(tasks=tuple(changed))
    checked = set()
    for task in loaded.tasks:
        try:
            options = options_of(context, task)
            check_plan(Path(task.cwd or "."), options.plan)
        except ValueError as problem:
            fail(f"task {task.name!r}: {problem}")
        kind = (options._replace(task=""), task.cwd)
        if kind not in checked:  # once for all tasks that differ only in their description
            _refuse_unknown_cost(context, task, options, limited=loaded.budget_micros is not None)
            checked.add(kind)
    return loaded if parallel is None else loaded._replace(parallel=parallel)


def _refuse_unknown_cost(
    context: AttemptDependencies, task: Task, options: RunOptions, *, limited: bool
) -> None:
    """End the command if the task or the batch has a budget and the cost cannot be known."""
    if options.allow_unknown_price or not (limited or options.budget_micros is not None):
        return
    priced = coverage(options, agent_of(options), Path(task.cwd or ".").absolute(), context.runs)
    if not priced.known:
        fail(
            f"task {task.name!r}: its budget cannot be enforced: {priced.why}; nothing was started\n"
            '- let its agent print {"type": "usage", "cost_usd": …}\n'
            "- allow_unknown_price: true enforces it on the cost that is reported\n"
            "- leave out the budget, and limit the task by max_iterations and timeout"
        )


def _with_budget_node(context: AttemptDependencies, loaded: Batch, node: str | None) -> Batch:
    """The batch with the budget node of the option, if given. Ends the command if a node is not open."""
    if node is not None:
        tasks = (task._replace(flags={**task.flags, "budget_node": node}) for task in loaded.tasks)
        loaded = loaded._replace(tasks=tuple(tasks))
    for each in dict.fromkeys(task.flags.get("budget_node") for task in loaded.tasks):
        check_node(context.panel.budgets, each)
    return loaded


def _parse_choices(texts: tuple[str, ...]) -> dict[str, str]:
    choices: dict[str, str] = {}
    for text in texts:
        what, _, choice = text.partition("=")
        if choice not in WHEN_ALONE.get(what, ()):
            ways = "; ".join(f"{what}={'|'.join(allowed)}" for what, allowed in WHEN_ALONE.items())
            fail(f"--when-alone is {text!r}: it must be one of {ways}")
        choices[what] = choice
    return choices


def _prepare(
    loaded: Batch, tasks: str, resumed: str | None, runs: Path, *, retry_failed: bool
) -> Prepared:
    """Prepare a new batch, or the batch to resume; `resumed` is its id or `last`."""
    root, file = batches_root(Path.cwd()), str(Path(tasks).resolve())
    if resumed is not None:
        folder = find_batch(root, resumed, file)
        folder.read()  # an unknown batch is reported, and gets no lock file
        lock = _lock_batch(folder)
        state, _ = folder.read()
        unsettled = frozenset(
            name for name, each in state.progress.items() if each.status is Status.RUNNING
        )
        known = {name: with_run_state(each, runs) for name, each in state.progress.items()}
        progress, notes = resumed_progress(known, loaded.tasks, failed_too=retry_failed)
        if state.file != file:
            notes.insert(0, f"it was started with {state.file}")
        folders = TaskFolders(folder.path, Path(state.folder), [task.name for task in loaded.tasks])
        for task in loaded.tasks:
            before, now = state.progress.get(task.name), progress[task.name]
            if before is not None and before.status not in SATISFIED and now.status in SATISFIED:
                # It ended after the last process of this batch: its work is not in its branch yet.
                notes += [f"{task.name}: {why}"] if (why := folders.commit(task, now)) else []
        _refuse_clash(loaded, folder, state.folder)
        state = state._replace(file=file, progress=progress, end=None)
        return Prepared(loaded, state, folder, tuple(notes), lock, unsettled)
    notes = [note for folder in batches_of(root, file)[-1:] if (note := _unfinished_note(folder))]
    here = str(Path.cwd())
    _refuse_clash(loaded, None, here)
    folder = new_batch(root)
    progress = {task.name: Progress(digest=task.digest) for task in loaded.tasks}
    state = BatchState(folder.id, file, here, progress)
    return Prepared(loaded, state, folder, tuple(notes), _lock_batch(folder))


def _refuse_elsewhere(session: Session, context: AttemptDependencies, prepared: Prepared) -> None:
    """End the command if workers on other hosts have tasks of this batch, which would run twice."""
    for run in (each.run for each in prepared.state.progress.values() if each.run is not None):
        with suppress(RunUnreadable):
            record = RunFolder(context.runs / run).read()
            if elsewhere := held_elsewhere(ledger_of(session.panel.store.inner), record):
                fail(elsewhere)


def _lock_batch(folder: BatchFolder) -> RunLock:
    """The lock of a batch. Ends the command if another process has it."""
    try:
        return folder_lock(folder.path, f"batch {folder.id}")
    except RunConflict as conflict:
        pid = conflict.holder.pid
        stop = "stop that process" if pid is None else f"kill {pid}"
        say(f"{conflict}\n- wait until it ends\n- stop it, its work is saved: {stop}", err=True)
        raise SystemExit(EXIT_CODES[ExitReason.CONFLICT].code) from None


def _unfinished_note(folder: BatchFolder) -> str:
    """A note about an earlier batch of the same file; empty: it is finished."""
    state, is_running = folder.read()
    if is_running:
        return f"batch {folder.id} of this file is also running"
    if state.end in {"done", "partial"}:
        return ""
    return f"batch {folder.id} of this file is not finished; --resume continues it"


def _refuse_clash(loaded: Batch, folder: BatchFolder | None, base: str) -> None:
    """End the command if two agents in one working tree would count each other's changes."""
    if loaded.parallel == 1:
        return
    folders = TaskFolders(Path(base) if folder is None else folder.path, Path(base))
    trees = {task.name: tree for task in loaded.tasks if (tree := folders.tree_of(task))}
    pair = clash(loaded.tasks, trees)
    if pair is not None:
        one, other = pair
        fail(
            f"tasks {one!r} and {other!r} could run at the same time in {trees[one]}; make one need "
            "the other, give each a 'cwd' outside the other's repository, set 'worktree: true', "
            "or leave out --parallel"
        )


def _schedule(
    session: Session,
    context: AttemptDependencies,
    prepared: Prepared,
    targets: tuple[Target, ...],
    remote: "tuple[Broker, str] | None",
    *,
    as_json: bool,
) -> int:
    """Run the batch. Returns its exit code."""
    state = prepared.state
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
            policy=prepared.batch.on_open,
            circuit_policy=session.config.policy_for(SPAWN),
            choose=choose,
            by=login_name(),
            forces=state.forces,
        )
        attempts = (
            None if remote is None else _remote_attempts(session, prepared, *remote, view.message)
        )
        names = [task.name for task in prepared.batch.tasks]
        scheduler = Scheduler(
            prepared.batch,
            state,
            prepared.folder,
            shared=context,
            folders=TaskFolders(prepared.folder.path, Path(state.folder), names),
            dependencies=BatchDependencies(interrupt, view, choose),
            admission=admission,
            perform=run_attempt if attempts is None else attempts,
        )
        try:
            end = scheduler.run()
        except Exception as error:
            if not scheduler.has_begun:
                raise
            return report_defect(error, _resume_arguments(prepared))
        if attempts is not None:
            with suppress(StoreError):
                attempts.forget(
                    each.run for each in state.progress.values() if each.run is not None
                )
    targets = (*session.config.notifications, *targets)
    _report_end(context, prepared, end, admission.aborted, targets, as_json=as_json)
    return end.code


def _resume_arguments(prepared: Prepared) -> str:
    return f"batch {shlex.quote(prepared.state.file)} --resume {prepared.folder.id}"


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
            prepared.folder.id,
            {task.name: task.labels for task in prepared.batch.tasks},
            prepared.unsettled,
            repository,
            report,
            publisher.label,
        )
    )


def _report_end(
    context: AttemptDependencies,
    prepared: Prepared,
    end: BatchEnd,
    aborted: str | None,
    targets: tuple[Target, ...],
    *,
    as_json: bool,
) -> None:
    """Notify the targets that the batch ended, and print its summary."""
    progress, resume = prepared.state.progress, f"switchgear {_resume_arguments(prepared)}"
    notes = [*prepared.notes, *([] if aborted is None else [f"aborted: {aborted}"])]
    values = as_values(prepared.folder.id, end, progress, notes, resume)
    summary = summary_lines(prepared.folder.id, end, progress, resume)
    agents = {options_of(context, task).agent_label: None for task in prepared.batch.tasks}
    owners = dict.fromkeys(context.owner_of(agent) for agent in agents)
    text = " | ".join(line.strip() for line in summary)
    outcomes = notify_batch_end(targets, values, text, owners)
    for failure in failed_notices(outcomes):
        warn(failure)
    if as_json:
        say_json({**values, "notifications": [each._asdict() for each in outcomes]})
        return
    note_lines = [f"  note: {clean(note, 600)}" for note in notes]
    for line in (*table(progress, Screen().width), *summary, *note_lines):
        say(line)
