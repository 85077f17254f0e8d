"""`switchgear worker`: executes the tasks of batches on other hosts, with Celery."""

import os
import socket
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import click

from switchgear._cli.batch import attempt_dependencies, broker_of, broker_option
from switchgear._cli.context import Session, open_session
from switchgear._cli.options import fail, store_options
from switchgear._cli.views.text import say
from switchgear._remote.jobs import Jobs
from switchgear._remote.parcel import UnpackedStarts
from switchgear._remote.worker import Rest, WorkerContext, execute, remove_leftovers
from switchgear._run.exit_reasons import EXIT_CODES, ExitReason
from switchgear._stores.base import ledger_of

if TYPE_CHECKING:
    from switchgear._remote.app import Broker

DRAIN_WAIT_S = 5.0
EX_FAILURE = 1
"""The exit code that Celery reports for a worker that failed."""


@click.command(context_settings={"ignore_unknown_options": True})
@broker_option("URL of the broker.")
@click.option(
    "--labels",
    metavar="A,B",
    default="",
    show_default=False,
    help="Also take tasks that need these labels; at most 4.",
)
@click.option(
    "--concurrency",
    "-c",
    type=click.IntRange(1, 256),
    default=1,
    help="Run at most this many tasks at a time.",
)
@click.option(
    "--name",
    metavar="NAME",
    help="Name of this worker, unique among all hosts. [default: the host's name]",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False),
    help="Folder for the files of tasks. [default: ~/.local/state/switchgear/worker/NAME]",
)
@click.option(
    "--lease",
    type=click.FloatRange(1.0, 3600.0),
    default=60.0,
    metavar="SECONDS",
    help="Seconds without a heartbeat after which another worker takes over this one's tasks.",
)
@click.option(
    "--drain",
    is_flag=True,
    help="Make the running worker NAME take no new tasks, finish its own, and exit.",
)
@click.argument("celery_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- CELERY OPTIONS]")
@store_options
def worker(
    *,
    broker: str | None,
    labels: str,
    concurrency: int,
    name: str | None,
    folder: str | None,
    lease: float,
    drain: bool,
    celery_options: tuple[str, ...],
) -> None:
    """Execute tasks of `switchgear batch --on celery` on this host, until SIGTERM.

    The store, the circuits and the budgets are shared with the host of the batch; agents, their
    keys and the configuration are those of this host. After SIGTERM the worker finishes its running
    tasks; a second SIGTERM stops them, and another worker continues them. Options after -- are
    passed to Celery: `switchgear worker -c 4 -- --loglevel info`.
    """
    label = name or socket.gethostname()
    chosen = tuple(each.strip() for each in labels.split(",") if each.strip())
    with open_session() as session:
        link = broker_of(session, broker)
        if drain:
            _drain(link, label)
            return
        context = _context(session, folder, label, lease)
        options = ("--concurrency", str(concurrency), *celery_options)
        raise SystemExit(_serve(context, link, chosen, label, options))


def _context(session: Session, folder: str | None, name: str, lease_s: float) -> WorkerContext:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    # Absolute, because git runs in the folders of tasks.
    root = (Path(folder) if folder else Path(state) / "switchgear" / "worker" / name).absolute()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        TemporaryFile(dir=root).close()
    except OSError as error:  # otherwise every task of this worker would fail
        fail(f"the folder of this worker, {root}, cannot be written: {error.strerror}; use --dir")
    remove_leftovers(root / "work")
    # The host of the batch writes the reports, because they contain its paths.
    attempts = attempt_dependencies(session)._replace(report=None)
    jobs, starts = Jobs(ledger_of(session.panel.store.inner)), UnpackedStarts(root / "starts")
    return WorkerContext(jobs, attempts, root / "work", starts, Rest(), lease_s)


def _serve(
    context: WorkerContext,
    broker: "Broker",
    labels: tuple[str, ...],
    name: str,
    options: tuple[str, ...],
) -> int:
    from celery import signals  # noqa: PLC0415  not installed everywhere

    from switchgear._remote.app import application, queues_of  # noqa: PLC0415  needs Celery

    try:
        queues = queues_of(labels, broker.queue)
    except ValueError as problem:
        fail(f"--labels: {problem}")

    def execute_run(run: str) -> str:  # not a partial: Celery needs the name of the function
        return execute(context, run)

    requests, started = list[str](), list[Any]()

    def exit_at_second_request(how: str, **_: object) -> None:
        """End at once at the second request; Celery would wait for the tasks again."""
        requests.append(how)
        if how == "Cold" or len(requests) > 1:
            os._exit(EXIT_CODES[ExitReason.INTERRUPTED].code)  # agents end with this process

    signals.worker_shutting_down.connect(exit_at_second_request, weak=False)
    signals.celeryd_init.connect(lambda instance, **_: started.append(instance), weak=False)
    app = application(broker, execute_run)
    say(f"worker {name}: queues {', '.join(queues)}", err=True)
    app.worker_main(
        [
            "worker",
            *("--hostname", f"{name}@{socket.gethostname()}", "--queues", ",".join(queues)),
            *("--without-gossip", "--without-mingle", "--loglevel", "WARNING"),
            *options,
        ]
    )
    failed = any(each.exitcode == EX_FAILURE for each in started)
    return EX_FAILURE if failed else 0


def _drain(broker: "Broker", name: str) -> None:
    from switchgear._remote.app import Publisher  # noqa: PLC0415  needs Celery

    publisher = Publisher(broker)
    control = publisher.control()
    try:
        answers = control.ping(timeout=DRAIN_WAIT_S)
    except Exception as error:  # noqa: BLE001  whatever the broker's client raises
        fail(f"the broker {publisher.label} cannot be reached ({error}); nothing was changed")
    found = sorted(node for each in answers for node in each if name in {node, node.split("@")[0]})
    if not found:
        fail(f"no worker {name!r} answered within {DRAIN_WAIT_S:g} s; nothing was changed")
    if len(found) > 1:
        fail(f"several workers are called {name!r}: {', '.join(found)}; name one of these")
    control.shutdown(destination=found)
    say(f"worker {found[0]}: finishes its tasks, takes no new ones, and exits")
