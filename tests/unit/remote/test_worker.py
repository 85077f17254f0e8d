"""An attempt goes to a worker and comes back, in one process; what cannot come back is never done again."""

import errno
import os
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from switchgear import Panel
from switchgear._console.runs import run_status
from switchgear._core.errors import StoreError
from switchgear._fleet.run_notes import run_note
from switchgear._hooks.session import Notes
from switchgear._remote import dispatch, worker
from switchgear._remote import jobs as jobs_module
from switchgear._remote.dispatch import RemoteAttempts, RemoteContext, _Reported, _Sender
from switchgear._remote.job import MAX_LOSSES, JobSpec, LeaseLost, Parcel, RemoteJob
from switchgear._remote.jobs import Jobs, held_elsewhere
from switchgear._remote.parcel import TransferError, UnpackedStarts
from switchgear._remote.transfer import write_iterations
from switchgear._remote.worker import Rest, WorkerContext, execute, remove_leftovers
from switchgear._run.batch.attempt import (
    Attempt,
    AttemptDependencies,
    AttemptOutcome,
    run_attempt,
)
from switchgear._run.batch.model import Progress, Status, Task
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.inbox import announce, has_messages, inbox_name
from switchgear._run.interrupt import Interrupt, Time
from switchgear._run.record import RunFolder, RunUnreadable, last_claim
from switchgear._run.result import RunResult
from switchgear._run.run_lock import folder_lock
from switchgear._run.state import RunState
from switchgear._run.view import RunView
from switchgear._stores.base import Amended, MemoryLedger, Transaction
from switchgear.testing import FakeClock
from timeouts import LIMIT_S

AGENT = """\
echo once >> count
echo work > work.txt
printf '{"type": "usage", "model": "m", "input_tokens": 1, "output_tokens": 1, "cost_usd": 0.01}\\n'
printf '{"type": "result", "text": "done", "success": true}\\n'
"""
CENT = 10_000


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


class Lines(RunView):
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.results: list[RunResult] = []

    def started(self, run: dict[str, Any]) -> None:
        del run
        self.calls.append("started")

    def iteration_ended(self, facts: dict[str, Any], run: dict[str, Any]) -> None:
        del facts, run
        self.calls.append("iteration ended")

    def ended(self, result: RunResult) -> None:
        self.calls.append("ended")
        self.results.append(result)


class Crew:
    """A batch with one task, and a worker that executes each id that is published."""

    def __init__(self, folder: Path, panel: Panel) -> None:
        self.folder, self.project = folder, folder / "project"
        self.project.mkdir()
        git(self.project, "init", "-q")
        git(self.project, "commit", "-q", "--allow-empty", "-m", "start")
        self.agent = folder / "agent.sh"
        self.agent.write_text(AGENT)
        self.clock_s = 0.0
        self.jobs = Jobs(MemoryLedger("memory:", lambda: time.time() + self.clock_s))
        self.here = AttemptDependencies(panel, folder / "runs")
        self.there = AttemptDependencies(panel, folder / "worker" / "runs")
        self.published = 0
        self.said: list[str] = []
        self.lines = Lines()
        self.repository = ""
        self.labels: tuple[str, ...] = ()
        self.interrupt: Interrupt | None = None
        self.stuck = False
        self.flags: dict[str, Any] = {}
        self.shown_at_publish: list[str] = []
        """How the run was shown when its id was published."""
        self.lost_ids = 0
        """How many of the first ids no worker receives."""
        self.threads: list[threading.Thread] = []

    def publish(self, run: str, labels: tuple[str, ...]) -> None:
        assert labels == self.labels
        self.published += 1
        with suppress(RunUnreadable):
            self.shown_at_publish.append(run_status(RunFolder(self.here.runs / run).read()))
        if self.published <= self.lost_ids:
            return
        self.threads.append(threading.Thread(target=self.work, args=(run,)))
        self.threads[-1].start()

    def work(self, run: str) -> None:
        root = self.folder / "worker"
        starts, rest = UnpackedStarts(root / "s"), Rest(rest_s=0.0)
        execute(WorkerContext(self.jobs, self.there, root / "work", starts, rest), run)

    def run(self, *, forget: bool = True) -> AttemptOutcome:
        flags = {"agent_cmd": f"sh {self.agent}", "stuck": self.stuck, **self.flags}
        task = Task("t", "do it.", flags=flags)
        progress = Progress(Status.RUNNING, run="r1", folder=str(self.project), timeout_s=LIMIT_S)
        context = RemoteContext(
            self.jobs,
            self.publish,
            "b1",
            {"t": self.labels},
            repository=self.repository,
            show=self.said.append,
            broker="redis://box",
        )
        attempts = RemoteAttempts(context)
        try:
            attempt = Attempt(task, progress, view=self.lines, interrupt=self.interrupt)
            outcome = attempts(self.here, attempt)
        finally:
            for thread in self.threads:
                thread.join(LIMIT_S)
        if forget:
            attempts.forget(["r1"])
        return outcome

    @property
    def shown(self) -> dict[str, Any]:
        end: dict[str, Any] = RunFolder(self.here.runs / "r1").read()["end"]
        return end


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with Panel("memory:") as panel:
        yield Crew(tmp_path, panel)


