"""The batch's side: orders attempts from workers, mirrors their records, and applies their work.

`RemoteAttempts` replaces `run_attempt`, and performs attempts on other hosts. The scheduler, its budget, its
circuit and its records are the same in both modes.
"""

import os
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from switchgear._core.errors import StoreError
from switchgear._measure.git_command import GitError, run_git
from switchgear._remote import job as core
from switchgear._remote.job import JobSpec, JobState, Parcel, RemoteJob, Stop
from switchgear._remote.jobs import Jobs, ParcelTooLarge
from switchgear._remote.parcel import (
    REFERENCE,
    FolderBusyError,
    Snapshot,
    TransferError,
    apply,
    bring,
    bundled,
    drop,
    snapshot,
)
from switchgear._remote.transfer import (
    MISSING,
    iteration_values,
    outcome_of,
    read_run,
    task_values,
    without_work,
    write_end,
    write_iterations,
)
from switchgear._run.batch.attempt import Attempt, AttemptDependencies, AttemptOutcome, options_of
from switchgear._run.circuits import loop_name, task_name
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.formats import iso
from switchgear._run.inbox import announcement, clear_announcement
from switchgear._run.interrupt import Interrupt, Time
from switchgear._run.loop import take_locks
from switchgear._run.record import RunFolder, circuit_of, last_claim, process_began
from switchgear._run.run_lock import RunConflict
from switchgear._run.state import RunState
from switchgear._run.view import RunView, guarded

T = TypeVar("T")
MIN_POLL_S, MAX_POLL_S, POLL_SHARE = 0.02, 1.0, 0.1
"""Limits of the poll interval in seconds, and its share of the time since the job last changed."""
RESEND_AFTER_DROP_S = 1.0
"""Seconds until an id is sent again that a worker left to others, times the number of such workers."""
MIN_RESEND_S, MAX_RESEND_S = 10.0, 300.0
"""Seconds until an unclaimed id is sent again: the wait doubles from the first to the second."""

Publish = Callable[[str, tuple[str, ...]], None]
"""Sends the id of a run to the workers that have these labels. May raise."""


class RemoteContext(NamedTuple):
    """What all remote attempts of a batch share."""

    jobs: Jobs
    publish: Publish
    batch: str
    labels: dict[str, tuple[str, ...]]
    """The labels that each task needs, by its name."""
    adopt: AbstractSet[str] = frozenset()
    """Tasks that were running when an earlier process of this batch ended: their outcomes count."""
    repository: str = ""
    show: Callable[[str], None] = lambda _: None
    """Shows a message to the user."""
    broker: str = ""
    """The URL of the broker without its password."""


class _Reported:
    """What was reported once for the whole batch, rather than by every task."""

    def __init__(self) -> None:
        self.labels: set[tuple[str, ...]] = set()
        """Labels whose workers are missing or busy."""
        self.broker_is_lost = False


