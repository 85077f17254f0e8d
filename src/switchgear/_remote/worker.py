"""The worker's side: claims a job, rebuilds its folder, runs the attempt, and saves every iteration.

While an attempt runs, a thread renews the claim. If the claim is lost, or cannot be renewed in time, the
agent is stopped and nothing more is saved: another worker may have claimed the job.
"""

import math
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple, Self, TypeVar

from switchgear._agents.process import missing_program
from switchgear._core.errors import StoreError
from switchgear._measure.git_command import GitError, run_git
from switchgear._measure.tree import mark, open_tree
from switchgear._remote.job import LeaseLost, Parcel, RemoteJob, Stop
from switchgear._remote.jobs import NO_PARCEL, Jobs, ParcelTooLarge
from switchgear._remote.parcel import (
    TransferError,
    UnpackedStarts,
    apply,
    bring,
    bundled,
    push,
    saved,
)
from switchgear._remote.transfer import (
    iteration_values,
    outcome_values,
    read_run,
    task_of,
    write_iterations,
)
from switchgear._run.batch.attempt import (
    Attempt,
    AttemptDependencies,
    AttemptOutcome,
    options_of,
    run_attempt,
)
from switchgear._run.batch.model import Progress, Status
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.inbox import announce
from switchgear._run.interrupt import Interrupt, Time
from switchgear._run.loop import agent_of
from switchgear._run.record import RunFolder, is_disk_full
from switchgear._run.run_lock import folder_lock, is_held
from switchgear._run.state import RunState
from switchgear._run.view import RunView
from switchgear._text.redact import redact

T = TypeVar("T")
SEND_ERRORS = (TransferError, ParcelTooLarge, GitError, OSError)
"""Raised if the work cannot be sent."""
POLL_S = 1.0
"""Seconds between checks for requests of the batch: to stop, or to read messages of operators."""
LEASE_S = 60.0
"""Seconds for which a claim is valid: the maximum delay of a job by a lost worker."""
FILES, LOCK = "files", "lock"
"""In the folder of an attempt: the agent's repository, and the lock of the process."""
REST_S = 30.0
"""Seconds for which a worker accepts no tasks after it gave one back because of a problem with its host."""


class Rest:
    """A pause in which a worker accepts no tasks; shared by its threads."""

    def __init__(self, rest_s: float = REST_S) -> None:
        self._rest_s, self._until_s = rest_s, -math.inf

    def begin(self) -> None:
        self._until_s = time.monotonic() + self._rest_s

    def left_s(self) -> float:
        """The remaining seconds; 0: the worker accepts tasks."""
        return max(0.0, self._until_s - time.monotonic())


class HostUnfit(Exception):
    """Raised if this host cannot execute a job that another host may be able to execute."""


class WorkerContext(NamedTuple):
    """The environment of a worker process."""

    jobs: Jobs
    shared: AttemptDependencies
    """Its `runs` are unused: each attempt has its own folder."""
    root: Path
    """The parent folder of this host's attempts."""
    starts: UnpackedStarts
    rest: Rest
    lease_s: float = LEASE_S


def host_name() -> str:
    """The name of this process in messages: host and pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


def execute(context: WorkerContext, run: str) -> str:
    """Execute the job of a run, if there is something to do. Returns the result as a text.

    After a failure that this host caused, its slots stay occupied for a while: otherwise a worker that can
    execute nothing would always be free, and receive every task.
    """
    if context.rest.left_s():
        with suppress(StoreError):
            context.jobs.pass_on(run)
        result = "left to other workers"
    else:
        result = _claim_and_execute(context, run)
    time.sleep(context.rest.left_s())
    return result


def _claim_and_execute(context: WorkerContext, run: str) -> str:
    # Wait for the store: a host that cannot reach it would otherwise receive and drop every id.
    lease_s = context.lease_s
    job = _retry(lambda: context.jobs.claim(run, host_name(), lease_s), REST_S)
    if job is None:
        return "nothing to do"
    try:
        with _attempt_folder(context.root, f"{run}-{job.claim}-") as folder:
            return _execute_claimed(context, job, folder)
    except (HostUnfit, OSError) as cause:
        context.rest.begin()
        with suppress(LeaseLost, StoreError):  # then the claim expires
            context.jobs.give_back(run, job.claim, " ".join(redact(str(cause)).split()))
        return f"given back: {cause}"


def _execute_claimed(context: WorkerContext, job: RemoteJob, folder: Path) -> str:
    record = RunFolder(folder / "runs" / job.spec.run)
    with _Renewal(context, job, record) as renewal:
        saving = _Saving(context, job, record, folder / FILES, renewal)
        try:
            return _run_job(context, job, saving, renewal)
        except LeaseLost as lost:
            return f"discarded: {lost}"
        finally:
            if saving.keeps_folder:
                (folder / LOCK).unlink(missing_ok=True)


@contextmanager
def _attempt_folder(root: Path, prefix: str) -> Iterator[Path]:
    """Yields a folder for an attempt, removed at the end or by `remove_leftovers`, unless its lock was removed."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix=prefix, dir=root))
    with folder_lock(folder, f"attempt {folder.name}"):
        try:
            yield folder
        finally:
            if (folder / LOCK).exists():
                _remove(folder)


