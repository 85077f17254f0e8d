"""Runs a batch: starts tasks, collects results, decides what follows, and saves every change.

One thread schedules; each attempt runs in its own thread. The scheduler
alone changes the progress, so the saved state is always consistent.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from switchgear._budgets.allowance import (
    BudgetGrant,
    FreeBudget,
    RunReservation,
    SharedBudget,
    free_budget,
    out_of_money,
    payers_of,
)
from switchgear._budgets.budgets import Budgets
from switchgear._core.errors import BudgetRefused, StoreCorrupt, StoreError, StoreTooNew
from switchgear._core.types import Permit
from switchgear._run.batch.attempt import (
    Admission,
    Attempt,
    AttemptDependencies,
    AttemptOutcome,
    after_timeout,
    failed_outcome,
    final_progress,
    run_attempt,
    timeout_choice,
    timeout_for,
)
from switchgear._run.batch.model import (
    BATCH_ENDS,
    BROKEN,
    SATISFIED,
    Batch,
    BatchEnd,
    Progress,
    Status,
    Task,
    blocked,
    ready,
)
from switchgear._run.batch.record import BatchFolder, BatchState, TaskFolderError, TaskFolders
from switchgear._run.batch.view import BatchView, timed_out, timeout_options
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.interrupt import Interrupt
from switchgear._run.record import full_sentence, is_disk_full, new_run
from switchgear._run.state import Choose
from switchgear._run.view import guarded


class RunningAttempts:
    """The interrupts of all running attempts. Also used in a signal handler."""

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt
        self._members: dict[str, Interrupt] = {}

    def add(self, name: str) -> Interrupt:
        """Add an attempt and return its interrupt; earlier requests to stop apply to it."""
        member = self._members[name] = Interrupt()
        while member.asked < self._interrupt.asked:  # a signal may come just now
            member.ask(self._interrupt.by)
        return member

    def remove(self, name: str) -> None:
        del self._members[name]

    def stop(self) -> None:
        """Request an end of all: gracefully the first time, at once the second."""
        for member in list(self._members.values()):
            member.ask(self._interrupt.by)

    kill = stop

    def stop_once(self) -> None:
        """Request a graceful end of the attempts without a request."""
        for member in list(self._members.values()):
            if not member.asked:
                member.ask("the batch")


class RunningAttempt(NamedTuple):
    permit: Permit
    reserved_micros: int
    """Reserved from the budget of the batch."""
    reservation: RunReservation | None = None
    """Its reservation at a node of the budgets."""


TICK_S = 0.2
MAX_SHARERS = 1024
"""Maximum number of waiting tasks that share a budget: no more can run at a time."""

Perform = Callable[[AttemptDependencies, Attempt], AttemptOutcome]


class BatchDependencies(NamedTuple):
    """What a batch needs besides its tasks: an interrupt, a view, and a prompt for the user."""

    interrupt: Interrupt
    view: BatchView = BatchView()
    choose: Choose | None = None
    """Prompts the user; `None`: no terminal, and policies decide."""


class Scheduler:
    """Runs one batch. Used once, by one thread."""

    def __init__(
        self,
        batch: Batch,
        kept: BatchState,
        home: BatchFolder,
        *,
        shared: AttemptDependencies,
        folders: TaskFolders,
        dependencies: BatchDependencies,
        admission: Admission,
        perform: Perform = run_attempt,
    ) -> None:
        self._batch, self._kept, self._home = batch, kept, home
        self._shared, self._folders = shared, folders
        self._dependencies, self._view = dependencies, guarded(dependencies.view, BatchView())
        self._admission = admission
        self._budget = BatchBudget(batch, shared.panel.budgets, kept.progress)
        self._perform = perform
        self._interrupts = RunningAttempts(dependencies.interrupt)
        self._running: dict[str, RunningAttempt] = {}
        self._awaited_nodes: set[str] = set()
        """Budget nodes for which a task of this round waits: later tasks of the same node wait, too."""
        self.has_begun = False
        """Whether a task was started."""
        self._full = ""
        """The message about a full disk; empty: it is not full."""
        self._store_is_lost = False
        """Whether the store is unavailable, which was reported."""
        self._statuses = {name: each.status for name, each in kept.progress.items()}
        self._unstarted = list(batch.tasks)
        """The tasks that have not started, and `_started` others."""
        self._started = 0
        """Approximate number of tasks in `_unstarted` that have started."""
        self._may_block = True
        """Whether a task has failed since blocked tasks were last determined."""
        self._finished: queue.SimpleQueue[tuple[Task, AttemptOutcome]] = queue.SimpleQueue()

    @property
    def progress(self) -> dict[str, Progress]:
        return self._kept.progress

    def run(self) -> BatchEnd:
        self._view.started(self._home.id, list(self.progress))
        self._write()
        with self._dependencies.interrupt.watching(self._interrupts):
            try:
                self._schedule()
            except BaseException:
                self._interrupts.stop_once()  # a defect or a full disk: attempts must not continue unsupervised
                raise
        end = self._end()
        self._kept = self._kept._replace(end=end.name)
        self._write()
        return end

    def _schedule(self) -> None:
        while True:
            self._block()
            if not self._is_ending():
                self._start_ready()
                self._block()  # what could not even be started has ended, too
            if not self._running and (self._is_ending() or next(self._ready(), None) is None):
                return
            if self._admission.aborted is not None:
                self._interrupts.stop_once()
            with suppress(queue.Empty):
                self._settle(*self._finished.get(timeout=TICK_S))
            self._admission.count_down()

    def _is_ending(self) -> bool:
        stopped = bool(self._dependencies.interrupt.asked) or bool(self._full)
        return stopped or self._admission.aborted is not None

    def _end(self) -> BatchEnd:
        statuses = set(self._statuses.values())
        if not all(progress.is_settled for progress in self.progress.values()):
            if self._full and not self._dependencies.interrupt.asked:
                return BATCH_ENDS["disk_full"]
            return BATCH_ENDS["aborted" if self._admission.aborted is not None else "interrupted"]
        if statuses <= {Status.DONE}:
            return BATCH_ENDS["done"]
        return BATCH_ENDS["partial" if statuses <= SATISFIED else "incomplete"]

    # Before an attempt

    def _block(self) -> None:
        if not self._may_block:
            return
        self._may_block = False
        for name, cause in blocked(self._batch.tasks, self._statuses).items():
            why = f"{cause} {self.progress[cause].status}"
            self._change(name, status=Status.BLOCKED, blocked_by=cause, reason=why)

    def _start_ready(self) -> None:
        """Start tasks, as far as slots, budget and the circuit allow."""
        self._awaited_nodes.clear()
        for task in self._ready():
            if len(self._running) >= self._batch.parallel or self._is_ending():
                return
            if node_of(task) not in self._awaited_nodes and not self._start(task):
                return

    def _start(self, task: Task) -> bool:
        """Start a task, fail it, or let it wait. Returns False if all other tasks must wait, too."""
        running = self._running.values()
        try:
            grant = self._budget.grant(
                task,
                reserved_micros=sum(each.reserved_micros for each in running),
                free_slots=self._batch.parallel - len(running),
                waiting=list(islice(self._ready(), MAX_SHARERS)),
            )
        except (BudgetRefused, StoreCorrupt, StoreTooNew) as trouble:
            return self._fail(task, str(trouble))
        except StoreError as trouble:
            return self._without_store(trouble)
        if grant.micros == 0 and not grant.comes_back and grant.payer not in self._awaited_nodes:
            return self._fail(task, self._budget.why_no_money(task), exit_reason="budget")
        if grant.micros == 0 or grant.payer in self._awaited_nodes:
            # Earlier tasks come first. The budget of the batch is shared by all tasks, so all of them wait.
            return bool(grant.payer) and self._wait_for(task, grant.payer)
        answer = self._admission.acquire(task.name, running=bool(running))
        if isinstance(answer, Permit):
            return self._start_with(task, answer, grant)
        if answer is not None:
            self._change(task.name, status=Status.SKIPPED, reason=answer)
        return answer is not None

    def _start_with(self, task: Task, permit: Permit, grant: BudgetGrant) -> bool:
        reservation: RunReservation | None = None
        try:
            reservation = self._budget.reserve(task, grant.micros, self._home.id)
            progress = self._prepare(task, self.progress[task.name])
        except BudgetRefused:
            self._admission.give_back(permit)
            self._awaited_nodes.add(grant.payer or str(node_of(task)))
            return True  # another process was faster: try again in the next round
        except StoreError as trouble:
            self._admission.give_back(permit)
            return self._without_store(trouble)
        except (TaskFolderError, OSError) as trouble:
            self._admission.give_back(permit)
            if reservation is not None:
                reservation.settle(0)
            if is_disk_full(trouble):
                return self._stop_when_full(full_sentence(trouble))
            if self._dependencies.interrupt.asked:
                return False  # --resume tries again
            return self._fail(task, str(trouble))
        self._store_is_lost = self._store_is_lost and reservation is None
        self._running[task.name] = RunningAttempt(permit, grant.micros or 0, reservation)
        self._change(task.name, **progress._asdict())
        self.has_begun = True
        self._begin(task, progress, grant.micros)
        return True

    def _wait_for(self, task: Task, node: str) -> bool:
        self._awaited_nodes.add(node)
        why = f"waits for budget {node!r}, whose money is reserved"
        if self.progress[task.name].reason != why:
            self._change(task.name, reason=why)
        return True

    def _without_store(self, trouble: StoreError) -> bool:
        """Let tasks wait for the store, without which budgets cannot be granted."""
        if not self._store_is_lost:
            self._view.message(f"{trouble}; the tasks with a budget_node wait for it")
        self._store_is_lost = True
        nodes = map(node_of, self._batch.tasks)
        self._awaited_nodes.update(node for node in nodes if node is not None)
        return True

    def _stop_when_full(self, sentence: str) -> bool:
        """Start no more tasks. Returns False."""
        if not self._full:
            self._full = sentence
            self._view.message(sentence)
        return False

    def _fail(self, task: Task, reason: str, **fields: object) -> bool:
        self._change(task.name, status=Status.FAILED, reason=reason, **fields)
        return True

    def _prepare(self, task: Task, progress: Progress) -> Progress:
        """The progress of a task that starts now, with its folder, run and time limit."""
        interrupt = self._interrupts.add(task.name)
        progress = self._folders.prepare(task, progress, self.progress, interrupt)
        if progress.run is None:
            limit_s, why = timeout_for(self._shared, task)
            if limit_s is not None:
                self._view.message(f"[{task.name}] the timeout is {limit_s:.0f} s ({why})")
            progress = progress._replace(run=new_run(self._shared.runs).id, timeout_s=limit_s)
        elif progress.timeout_s is not None and progress.seconds >= progress.timeout_s:
            limit_s = progress.seconds + self._more_s(task)
            progress = progress._replace(timeout_s=limit_s)  # else the run would end at once
        return progress._replace(status=Status.RUNNING, reason="", attempts=progress.attempts + 1)

    def _begin(self, task: Task, progress: Progress, grant: int | None) -> None:
        attempt = Attempt(
            task,
            progress,
            grant,
            self._view.run_view(task.name),
            self._interrupts.add(task.name),
            self._dependencies.choose,
        )

        def work() -> None:
            outcome = AttemptOutcome(None, "Switchgear itself failed")
            try:
                outcome = self._perform(self._shared, attempt)
            except Exception as error:  # noqa: BLE001  other tasks must continue
                outcome = failed_outcome(error)
            finally:
                self._finished.put((task, outcome))

        threading.Thread(target=work, name=f"switchgear-{task.name}").start()

    # After an attempt

    def _settle(self, task: Task, outcome: AttemptOutcome) -> None:
        running, result = self._running.pop(task.name), outcome.result
        interrupt = self._interrupts.add(task.name)
        before = self.progress[task.name]
        worked = result is not None and result.state.iterations > before.iterations
        self._admission.record(running.permit, outcome, worked=worked)
        progress = final_progress(before, outcome)
        if running.reservation is not None:
            known = result is not None or not outcome.began
            cost = progress.spent_micros - before.spent_micros if known else None
            problem = running.reservation.settle(cost, unpriced=outcome.unpriced)
            self._report_problem(task, problem)
        if result is not None and result.exit_reason is ExitReason.DISK_FULL:
            self._stop_when_full(result.reason)
        if progress.status is Status.RUNNING:
            progress = self._after_timeout(task, progress, outcome)
        if progress.status in SATISFIED:
            problem = self._folders.commit(task, progress, interrupt)
            self._report_problem(task, problem)
            if problem is not None and interrupt.asked:  # --resume tries again
                progress = progress._replace(status=Status.INTERRUPTED, reason=problem)
        self._interrupts.remove(task.name)
        self._change(task.name, **progress._asdict())

    def _report_problem(self, task: Task, problem: str | None) -> None:
        if problem is not None:
            self._view.message(f"[{task.name}] {problem}")

    def _after_timeout(self, task: Task, progress: Progress, outcome: AttemptOutcome) -> Progress:
        result, more_s = outcome.result, self._more_s(task)
        if result is None or result.exit_reason is not ExitReason.TIMEOUT:
            return progress
        options = timeout_options(more_s)
        block = timed_out(task.name, result, options)
        by, choice = "you", None
        if self._dependencies.choose is not None and not self._dependencies.interrupt.asked:
            choice = self._dependencies.choose(block, options)
        if choice is None:
            self._view.message(block)
            by, choice = "the policy", timeout_choice(task, progress)
        if choice == "retry":
            progress = self._folders.discard(task, progress)
        return after_timeout(progress, choice, more_s, by)

    def _more_s(self, task: Task) -> float:
        extend_s = self._shared.interventions.extend_s
        return extend_s if task.more_time_s is None else task.more_time_s

    # State

    def _ready(self) -> Iterator[Task]:
        if 2 * self._started > len(self._unstarted):
            waits = (
                each for each in self._unstarted if self._statuses[each.name] is Status.WAITING
            )
            self._unstarted, self._started = list(waits), 0
        return ready(self._unstarted, self._statuses)

    def _change(self, name: str, **fields: object) -> None:
        """Change a task's progress: save it, then show it."""
        before = self.progress[name]
        after = self.progress[name] = before._replace(**fields)  # type: ignore[arg-type]
        self._statuses[name] = after.status
        if after.status is Status.WAITING and before.status is not Status.WAITING:
            self._unstarted, self._started = list(self._batch.tasks), 0
        self._started += after.status is not Status.WAITING
        self._may_block = self._may_block or after.status in BROKEN
        self._write(name)
        self._view.changed(name, self.progress[name])

    def _write(self, changed: str | None = None) -> None:
        """Save the change of one task, or everything."""
        self._kept = self._kept._replace(forces=self._admission.forces)
        try:
            self._home.write(self._kept, changed)
        except OSError as error:
            if not is_disk_full(error):
                raise
            # `--resume` reads what the runs have written themselves.
            self._stop_when_full(full_sentence(error))