class RemoteAttempts:
    """Performs attempts on other hosts. Safe to call from the threads of a scheduler."""

    def __init__(self, context: RemoteContext, on: Time | None = None) -> None:
        self._context = context
        self._adopt = set(context.adopt)
        self._time = on or Time()
        self._missing: set[str] = set()
        """Runs whose work did not arrive or could not be applied: their jobs stay in the store."""
        self._starts: dict[str, Parcel] = {}
        self._sending = threading.Lock()
        self._reported = _Reported()

    def __call__(self, shared: AttemptDependencies, attempt: Attempt) -> AttemptOutcome:
        """Order the attempt, wait for its end, and apply its work here.

        Holds the locks of the run in the meantime, so that no other process of this host resumes it.
        """
        record, folder = _record_of(shared, attempt), Path(attempt.progress.folder or "")
        try:
            locks = take_locks(record, task_name(folder, options_of(shared, attempt.task)))
        except RunConflict as conflict:
            return AttemptOutcome(None, str(conflict), began=False)
        try:
            return self._perform(shared, attempt)
        finally:
            for lock in locks:
                lock.release()

    def _perform(self, shared: AttemptDependencies, attempt: Attempt) -> AttemptOutcome:
        name = attempt.task.name
        attempt = attempt._replace(view=guarded(attempt.view, RunView()))
        adopt = name in self._adopt
        self._adopt.discard(name)  # only once: the next attempt of this process is a new one
        try:
            job = self._retry(attempt, lambda: self._order(shared, attempt, adopt=adopt))
        except (TransferError, ParcelTooLarge) as problem:
            _record_of(shared, attempt).discard()
            return AttemptOutcome(None, str(problem), began=False)
        except StoreError as trouble:  # the user interrupted the wait for the store
            return self._not_ordered(shared, attempt, trouble)
        branch = job.spec.branch  # workers with an older version save the job without it
        job = self._wait_for_end(_Mirror(shared, attempt, self._context), job)
        job = job._replace(spec=job.spec._replace(branch=job.spec.branch or branch))
        return self._apply_outcome(shared, attempt, job)

    def _not_ordered(
        self, shared: AttemptDependencies, attempt: Attempt, trouble: StoreError
    ) -> AttemptOutcome:
        record = _record_of(shared, attempt)
        begun = read_run(record)
        state = RunState() if begun is None else RunState.load(begun["state"])
        values = _end_values(state, ExitReason.INTERRUPTED, f"stopped while {trouble}")
        record.discard()
        outcome = outcome_of(values, shared, attempt.task, record.id, shown_by="")
        return outcome._replace(began=False)

    def _retry(self, attempt: Attempt, work: Callable[[], T]) -> T:
        """Retry until the store can be reached; after a request to stop, raise its error."""
        shown = False
        while True:
            try:
                return work()
            except StoreError as trouble:
                if attempt.interrupt is not None and attempt.interrupt.asked:
                    raise
                if not shown:
                    self._context.show(f"[{attempt.task.name}] {trouble}; waiting for the store")
                shown = True
                time.sleep(1.0)

    def _order(self, shared: AttemptDependencies, attempt: Attempt, *, adopt: bool) -> RemoteJob:
        jobs, task, run = self._context.jobs, attempt.task, attempt.progress.run or ""
        job = jobs.get(run)
        if job is not None and core.is_open(job, adopt=adopt):
            return job
        folder, record = Path(attempt.progress.folder or ""), _record_of(shared, attempt)
        options = options_of(shared, task)
        begun, claim = read_run(record), last_claim(record)
        was_continued_here = _iterations(begun) > _iterations(None if job is None else job.run)
        if job is not None and not was_continued_here and self._has_work(job):
            return job
        earlier = job
        if was_continued_here:  # by `switchgear resume`
            job = None
        if job is not None and begun is not None and begun.get(MISSING):
            self._apply_earlier(attempt, job)
        order = 1 if job is None else job.order + 1
        name = f"{run}-{order}"
        try:
            now = snapshot(folder, name)
        except FolderBusyError as busy:
            raise TransferError(f"the task was not sent: {busy}") from busy
        if earlier is not None and job is None:
            claim = earlier.claim
            jobs.forget(earlier)
        parcel = self._send_folder(folder, now, name)
        spec = JobSpec(
            run,
            self._context.batch,
            task_values(task),
            circuit_of(record) or loop_name(folder, options),
            parcel,
            parcel,
            str(folder.resolve().relative_to(now.top.resolve())),
            attempt.grant_micros,
            _spent(begun if job is None else job.run),
            attempt.progress.timeout_s,
            self._context.labels.get(task.name, ()),
            self._context.repository,
            shared.owner_of(options.agent_label),
            now.branch,
        )
        if job is not None:  # the same run again: it keeps its start, with the folder as it is now
            return jobs.order(spec, work=parcel)
        lines = (
            []
            if begun is None
            else [iteration_values(record, each) for each in record.iterations()]
        )
        return jobs.order(spec, run=begun, iterations=lines, claim=claim)

    def _has_work(self, job: RemoteJob) -> bool:
        """Whether the job completed its task, and its work can still be fetched."""
        if (job.outcome or {}).get("exit_reason") != ExitReason.COMPLETED:
            return False
        if job.work.name:
            try:
                self._context.jobs.fetch(job.work.name)
            except TransferError:
                return False
        return True

    def _send_folder(self, folder: Path, now: Snapshot, name: str) -> Parcel:
        """Send the state of a folder to the store; tasks that start from the same commit share a parcel."""
        if not now.is_clean:
            reference = f"{REFERENCE}/{name}"
            sent = self._context.jobs.send(
                name, bundled(folder, reference, without=self._fetchable_commits(folder))
            )
            return Parcel(sent, now.commit, now.head, reference)
        with self._sending:
            known = self._starts.get(now.commit)
            if known is None:
                bundle = bundled(folder, "HEAD", without=self._fetchable_commits(folder))
                token = f"{self._context.batch}-{secrets.token_hex(4)}"
                sent = self._context.jobs.send(f"{token}-{now.commit[:12]}", bundle)
                known = self._starts[now.commit] = Parcel(sent, now.commit, now.head, "HEAD")
        return known

    def _fetchable_commits(self, folder: Path) -> tuple[str, ...]:
        """The commits that every host can fetch from the repository, as far as known."""
        if not self._context.repository:
            return ()
        try:
            arguments = ["for-each-ref", "--format=%(objectname)", "refs/remotes"]
            return tuple(dict.fromkeys(run_git(folder, arguments).split()))
        except GitError:
            return ()

    def _wait_for_end(self, mirror: "_Mirror", job: RemoteJob) -> RemoteJob:
        """Wait until the job is finished; send its id again when no worker claims it."""
        jobs, run = self._context.jobs, job.spec.run
        interrupt = mirror.attempt.interrupt or Interrupt()
        sending = _Sender(self._context, job.spec.labels, self._time, self._reported)
        lost, changed_s, seen = "", time.monotonic(), (job.state, job.claim, job.written)
        while True:
            try:
                found = jobs.get(run)
                if found is None:
                    return _lost_by_store(job)
                job = found
                if (now := (job.state, job.claim, job.written)) != seen:
                    seen, changed_s = now, time.monotonic()
                # Before the id is sent: otherwise this host could continue the run, too.
                mirror.update(job)
                if job.state is JobState.DONE:
                    return job
                if interrupt.asked:
                    self._stop(job, interrupt.asked)
                elif core.is_given_up(job, jobs.now_s()):
                    jobs.withdraw(run, _given_up(job))
                else:
                    sending.send_if_due(job, jobs.now_s())
                mirror.pass_messages_on()
                lost = ""
            except StoreError as trouble:
                if not lost:
                    self._context.show(
                        f"[{mirror.attempt.task.name}] {trouble}; waiting for the store"
                    )
                lost = str(trouble)
            poll_s = POLL_SHARE * (time.monotonic() - changed_s)
            time.sleep(max(MIN_POLL_S, min(poll_s, MAX_POLL_S)))

    def _stop(self, job: RemoteJob, requests: int) -> None:
        jobs = self._context.jobs
        jobs.request_stop(job.spec.run, Stop.GENTLY if requests == 1 else Stop.NOW)
        outcome = _ended_here(job, ExitReason.INTERRUPTED, "stopped before a worker continued it")
        jobs.withdraw(job.spec.run, outcome)

    def _apply_outcome(
        self, shared: AttemptDependencies, attempt: Attempt, job: RemoteJob
    ) -> AttemptOutcome:
        """Fetch the work to `refs/switchgear/runs/RUN`, apply it if possible, and return the outcome."""
        folder, record = Path(attempt.progress.folder or ""), _record_of(shared, attempt)
        values, how, missing, run = dict(job.outcome or {}), "", "", job.spec.run
        self._missing.discard(run)
        if job.work.commit and job.written:
            reference = f"refs/switchgear/runs/{run}"
            try:
                self._fetch_work(attempt, job, reference)
            except (TransferError, StoreError) as error:
                missing = f"the work on {job.holder} did not arrive: {error}"
            else:
                where = shlex.quote(str(folder))
                how = f"git -C {where} diff {job.spec.folder.commit[:12]} {reference}"
                missing = self._apply_work(attempt, job, reference)
        if missing:
            self._missing.add(run)
            values = without_work(values, missing)
        outcome = outcome_of(values, shared, attempt.task, run, shown_by=how)
        clear_announcement(record.path)
        result = outcome.result
        if result is None:  # no worker could start or end the run: end its record here
            ended = _ended_here(job, ExitReason.AGENT_ERROR, outcome.problem)
            result = outcome_of(ended, shared, attempt.task, run, shown_by=how).result
        if result is not None:
            result = write_end(record, result, how, shared.report, is_missing=bool(missing))
        if outcome.result is not None and result is not None:
            attempt.view.ended(result)
        return outcome

    def _fetch_work(self, attempt: Attempt, job: RemoteJob, reference: str) -> None:
        def fetch() -> bytes:
            return self._retry(attempt, lambda: self._context.jobs.fetch(job.work.name))

        folder = Path(attempt.progress.folder or "")
        bring(fetch, folder, job.work, job.spec.repository, reference)

    def _apply_work(self, attempt: Attempt, job: RemoteJob, reference: str) -> str:
        """Apply the work to the folder. Returns why that must wait; empty: it need not.

        If the work can never be applied, a message tells the user to merge it.
        """
        folder, run = Path(attempt.progress.folder or ""), job.spec.run
        try:
            spec = job.spec
            problem = apply(folder, spec.folder, job.work, f"{run}-now", branch=spec.branch)
        except FolderBusyError as busy:
            later = f"it is in {reference}, and --resume --retry-failed applies it"
            return f"the work was not applied: {busy}; {later}"
        except TransferError as error:
            problem = str(error)
        if job.order > 1:
            drop(folder, (f"{run}-{job.order - 1}",))
        if problem is not None:
            self._context.show(f"[{attempt.task.name}] {problem}; the work is in {reference}")
        return ""

    def _apply_earlier(self, attempt: Attempt, job: RemoteJob) -> None:
        """Apply the work that an earlier attempt could not: the next attempt continues from there."""
        reference = f"refs/switchgear/runs/{job.spec.run}"
        try:
            self._fetch_work(attempt, job, reference)
        except TransferError as error:
            problem = f"the work on {job.holder} did not arrive: {error}"
            self._context.show(f"[{attempt.task.name}] {problem}")
        else:
            self._apply_work(attempt, job, reference)

    def forget(self, runs: Iterable[str]) -> None:
        """Remove the finished jobs of these runs, except those whose work is missing here."""
        jobs, forgotten = self._context.jobs, list[str]()
        for run in runs:
            job = None if run in self._missing else jobs.get(run)
            if job is not None and job.state is JobState.DONE:
                jobs.forget(job)
                forgotten.append(run)
        jobs.drop_leftovers(forgotten)


