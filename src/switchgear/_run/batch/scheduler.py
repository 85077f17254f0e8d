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
    by_policy,
    failed_outcome,
    final_progress,
    run_attempt,
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

    def take(self, name: str) -> Interrupt:
        """Add an attempt; earlier requests to stop apply to it."""
        member = self._members[name] = Interrupt()
        while member.asked < self._interrupt.asked:  # a signal may come just now
            member.ask(self._interrupt.by)
        return member

    def leave(self, name: str) -> None:
        del self._members[name]

    def stop(self) -> None:
        """Request an end of each: gently the first time, at once the second."""
        for member in list(self._members.values()):
            member.ask(self._interrupt.by)

    kill = stop

    def stop_once(self) -> None:
        """Request a gentle end of the attempts that have no request yet."""
        for member in list(self._members.values()):
            if not member.asked:
                member.ask("the batch")


class RunningAttempt(NamedTuple):
    permit: Permit
    reserved_micros: int
    """Of the batch's budget."""
    reservation: RunReservation | None = None
    """What is held for it in a tree of budgets."""


TICK_S = 0.2
MOST_SHARERS = 1024
"""How many waiting tasks are counted when a budget is shared: no more can run at a time."""

Perform = Callable[[AttemptDependencies, Attempt], AttemptOutcome]