def result_of(outcome: AttemptOutcome) -> RunResult:
    assert outcome.result is not None, outcome.problem
    return outcome.result


def test_an_attempt_on_a_worker_is_shown_like_a_local_one(crew: Crew) -> None:
    result = result_of(crew.run())
    assert (result.exit_reason, result.state.spent_micros) == (ExitReason.COMPLETED, CENT)
    assert (crew.project / "work.txt").read_text() == "work\n"
    assert crew.lines.calls == ["started", "iteration ended", "ended"]
    [shown] = crew.lines.results
    assert shown.receipt_file == str(crew.here.runs / "r1" / "receipt.txt")
    assert crew.jobs.get("r1") is None
    assert list((crew.folder / "worker" / "work").iterdir()) == []


def test_the_owner_of_a_task_is_the_one_of_its_batch(crew: Crew) -> None:
    crew.here = crew.here._replace(owner_of={"sh": "ana"}.__getitem__)
    crew.there = crew.there._replace(owner_of=lambda _: "worker")
    result = result_of(crew.run())
    assert run_note(crew.there.panel, result.circuit).owner == "ana"


@pytest.mark.parametrize(
    ("labels", "who"), [((), "no worker"), (("gpu",), "no worker with the labels gpu")]
)
def test_a_task_that_no_worker_takes_is_reported_once(
    crew: Crew, labels: tuple[str, ...], who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "MIN_RESEND_S", 0.05)
    crew.labels, crew.lost_ids = labels, 3
    assert result_of(crew.run()).exit_reason is ExitReason.COMPLETED
    [line] = crew.said
    assert line.startswith(f"[t] {who} has taken it for 0.05 s: all are busy, or none is running")