class _Sender:
    """Sends one id, and sends it again when it may be lost. Duplicates are harmless: a claim is exclusive."""

    def __init__(
        self,
        context: RemoteContext,
        labels: tuple[str, ...],
        on: Time,
        reported: _Reported,
    ) -> None:
        self._context, self._labels, self._time = context, labels, on
        self._reported, self._sent = reported, False
        self._due_s, self._wait_s = on.clock(), MIN_RESEND_S
        self._claim = self._drops = 0

    def send_if_due(self, job: RemoteJob, now_s: float) -> None:
        if job.claim != self._claim:  # a worker claimed the job: if it is lost, resend soon
            self._claim, self._wait_s, self._due_s = job.claim, MIN_RESEND_S, self._time.clock()
        if job.drops > self._drops:  # another worker may have a newer version
            self._drops, self._wait_s = job.drops, MIN_RESEND_S
            wait_s = min(RESEND_AFTER_DROP_S * job.drops, MIN_RESEND_S)
            self._due_s = min(self._due_s, self._time.clock() + wait_s)
        if job.state is JobState.RUNNING and now_s < job.until_s:
            return
        if self._time.clock() < self._due_s:
            return
        self._due_s = self._time.clock() + self._wait_s
        self._wait_s = min(2 * self._wait_s, MAX_RESEND_S)
        try:
            self._context.publish(job.spec.run, self._labels)
        except Exception as error:  # noqa: BLE001  brokers have clients of many kinds
            if not self._reported.broker_is_lost:
                self._context.show(
                    f"the broker {self._context.broker} cannot be reached ({error}); check that it runs, and "
                    "that --broker, SWITCHGEAR_BROKER or the store is right; trying again"
                )
            self._reported.broker_is_lost, self._wait_s = True, MIN_RESEND_S
            self._due_s = self._time.clock() + 1.0
        else:
            self._reported.broker_is_lost = False
            if self._sent and job.state is JobState.WAITING and not job.drops:
                self._report_waiting(job)
            self._sent = True

    def _report_waiting(self, job: RemoteJob) -> None:
        """Report once per set of labels that no worker takes a task, so that the user knows why it waits."""
        if self._labels in self._reported.labels:
            return
        self._reported.labels.add(self._labels)
        which = f" with the labels {', '.join(self._labels)}" if self._labels else ""
        task = job.spec.task["name"]
        self._context.show(
            f"[{task}] no worker{which} has taken it for {MIN_RESEND_S:g} s: all are busy, or none is "
            "running; waiting"
        )


