"""Scheduling of a batch: order, blocking, timeouts, the circuit for starting agents, budgets, resuming.

The attempts are stand-ins, so that every end can be had at once; `tests/e2e` has real ones.
"""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchgear._agents.demo import make_repository
from switchgear._breaker.loop_breaker import LoopStats
from switchgear._core.policy import Cooldown, Policy
from switchgear._detectors import FailuresInWindow
from switchgear._measure.git_command import run_git
from switchgear._panel.panel import Panel
from switchgear._run.batch.attempt import (
    MAX_FORCES,
    SPAWN,
    Admission,
    Attempt,
    AttemptDependencies,
    AttemptOutcome,
)
from switchgear._run.batch.model import Batch, BatchEnd, Progress, Status, Task
from switchgear._run.batch.record import (
    BatchFolder,
    BatchState,
    BatchUnreadable,
    TaskFolders,
    new_batch,
    resumed_progress,
)
from switchgear._run.batch.scheduler import BatchDependencies, Scheduler
from switchgear._run.batch.view import BatchView
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.interrupt import Interrupt
from switchgear._run.options import RunOptions
from switchgear._run.result import Checkpoint, RunResult
from switchgear._run.state import RunState
from switchgear._stuck.messages import Option
from timeouts import LIMIT_S
from unit.runner_stage import Hands

Perform = Callable[[Attempt], AttemptOutcome]
TRIPS_AT_ONCE = Policy([FailuresInWindow(1, 60.0)], Cooldown(30.0, max_s=30.0))


def outcome(
    reason: str, cost: int = 0, seconds: float = 1.0, changed: int = 1, **more: Any
) -> AttemptOutcome:
    state = RunState(iterations=1, seconds=seconds, spent_micros=cost)
    result = RunResult(
        run="r",
        exit_reason=ExitReason(reason),
        reason=f"because {reason}",
        evidence=(),
        stats=LoopStats(0, 0, 0),
        state=state,
        options=RunOptions("do it", agent="codex", timeout_s=1.0),
        circuit="loop/x",
        checkpoint=Checkpoint("git show it", (), changed),
    )
    return AttemptOutcome(result, **more)


class Watching(BatchView):
    """Keeps what a batch shows; a countdown lets the time pass."""

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self.texts: list[str] = []
        self.waits: list[tuple[str, float]] = []
        self.changes: list[tuple[str, str]] = []

    def changed(self, name: str, progress: Progress) -> None:
        self.changes.append((name, str(progress.status)))

    def message(self, text: str) -> None:
        self.texts.append(text)

    def waiting(self, why: str, left_s: float) -> None:
        self.waits.append((why, left_s))
        self.hands.now_s += left_s