class BatchDependencies(NamedTuple):
    """What a batch needs beside its tasks: interrupt, view, and a prompt."""

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
        place: AttemptDependencies,
        places: TaskFolders,
        dependencies: BatchDependencies,
        admission: Admission,
        act: Perform = run_attempt,
    ) -> None:
        self._batch, self._kept, self._home = batch, kept, home
        self._place, self._places = place, places
        self._dependencies, self._view = dependencies, guarded(dependencies.view, BatchView())
        self._admission = admission
        self._budget = BatchBudget(batch, place.panel.budgets, kept.progress)
        self._act = act
        self._interrupts = RunningAttempts(dependencies.interrupt)
        self._running: dict[str, RunningAttempt] = {}
        self._waited_for: set[str] = set()
        """The nodes that a task of this round waits for: later tasks of the same node wait, too."""
        self.has_begun = False
        """Whether a task was started."""
        self._full = ""
        """Why nothing more can be written, once the disk is full."""
        self._lost_store = False
        """Whether the loss of the store was reported."""
        self._statuses = {name: each.status for name, each in kept.progress.items()}
        self._unbegun = list(batch.tasks)
        """All tasks that have not started; may include some that have."""
        self._begun = 0
        """About how many of them have started."""
        self._may_block = True
        """Whether a task has failed since blocked tasks were last determined."""
        self._finished: queue.SimpleQueue[tuple[Task, AttemptOutcome]] = queue.SimpleQueue()

    @property
    def progress(self) -> dict[str, Progress]:
        return self._kept.progress

    def run(self) -> BatchEnd:
        self._view.began(self._home.id, list(self.progress))
        self._write()
        with self._dependencies.interrupt.watching(self._interrupts):
            try:
                self._schedule()
            except BaseException:
                self._interrupts.stop_once()  # a defect, or a full disk: no attempt continues unsupervised
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
        self._waited_for.clear()
        for task in self._ready():
            if len(self._running) >= self._batch.parallel or self._is_ending():
                return
            if node_of(task) not in self._waited_for and not self._start(task):
                return

    def _start(self, task: Task) -> bool:
        """Start a task, fail it, or let it wait; False: all others must wait, too."""
        running = self._running.values()
        try:
            grant = self._budget.grant(
                task,
                reserved_micros=sum(each.reserved_micros for each in running),
                places=self._batch.parallel - len(running),
                waiting=list(islice(self._ready(), MOST_SHARERS)),
            )
        except (BudgetRefused, StoreCorrupt, StoreTooNew) as trouble:
            return self._fail(task, str(trouble))
        except StoreError as trouble:
            return self._without_store(trouble)
        if grant.micros == 0 and not grant.comes_back and grant.payer not in self._waited_for:
            return self._fail(task, self._budget.why_no_money(task), exit_reason="budget")
        if grant.micros == 0 or grant.payer in self._waited_for:
            # Its turn is after those before it; all tasks share the batch's own money, in order.
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
            self._waited_for.add(grant.payer or str(node_of(task)))
            return True  # another process was faster: the next round uses what is left
        except StoreError as trouble:
            self._admission.give_back(permit)
            return self._without_store(trouble)
        except (TaskFolderError, OSError) as trouble:
            self._admission.give_back(permit)
            if reservation is not None:
                reservation.settle(0)
            if is_disk_full(trouble):
                return self._no_room(full_sentence(trouble))
            if self._dependencies.interrupt.asked:
                return False  # --resume tries again
            return self._fail(task, str(trouble))
        self._lost_store = self._lost_store and reservation is None
        self._running[task.name] = RunningAttempt(permit, grant.micros or 0, reservation)
        self._change(task.name, **progress._asdict())
        self.has_begun = True
        self._begin(task, progress, grant.micros)
        return True

    def _wait_for(self, task: Task, node: str) -> bool:
        self._waited_for.add(node)
        why = f"waits for budget {node!r}, whose money is reserved"
        if self.progress[task.name].reason != why:
            self._change(task.name, reason=why)
        return True

    def _without_store(self, trouble: StoreError) -> bool:
        """Wait for the store: budgets cannot be granted without it, and its loss is no failure of a task."""
        if not self._lost_store:
            self._view.said(f"{trouble}; the tasks with a budget_node wait for it")
        self._lost_store = True
        nodes = map(node_of, self._batch.tasks)
        self._waited_for.update(node for node in nodes if node is not None)
        return True

    def _no_room(self, sentence: str) -> bool:
        if not self._full:
            self._full = sentence
            self._view.said(sentence)
        return False

    def _fail(self, task: Task, reason: str, **fields: object) -> bool:
        self._change(task.name, status=Status.FAILED, reason=reason, **fields)
        return True

    def _prepare(self, task: Task, progress: Progress) -> Progress:
        """The progress with its folder, run and time limit."""
        interrupt = self._interrupts.take(task.name)
        progress = self._places.give(task, progress, self.progress, interrupt)
        if progress.run is None:
            limit_s, why = timeout_for(self._place, task)
            if limit_s is not None:
                self._view.said(f"[{task.name}] the timeout is {limit_s:.0f} s ({why})")
            progress = progress._replace(run=new_run(self._place.runs).id, timeout_s=limit_s)
        elif progress.timeout_s is not None and progress.seconds >= progress.timeout_s:
            limit_s = progress.seconds + self._more_s(task)
            progress = progress._replace(timeout_s=limit_s)  # else it would end at once
        return progress._replace(status=Status.RUNNING, reason="", attempts=progress.attempts + 1)

    def _begin(self, task: Task, progress: Progress, grant: int | None) -> None:
        attempt = Attempt(
            task,
            progress,
            grant,
            self._view.run_view(task.name),
            self._interrupts.take(task.name),
            self._dependencies.choose,
        )

        def work() -> None:
            outcome = AttemptOutcome(None, "Switchgear itself failed")
            try:
                outcome = self._act(self._place, attempt)
            except Exception as error:  # noqa: BLE001  one task's trouble is not the others'
                outcome = failed_outcome(error)
            finally:
                self._finished.put((task, outcome))

        threading.Thread(target=work, name=f"switchgear-{task.name}").start()

    # After an attempt

    def _settle(self, task: Task, outcome: AttemptOutcome) -> None:
        running, result = self._running.pop(task.name), outcome.result
        interrupt = self._interrupts.take(task.name)
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
            self._no_room(result.reason)
        if progress.status is Status.RUNNING:
            progress = self._after_timeout(task, progress, outcome)
        if progress.status in SATISFIED:
            problem = self._places.keep(task, progress, interrupt)
            self._report_problem(task, problem)
            if problem is not None and interrupt.asked:  # --resume tries again
                progress = progress._replace(status=Status.INTERRUPTED, reason=problem)
        self._interrupts.leave(task.name)
        self._change(task.name, **progress._asdict())

    def _report_problem(self, task: Task, problem: str | None) -> None:
        if problem is not None:
            self._view.said(f"[{task.name}] {problem}")

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
            self._view.said(block)
            by, choice = "the policy", by_policy(task, progress)
        if choice == "retry":
            progress = self._places.take_back(task, progress)
        return after_timeout(progress, choice, more_s, by)

    def _more_s(self, task: Task) -> float:
        extend_s = self._place.interventions.extend_s
        return extend_s if task.more_time_s is None else task.more_time_s

    # What is known

    def _ready(self) -> Iterator[Task]:
        if 2 * self._begun > len(self._unbegun):
            waits = (each for each in self._unbegun if self._statuses[each.name] is Status.WAITING)
            self._unbegun, self._begun = list(waits), 0
        return ready(self._unbegun, self._statuses)

    def _change(self, name: str, **fields: object) -> None:
        """Change a task's progress: save it, then show it."""
        before = self.progress[name]
        after = self.progress[name] = before._replace(**fields)  # type: ignore[arg-type]
        self._statuses[name] = after.status
        if after.status is Status.WAITING and before.status is not Status.WAITING:
            self._unbegun, self._begun = list(self._batch.tasks), 0
        self._begun += after.status is not Status.WAITING
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
            self._no_room(
                full_sentence(error)
            )  # what the runs write themselves is read by --resume