class _Mirror:
    """Keeps the local record of a remote run up to date, and calls the view."""

    def __init__(
        self, shared: AttemptDependencies, attempt: Attempt, context: RemoteContext
    ) -> None:
        self.attempt = attempt
        self._shared, self._ordered_at = shared, iso(time.time())
        self._record = _record_of(shared, attempt)
        self._context = context
        self._seen: tuple[object, ...] = ()
        self._written = sum(1 for _ in self._record.iterations())
        self._begun = False
        self._failed = False
        """Whether a failure to write the record was reported."""
        self._noted: set[str] = set()
        self._announced: tuple[int, int] | None = None

    def pass_messages_on(self) -> None:
        """Announce the messages of operators to the worker."""
        found = announcement(self._record.path)
        if found != self._announced:
            self._context.jobs.announce(self._record.id)
            self._announced = found

    def update(self, job: RemoteJob) -> None:
        for note in job.notes:
            if note not in self._noted:
                self._noted.add(note)
                self._context.show(f"[{self.attempt.task.name}] {note}")
        seen = (job.order, job.claim, job.written, job.state, job.run is None)
        if seen == self._seen:
            return
        try:
            self._write(job)
        except OSError as error:  # the attempt continues elsewhere; the next poll tries again
            if not self._failed:
                self._context.show(
                    f"[{self.attempt.task.name}] its record cannot be written: {error}"
                )
            self._failed = True
        else:
            self._seen, self._failed = seen, False

    def _write(self, job: RemoteJob) -> None:
        run = self._localised(job)
        self._record.make()
        if not self._begun and job.run is not None:
            self._begun = True
            self.attempt.view.started({**run, "resumed": bool(self._written)})
        if job.written > self._written:
            before, lines = self._written, self._context.jobs.iterations(job.spec.run)
            self._written = write_iterations(self._record, lines)
            for each in lines[before:]:
                self.attempt.view.iteration_ended(each["facts"], run)
        self._record.write(run)

    def _localised(self, job: RemoteJob) -> dict[str, Any]:
        """The run.json of the job with the folder and the process of this host."""
        pid, waits = os.getpid(), job.state is JobState.WAITING
        run = {
            **(self._unbegun(job) if job.run is None else job.run),
            "folder": self.attempt.progress.folder,
            "pid": pid,
            "pid_began": process_began(pid),
            "host": "" if waits else job.holder,
            "claim": job.claim,
            "waiting": waits,
        }
        if job.state is not JobState.DONE:
            run |= {"end": None, "ended_at": None}  # of an earlier attempt
        return run

    def _unbegun(self, job: RemoteJob) -> dict[str, Any]:
        """The run.json of a run that no worker has started."""
        options = options_of(self._shared, self.attempt.task)
        return {
            "id": self._record.id,
            "task": options.task,
            "agent": options.agent_label,
            "circuit": job.spec.circuit,
            "started_at": self._ordered_at,
            "options": options.dump(),
            "state": RunState().dump(),
        }


