"""A job is claimed by one worker at a time and finished once, whatever order messages arrive in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchgear._remote.job import (
    MAX_LOSSES,
    SCHEMA,
    JobSpec,
    JobState,
    LeaseLost,
    Parcel,
    RemoteJob,
    Stop,
    claimed,
    held,
    is_given_up,
    is_open,
    ordered,
    with_note,
)
from switchgear._remote.jobs import CHUNK_BYTES, Jobs, ParcelTooLarge
from switchgear._stores.base import Amended, MemoryLedger
from switchgear.testing import FakeClock

SPEC = JobSpec("r1", "b1", {"name": "t"}, "loop/t", Parcel("r1-1-start:1"))
LEASE_S = 10.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start_s=100.0)


@pytest.fixture
def jobs(clock: FakeClock) -> Jobs:
    made = Jobs(MemoryLedger("memory:", clock))
    made.order(SPEC)
    return made


def outcome(reason: str = "completed") -> dict[str, object]:
    return {"exit_reason": reason}


def test_a_duplicate_delivery_finds_nothing_to_do(jobs: Jobs) -> None:
    first = jobs.claim("r1", "one", LEASE_S)
    assert first is not None
    assert first.claim == 1
    assert jobs.claim("r1", "two", LEASE_S) is None
    jobs.save("r1", 1, record={}, outcome=outcome())
    assert jobs.claim("r1", "two", LEASE_S) is None


def test_a_lost_worker_is_replaced_when_its_lease_is_over(jobs: Jobs, clock: FakeClock) -> None:
    jobs.claim("r1", "one", LEASE_S)
    clock.advance(LEASE_S - 1)
    assert jobs.claim("r1", "two", LEASE_S) is None
    clock.advance(1)
    second = jobs.claim("r1", "two", LEASE_S)
    assert second is not None
    assert (second.claim, second.holder) == (2, "two")


def test_a_worker_that_returns_after_its_lease_can_change_nothing(
    jobs: Jobs, clock: FakeClock
) -> None:
    jobs.claim("r1", "one", LEASE_S)
    clock.advance(LEASE_S)
    jobs.claim("r1", "two", LEASE_S)
    with pytest.raises(LeaseLost):
        jobs.renew("r1", 1, LEASE_S)
    with pytest.raises(LeaseLost):
        jobs.save("r1", 1, record={"state": {}}, outcome=outcome())
    job = jobs.get("r1")
    assert job is not None
    assert (job.state, job.outcome, job.run) == (JobState.RUNNING, None, None)


def test_a_lost_worker_and_the_unknown_cost_of_its_last_iteration_are_noted(
    jobs: Jobs, clock: FakeClock
) -> None:
    jobs.claim("r1", "one", LEASE_S)
    jobs.save("r1", 1, record={"state": {}}, iterations=[{"number": 1}])
    clock.advance(LEASE_S)
    found = jobs.claim("r1", "two", LEASE_S)
    assert found is not None
    assert found.notes == (
        "one was lost during iteration 2, whose cost is unknown; two repeats it",
    )


def test_renewing_keeps_the_claim_and_passes_requests_to_stop_on(
    jobs: Jobs, clock: FakeClock
) -> None:
    jobs.claim("r1", "one", LEASE_S)
    for _ in range(5):
        clock.advance(LEASE_S - 1)
        assert jobs.renew("r1", 1, LEASE_S).stop is Stop.NO
    jobs.request_stop("r1", Stop.NOW)
    assert jobs.renew("r1", 1, LEASE_S).stop is Stop.NOW
    assert jobs.held("r1", 1).stop is Stop.NOW
    with pytest.raises(LeaseLost):
        jobs.held("r1", 2)


def test_progress_and_its_iterations_are_saved_together(jobs: Jobs) -> None:
    jobs.claim("r1", "one", LEASE_S)
    jobs.save(
        "r1", 1, record={"state": {"iterations": 1}}, iterations=[{"number": 1}], work=Parcel("w:1")
    )
    job = jobs.get("r1")
    assert job is not None
    assert (job.run, job.written, job.work) == ({"state": {"iterations": 1}}, 1, Parcel("w:1"))
    assert jobs.iterations("r1") == [{"number": 1}]


def test_a_stopped_job_without_a_worker_is_withdrawn(jobs: Jobs) -> None:
    assert jobs.withdraw("r1", outcome("interrupted"))
    assert not jobs.withdraw("r1", outcome("interrupted"))
    job = jobs.get("r1")
    assert job is not None
    assert job.outcome == {"exit_reason": "interrupted"}
    assert jobs.claim("r1", "one", LEASE_S) is None


def test_a_job_with_a_worker_is_not_withdrawn(jobs: Jobs) -> None:
    jobs.claim("r1", "one", LEASE_S)
    assert not jobs.withdraw("r1", outcome("interrupted"))
    jobs.save("r1", 1, record={}, outcome=outcome())


def test_an_older_worker_skips_a_job_of_newer_code_with_a_note() -> None:
    ledger = MemoryLedger("memory:", FakeClock())
    jobs = Jobs(ledger)
    newer = {**RemoteJob(SPEC).dump(), "schema": SCHEMA + 1}
    ledger.amend("job", "r1", lambda _, __: Amended(None, newer))
    assert jobs.claim("r1", "old-host", LEASE_S) is None
    stored = ledger.value("job", "r1")
    assert stored["state"] == "waiting"
    assert stored["notes"] == ["old-host has an older version of Switchgear"]
    assert stored["drops"] == 1


def test_the_note_of_an_older_worker_is_the_newest() -> None:
    ledger = MemoryLedger("memory:", FakeClock())
    notes = ["old-host has an older version of Switchgear", "zeta cannot execute it: no git"]
    newer = {**RemoteJob(SPEC).dump(), "schema": SCHEMA + 1, "notes": notes}
    ledger.amend("job", "r1", lambda _, __: Amended(None, newer))
    Jobs(ledger).claim("r1", "old-host", LEASE_S)
    assert ledger.value("job", "r1")["notes"] == notes[::-1], "newest last, each once"


def test_a_finished_run_that_is_submitted_again_keeps_its_start_and_its_record(jobs: Jobs) -> None:
    jobs.claim("r1", "one", LEASE_S)
    jobs.save("r1", 1, record={"state": {}}, iterations=[{"number": 1}], outcome=outcome("timeout"))
    again = jobs.order(SPEC._replace(start=Parcel("other:1"), timeout_s=60.0), work=Parcel("w:2"))
    assert (again.order, again.state, again.outcome) == (2, JobState.WAITING, None)
    assert (again.spec.start, again.spec.timeout_s, again.work) == (
        Parcel("r1-1-start:1"),
        60.0,
        Parcel("w:2"),
    )
    assert (again.run, again.written) == ({"state": {}}, 1)


def test_an_outcome_is_adopted_only_by_a_batch_that_has_not_received_it() -> None:
    done = RemoteJob(SPEC, state=JobState.DONE, outcome={})
    assert is_open(done, adopt=True)
    assert not is_open(done, adopt=False)
    assert is_open(RemoteJob(SPEC), adopt=False)
    assert not is_open(None, adopt=True)


def test_a_job_survives_its_storage() -> None:
    job = RemoteJob(SPEC._replace(labels=("gpu",)), claim=3, notes=("a note",), stop=Stop.GENTLY)
    assert RemoteJob.load(job.dump()) == job


def test_a_job_that_an_older_version_has_stored_has_no_branch() -> None:
    stored = RemoteJob(SPEC._replace(branch="main")).dump()
    del stored["spec"]["branch"]
    assert RemoteJob.load(stored) == RemoteJob(SPEC)


def test_an_older_worker_executes_a_job_with_a_branch() -> None:
    """It ignores unknown fields, and saves the job without them."""
    newer = RemoteJob(SPEC).dump()
    newer["spec"]["unknown"] = "x"
    assert RemoteJob.load(newer).dump() == RemoteJob(SPEC).dump()


@pytest.mark.parametrize("field", ["commit", "head"])
def test_a_value_saved_as_a_commit_must_be_a_commit(field: str) -> None:
    job = RemoteJob(SPEC, work=Parcel("w:1", "a" * 40, "b" * 40, "refs/x"))
    assert RemoteJob.load(job.dump()) == job
    option = job.work._replace(**{field: "--output=file"})
    with pytest.raises(ValueError, match="'--output=file' is not a commit"):
        RemoteJob.load(job._replace(work=option).dump())


def test_a_job_that_is_given_back_waits_for_another_worker(jobs: Jobs, clock: FakeClock) -> None:
    for number in range(MAX_LOSSES):
        job = jobs.claim("r1", f"w{number}", LEASE_S)
        assert job is not None
        jobs.give_back("r1", job.claim, "no room")
        with pytest.raises(LeaseLost):
            jobs.save("r1", job.claim, record={}, outcome=outcome())
    job = jobs.get("r1")
    assert job is not None
    assert (job.state, job.drops, job.notes[-1]) == (
        JobState.WAITING,
        MAX_LOSSES,
        "w9 cannot execute it: no room",
    )
    assert is_given_up(job, clock())
    assert jobs.claim("r1", "another", LEASE_S) is None
    assert jobs.withdraw("r1", outcome("agent_error"))


def test_notes_are_bounded_and_each_is_kept_once() -> None:
    job = RemoteJob(SPEC)
    for number in range(100):
        job = with_note(with_note(job, "same"), f"note {number}")
    assert len(job.notes) == 20
    assert job.notes.count("same") == 1


@given(size=st.sampled_from([0, 1, CHUNK_BYTES, CHUNK_BYTES + 1]))
def test_a_parcel_arrives_as_it_was_sent(size: int) -> None:
    jobs = Jobs(MemoryLedger("memory:", FakeClock()))
    data = bytes(n % 251 for n in range(size))
    parcel = jobs.send("p", data)
    assert jobs.fetch(parcel) == data
    jobs.drop(parcel)
    jobs.drop(parcel)


def test_a_parcel_that_is_too_large_is_an_error_with_a_solution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("switchgear._remote.jobs.MAX_PARCEL_BYTES", 10)
    with pytest.raises(ParcelTooLarge, match="--repository URL"):
        Jobs(MemoryLedger("memory:", FakeClock())).send("p", b"x" * 11)


class Worker:
    """A worker of the model: the claim that it believes to hold."""

    def __init__(self, name: str) -> None:
        self.name, self.claim = name, 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["claim", "renew", "save", "finish", "order", "wait"]),
            st.integers(0, 2),
        ),
        max_size=60,
    )
)
def test_only_one_outcome_counts_per_order(moves: list[tuple[str, int]]) -> None:
    clock = FakeClock(start_s=0.0)
    jobs = Jobs(MemoryLedger("memory:", clock))
    jobs.order(SPEC)
    workers = [Worker(name) for name in ("one", "two", "three")]
    finished: dict[int, int] = {}
    lines = 0
    for move, who in moves:
        worker, job = workers[who], jobs.get("r1")
        assert job is not None
        if move == "claim":
            won = jobs.claim("r1", worker.name, LEASE_S)
            worker.claim = won.claim if won is not None else worker.claim
        elif move == "order" and job.state is JobState.DONE:
            jobs.order(SPEC)
        elif move == "wait":
            clock.advance(LEASE_S)
        elif move in {"renew", "save", "finish"}:
            may = job.state is JobState.RUNNING and job.claim == worker.claim and worker.claim > 0
            try:
                if move == "renew":
                    jobs.renew("r1", worker.claim, LEASE_S)
                else:
                    end = outcome(worker.name) if move == "finish" else None
                    jobs.save("r1", worker.claim, record={}, iterations=[{}], outcome=end)
                    lines += 1
                    if end is not None:
                        finished[job.order] = finished.get(job.order, 0) + 1
            except LeaseLost:
                assert not may
            else:
                assert may
    assert all(count == 1 for count in finished.values())
    job = jobs.get("r1")
    assert job is not None
    assert job.written == lines == len(jobs.iterations("r1"))


def test_held_and_claimed_do_not_change_the_job() -> None:
    job = RemoteJob(SPEC)
    taken = claimed(job, "one", 0.0, LEASE_S)
    assert taken is not None
    assert job.claim == 0
    assert held(taken, 1) is taken
    assert ordered(None, SPEC, Parcel(), None).state is JobState.WAITING


def lose_workers(jobs: Jobs, clock: FakeClock, count: int) -> None:
    for number in range(count):
        assert jobs.claim("r1", f"w{number}", LEASE_S) is not None
        clock.advance(LEASE_S)


def test_a_job_that_loses_too_many_workers_is_given_up(jobs: Jobs, clock: FakeClock) -> None:
    lose_workers(jobs, clock, MAX_LOSSES - 1)
    job = jobs.get("r1")
    assert job is not None
    assert not is_given_up(job, clock())
    last = jobs.claim("r1", "last", LEASE_S)
    assert last is not None
    assert not is_given_up(last, clock()), "it is still at work"
    clock.advance(LEASE_S)
    assert is_given_up(last, clock())
    assert jobs.claim("r1", "another", LEASE_S) is None
    assert jobs.withdraw("r1", outcome("agent_error"))


def test_an_iteration_that_is_saved_starts_the_count_of_lost_workers_again(
    jobs: Jobs, clock: FakeClock
) -> None:
    lose_workers(jobs, clock, MAX_LOSSES - 1)
    last = jobs.claim("r1", "last", LEASE_S)
    assert last is not None
    jobs.save("r1", last.claim, record={"state": {}}, iterations=[{"number": 1}])
    clock.advance(LEASE_S)
    lose_workers(jobs, clock, MAX_LOSSES - 1)