class BatchBudget:
    """Grants money to the tasks of one batch. Used by one thread."""

    def __init__(self, batch: Batch, budgets: Budgets, progress: Mapping[str, Progress]) -> None:
        self._limit_micros = batch.budget_micros
        self._budgets = budgets
        self._progress = progress

    def grant(
        self, task: Task, *, reserved_micros: int, places: int, waiting: Sequence[Task]
    ) -> BudgetGrant:
        """What the task may spend.

        `reserved_micros` is granted to running tasks; `places` slots are free, for the tasks
        that are `waiting`. Raises `BudgetRefused` if its node is not open, `StoreError`.
        """
        shared = SharedBudget(self._limit_micros, self._spent_micros, reserved_micros)
        own_left = self._own_left(task)
        wanted = shared.grant(own_left, min(places, len(waiting)))
        if wanted == 0:
            return BudgetGrant(0, comes_back=own_left != 0 and reserved_micros > 0)
        node = node_of(task)
        room = FreeBudget(None) if node is None else free_budget(self._budgets, node)
        if room.free_micros is None:
            return BudgetGrant(wanted)
        sharers = 1
        if wanted is None:  # shared by the tasks that have their money from the same node
            nodes = [each for one in waiting if (each := node_of(one)) is not None]
            payers = payers_of(self._budgets, nodes)
            sharers = min(places, sum(payers.get(each) == room.payer for each in nodes))
        whole = room.free_micros + room.held_micros
        micros = SharedBudget(whole, reserved_micros=room.held_micros).grant(wanted, sharers)
        return BudgetGrant(micros, room.payer, comes_back=room.held_micros > 0)

    def why_no_money(self, task: Task) -> str:
        """Why there is no money for a task: its own is spent, or the batch's, or its node's."""
        if self._own_left(task) == 0:
            spent = self._progress[task.name].spent_micros
            return out_of_money("its", task.flags["budget_micros"], spent)
        if SharedBudget(self._limit_micros, self._spent_micros).left_micros == 0:
            return out_of_money("the batch's", self._limit_micros or 0, self._spent_micros)
        return f"budget {node_of(task)!r} has nothing left; `switchgear budgets set` gives it more"

    def reserve(self, task: Task, grant_micros: int | None, batch: str) -> RunReservation | None:
        """Hold it in the tree, if the task names a node. Raises `BudgetRefused`, `StoreError`."""
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
    """The node of the budgets that a task is paid from; `None`: it names none."""
    return task.flags.get("budget_node")