class Stage:
    """A batch with stand-ins for its attempts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hands = Hands()
        self.view = Watching(self.hands)
        self.panel = Panel("memory:", clock=self.hands)
        self.interrupt = Interrupt()
        self.home: BatchFolder | None = None
        self.attempts: list[tuple[str, int | None]] = []
        self.policy: Policy | None = None
        self.choose: Callable[[str, tuple[Option, ...]], str | None] | None = None

    def run(
        self, batch: Batch, act: Perform, progress: dict[str, Progress] | None = None
    ) -> BatchEnd:
        self.home = self.home or new_batch(self.path / ".switchgear" / "batches")
        kept = BatchState(
            self.home.id,
            "tasks.yaml",
            str(self.path),
            progress or {task.name: Progress(digest=task.digest) for task in batch.tasks},
        )

        def noted(place: AttemptDependencies, attempt: Attempt) -> AttemptOutcome:
            self.attempts.append((attempt.task.name, attempt.grant_micros))
            return act(attempt)

        self.admission = Admission(
            self.panel,
            self.view,
            policy=batch.on_open,
            circuit_policy=self.policy,
            choose=self.choose,
            time=self.hands.time,
        )
        conductor = Scheduler(
            batch,
            kept,
            self.home,
            shared=AttemptDependencies(self.panel, self.path / ".switchgear" / "runs"),
            folders=TaskFolders(self.home.path, self.path),
            dependencies=BatchDependencies(self.interrupt, self.view, self.choose),
            admission=self.admission,
            perform=noted,
        )
        end = conductor.run()
        self.progress = conductor.progress
        return end

    @property
    def statuses(self) -> dict[str, str]:
        return {name: str(each.status) for name, each in self.progress.items()}

    @property
    def order(self) -> list[str]:
        return [name for name, _ in self.attempts]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def tasks(**needs: str) -> Batch:
    flags = {"agent": "codex"}
    return Batch(tuple(Task(n, "do it", tuple(e.split()), flags=flags) for n, e in needs.items()))


def with_all(batch: Batch, **fields: Any) -> Batch:
    return batch._replace(tasks=tuple(task._replace(**fields) for task in batch.tasks))


def test_tasks_run_after_their_needs_and_otherwise_in_the_order_of_the_file(stage: Stage) -> None:
    end = stage.run(tasks(c="b", b="", a=""), lambda _: outcome("completed"))
    assert (end.name, end.code) == ("done", 0)
    assert stage.order == ["b", "c", "a"]


def test_at_most_the_configured_number_of_tasks_run_at_once(stage: Stage) -> None:
    together = threading.Barrier(2, timeout=LIMIT_S)
    at_work, most = set[str](), 0

    def act(attempt: Attempt) -> AttemptOutcome:
        nonlocal most
        at_work.add(attempt.task.name)
        together.wait()
        most = max(most, len(at_work))
        together.wait()
        at_work.discard(attempt.task.name)
        return outcome("completed")

    assert stage.run(tasks(a="", b="", c="", d="")._replace(parallel=2), act).code == 0
    assert most == 2


def test_a_task_that_could_not_be_started_blocks_its_dependents_too(stage: Stage) -> None:
    batch = tasks(a="", b="a")
    gone = batch._replace(tasks=(batch.tasks[0]._replace(cwd="/absent/folder"), batch.tasks[1]))
    end = stage.run(gone, lambda _: outcome("completed"))
    assert (end.name, end.code) == ("incomplete", 21)
    assert stage.statuses == {"a": "failed", "b": "blocked"}
    assert "no longer exists" in stage.progress["a"].reason


def test_a_half_created_demo_project_is_rebuilt(tmp_path: Path) -> None:
    half = tmp_path / "home" / "demo" / "a-1"
    half.mkdir(parents=True)
    (half / "half").write_text("made")
    task = Task("a", "do it", flags={"agent": "demo:works"})
    given = TaskFolders(tmp_path / "home", tmp_path).prepare(task, Progress(), {})
    assert given.folder == str(half)
    assert not (half / "half").exists()
    assert (half / ".git").is_dir()


def test_a_failure_blocks_its_dependents_and_the_others_continue(stage: Stage) -> None:
    ends = {"a": "max_iterations", "d": "completed"}
    end = stage.run(tasks(a="", b="a", c="b", d=""), lambda at: outcome(ends[at.task.name]))
    assert (end.name, end.code) == ("incomplete", 21)
    assert stage.statuses == {"a": "failed", "b": "blocked", "c": "blocked", "d": "done"}
    assert stage.progress["c"].blocked_by == "a"
    assert stage.progress["c"].reason == "a failed"


def test_an_attempt_that_raises_is_a_failure_of_its_task_alone(stage: Stage) -> None:
    def act(attempt: Attempt) -> AttemptOutcome:
        if attempt.task.name == "a":
            raise OSError("no space")
        return outcome("completed")

    assert stage.run(tasks(a="", b=""), act).code == 21
    assert stage.progress["a"].reason == "it could not be run: OSError: no space"
    assert stage.statuses["b"] == "done"


def test_a_stuck_task_that_was_given_up_is_skipped(stage: Stage) -> None:
    end = stage.run(tasks(a=""), lambda _: outcome("circuit_breaker", gave_up="tried nudge, skip"))
    assert (end.code, stage.statuses["a"]) == (21, "skipped")
    assert "tried nudge, skip" in stage.progress["a"].reason


def test_every_change_is_written_before_it_is_shown(stage: Stage) -> None:
    seen: list[str] = []

    def changed(name: str, progress: Progress) -> None:
        assert stage.home is not None
        seen.append(str(stage.home.read()[0].progress[name].status))
        assert seen[-1] == progress.status

    stage.view.changed = changed  # type: ignore[method-assign]
    stage.run(tasks(a=""), lambda _: outcome("completed"))
    assert seen == ["running", "done"]


def test_a_view_that_fails_does_not_stop_the_run(stage: Stage) -> None:
    def changed(name: str, progress: Progress) -> None:
        raise BrokenPipeError

    stage.view.changed = changed  # type: ignore[method-assign]
    assert stage.run(tasks(a="", b="a"), lambda _: outcome("completed")).code == 0


# Timeouts


def late(*ends: str) -> Perform:
    left = list(ends)
    return lambda _: outcome(left.pop(0))


def test_resume_continues_with_the_same_run_and_more_time(stage: Stage) -> None:
    runs: list[tuple[str | None, float | None]] = []

    def act(attempt: Attempt) -> AttemptOutcome:
        runs.append((attempt.progress.run, attempt.progress.timeout_s))
        return outcome("completed" if len(runs) > 1 else "timeout", seconds=10.0)

    end = stage.run(with_all(tasks(a=""), timeout=10.0, more_time_s=5.0), act)
    assert end.code == 0
    assert runs == [(runs[0][0], 10.0), (runs[0][0], 15.0)]
    assert any(text.startswith("TASK TIMED OUT\n\nTask: a (codex)") for text in stage.view.texts)


def test_accept_keeps_what_was_done_and_lets_dependents_begin(stage: Stage) -> None:
    batch = with_all(tasks(a="", b="a"), on_timeout="accept")
    end = stage.run(batch, late("timeout", "completed"))
    assert (end.name, end.code) == ("partial", 20)
    assert stage.statuses == {"a": "partial", "b": "done"}
    assert stage.progress["a"].checkpoint == "git show it"


def test_without_changed_files_there_is_no_checkpoint(stage: Stage) -> None:
    stage.run(tasks(a=""), lambda _: outcome("completed", changed=0))
    assert stage.progress["a"].checkpoint is None


def test_retry_begins_a_new_run_and_includes_the_cost_of_the_old_one(stage: Stage) -> None:
    runs: list[str | None] = []

    def act(attempt: Attempt) -> AttemptOutcome:
        runs.append(attempt.progress.run)
        return outcome("completed" if len(runs) > 1 else "timeout", cost=5)

    assert stage.run(with_all(tasks(a=""), on_timeout="retry"), act).code == 0
    assert runs[0] != runs[1]
    assert stage.progress["a"].runs == (runs[0],)
    assert stage.progress["a"].spent_micros == 10


def test_skip_marks_the_task_as_skipped(stage: Stage) -> None:
    batch = with_all(tasks(a="", b="a"), on_timeout="skip")
    assert stage.run(batch, late("timeout")).code == 21
    assert stage.statuses == {"a": "skipped", "b": "blocked"}


@pytest.mark.parametrize("policy", ["resume", "retry"])
def test_a_policy_retries_a_limited_number_of_times(stage: Stage, policy: str) -> None:
    batch = with_all(tasks(a=""), on_timeout=policy, attempts=2)
    assert stage.run(batch, lambda _: outcome("timeout")).code == 21
    assert len(stage.attempts) == 2
    assert stage.progress["a"].reason == "time limit reached after 2 attempts"


@pytest.mark.parametrize(("choice", "status"), [("accept", "partial"), ("skip", "skipped"), ("resume", "done"), ("retry", "done")])  # fmt: skip
def test_at_a_terminal_the_user_chooses(stage: Stage, choice: str, status: str) -> None:
    asked: list[str] = []

    def choose(block: str, options: tuple[Option, ...]) -> str:
        asked.append(block)
        assert [option.key for option in options] == ["resume", "accept", "retry", "skip"]
        return choice

    stage.choose = choose
    stage.run(with_all(tasks(a=""), on_timeout="skip"), late("timeout", "completed"))
    assert stage.statuses["a"] == status
    assert len(asked) == 1


def test_without_an_answer_the_policy_decides(stage: Stage) -> None:
    stage.choose = lambda block, options: None
    stage.run(with_all(tasks(a=""), on_timeout="accept"), late("timeout"))
    assert stage.statuses["a"] == "partial"


# The circuit of spawning agents


def test_the_spawn_circuit_records_each_attempt_that_is_evidence(stage: Stage) -> None:
    ends = {"a": "completed", "b": "max_iterations", "c": "budget", "d": "blocked"}
    stage.run(tasks(a="", b="", c="", d=""), lambda at: outcome(ends[at.task.name]))
    totals = stage.panel.breaker(SPAWN).totals
    assert (totals.succeeded, totals.failed, totals.ignored) == (1, 1, 2)


def fails_first(attempt: Attempt) -> AttemptOutcome:
    return outcome("agent_error" if attempt.task.name == "a" else "completed")


def test_wait_counts_down_probes_and_resumes(stage: Stage) -> None:
    stage.policy = TRIPS_AT_ONCE
    assert stage.run(tasks(a="", b="", c=""), fails_first).code == 21
    assert stage.statuses == {"a": "failed", "b": "done", "c": "done"}
    assert stage.view.waits == [("for op/agent_spawn (1 failure in 60 s (threshold 1))", 30.0)]
    told = "\n".join(stage.view.texts)
    assert "CIRCUIT BREAKER TRIPPED\n\nOperation: agent_spawn" in told
    assert "agent_error: because agent_error" in told
    assert "Circuit: agent_spawn (OPEN)\nOpened: 30 seconds ago" in told
    assert "Test result: SUCCESS\n\nCircuit CLOSED. Resuming normal operations." in told


@pytest.mark.parametrize(
    ("on_open", "end", "b"),
    [("skip", "incomplete", "skipped"), ("abort", "aborted", "waiting"), ("force", "incomplete", "done")],
)  # fmt: skip
def test_each_policy_of_an_open_circuit_works_as_documented(
    stage: Stage, on_open: str, end: str, b: str
) -> None:
    stage.policy = TRIPS_AT_ONCE
    found = stage.run(tasks(a="", b="")._replace(on_open=on_open), fails_first)
    assert (found.name, stage.statuses["b"]) == (end, b)
    assert stage.view.waits == []


def test_an_abort_ends_what_runs_and_it_can_be_resumed(stage: Stage) -> None:
    stage.policy = TRIPS_AT_ONCE

    def act(attempt: Attempt) -> AttemptOutcome:
        assert attempt.interrupt is not None
        while attempt.task.name == "b" and not attempt.interrupt.asked:
            threading.Event().wait(0.01)
        return outcome("agent_error" if attempt.task.name == "a" else "interrupted")

    batch = tasks(a="", b="", c="")._replace(parallel=2, on_open="abort")
    assert stage.run(batch, act).name == "aborted"
    assert stage.statuses == {"a": "failed", "b": "interrupted", "c": "waiting"}


def test_a_policy_force_closes_the_circuit_a_limited_number_of_times_and_then_waits(
    stage: Stage,
) -> None:
    stage.policy = TRIPS_AT_ONCE
    batch = tasks(**{f"t{n}": "" for n in range(MAX_FORCES + 2)})._replace(on_open="force")
    stage.run(batch, lambda _: outcome("agent_error"))
    assert len(stage.attempts) == MAX_FORCES + 2
    assert len(stage.view.waits) == 1


def test_a_circuit_that_is_held_open_aborts_a_waiting_batch(stage: Stage) -> None:
    stage.panel.breaker(SPAWN, TRIPS_AT_ONCE).hold_open(by="me", why="maintenance")
    stage.policy = TRIPS_AT_ONCE
    assert stage.run(tasks(a=""), fails_first).name == "aborted"
    assert "held open by me" in (stage.admission.aborted or "")


def test_tasks_wait_while_a_probe_is_under_way(stage: Stage) -> None:
    stage.policy = TRIPS_AT_ONCE
    at_work: list[str] = []
    looks: list[str] = []

    def act(attempt: Attempt) -> AttemptOutcome:
        at_work.append(attempt.task.name)
        while attempt.task.name == "b" and not any("the probe of" in why for why in looks):
            looks[:] = [why for why, _ in stage.view.waits]
        return fails_first(attempt)

    batch = tasks(a="", b="", c="")._replace(parallel=1)
    stage.run(batch._replace(tasks=batch.tasks[:1]), act)
    assert stage.run(batch._replace(tasks=batch.tasks[1:], parallel=2), act).code == 0
    assert at_work == ["a", "b", "c"]


def test_a_person_can_force_skip_or_abort(stage: Stage) -> None:
    stage.policy = TRIPS_AT_ONCE
    choices = iter(["force", "skip"])
    stage.choose = lambda block, options: next(choices)
    stage.run(tasks(a="", b="", c=""), lambda _: outcome("agent_error"))
    assert stage.statuses == {"a": "failed", "b": "failed", "c": "skipped"}


def test_a_task_that_chose_to_wait_is_not_prompted_again_when_another_probes_first(
    stage: Stage,
) -> None:
    stage.policy = TRIPS_AT_ONCE
    asked: list[str] = []
    let_pass = stage.view.waiting

    def waiting(why: str, left_s: float) -> None:
        let_pass(why, left_s)
        if len(stage.view.waits) == 1:
            stage.panel.breaker(SPAWN).enter()  # the test of another process, which never ends

    def choose(block: str, options: tuple[Option, ...]) -> str:
        asked.append(block)
        return "wait"

    stage.view.waiting = waiting  # type: ignore[method-assign]
    stage.choose = choose
    stage.run(tasks(a="", b=""), fails_first)
    assert stage.statuses["b"] == "done"
    assert len(asked) == 1
    assert len(stage.view.waits) == 2


# Money


def test_parallel_tasks_never_get_more_than_the_budget(stage: Stage) -> None:
    batch = tasks(a="", b="", c="")._replace(budget_micros=100, parallel=2)
    spends = threading.Barrier(2, timeout=LIMIT_S)

    def act(attempt: Attempt) -> AttemptOutcome:
        if attempt.task.name != "c":
            spends.wait()
        return outcome("completed", cost=attempt.grant_micros or 0)

    stage.run(batch, act)
    assert dict(stage.attempts)["a"] == 50
    assert sum(each.spent_micros for each in stage.progress.values()) == 100
    assert stage.progress["c"].reason == "$0.0001 of the batch's $0.0001 are spent"


def test_the_budget_of_a_task_applies_to_all_its_attempts(stage: Stage) -> None:
    flags = {"agent": "codex", "budget_micros": 10}
    batch = Batch((Task("a", "x", flags=flags, on_timeout="resume"),))
    stage.run(batch, lambda at: outcome("timeout", cost=6))
    assert stage.attempts == [("a", 10), ("a", 4), ("a", 4)]
    assert stage.run(batch, lambda at: outcome("timeout", cost=10)).code == 21
    assert stage.progress["a"].reason == "$0.00001 of its $0.00001 are spent"


# Stopping and going on


def test_a_stopped_batch_starts_nothing_more_and_can_be_resumed(stage: Stage) -> None:
    def act(attempt: Attempt) -> AttemptOutcome:
        stage.interrupt.ask()
        assert attempt.interrupt is not None
        assert attempt.interrupt.asked == 1
        return outcome("interrupted")

    assert stage.run(tasks(a="", b=""), act).code == 130
    assert stage.statuses == {"a": "interrupted", "b": "waiting"}
    progress, notes = resumed_progress(stage.progress, tasks(a="", b="").tasks, failed_too=False)
    stage.interrupt = Interrupt()
    assert stage.run(tasks(a="", b=""), lambda _: outcome("completed"), progress).code == 0
    assert stage.order == ["a", "a", "b"]
    assert notes == []


@pytest.mark.parametrize(("signals", "status"), [(1, "done"), (2, "interrupted")])
def test_a_second_signal_leaves_the_commit_to_resume(
    stage: Stage, tmp_path: Path, signals: int, status: str
) -> None:
    """A filter of the user's may hang: the commits of several tasks would delay the end by 20 s each."""
    stage.path = tmp_path / "project"
    make_repository(stage.path)
    home = stage.home = new_batch(tmp_path / "home" / ".switchgear" / "batches")

    def act(attempt: Attempt) -> AttemptOutcome:
        Path(attempt.progress.folder or "", "new").write_text("by the agent\n")
        for _ in range(signals):
            stage.interrupt.ask()
        return outcome("completed")

    batch = with_all(tasks(a=""), worktree=True)
    stage.run(batch, act)
    assert stage.statuses == {"a": status}
    places = TaskFolders(home.path, stage.path)
    assert places.commit(batch.tasks[0], stage.progress["a"]) is None, "as --resume does"
    branch = stage.progress["a"].branch or ""
    assert run_git(stage.path, ["show", f"{branch}:new"]) == "by the agent\n"