class BatchBudget:
    """Divides the budget of a batch among its tasks. Used by one thread."""

    def __init__(self, batch: Batch, budgets: Budgets, progress: Mapping[str, Progress]) -> None:
        self._limit_micros = batch.budget_micros
        self._budgets = budgets
        self._progress = progress

    def grant(
        self, task: Task, *, reserved_micros: int, free_slots: int, waiting: Sequence[Task]
    ) -> BudgetGrant:
        """What the task may spend.

        `reserved_micros` is reserved for running tasks; the `waiting` tasks share `free_slots` slots.
        Raises `BudgetRefused` if the node is not open, and `StoreError`.
        """
        shared = SharedBudget(self._limit_micros, self._spent_micros, reserved_micros)
        own_left = self._own_left(task)
        limit = shared.grant(own_left, min(free_slots, len(waiting)))
        if limit == 0:
            return BudgetGrant(0, comes_back=own_left != 0 and reserved_micros > 0)
        node = node_of(task)
        free = FreeBudget(None) if node is None else free_budget(self._budgets, node)
        if free.free_micros is None:
            return BudgetGrant(limit)
        sharers = 1
        if limit is None:  # shared by the tasks with the same payer
            nodes = [each for one in waiting if (each := node_of(one)) is not None]
            payers = payers_of(self._budgets, nodes)
            sharers = min(free_slots, sum(payers.get(each) == free.payer for each in nodes))
        total = free.free_micros + free.held_micros
        micros = SharedBudget(total, reserved_micros=free.held_micros).grant(limit, sharers)
        return BudgetGrant(micros, free.payer, comes_back=free.held_micros > 0)

    def why_no_money(self, task: Task) -> str:
        """Which budget of a task is spent: its own, the batch's, or its node's."""
        if self._own_left(task) == 0:
            spent = self._progress[task.name].spent_micros
            return out_of_money("its", task.flags["budget_micros"], spent)
        if SharedBudget(self._limit_micros, self._spent_micros).left_micros == 0:
            return out_of_money("the batch's", self._limit_micros or 0, self._spent_micros)
        return f"budget {node_of(task)!r} has nothing left; `switchgear budgets set` gives it more"

    def reserve(self, task: Task, grant_micros: int | None, batch: str) -> RunReservation | None:
        """Reserve the grant at the task's node, if it names one. Raises `BudgetRefused`, `StoreError`."""
        node = node_of(task)
        if node is None:
            return None
        return RunReservation(
            self._budgets, node, grant_micros, owner=f"batch {batch}, task {task.name}"
        )

    def _own_left(self, task: Task) -> int | None:
        own = task.flags.get("budget_micros")
        return None if own is None else max(0, own - self._progress[task.name].spent_micros)

    @property
    def _spent_micros(self) -> int:
        return sum(each.spent_micros for each in self._progress.values())


def node_of(task: Task) -> str | None:
    """The budget node that pays for a task; `None`: the task names none."""
    return task.flags.get("budget_node")