def remove_leftovers(root: Path) -> None:
    """Remove the folders of attempts whose process was killed."""
    for lock in root.glob(f"*/{LOCK}"):
        if is_held(lock) is False:
            _remove(lock.parent)


def _remove(folder: Path) -> None:
    """Remove the folder of an attempt; the lock last, so that files written meanwhile are removed later."""
    shutil.rmtree(folder / FILES, ignore_errors=True)
    if not (folder / FILES).exists():
        shutil.rmtree(folder, ignore_errors=True)


class _Renewal:
    """Renews the claim of one job in a thread, and passes on the requests of the batch."""

    def __init__(self, context: WorkerContext, job: RemoteJob, record: RunFolder) -> None:
        self.interrupt = Interrupt()
        self.lost = False
        self.has_record = False
        """Whether the record of the run is rebuilt: then messages of operators can be announced to the run."""
        self._context, self._job, self._record = context, job, record
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._renew, name=f"renew-{job.spec.run}", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def lose(self) -> None:
        """Stop the agent at once: another worker may have the job."""
        self.lost = True
        while self.interrupt.asked < 2:
            self.interrupt.ask("a lost claim")

    def _renew(self) -> None:
        lease_s, run, claim = self._context.lease_s, self._job.spec.run, self._job.claim
        renewed_s, announced = time.monotonic(), 0
        while not self._over.wait(min(POLL_S, lease_s / 4)):
            asked_s = time.monotonic()
            try:
                if asked_s - renewed_s < lease_s / 4:
                    job = self._context.jobs.held(run, claim)
                else:
                    job = self._context.jobs.renew(run, claim, lease_s)
                    renewed_s = asked_s
            except LeaseLost:
                self.lose()
                return
            except StoreError:
                if time.monotonic() >= renewed_s + lease_s:
                    self.lose()
                    return
                continue
            stop = job.stop
            if self.has_record and job.announced != announced:
                with suppress(OSError):  # the run has not made its folder yet
                    announce(self._record.path)
                    announced = job.announced
            if stop is Stop.GENTLY and not self.interrupt.asked:
                self.interrupt.ask("the batch")
            while stop is Stop.NOW and self.interrupt.asked < 2:
                self.interrupt.ask("the batch")