def kept(**statuses: str) -> dict[str, Progress]:
    return {n: Progress(Status(s), run=f"run-{n}", attempts=2) for n, s in statuses.items()}


def test_done_tasks_are_not_repeated_and_running_ones_are_resumed(stage: Stage) -> None:
    batch = tasks(a="", b="", c="a")
    progress, _ = resumed_progress(
        kept(a="done", b="running", c="blocked"), batch.tasks, failed_too=False
    )
    assert [str(progress[name].status) for name in "abc"] == ["done", "waiting", "waiting"]
    assert (progress["b"].run, progress["b"].attempts) == ("run-b", 2)


def test_a_failed_task_is_retried_only_on_request(stage: Stage) -> None:
    batch = tasks(a="", b="")
    old = kept(a="failed", b="skipped")
    same, _ = resumed_progress(old, batch.tasks, failed_too=False)
    again, _ = resumed_progress(old, batch.tasks, failed_too=True)
    assert [str(each.status) for each in same.values()] == ["failed", "skipped"]
    assert [(str(each.status), each.attempts) for each in again.values()] == [("waiting", 0)] * 2


def test_a_task_that_gets_a_worktree_leaves_the_folder_of_the_user_alone(tmp_path: Path) -> None:
    """It was begun in that folder: to continue there would also commit what the user has not."""
    project = tmp_path / "project"
    make_repository(project)
    before = run_git(project, ["rev-parse", "HEAD"])
    (project / "new").write_text("by the user\n")
    task = Task("a", "do it", worktree=True)
    begun = Progress(Status.INTERRUPTED, run="run-1", folder=str(project), spent_micros=7)
    progress, notes = resumed_progress({"a": begun}, [task], failed_too=False)
    places = TaskFolders(tmp_path / "home" / "b1", project)
    given = places.prepare(task, progress["a"], {})
    assert (given.run, given.runs, given.earlier_micros) == (None, ("run-1",), 7)
    assert given.folder == str(tmp_path / "project-trees" / "b1" / "a")
    assert notes[-1] == "a works in a worktree now, and starts from scratch"
    assert places.commit(task, begun) is None
    assert run_git(project, ["rev-parse", "HEAD"]) == before
    assert run_git(project, ["status", "--porcelain"]).splitlines() == ["?? new"]