def test_the_command_that_shows_the_work_can_be_executed(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    with Panel("memory:") as panel:
        crew = Crew(folder, panel)
        (folder / "agent.sh").rename(tmp_path / "agent.sh")
        crew.agent = tmp_path / "agent.sh"
        checkpoint = result_of(crew.run()).checkpoint
    assert checkpoint is not None
    shown = subprocess.run(
        shlex.split(checkpoint.how), check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert "+work" in shown.stdout


def test_a_task_that_a_worker_takes_at_once_is_not_reported(crew: Crew) -> None:
    crew.run()
    assert crew.said == []


def test_a_view_that_fails_does_not_fail_the_task(crew: Crew) -> None:
    class Closed(Lines):
        def started(self, run: dict[str, Any]) -> None:
            raise BrokenPipeError

    crew.lines = Closed()
    assert result_of(crew.run()).success


def test_work_that_is_too_large_ends_the_task_once_and_stays_on_its_host(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (crew.folder / "agent.sh").open("a") as script:
        script.write("head -c 20000 /dev/urandom > large\n")
    monkeypatch.setattr(jobs_module, "MAX_PARCEL_BYTES", 10_000)
    result = result_of(crew.run())
    assert (result.exit_reason, result.state.spent_micros) == (ExitReason.AGENT_ERROR, CENT)
    assert "the work could not be sent and is on" in result.reason
    [kept] = (crew.folder / "worker" / "work").iterdir()
    assert str(kept) in result.reason
    assert (kept / "files" / "count").read_text() == "once\n"
    remove_leftovers(kept.parent)
    assert kept.is_dir(), "the work is only there"
    assert not (crew.project / "work.txt").exists()
    assert crew.shown["exit_reason"] == "agent_error"


def test_work_that_is_too_large_for_the_store_comes_from_the_repository(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = crew.folder / "shared.git"
    git(crew.folder, "clone", "-q", "--bare", str(crew.project), str(shared))
    crew.repository = str(shared)
    with (crew.folder / "agent.sh").open("a") as script:
        script.write("head -c 20000 /dev/urandom > large\n")
    monkeypatch.setattr(jobs_module, "MAX_PARCEL_BYTES", 10_000)
    assert result_of(crew.run()).success
    assert (crew.project / "large").stat().st_size == 20_000


def test_work_is_pushed_to_the_repository_of_the_batch_whatever_the_agent_calls_origin(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, other = crew.folder / "shared.git", crew.folder / "other.git"
    for each in (shared, other):
        git(crew.folder, "clone", "-q", "--bare", str(crew.project), str(each))
    crew.repository = str(shared)
    with (crew.folder / "agent.sh").open("a") as script:
        script.write("head -c 20000 /dev/urandom > large\n")
        script.write(f"git remote set-url origin {other}\n")
    monkeypatch.setattr(jobs_module, "MAX_PARCEL_BYTES", 10_000)
    assert result_of(crew.run()).success
    assert (crew.project / "large").stat().st_size == 20_000
    assert git(other, "for-each-ref", "refs/switchgear") == ""


@pytest.mark.parametrize("is_old", [True, False])
def test_work_is_not_applied_to_a_branch_checked_out_in_the_meantime(
    crew: Crew, *, is_old: bool
) -> None:
    """Also if a worker with an older version saved the job: it does not know the branch."""
    with crew.agent.open("a") as script:
        script.write("git add -A; git -c user.name=a -c user.email=a@localhost commit -qm work\n")
    git(crew.project, "branch", "-M", "main")
    publish, before = crew.publish, git(crew.project, "rev-parse", "HEAD")

    def checked_out(run: str, labels: tuple[str, ...]) -> None:
        def older(held: Any, _: float) -> Amended:
            spec = {key: value for key, value in held["spec"].items() if key != "branch"}
            return Amended(None, {**held, "spec": spec})

        git(crew.project, "checkout", "-q", "-b", "mine")
        if is_old:
            crew.jobs._ledger.amend("job", run, older)
        publish(run, labels)

    crew.publish = checked_out  # type: ignore[method-assign]
    assert result_of(crew.run()).success
    assert [git(crew.project, "rev-parse", each) for each in ("main", "mine")] == [before] * 2
    assert git(crew.project, "status", "--porcelain") == ""
    [line] = crew.said
    assert line == (
        f"[t] {crew.project} has mine checked out instead of main; nothing was applied; check out main and "
        "merge the work, or merge it into mine; the work is in refs/switchgear/runs/r1"
    )
    git(crew.project, "merge", "-q", "refs/switchgear/runs/r1")
    assert (crew.project / "work.txt").read_text() == "work\n"


def test_each_claim_pushes_to_its_own_reference(crew: Crew) -> None:
    shared = crew.folder / "shared.git"
    git(crew.folder, "clone", "-q", "--bare", str(crew.project), str(shared))
    crew.repository, work, lost = str(shared), crew.work, ["r1"]

    def work_after_a_lost_worker(run: str) -> None:
        if lost and crew.jobs.claim(lost.pop(), "lost", 60.0) is not None:
            crew.clock_s += 60.0
        work(run)

    crew.work = work_after_a_lost_worker  # type: ignore[method-assign]
    assert result_of(crew.run()).success
    pushed = git(shared, "for-each-ref", "--format=%(refname)", "refs/switchgear/runs")
    assert pushed.split() == ["refs/switchgear/runs/r1-2"], "the lost worker may push to r1 later"


@pytest.mark.parametrize(
    "hides",
    [
        "mkdir -p sub; echo sub > .gitignore",
        "git init -q sub",
        "mkdir -p .git/info; echo sub > .git/info/exclude",
    ],
)
def test_the_next_worker_continues_with_work_that_the_agent_hid_from_git(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, hides: str
) -> None:
    crew.agent.write_text(f"""\
echo once >> count
{hides}
mkdir -p sub
wc -l < count >> sub/file
[ -d sub/.git ] && (cd sub; git add file; git -c user.name=a -c user.email=a@localhost commit -qm x)
[ "$(wc -l < count)" -gt 1 ] || exit 1
printf '{{"type": "usage", "model": "m", "input_tokens": 1, "output_tokens": 1, "cost_usd": 0.01}}\\n'
printf '{{"type": "result", "text": "done", "success": true}}\\n'
""")
    save, saves = crew.jobs.save, list[int]()

    def lost_after_the_first_iteration(*given: Any, **named: Any) -> None:
        save(*given, **named)
        saves.extend(each["number"] for each in named.get("iterations", ()))
        if saves == [1]:
            saves.append(0)
            crew.clock_s += 60.0
            assert crew.jobs.claim("r1", "lost", 60.0) is not None
            crew.clock_s += 60.0

    monkeypatch.setattr(crew.jobs, "save", lost_after_the_first_iteration)
    assert result_of(crew.run()).success
    assert (crew.project / "count").read_text() == "once\nonce\n"
    assert (crew.project / "sub" / "file").read_text().split() == ["1", "2"]


def test_a_batch_removes_what_a_killed_worker_has_sent(crew: Crew) -> None:
    kept, orphan = crew.jobs.send("other-1-1", b"x"), crew.jobs.send("r1-7-1", b"x")
    result_of(crew.run())
    assert crew.jobs.fetch(kept) == b"x"
    with pytest.raises(TransferError, match="part 0 of r1-7-1 is no longer in memory:"):
        crew.jobs.fetch(orphan)
    assert crew.jobs._ledger.keys("parcel") == ["other-1-1.0"]


def test_a_rejected_push_is_a_note(crew: Crew) -> None:
    shared = crew.folder / "shared.git"
    git(crew.folder, "clone", "-q", "--bare", str(crew.project), str(shared))
    hook = shared / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    crew.repository = str(shared)
    result = result_of(crew.run())
    assert result.success
    assert (crew.project / "count").read_text() == "once\n"
    [note] = result.notes
    assert "could not be pushed" in note
    assert crew.shown["notes"] == [note]


def test_work_that_does_not_arrive_is_not_done_and_stays_in_the_store(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = crew.jobs.fetch
    monkeypatch.setattr(
        crew.jobs, "fetch", lambda name: fetch(name) if "r1-1" not in name else b"damaged"
    )
    result = result_of(crew.run())
    assert result.exit_reason is ExitReason.AGENT_ERROR
    assert "did not arrive" in result.reason
    assert (crew.shown["success"], crew.shown["exit_code"]) == (False, 16)
    job = crew.jobs.get("r1")
    assert job is not None
    assert fetch(job.work.name)
    monkeypatch.setattr(crew.jobs, "fetch", fetch)
    again = result_of(crew.run())
    assert (again.success, again.state.spent_micros) == (True, CENT)
    assert (crew.published, (crew.project / "count").read_text()) == (1, "once\n")


def operation(crew: Crew, words: tuple[str, ...]) -> None:
    """The user begins it when the task is sent."""
    publish = crew.publish

    def begun(run: str, labels: tuple[str, ...]) -> None:
        git(crew.project, *words)
        publish(run, labels)

    crew.publish = begun  # type: ignore[method-assign]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize(
    ("words", "what", "end"),
    [
        (
            ("merge", "-q", "-s", "ours", "--no-ff", "--no-commit", "other"),
            "a merge",
            ("merge", "--abort"),
        ),
        (("revert", "--no-commit", "HEAD"), "a revert", ("revert", "--abort")),
        (("bisect", "start"), "a bisection", ("bisect", "reset")),
    ],
)
def test_work_that_arrives_in_the_middle_of_an_operation_is_applied_after_it(
    crew: Crew, words: tuple[str, ...], what: str, end: tuple[str, ...], *, commits: bool
) -> None:
    if commits:
        with crew.agent.open("a") as script:
            script.write("git add -A; git -c user.name=a -c user.email=a@localhost commit -qm x\n")
    git(crew.project, "branch", "other")
    git(crew.project, "checkout", "-q", "other")
    git(crew.project, "commit", "-q", "--allow-empty", "-m", "theirs")
    git(crew.project, "checkout", "-q", "-")
    before = git(crew.project, "for-each-ref", "refs/heads")
    operation(crew, words)
    result = result_of(crew.run())
    assert (result.exit_reason, result.state.spent_micros) == (ExitReason.AGENT_ERROR, CENT)
    assert result.reason == (
        f"the work was not applied: {what} is in progress in {crew.project}; finish or abort it first; "
        "it is in refs/switchgear/runs/r1, and --resume --retry-failed applies it"
    )
    assert crew.shown["reason"] == result.reason
    assert git(crew.project, "for-each-ref", "refs/heads") == before
    assert not (crew.project / "work.txt").exists()
    assert git(crew.project, "show", "refs/switchgear/runs/r1:work.txt") == "work\n"
    assert result_of(crew.run()).reason == result.reason
    git(crew.project, *end)
    assert result_of(crew.run()).success
    assert (crew.project / "work.txt").read_text() == "work\n"
    assert (crew.published, crew.jobs.get("r1")) == (1, None)


def test_partial_work_that_arrives_in_the_middle_of_an_operation_is_continued_after_it(
    crew: Crew,
) -> None:
    crew.agent.write_text(
        f"[ ! -f work.txt ] || exec sh {crew.folder}/rest.sh\necho 1 > work.txt\nexit 1\n"
    )
    (crew.folder / "rest.sh").write_text(f"echo 2 >> work.txt\n{AGENT.partition('work.txt')[2]}")
    crew.flags = {"max_iterations": 1}
    operation(crew, ("bisect", "start"))
    result = result_of(crew.run())
    assert result.exit_reason is ExitReason.MAX_ITERATIONS
    assert "a bisection is in progress in" in result.notes[-1]
    git(crew.project, "bisect", "reset")
    crew.flags, crew.publish = {}, partial(Crew.publish, crew)  # type: ignore[method-assign]
    assert result_of(crew.run()).success
    assert (crew.project / "work.txt").read_text() == "1\n2\n"
    assert crew.jobs.get("r1") is None


def test_a_task_is_not_sent_in_the_middle_of_an_operation(crew: Crew) -> None:
    git(crew.project, "bisect", "start")
    outcome = crew.run()
    assert (outcome.result, outcome.began, crew.published) == (None, False, 0)
    assert outcome.problem.startswith("the task was not sent: a bisection is in progress in ")


def test_an_attempt_continues_while_its_record_cannot_be_written(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, errors = RunFolder.write, [OSError(errno.ENOSPC, "No space left on device")] * 2

    def written(record: RunFolder, run: dict[str, Any]) -> None:
        if errors and record.path.is_relative_to(crew.here.runs):
            raise errors.pop()
        write(record, run)

    monkeypatch.setattr(RunFolder, "write", written)
    assert result_of(crew.run()).success
    assert errors == []
    assert crew.said == ["[t] its record cannot be written: [Errno 28] No space left on device"]
    assert (crew.shown["success"], crew.published) == (True, 1)


def test_an_attempt_does_not_wait_for_work_that_the_store_has_lost(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = crew.jobs.save

    def saved_and_lost(*given: Any, **named: Any) -> None:
        save(*given, **named)
        crew.jobs.drop(named["work"].name)

    monkeypatch.setattr(crew.jobs, "save", saved_and_lost)
    result = result_of(crew.run())
    assert result.exit_reason is ExitReason.AGENT_ERROR
    assert "did not arrive: part 0 of r1-1-1 is no longer in memory:" in result.reason


def test_a_task_whose_job_the_store_has_lost_ends(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    def emptied(run: str) -> None:
        job = crew.jobs.claim(run, "one", 60.0)
        assert job is not None
        crew.jobs.forget(job)

    monkeypatch.setattr(crew, "work", emptied)
    outcome = crew.run()
    assert result_of(outcome).reason.startswith("the store no longer has the job")
    assert outcome.unpriced


def test_a_worker_that_cannot_unpack_a_job_leaves_the_work_in_the_store_as_it_is(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt, save, sent = worker._rebuild, crew.jobs.save, list[Parcel]()

    def fails(*given: Any) -> None:
        rebuilt(*given)
        raise TransferError("no space left")

    def saved(*given: Any, **named: Any) -> None:
        sent.append(named["work"])
        save(*given, **named)

    monkeypatch.setattr(worker, "_rebuild", fails)
    monkeypatch.setattr(crew.jobs, "save", saved)
    assert result_of(crew.run()).reason.endswith(": no space left")
    assert sent == []
    assert not [*(crew.folder / "worker" / "work").iterdir()]


def test_a_worker_does_not_continue_without_the_work_of_the_last_one(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    result_of(crew.run(forget=False))
    job, root = crew.jobs.get("r1"), crew.folder / "second"
    assert job is not None
    assert job.run is not None
    monkeypatch.setattr(worker, "apply", lambda *_: "it was changed")
    context = WorkerContext(crew.jobs, crew.there, root, UnpackedStarts(root / "s"), Rest())
    with pytest.raises(TransferError, match="could not be continued: it was changed"):
        worker._rebuild(context, job, RunFolder(root / "runs" / "r1"), root / "files")


def test_a_task_that_one_host_cannot_start_is_done_by_another(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack, failures = (
        UnpackedStarts.unpack,
        ["x could not be fetched: no password TOKEN=sk-1234567890"],
    )

    def unpacked(*given: Any) -> None:
        if failures:
            raise TransferError(failures.pop())
        unpack(*given)

    monkeypatch.setattr(UnpackedStarts, "unpack", unpacked)
    result = result_of(crew.run())
    assert (result.success, result.state.iterations) == (True, 1)
    assert (crew.project / "count").read_text() == "once\n"
    [note] = crew.said
    host = worker.host_name()
    assert note.startswith(f"[t] {host} cannot execute it: x could not be fetched: no password")
    assert "sk-1234567890" not in note


def test_a_host_without_the_agent_of_a_task_gives_it_back(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.environ["PATH"]

    def installed_at_second(run: str, labels: tuple[str, ...]) -> None:
        monkeypatch.setenv("PATH", path if crew.published else "/nowhere:" + str(crew.folder))
        publish(run, labels)

    publish, crew.publish = crew.publish, installed_at_second  # type: ignore[method-assign]
    (crew.folder / "git").symlink_to(str(shutil.which("git")))
    result = result_of(crew.run())
    assert (result.success, result.state.iterations) == (True, 1)
    why = "there is no program 'sh' on the PATH; install it, or name another command"
    assert crew.said == [f"[t] {worker.host_name()} cannot execute it: {why}"]


def fill_disk_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first attempt of a worker end because the disk of its host is full."""
    run, reasons = run_attempt, [ExitReason.DISK_FULL]

    def full_at_first(place: AttemptDependencies, attempt: Attempt) -> AttemptOutcome:
        outcome = run(place, attempt)
        if not reasons:
            return outcome
        result = result_of(outcome)._replace(exit_reason=reasons.pop(), reason="the disk is full")
        return outcome._replace(result=result)

    monkeypatch.setattr(worker, "run_attempt", full_at_first)


def test_a_task_that_fills_the_disk_of_its_host_is_continued_by_another(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk_at_first(monkeypatch)
    result = result_of(crew.run())
    assert (result.exit_reason, result.state.spent_micros) == (ExitReason.COMPLETED, 2 * CENT)
    assert (crew.project / "count").read_text() == "once\nonce\n"
    assert crew.lines.calls == ["started", "iteration ended", "iteration ended", "ended"]
    assert crew.said == [f"[t] {worker.host_name()} cannot execute it: the disk is full"]


@pytest.mark.parametrize("returns", [True, False])
def test_a_host_whose_disk_is_full_gives_its_task_back_although_the_store_fails(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, *, returns: bool
) -> None:
    save_for_successor = worker._Saving.save_for_successor
    failures = [StoreError("redis://box", "is away", "wait")]

    def fails_at_first(saving: worker._Saving, state: RunState) -> None:
        if failures:
            raise failures.pop()
        save_for_successor(saving, state)

    fill_disk_at_first(monkeypatch)
    monkeypatch.setattr(worker._Saving, "save_for_successor", fails_at_first)
    if not returns:
        monkeypatch.setattr(worker, "_retry", lambda work, _: work())
    result = result_of(crew.run())
    assert result.success
    assert result.state.spent_micros == (2 * CENT if returns else CENT), "else it is unknown"
    assert crew.said == [f"[t] {worker.host_name()} cannot execute it: the disk is full"]


def test_a_host_without_room_for_the_record_of_a_run_gives_it_back(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, errors = RunFolder.make, [OSError(errno.ENOSPC, "No space left on device")]

    def made(record: RunFolder) -> None:
        if errors and not record.path.is_relative_to(crew.here.runs):
            raise errors.pop()
        make(record)

    monkeypatch.setattr(RunFolder, "make", made)
    assert result_of(crew.run()).success
    [note] = crew.said
    assert "cannot execute it: " in note
    assert "No space left on device" in note


def test_a_worker_that_gave_a_task_back_leaves_tasks_to_others_for_a_while(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, now_s = list[float](), 1000.0
    monkeypatch.setattr("switchgear._remote.worker.time.monotonic", lambda: now_s)
    monkeypatch.setattr("switchgear._remote.worker.time.sleep", slept.append)
    crew.jobs.order(JobSpec("r1", "b1", {"name": "t"}, "loop/t", Parcel()))
    root, rest = crew.folder / "worker", Rest(rest_s=30.0)
    context = WorkerContext(crew.jobs, crew.there, root, UnpackedStarts(root / "s"), rest)
    rest.begin()
    assert execute(context, "r1") == "left to other workers"
    job = crew.jobs.get("r1")
    assert job is not None
    assert (job.claim, job.drops, slept) == (0, 1, [30.0])
    assert crew.jobs.claim("r1", "one", 60.0) is not None
    execute(context, "r1")
    execute(context, "no such run")
    job = crew.jobs.get("r1")
    assert job is not None
    assert (job.holder, job.drops) == ("one", 1), "another one works on it"
    assert crew.jobs.get("no such run") is None
    now_s += 30.0
    assert rest.left_s() == 0.0


def test_a_worker_waits_for_the_store_before_it_claims(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, troubles, slept = crew.jobs.claim, 2, list[float]()

    def unavailable_at_first(run: str, holder: str, lease_s: float) -> RemoteJob | None:
        nonlocal troubles
        troubles -= 1
        if troubles >= 0:
            raise StoreError("redis://box", "it cannot be reached", "check that it runs")
        return claim(run, holder, lease_s)

    monkeypatch.setattr(crew.jobs, "claim", unavailable_at_first)
    monkeypatch.setattr("switchgear._remote.worker.time.sleep", slept.append)
    crew.jobs.order(JobSpec("r1", "b1", {"name": "t"}, "loop/t", Parcel("start:1")))
    crew.work("r1")
    assert slept[:2] == [0.2, 0.2]
    job = crew.jobs.get("r1")
    assert job is not None
    assert job.claim == 1


def test_the_leftovers_of_a_killed_worker_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in ("killed", "running", "kept"):
        (tmp_path / name / "files").mkdir(parents=True)
    (tmp_path / "killed" / "lock").touch()
    with folder_lock(tmp_path / "running", "attempt running"):
        remove_leftovers(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept", "running"]


def test_the_number_of_an_iteration_cannot_be_a_path(tmp_path: Path) -> None:
    record = RunFolder(tmp_path / "runs" / "r1")
    with pytest.raises(ValueError, match="invalid literal"):
        write_iterations(record, [{"number": "../../../x", "facts": {}, "log": "x"}])
    assert not [*tmp_path.rglob("x*")]


def test_an_attempt_leaves_no_files_on_its_host(crew: Crew) -> None:
    result_of(crew.run())
    assert [*(crew.folder / "worker" / "work").iterdir()] == []
    assert sorted(each.name for each in (crew.folder / "worker").iterdir()) == ["s", "work"]


def test_a_task_that_ends_every_worker_fails(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(run: str) -> None:
        if crew.jobs.claim(run, f"host-{crew.published}", 60.0) is not None:
            crew.clock_s += 60.0  # it never answers

    monkeypatch.setattr(crew, "work", lost)
    result = result_of(crew.run())
    assert result.exit_reason is ExitReason.AGENT_ERROR
    expected = f"{MAX_LOSSES} workers in a row were lost during iteration 1, the last one was "
    assert result.reason.startswith(expected)
    assert crew.published == MAX_LOSSES


def test_no_other_process_of_the_host_runs_the_task_meanwhile(crew: Crew) -> None:
    with folder_lock(crew.here.runs / "r1", "run r1"):
        outcome = crew.run()
    assert (outcome.result, outcome.began) == (None, False)
    assert "run r1 is already running" in outcome.problem
    assert crew.published == 0


def test_a_message_of_an_operator_reaches_the_run_on_its_host(crew: Crew) -> None:
    (crew.folder / "agent.sh").write_text(f"sleep {LIMIT_S}\n")

    class Aborting(Lines):
        def started(self, run: dict[str, Any]) -> None:
            def stop(tx: Transaction) -> None:
                tx.note = Notes("sh", stop="enough").dump()

            crew.here.panel.store.transact(inbox_name("r1"), stop)
            announce(crew.here.runs / "r1")

    crew.lines = Aborting()
    result = result_of(crew.run())
    assert (result.exit_reason, result.reason) == (ExitReason.INTERRUPTED, "enough")
    assert not has_messages(crew.here.runs / "r1")


def test_a_run_that_waits_for_a_worker_is_shown_as_waiting(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "MIN_RESEND_S", 0.05)
    crew.lost_ids = 1
    assert result_of(crew.run()).exit_reason is ExitReason.COMPLETED
    assert crew.shown_at_publish == ["waiting", "waiting"]
    run = RunFolder(crew.here.runs / "r1").read()
    assert (run_status(run), run["waiting"], run["task"]) == ("completed", False, "do it.")
    assert crew.lines.calls == ["started", "iteration ended", "ended"]


def test_a_run_that_is_stopped_while_it_waits_ends(crew: Crew) -> None:
    crew.lost_ids, crew.interrupt = 1, Interrupt()
    crew.interrupt.ask("you")
    assert result_of(crew.run()).exit_reason is ExitReason.INTERRUPTED
    assert crew.shown["exit_reason"] == "interrupted"
    crew.interrupt = None
    again = result_of(crew.run())
    assert (again.exit_reason, again.state.resumptions) == (ExitReason.COMPLETED, 0)


def test_a_suspended_worker_does_not_block_a_run_that_is_submitted_again(crew: Crew) -> None:
    """Its claim expired, the batch was stopped and its job forgotten, and the run resumed."""
    crew.interrupt, claims = Interrupt(), list[int]()

    def claimed_and_suspended(run: str, labels: tuple[str, ...]) -> None:
        del labels
        job = crew.jobs.claim(run, "host", 60.0)
        assert job is not None
        claims.append(job.claim)
        if len(claims) > 1:
            with suppress(LeaseLost):
                crew.jobs.renew(run, claims[0], 60.0)
                claims.append(claims[0])
        crew.clock_s += 60.0
        assert crew.interrupt is not None
        crew.interrupt.ask("you")

    crew.publish = claimed_and_suspended  # type: ignore[method-assign]
    assert result_of(crew.run()).exit_reason is ExitReason.INTERRUPTED
    crew.interrupt = Interrupt()
    assert result_of(crew.run()).exit_reason is ExitReason.INTERRUPTED
    assert claims == [1, 3], "the first claim, one that withdraws the job, the second claim"


def test_claim_numbers_continue_after_a_run_was_continued_locally(crew: Crew) -> None:
    """Its job is forgotten, and `switchgear resume` has written run.json."""
    crew.interrupt = Interrupt()
    crew.interrupt.ask("you")
    result_of(crew.run())
    first = last_claim(RunFolder(crew.here.runs / "r1"))
    task = Task("t", "do it.", flags={"agent_cmd": f"sh {crew.agent}"})
    progress = Progress(Status.RUNNING, run="r1", folder=str(crew.project), timeout_s=LIMIT_S)
    here = run_attempt(crew.here, Attempt(task, progress, interrupt=crew.interrupt))
    assert result_of(here).exit_reason is ExitReason.INTERRUPTED
    crew.interrupt = None
    assert result_of(crew.run(forget=False)).success
    job = crew.jobs.get("r1")
    assert job is not None
    assert (first, job.claim) == (1, 2)


def test_a_run_that_no_worker_can_start_ends(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    def unpack(*_: object) -> None:
        raise TransferError("the bundle is damaged")

    monkeypatch.setattr(UnpackedStarts, "unpack", unpack)
    result = result_of(crew.run())
    assert crew.published == MAX_LOSSES
    assert (result.exit_reason, result.state.iterations) == (ExitReason.AGENT_ERROR, 0)
    why = f"{MAX_LOSSES} attempts at iteration 1 failed in a row: {worker.host_name()} cannot "
    assert result.reason == why + "execute it: the bundle is damaged"
    assert crew.shown["reason"] == result.reason


def test_a_run_that_a_worker_could_not_finish_ends(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = AttemptOutcome(None, "it could not be run: KeyError: 'x'", began=False)
    monkeypatch.setattr(worker, "run_attempt", lambda *_: failed)
    outcome = crew.run()
    assert (outcome.result, outcome.began) == (None, False)
    assert crew.shown["exit_reason"] == "agent_error"
    assert crew.shown["reason"] == failed.problem


def test_a_run_that_could_not_be_submitted_leaves_no_folder(crew: Crew) -> None:
    shutil.rmtree(crew.project / ".git")
    assert "is not in a git repository" in crew.run().problem
    assert list(crew.here.runs.iterdir()) == []


@pytest.mark.parametrize("stuck", [True, False])
def test_a_message_to_a_run_that_waits_is_in_its_first_prompt(crew: Crew, *, stuck: bool) -> None:
    crew.stuck = stuck

    def send(tx: Transaction) -> None:
        tx.note = Notes("sh", pending=("try something else",)).dump()

    crew.here.panel.store.transact(inbox_name("r1"), send)
    (crew.here.runs / "r1").mkdir(parents=True)
    announce(crew.here.runs / "r1")

    def published(run: str, labels: tuple[str, ...]) -> None:
        """As if a worker took the job after the message was announced."""
        crew.jobs.announce(run)
        Crew.publish(crew, run, labels)

    crew.publish = published  # type: ignore[method-assign]
    result_of(crew.run())
    prompt = RunFolder(crew.here.runs / "r1").prompt_file(1).read_text()
    assert "try something else" in prompt


def test_local_iterations_of_a_run_in_the_meantime_count(crew: Crew) -> None:
    """A killed batch leaves the job in the store; then `switchgear resume` continued the run here."""
    result_of(crew.run(forget=False))
    record = RunFolder(crew.here.runs / "r1")
    run = record.read()
    record.write({**run, "state": {**run["state"], "iterations": 3, "spent_micros": 3 * CENT}})
    git(crew.project, "bisect", "start")
    assert crew.run(forget=False).problem.startswith("the task was not sent")
    assert crew.jobs.get("r1") is not None, "its claims are counted on"
    git(crew.project, "bisect", "reset")
    result = result_of(crew.run())
    assert (result.state.iterations, result.state.spent_micros) == (4, 4 * CENT)


def test_a_run_that_another_host_has_is_not_continued_locally(crew: Crew) -> None:
    ledger = MemoryLedger("memory:", time.time)
    jobs = Jobs(ledger)
    run = {"id": "r1", "host": "", "end": None}
    assert not held_elsewhere(ledger, run)
    jobs.order(JobSpec("r1", "b1", {"name": "t"}, "loop/t", Parcel()))
    assert "it waits for a worker" in held_elsewhere(ledger, run)
    jobs.claim("r1", "box:1", 60.0)
    assert "box:1 works on it: to continue, use" in held_elsewhere(ledger, run)
    assert "--resume b1 --on celery" in held_elsewhere(ledger, run)
    assert not held_elsewhere(ledger, {**run, "end": {}})
    assert not held_elsewhere(ledger, {"id": "r1", "end": None})  # it never left this host


def test_a_run_is_marked_as_remote_before_a_worker_can_claim_it(crew: Crew) -> None:
    """A batch that is killed while it sends the first id must not be continued on its host."""
    publish, elsewhere = crew.publish, list[str]()

    def published(run: str, labels: tuple[str, ...]) -> None:
        record = RunFolder(crew.here.runs / run)
        known = record.read() if (record.path / "run.json").exists() else {"id": run}
        elsewhere.append(held_elsewhere(crew.jobs._ledger, known))
        publish(run, labels)

    crew.publish = published  # type: ignore[method-assign]
    assert result_of(crew.run()).success
    [why] = elsewhere
    assert "it waits for a worker" in why


def test_a_broker_that_is_lost_is_reported_once(crew: Crew) -> None:
    left, publish = [OSError("refused"), OSError("refused")], crew.publish

    def unreachable(run: str, labels: tuple[str, ...]) -> None:
        if left:
            raise left.pop()
        publish(run, labels)

    crew.publish = unreachable  # type: ignore[method-assign]
    assert result_of(crew.run()).exit_reason is ExitReason.COMPLETED
    assert left == []
    [line] = crew.said
    assert line.startswith("the broker redis://box cannot be reached (refused); check that it runs")


def test_a_task_is_interrupted_if_the_user_does_not_wait_for_the_store(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_run: str) -> None:
        raise StoreError("redis://box", "cannot be reached", "check that it runs")

    monkeypatch.setattr(crew.jobs, "get", lost)
    crew.interrupt = Interrupt()
    crew.interrupt.ask("you")
    result = result_of(crew.run(forget=False))
    assert result.exit_reason is ExitReason.INTERRUPTED
    assert "redis://box failed: cannot be reached" in result.reason
    assert list(crew.here.runs.iterdir()) == []


def test_an_id_that_an_older_worker_received_is_sent_again_soon(crew: Crew) -> None:
    clock, sent = FakeClock(), list[str]()
    context = RemoteContext(crew.jobs, lambda run, _: sent.append(run), "b1", {})
    sending = _Sender(context, (), Time(clock=clock), _Reported())
    job = RemoteJob(JobSpec("r1", "b1", {"name": "t"}, "loop/t", Parcel()))
    sending.send_if_due(job, 0.0)
    clock.advance(dispatch.RESEND_AFTER_DROP_S)
    sending.send_if_due(job, 0.0)
    assert sent == ["r1"]
    sending.send_if_due(job._replace(drops=1), 0.0)
    clock.advance(dispatch.RESEND_AFTER_DROP_S)
    sending.send_if_due(job._replace(drops=1), 0.0)
    assert sent == ["r1", "r1"]
    clock.advance(dispatch.RESEND_AFTER_DROP_S)
    sending.send_if_due(job._replace(drops=1), 0.0)
    assert sent == ["r1", "r1"]
    assert crew.said == []


def test_dates_of_a_run_are_on_the_clock_of_the_store(crew: Crew) -> None:
    crew.clock_s = 86_400.0
    result_of(crew.run())
    run = RunFolder(crew.here.runs / "r1").read()
    for key in ("started_at", "ended_at"):
        assert datetime.fromisoformat(run[key]).timestamp() > time.time() + 80_000
