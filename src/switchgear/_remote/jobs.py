"""Jobs and parcels in the store: every change is one transaction that verifies what was read."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from switchgear._core.errors import SwitchgearError
from switchgear._remote import job as core
from switchgear._remote.job import JobSpec, JobState, LeaseLost, Parcel, RemoteJob, Stop
from switchgear._remote.parcel import TransferError
from switchgear._stores.base import Amended, Ledger, Work

JOBS = "job"
NO_PARCEL = Parcel()
PARCELS = "parcel"
CHUNK_BYTES = 384 * 1024
MAX_PARCEL_BYTES = 64_000_000
"""Maximum size of a parcel: larger states need a repository that every host can fetch."""


class ParcelTooLarge(SwitchgearError):
    """A parcel that is too large for the store."""


class Jobs:
    """The jobs of an installation. Thread-safe; hosts share them through the store."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def now_s(self) -> float:
        return self._ledger.now_s()

    def get(self, run: str) -> RemoteJob | None:
        """The job of a run; `None`: there is none."""
        found = self._ledger.value(JOBS, run)
        return None if not found else RemoteJob.load(found)

    def iterations(self, run: str) -> list[dict[str, Any]]:
        """The iterations that workers have saved: facts, prompt and log of each."""
        return list(self._ledger.lines(JOBS, run))

    def order(
        self,
        spec: JobSpec,
        *,
        work: Parcel = NO_PARCEL,
        run: Mapping[str, Any] | None = None,
        iterations: Sequence[Mapping[str, Any]] = (),
        claim: int = 0,
    ) -> RemoteJob:
        """Order an attempt. `run` and `iterations` are those of a run that began elsewhere.

        `claim`: the newest claim of a removed job of this run. Claim numbers are never reused: otherwise a
        worker that was suspended since then would hold the new job.
        """

        def order(job: RemoteJob | None, _: float) -> RemoteJob:
            new = core.ordered(job, spec, work, run)
            return new if job else new._replace(written=len(iterations), claim=claim)

        ordered: RemoteJob = self._change(spec.run, order, iterations)
        return ordered

    def claim(self, run: str, holder: str, lease_s: float) -> RemoteJob | None:
        """Claim a job for `lease_s` seconds; `None`: there is nothing to do.

        A job that newer code has written is not claimed; a note reports it.
        """

        def work(held: Any, now_s: float) -> Amended:
            if not held:
                return Amended(None)
            if held["schema"] > core.SCHEMA:
                notes = [*held.get("notes", []), f"{holder} has an older version of Switchgear"]
                notes, drops = sorted(set(notes))[-core.MAX_NOTES :], held.get("drops", 0) + 1
                return Amended(None, {**held, "notes": notes, "drops": drops})
            found = RemoteJob.load(held)
            given_up = core.is_given_up(found, now_s)
            job = None if given_up else core.claimed(found, holder, now_s, lease_s)
            return Amended(None) if job is None else Amended(job, job.dump())

        claimed: RemoteJob | None = self._ledger.amend(JOBS, run, work)
        return claimed

    def give_back(self, run: str, claim: int, why: str) -> None:
        """Let another worker execute the job. Raises `LeaseLost`."""
        self._change(run, lambda job, _: core.given_back(_held(job, claim), why))

    def pass_on(self, run: str) -> None:
        """Leave a job that could be claimed to other workers."""

        def passed_on(job: RemoteJob | None, now_s: float) -> RemoteJob | None:
            is_free = job is not None and core.claimed(job, "", now_s, 0.0) is not None
            return core.passed_on(job) if job is not None and is_free else None

        self._change(run, passed_on)

    def renew(self, run: str, claim: int, lease_s: float) -> RemoteJob:
        """Renew a claim. Returns the job, with the requests of the batch. Raises `LeaseLost`."""

        def renewed(job: RemoteJob | None, now_s: float) -> RemoteJob:
            return _held(job, claim)._replace(until_s=now_s + lease_s)

        job: RemoteJob = self._change(run, renewed)
        return job

    def held(self, run: str, claim: int) -> RemoteJob:
        """The job that this claim holds. Raises `LeaseLost`."""
        return _held(self.get(run), claim)

    def save(
        self,
        run: str,
        claim: int,
        *,
        record: Mapping[str, Any],
        iterations: Sequence[Mapping[str, Any]] = (),
        work: Parcel = NO_PARCEL,
        outcome: Mapping[str, Any] | None = None,
    ) -> None:
        """Save progress under this claim; with an `outcome`, finish the job. Raises `LeaseLost`."""

        def saved(job: RemoteJob | None, _: float) -> RemoteJob:
            job = _held(job, claim)
            return job._replace(
                run=record or job.run,  # empty: the worker could not start it
                work=work if any(work) else job.work,
                written=job.written + len(iterations),
                state=job.state if outcome is None else JobState.DONE,
                outcome=outcome,
                losses=0 if iterations else job.losses,
            )

        self._change(run, saved, iterations)

    def request_stop(self, run: str, how: Stop) -> None:
        """Request the end of a job that is waiting or running."""

        def stopped(job: RemoteJob | None, _: float) -> RemoteJob | None:
            if job is None or job.state is JobState.DONE or job.stop is how:
                return None
            return job._replace(stop=how)

        self._change(run, stopped)

    def announce(self, run: str) -> None:
        """Make the worker read the messages of operators."""

        def announced(job: RemoteJob | None, _: float) -> RemoteJob | None:
            return None if job is None else job._replace(announced=job.announced + 1)

        self._change(run, announced)

    def withdraw(self, run: str, outcome: Mapping[str, Any]) -> bool:
        """Finish a job that no worker holds. Returns False if a worker holds it, or it is finished."""

        def withdrawn(job: RemoteJob | None, now_s: float) -> RemoteJob | None:
            if job is None or core.claimed(job, "", now_s, 0.0) is None:
                return None
            return job._replace(state=JobState.DONE, claim=job.claim + 1, outcome=outcome)

        return self._change(run, withdrawn) is not None

    def forget(self, job: RemoteJob) -> None:
        """Remove a job and its parcels."""
        for parcel in (job.spec.start, job.spec.folder, job.work):
            self.drop(parcel.name)
        self._ledger.remove(JOBS, job.spec.run)

    def drop_leftovers(self, runs: Iterable[str]) -> None:
        """Remove parcels of removed jobs that a worker has sent, but not saved with the job before it was killed."""
        prefixes = tuple(f"{run}-" for run in runs)
        for key in self._ledger.keys(PARCELS):
            if key.startswith(prefixes):
                self._ledger.remove(PARCELS, key)

    # Parcels: bytes that travel with a job

    def send(self, name: str, data: bytes) -> str:
        """Save a parcel. Returns its name with the number of its parts."""
        if len(data) > MAX_PARCEL_BYTES:
            raise ParcelTooLarge(
                f"{name} is {len(data) // 1_000_000} MB; at most {MAX_PARCEL_BYTES // 1_000_000} MB travel "
                "through the store: name a repository that every host can fetch (--repository URL)"
            )
        parts = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
        for number, part in enumerate(parts):
            self._ledger.amend(PARCELS, f"{name}.{number}", _put(b64encode(part).decode()))
        return f"{name}:{len(parts)}"

    def fetch(self, parcel: str) -> bytes:
        """A parcel's bytes. Raises `TransferError` if a part is missing."""
        name, _, count = parcel.rpartition(":")
        found = []
        for number in range(int(count)):
            part = self._ledger.value(PARCELS, f"{name}.{number}")
            if part is None:
                raise TransferError(f"part {number} of {name} is no longer in {self._ledger.label}")
            found.append(b64decode(part))
        return b"".join(found)

    def drop(self, parcel: str) -> None:
        """Remove a parcel. Idempotent."""
        name, _, count = parcel.rpartition(":")
        for number in range(int(count or 0)):
            self._ledger.remove(PARCELS, f"{name}.{number}")

    def _change(
        self,
        run: str,
        change: Callable[[RemoteJob | None, float], RemoteJob | None],
        lines: Sequence[Mapping[str, Any]] = (),
    ) -> Any:
        def work(held: Any, now_s: float) -> Amended:
            job = change(None if not held else RemoteJob.load(held), now_s)
            return Amended(None) if job is None else Amended(job, job.dump(), tuple(lines))

        return self._ledger.amend(JOBS, run, work)


def held_elsewhere(ledger: Ledger, run: Mapping[str, Any]) -> str:
    """A message about a run whose work is still on another host; empty: its work is here.

    `run` is the content of its run.json. Continuing such a run here would repeat the work and its cost.
    """
    if "host" not in run or run.get("end") is not None:
        return ""
    job = Jobs(ledger).get(str(run["id"]))
    if job is None:
        return ""
    where = {
        JobState.WAITING: "it waits for a worker",
        JobState.RUNNING: f"{job.holder} works on it",
        JobState.DONE: f"{job.holder} has finished it",
    }[job.state]
    return (
        f"run {job.spec.run} was given to other hosts, and {where}: to continue, use "
        f"`switchgear batch TASKS.YAML --resume {job.spec.batch} --on celery`"
    )


def _put(text: str) -> Work:
    return lambda _held, _now_s: Amended(None, text)


def _held(job: RemoteJob | None, claim: int) -> RemoteJob:
    if job is None:
        raise LeaseLost("the job no longer exists")
    return core.held(job, claim)
