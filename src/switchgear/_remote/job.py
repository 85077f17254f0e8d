"""One attempt at a task as a value that hosts share: leased, resumable, finished once. Pure.

A job belongs to one run and is stored under the run's id. A worker claims it for a lease and renews the
claim while it works. Each claim has a number; only the holder of the newest claim may save progress or
finish the job. A worker that was suspended, or cut off from the store, therefore cannot undo or repeat
what its successor did.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Self

from switchgear._core import values

SCHEMA = 1
"""Raised when workers with older code must not execute the job."""
MAX_NOTES = 20
MAX_LOSSES = 10
"""How many workers in a row may be lost during an iteration, or give it back, before the job is given up."""

_COMMIT = re.compile("(?:[0-9a-f]{40}|[0-9a-f]{64})?")


class JobState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    """Claimed; the claim may have expired."""
    DONE = "done"


class Stop(StrEnum):
    """What the batch requests of a running job."""

    NO = ""
    GENTLY = "gently"
    NOW = "now"


class Parcel(NamedTuple):
    """A state of a folder in the store, as a git bundle."""

    name: str = ""
    """The name of the bundle and its number of parts; empty: there is none."""
    commit: str = ""
    """The commit whose tree is the folder."""
    head: str = ""
    """HEAD of the folder: the commit itself, or its parent."""
    reference: str = ""
    """The name of the commit in the bundle."""


class JobSpec(NamedTuple):
    """What a worker needs for the attempt. JSON values only."""

    run: str
    batch: str
    task: Mapping[str, Any]
    """The fields of the task as it was written."""
    circuit: str
    """The circuit of the loop: the same as if the task ran on the host of the batch."""
    start: Parcel
    """The state of the folder at the start of the run."""
    folder: Parcel = Parcel()
    """The state of the batch's own folder when the attempt was ordered: the work is applied to it."""
    inside: str = ""
    """The folder of the task inside its repository; empty: the top."""
    grant_micros: int | None = None
    """What the attempt may spend beyond what its run has spent; `None`: no limit."""
    spent_micros: int = 0
    """What the run had spent when the attempt was ordered."""
    timeout_s: float | None = None
    labels: tuple[str, ...] = ()
    """A worker must have all of them."""
    repository: str = ""
    """The URL that every host can fetch from and push to; empty: all work travels through the store."""
    owner: str = ""
    """The person to notify about the run, as on the host of the batch; empty: unknown."""
    branch: str = ""
    """The branch of the batch's own folder at that time, see `Snapshot`; empty: unknown."""