def test_a_changed_file_is_detected(stage: Stage) -> None:
    old = kept(a="done", gone="failed")
    old["a"] = old["a"]._replace(digest="another")
    progress, notes = resumed_progress(old, tasks(a="", new="").tasks, failed_too=False)
    assert list(progress) == ["a", "new"]
    assert notes == [
        "a was changed in the file; it is not repeated",
        "new is new in the file",
        "gone is no longer in the file, and is left out",
    ]


def test_progress_is_read_as_it_was_written() -> None:
    progress = Progress(Status.FAILED, "why", run="r", runs=("q",), timeout_s=1.5, attempts=2)
    assert Progress.load(progress.dump()) == progress


@pytest.mark.parametrize(
    "broken",
    [{"status": "cooking"}, {}, {"status": "done", "attempts": -1}, {"status": "done", "run": "../x"}],
)  # fmt: skip
def test_progress_that_was_never_written_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Progress.load(broken)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99}', '{"schema": 1, "progress": 5}'])
def test_a_batch_that_cannot_be_read_is_reported(stage: Stage, text: str) -> None:
    home = new_batch(stage.path / ".switchgear" / "batches")
    (home.path / "batch.json").write_text(text)
    with pytest.raises(BatchUnreadable, match=f"batch '{home.id}'"):
        home.read()