class _Saving(RunView):
    """Saves each iteration, with the work so far, in the store. Called in the run's thread."""

    def __init__(
        self,
        context: WorkerContext,
        job: RemoteJob,
        record: RunFolder,
        folder: Path,
        renewal: _Renewal,
    ) -> None:
        self._context, self._job, self._renewal = context, job, renewal
        self.record, self.folder = record, folder
        self.keeps_folder = False
        """Whether the folder must not be removed, because its work could not be sent."""
        self._pending: list[dict[str, Any]] = []
        self._parcel, self._number = job.work, 0
        self._not_pushed = ""
        self._run: Mapping[str, Any] | None = None
        """The last run.json of this attempt; `None`: it has not started."""

    def started(self, run: dict[str, Any]) -> None:
        self._run = run
        self._save(run)

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        self._run = run
        self._pending.append(iteration_values(self.record, facts))
        if facts["outcome"] != ExitReason.COMPLETED:
            self._save(run)  # the last iteration is saved together with the end

    def finish(self, outcome: AttemptOutcome) -> None:
        """Save the end, with the work if it can be sent. Raises `LeaseLost`, `StoreError`."""
        run = read_run(self.record) or dict(self._job.run or {})
        parcel, problem, self.keeps_folder = NO_PARCEL, "", False
        try:
            self._check_lease()
            parcel = self._send_work(ended=True)
            problem = self._not_pushed
        except SEND_ERRORS as error:
            # The end still counts: another worker would repeat the work and its cost.
            self.keeps_folder = True
            why = " ".join(str(error).split())
            problem = f"the work could not be sent and is on {host_name()} in {self.folder}: {why}"
        if problem:
            outcome, run = _with_problem(outcome, run, problem, is_lost=self.keeps_folder)
        self._write(run, outcome_values(outcome), parcel)

    def save_for_successor(self, state: RunState) -> None:
        """Save the cost, and the work if it can be sent: another worker continues from there."""
        if self._run is None:
            return
        parcel = NO_PARCEL
        with suppress(*SEND_ERRORS):
            parcel = self._send_work(ended=False)
        self._write({**self._run, "state": state.dump()}, None, parcel)

    def _save(self, run: Mapping[str, Any]) -> None:
        try:
            self._check_lease()
            self._write(run, None, self._send_work(ended=False) if self._pending else NO_PARCEL)
        except LeaseLost:
            self._renewal.lose()
        except (StoreError, *SEND_ERRORS):
            pass  # saved with the next iteration; if there is none, at the end

    def _check_lease(self) -> None:
        if self._renewal.lost:
            raise LeaseLost("the claim was not renewed in time")

    def _write(
        self, run: Mapping[str, Any], outcome: Mapping[str, Any] | None, parcel: Parcel
    ) -> None:
        self._check_lease()
        job, before = self._job, self._parcel
        run = {key: value for key, value in run.items() if key not in {"pid", "pid_began"}}
        self._context.jobs.save(
            job.spec.run,
            job.claim,
            record=run,
            iterations=self._pending,
            work=parcel,
            outcome=outcome,
        )
        self._pending = []
        if parcel.commit and before.name and before not in {job.spec.start, job.spec.folder}:
            with suppress(StoreError):
                self._context.jobs.drop(before.name)
        self._parcel = parcel if parcel.commit else before

    def _send_work(self, *, ended: bool) -> Parcel:
        """Send the work so far, and return its parcel; at the end, the run itself has saved the work."""
        spec, folder = self._job.spec, self.folder
        self._number += 1
        if not ended or (found := _saved_by_run(folder, spec.run)) is None:
            name = f"transfer/{spec.run}-{self._number}"
            commit = saved(folder, self.record.notes, name)  # unaffected by the agent's settings
            found = f"refs/switchgear/{name}", commit, head_of(folder)
        reference, commit, head = found
        pushed = self._push(commit) if spec.repository else ""
        bundle = bundled(folder, reference, without=(spec.start.commit,))
        try:
            sent = self._context.jobs.send(f"{spec.run}-{self._job.claim}-{self._number}", bundle)
        except ParcelTooLarge:
            if not pushed:
                raise
            return Parcel("", commit, head, pushed)
        return Parcel(sent, commit, head, reference)

    def _push(self, commit: str) -> str:
        """Push the work. Returns its reference in the repository; empty: it could not be pushed.

        Each claim has its own: a worker that has lost its claim cannot replace the work of its successor.
        """
        run, claim = self._job.spec.run, self._job.claim
        reference = f"refs/switchgear/runs/{run}" + (f"-{claim}" if claim > 1 else "")
        try:
            push(self.folder, self._job.spec.repository, commit, reference)
        except TransferError as error:  # the work is also in the store
            self._not_pushed = " ".join(str(error).split())
            return ""
        self._not_pushed = ""
        return reference


def _with_problem(
    outcome: AttemptOutcome, run: dict[str, Any], problem: str, *, is_lost: bool
) -> tuple[AttemptOutcome, dict[str, Any]]:
    """The outcome and run.json with a transfer problem; a task whose work is lost is not done."""
    result = outcome.result
    if result is None:
        return outcome._replace(problem=f"{outcome.problem}; {problem}"), run
    if is_lost and result.success:
        result = result._replace(exit_reason=ExitReason.AGENT_ERROR, reason=problem)
    else:
        result = result._replace(notes=(*result.notes, problem))
    return outcome._replace(result=result), {**run, "end": result.dump()}