def _record_of(shared: AttemptDependencies, attempt: Attempt) -> RunFolder:
    return RunFolder(shared.runs / (attempt.progress.run or ""))


def _spent(run: Mapping[str, Any] | None) -> int:
    return 0 if run is None else RunState.load(run["state"]).spent_micros


def _iterations(run: Mapping[str, Any] | None) -> int:
    return 0 if run is None else RunState.load(run["state"]).iterations


def _given_up(job: RemoteJob) -> dict[str, Any]:
    """The outcome of a job that too many workers lost or gave back."""
    is_lost, iteration = job.state is JobState.RUNNING, f"iteration {job.written + 1}"
    if is_lost:
        lost = f"{core.MAX_LOSSES} workers in a row were lost during {iteration}"
        why = f"{lost}, the last one was {job.holder}: the task may be the cause"
    else:
        why = f"{core.MAX_LOSSES} attempts at {iteration} failed in a row: {job.notes[-1]}"
    return {**_ended_here(job, ExitReason.AGENT_ERROR, why), "unpriced": is_lost}


def _lost_by_store(job: RemoteJob) -> RemoteJob:
    """The job with an end, after the store lost it: its worker has stopped, and none can continue it."""
    why = "the store no longer has the job: it was emptied, or it restarted without its data"
    outcome = {**_ended_here(job, ExitReason.AGENT_ERROR, why), "unpriced": True}
    return job._replace(state=JobState.DONE, work=Parcel(), outcome=outcome)


def _ended_here(job: RemoteJob, reason: ExitReason, sentence: str) -> dict[str, Any]:
    """The outcome of a job that ends without a worker."""
    state = RunState() if job.run is None else RunState.load(job.run["state"])
    values = _end_values(state, reason, sentence)
    return {**values, "began": bool(job.claim), "circuit": job.spec.circuit}


def _end_values(state: RunState, reason: ExitReason, sentence: str) -> dict[str, Any]:
    return {
        "problem": "",
        "gave_up": None,
        "unpriced": False,
        "began": False,
        "exit_reason": str(reason),
        "reason": sentence,
        "evidence": [],
        "circuit": "",
        "held": None,
        "notes": [],
        "state": state.dump(),
        "checkpoint": None,
    }