# A full disk


def test_a_batch_json_that_cannot_be_written_ends_the_batch_and_starts_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    write, begun = BatchFolder.write, threading.Event()

    def full(folder: BatchFolder, kept: BatchState, changed: str | None = None) -> None:
        if begun.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        write(folder, kept, changed)

    def act(_: Attempt) -> AttemptOutcome:
        begun.set()
        return outcome("completed")

    monkeypatch.setattr(BatchFolder, "write", full)
    end = stage.run(Batch((Task("a", "x", timeout=60.0), Task("b", "x", timeout=60.0))), act)
    assert (end.name, end.code) == ("disk_full", 17)
    assert [name for name, _ in stage.attempts] == ["a"]
    assert any("the disk is full" in text for text in stage.view.texts)


def test_a_task_whose_run_filled_the_disk_is_continued_later(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    batch = Batch((Task("a", "x", timeout=60.0), Task("b", "x", timeout=60.0)))
    end = stage.run(batch, lambda _: outcome("disk_full"))
    assert (end.name, end.code) == ("disk_full", 17)
    assert stage.home is not None
    kept, _ = stage.home.read()
    assert [each.status for each in kept.progress.values()] == ["interrupted", "waiting"]
    progress, _ = resumed_progress(kept.progress, batch.tasks, failed_too=False)
    assert stage.run(batch, lambda _: outcome("completed"), progress).name == "done"


def test_a_run_that_cannot_be_created_on_a_full_disk_is_not_a_failure_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("switchgear._run.batch.scheduler.new_run", full)
    end = stage.run(Batch((Task("a", "x", timeout=60.0),)), lambda _: outcome("completed"))
    assert end.code == 17
    assert stage.attempts == []