def _saved_by_run(folder: Path, run: str) -> tuple[str, str, str] | None:
    """The state that the run itself saved last: its reference, commit and HEAD."""
    try:
        lines = run_git(folder, ["show-ref", "--head"]).splitlines()
    except GitError:
        return None
    commits = {name: commit for commit, name in (line.split(" ", 1) for line in lines)}
    first = f"refs/switchgear/runs/{run}"
    names = [name for name in commits if name == first or name.startswith(f"{first}-")]
    newest = max(names, key=lambda name: (len(name), name), default="")  # RUN, RUN-2, … RUN-10
    head = commits.get("HEAD")
    return (newest, commits[newest], head) if newest and head else None


def head_of(folder: Path) -> str:
    return run_git(folder, ["rev-parse", "HEAD"]).strip()


def _run_job(context: WorkerContext, job: RemoteJob, saving: _Saving, renewal: _Renewal) -> str:
    spec, folder = job.spec, saving.folder
    try:
        _rebuild(context, job, saving.record, folder)
        task = task_of(spec.task)
        agent = agent_of(options_of(context.shared, task))
    except StoreError as trouble:  # the claim expires, and another worker takes the job
        raise LeaseLost(str(trouble)) from trouble
    except (TransferError, OSError, ValueError) as problem:
        raise HostUnfit(str(problem)) from problem
    if missing := missing_program(agent, folder / spec.inside):
        raise HostUnfit(missing)
    renewal.has_record = True
    if job.announced:  # a message from before the claim: for the first prompt
        with suppress(OSError):
            saving.record.make()
            announce(saving.record.path)
    progress = Progress(
        Status.RUNNING, run=spec.run, folder=str(folder / spec.inside), timeout_s=spec.timeout_s
    )
    attempt = Attempt(
        *(task, progress, spec.grant_micros, saving, renewal.interrupt),
        circuit=spec.circuit,
        owner=spec.owner,
        keeps_messages=True,
        # Dates are on the clock of the store: the clock of this host may be wrong.
        time=Time(wall=context.jobs.now_s),
    )
    shared = context.shared._replace(runs=saving.record.path.parent)
    outcome = run_attempt(shared, _within_grant(attempt, job))
    if renewal.lost:
        raise LeaseLost("the claim was not renewed in time")
    if isinstance(outcome.error, StoreError):  # not the task's fault: another claim continues it
        raise LeaseLost(outcome.problem)
    result = outcome.result
    if result is not None and result.exit_reason is ExitReason.DISK_FULL:
        with suppress(StoreError, LeaseLost):  # then the cost is unknown, as after a lost worker
            _retry(lambda: saving.save_for_successor(result.state), context.lease_s)
        raise HostUnfit(outcome.reason)
    if not outcome.began and is_disk_full(outcome.error):
        raise HostUnfit(outcome.problem)
    _retry(lambda: saving.finish(outcome), context.lease_s)
    return "done" if outcome.result is None else str(outcome.result.exit_reason)


def _within_grant(attempt: Attempt, job: RemoteJob) -> Attempt:
    """The attempt with the rest of its grant: an earlier worker may have spent a part of it."""
    grant = job.spec.grant_micros
    if grant is None or job.run is None:
        return attempt
    spent = RunState.load(job.run["state"]).spent_micros - job.spec.spent_micros
    return attempt._replace(grant_micros=max(0, grant - max(0, spent)))


def _retry(work: Callable[[], T], patience_s: float) -> T:
    """Retry while the store is unavailable, for up to `patience_s` seconds."""
    until_s = time.monotonic() + patience_s
    while True:
        try:
            return work()
        except StoreError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(0.2)


def _rebuild(context: WorkerContext, job: RemoteJob, record: RunFolder, folder: Path) -> None:
    """Rebuild the folder and the record as the last worker saved them."""
    jobs, spec = context.jobs, job.spec
    context.starts.unpack(lambda: jobs.fetch(spec.start.name), folder, spec.start, spec.repository)
    if job.run is None:
        return
    record.make()
    first = mark(open_tree(folder / spec.inside, record.notes))
    if job.work.commit and job.work != spec.start:
        into = "refs/switchgear/transfer/work"
        bring(lambda: jobs.fetch(job.work.name), folder, job.work, spec.repository, into)
        if problem := apply(folder, spec.start, job.work, "now"):
            raise TransferError(f"the work of {job.holder} could not be continued: {problem}")
    write_iterations(record, jobs.iterations(spec.run))
    state = {**job.run["state"], "start_mark": first}
    record.write({**{key: v for key, v in job.run.items() if key != "schema"}, "state": state})