class RemoteJob(NamedTuple):
    """A job as it is stored. Immutable: each function below returns the next version."""

    spec: JobSpec
    schema: int = SCHEMA
    order: int = 1
    """Grows each time the batch orders the same run again."""
    state: JobState = JobState.WAITING
    claim: int = 0
    """The number of the newest claim; 0: the run was never claimed."""
    holder: str = ""
    until_s: float = 0.0
    """When the claim expires, in seconds on the store's clock."""
    stop: Stop = Stop.NO
    announced: int = 0
    """How many messages of operators the batch has announced; the messages are in the note of the run."""
    run: Mapping[str, Any] | None = None
    """The last run.json; `None`: the run has not started."""
    work: Parcel = Parcel()
    """The partial work."""
    written: int = 0
    """The number of iterations that are saved with the job."""
    outcome: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    """Why hosts could not execute it, newest last."""
    drops: int = 0
    """How often the id was given to a worker that does not execute the job, such as one with an older version."""
    losses: int = 0
    """How many earlier workers in a row were lost during the current iteration, or gave it back."""

    def dump(self) -> dict[str, Any]:
        return {**self._asdict(), "spec": self.spec._asdict(), "notes": list(self.notes)}

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `dump`. Raises ValueError for invalid values."""
        known = {key: data[key] for key in cls._fields if key in data}
        values.check_int("schema", known.get("schema"), least=1)
        spec = {key: known["spec"][key] for key in JobSpec._fields if key in known["spec"]}
        spec["labels"] = tuple(spec.get("labels", ()))
        for key in ("start", "folder"):
            spec[key] = _parcel(spec[key])
        known["work"] = _parcel(known["work"])
        known["spec"] = JobSpec(**spec)
        known["state"] = JobState(known["state"])
        known["stop"] = Stop(known["stop"])
        known["notes"] = tuple(known.get("notes", ()))
        return cls(**known)


def _parcel(data: Iterable[Any]) -> Parcel:
    """A parcel that another host saved. Its commits become arguments of git, so they must not be options."""
    parcel = Parcel(*data)
    for commit in (parcel.commit, parcel.head):
        if not _COMMIT.fullmatch(commit):
            raise ValueError(f"{commit!r} is not a commit")
    return parcel


class LeaseLost(Exception):
    """Another worker holds the job now, or it is finished: the work under this claim is discarded."""


def is_open(job: RemoteJob | None, *, adopt: bool) -> bool:
    """Whether the batch need not order this attempt again: it is running, or its outcome can be adopted.

    A batch that was killed and resumed continues its attempts in this way.
    """
    return job is not None and (adopt or job.state is not JobState.DONE)


def ordered(
    job: RemoteJob | None, spec: JobSpec, work: Parcel, run: Mapping[str, Any] | None
) -> RemoteJob:
    """The job after the batch ordered this attempt; a finished job starts again.

    `work` is the parcel with the present state of the folder, `run` the run.json of a run that began elsewhere.
    """
    if job is None:
        return RemoteJob(spec, work=work, run=run)
    return job._replace(
        spec=spec._replace(start=job.spec.start),
        schema=SCHEMA,
        order=job.order + 1,
        state=JobState.WAITING,
        until_s=0.0,
        stop=Stop.NO,
        announced=0,
        work=work if any(work) else job.work,
        outcome=None,
        losses=0,
    )


def claimed(job: RemoteJob, holder: str, now_s: float, lease_s: float) -> RemoteJob | None:
    """The job with a new claim; `None`: it is finished, or another worker is executing it.

    A worker whose claim has expired is lost. What its agent spent after the last saved iteration is unknown and
    not charged; a note reports it.
    """
    if job.state is JobState.DONE or (job.state is JobState.RUNNING and now_s < job.until_s):
        return None
    if job.state is JobState.RUNNING:
        lost = f"{job.holder} was lost during iteration {job.written + 1}"
        job = with_note(job, f"{lost}, whose cost is unknown; {holder} repeats it")
        job = job._replace(losses=job.losses + 1)
    return job._replace(
        state=JobState.RUNNING, claim=job.claim + 1, holder=holder, until_s=now_s + lease_s
    )


def is_given_up(job: RemoteJob, now_s: float) -> bool:
    """Whether `MAX_LOSSES` workers in a row were lost during an iteration, or gave it back."""
    if job.state is JobState.WAITING:
        return job.losses >= MAX_LOSSES
    is_lost = job.state is JobState.RUNNING and now_s >= job.until_s
    return is_lost and job.losses + 1 >= MAX_LOSSES


def given_back(job: RemoteJob, why: str) -> RemoteJob:
    """The job after its holder gave it back because of a problem with its host."""
    job = job._replace(state=JobState.WAITING, until_s=0.0, losses=job.losses + 1)
    return with_note(passed_on(job), f"{job.holder} cannot execute it: {why}")


def passed_on(job: RemoteJob) -> RemoteJob:
    """The job after a worker received its id and left it to others; the batch sends the id again soon."""
    return job._replace(drops=job.drops + 1)


def held(job: RemoteJob, claim: int) -> RemoteJob:
    """The job, if this claim is the newest and the job is not finished. Raises `LeaseLost`."""
    if job.claim != claim or job.state is not JobState.RUNNING:
        raise LeaseLost(
            f"claim {claim} of run {job.spec.run} is over: {job.holder} holds {job.claim}"
        )
    return job


def with_note(job: RemoteJob, note: str) -> RemoteJob:
    """The job with a note on why it was not executed; equal notes are kept once."""
    notes = (*(each for each in job.notes if each != note), note)
    return job._replace(notes=notes[-MAX_NOTES:])
