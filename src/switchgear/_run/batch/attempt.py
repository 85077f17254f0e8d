"""One attempt at a task: its admission by `op/agent_spawn`, its run, the progress of the task after it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from switchgear._agents.demo import VALIDATED, VALIDATION
from switchgear._breaker.handle import Breaker
from switchgear._breaker.presets import LoopPreset
from switchgear._config.sections import preset_policy
from switchgear._core.errors import OverrideRefused, Rejected, StoreError
from switchgear._core.policy import Policy
from switchgear._core.types import Permit, Phase, Signal
from switchgear._opinion.opinion import SecondOpinion
from switchgear._panel.panel import Panel
from switchgear._run.batch.model import Progress, Status, Task
from switchgear._run.batch.view import BatchView
from switchgear._run.circuits import loop_name, task_name
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.interrupt import Interrupt, Time
from switchgear._run.loop import Runner, agent_of, take_locks
from switchgear._run.options import RunOptions, run_options
from switchgear._run.record import (
    RunFolder,
    RunUnreadable,
    circuit_of,
    has_started,
    timeout_by_policy,
)
from switchgear._run.result import RunResult
from switchgear._run.run_lock import RunConflict
from switchgear._run.state import Choose, RunDependencies, RunState
from switchgear._run.stuck import given_up
from switchgear._run.view import RunView, guarded
from switchgear._sinks.dispatch import Sink
from switchgear._stuck import messages
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.messages import trip_options
from switchgear._stuck.timeouts import Timeouts
from switchgear._text.formats import plural
from switchgear._text.redact import redact


class AttemptDependencies(NamedTuple):
    """What all attempts of a batch work with."""

    panel: Panel
    runs: Path
    """Where runs are kept."""
    presets: Mapping[str, LoopPreset] = {}
    timeouts: Timeouts = Timeouts()
    interventions: Interventions = Interventions()
    policy_for: Callable[[str], Policy | None] = lambda _: None
    """The policy that the configuration has for a circuit."""
    sinks: tuple[Sink, ...] = ()
    report: Callable[[RunFolder], Path] | None = None
    second_opinion: SecondOpinion | None = None
    owner_of: Callable[[str], str] = lambda _: ""
    """The person to notify about the runs of an agent; empty: unknown."""


class Attempt(NamedTuple):
    task: Task
    progress: Progress
    """With its run and its folder."""
    grant_micros: int | None = None
    """What it may spend beyond what its run has spent; `None`: what it takes."""
    view: RunView = RunView()
    interrupt: Interrupt | None = None
    choose: Choose | None = None
    """Prompts the user about a stuck agent; `None`: no terminal."""
    circuit: str = ""
    """The circuit of the loop; empty: the one of the folder, the task and the agent."""
    owner: str = ""
    """The person to notify about the run; empty: the one of the agent."""
    keeps_messages: bool = False
    """Whether operators may have written to the run already, see `RunDependencies`."""
    time: Time = Time()


class AttemptOutcome(NamedTuple):
    result: RunResult | None
    """`None`: it could not be made."""
    problem: str = ""
    """Why it could not."""
    gave_up: str | None = None
    """The steps tried, if none is left."""
    unpriced: bool = False
    """Whether a price of this attempt is not known."""
    began: bool = True
    """Whether an agent may have been started; else nothing was spent."""
    error: Exception | None = None
    """What was raised, if something was."""

    @property
    def reason(self) -> str:
        return self.problem if self.result is None else self.result.reason


def failed_outcome(error: Exception, *, began: bool = True) -> AttemptOutcome:
    return AttemptOutcome(
        None, f"it could not be run: {type(error).__name__}: {error}", began=began, error=error
    )


def options_of(place: AttemptDependencies, task: Task) -> RunOptions:
    """The options of a task's run. Raises ValueError with what cannot be followed."""
    flags = dict(task.flags)
    if task.is_demo and str(flags.get("agent")).partition(":")[2] in VALIDATED:
        flags = {"validate": VALIDATION, **flags}
    return run_options(task.words, flags, presets=place.presets, defaults={"stuck": True})


def timeout_for(place: AttemptDependencies, task: Task) -> tuple[float | None, str]:
    """How long the task may take in seconds, `None` for no end, and why."""
    if task.timeout is None or isinstance(task.timeout, float):
        return task.timeout, "set in the file"
    options = options_of(place, task)
    return timeout_by_policy(options, task.timeout, task.estimate, place.timeouts, place.runs)


def run_attempt(place: AttemptDependencies, attempt: Attempt) -> AttemptOutcome:
    runner: Runner | None = None
    try:
        runner = _runner(place, attempt)
        before = runner.state.unknown_prices
        result = runner.run()
    except RunConflict as conflict:
        return AttemptOutcome(None, str(conflict), began=False)
    except Exception as error:  # noqa: BLE001  one task's trouble is not the others'
        return failed_outcome(error, began=runner is not None and runner.has_worked)
    stuck = result.options.stuck and result.exit_reason is ExitReason.CIRCUIT_BREAKER
    return AttemptOutcome(
        result,
        gave_up=given_up(place.panel.store, result.circuit, place.interventions) if stuck else None,
        unpriced=result.state.unknown_prices > before,
    )


def _runner(place: AttemptDependencies, attempt: Attempt) -> Runner:
    task, progress = attempt.task, attempt.progress
    record = RunFolder(place.runs / (progress.run or ""))
    folder = Path(progress.folder or "")
    options = options_of(place, task)._replace(timeout_s=progress.timeout_s)
    loop = circuit_of(record) or attempt.circuit or loop_name(folder, options)
    # Locked before it is read: another process may be going on with it.
    locks = take_locks(record, task_name(folder, options))
    state = _state_of(record, progress.timeout_s)
    if attempt.grant_micros is not None:
        spent = 0 if state is None else state.spent_micros
        options = options._replace(budget_micros=spent + attempt.grant_micros)
    return Runner(
        options,
        agent_of(options),
        record,
        folder=folder,
        panel=place.panel,
        state=state,
        dependencies=RunDependencies(
            view=attempt.view,
            interrupt=attempt.interrupt,
            time=attempt.time,
            circuit=loop,
            policy=None if options.preset is not None or options.given else place.policy_for(loop),
            sinks=place.sinks,
            report=place.report,
            interventions=place.interventions,
            second_opinion=place.second_opinion,
            stuck_policy=place.policy_for("session/run"),
            progress_policy=place.policy_for("progress/run"),
            choose=attempt.choose,
            locks=locks,
            owner=attempt.owner or place.owner_of(options.agent_label),
            in_batch=True,
            keeps_messages=attempt.keeps_messages,
        ),
    )


def _state_of(record: RunFolder, limit_s: float | None) -> RunState | None:
    """The progress of the run; `None`: it has not started."""
    try:
        run = record.read()
    except RunUnreadable:
        run = {}
    if not has_started(run):
        record.make()
        return None
    state = RunState.load(run["state"])
    if limit_s is None:
        return state
    # With more time, warnings whose mark is ahead again are delivered again.
    passed = tuple(mark for mark in state.warned if state.seconds * 100 >= limit_s * mark)
    return state._replace(warned=passed)


_AFTER = {
    ExitReason.TIMEOUT: Status.RUNNING,
    ExitReason.COMPLETED: Status.DONE,
    ExitReason.INTERRUPTED: Status.INTERRUPTED,
    ExitReason.DISK_FULL: Status.INTERRUPTED,
}


def final_progress(progress: Progress, outcome: AttemptOutcome) -> Progress:
    """The task's progress; still `running`: its time limit was reached, and a decision is needed."""
    progress = progress._replace(
        status=Status.FAILED, reason=redact(outcome.reason), exit_reason=None
    )
    if (result := outcome.result) is not None:
        kept = result.checkpoint
        progress = progress.with_state(result.state)._replace(
            status=_AFTER.get(result.exit_reason, Status.FAILED),
            exit_reason=str(result.exit_reason),
            checkpoint=kept.how if kept is not None and kept.changed else progress.checkpoint,
        )
    if progress.status is Status.FAILED and outcome.gave_up is not None:
        why = f"the agent was stuck and the task is given up: {outcome.gave_up}"
        return progress._replace(status=Status.SKIPPED, reason=why)
    return progress


def by_policy(task: Task, progress: Progress) -> str | None:
    """What the policy does about a task whose time is over; `None`: it was tried often enough."""
    again = task.on_timeout in {"resume", "retry"}
    return None if again and progress.attempts >= task.attempts else task.on_timeout


def after_timeout(progress: Progress, choice: str | None, more_s: float, by: str) -> Progress:
    what = f"time limit reached; {by} chose to {choice}"
    if choice == "resume":
        limit_s = max(progress.timeout_s or 0.0, progress.seconds) + more_s
        return progress._replace(status=Status.WAITING, reason=what, timeout_s=limit_s)
    if choice in {"accept", "skip"}:
        status = Status.PARTIAL if choice == "accept" else Status.SKIPPED
        return progress._replace(status=status, reason=what)
    if choice == "retry":
        return progress.from_scratch()._replace(status=Status.WAITING, reason=what)
    tried = plural(progress.attempts, "attempt")
    return progress._replace(status=Status.FAILED, reason=f"time limit reached after {tried}")


SPAWN = "op/agent_spawn"
BY = "switchgear batch"
_NO_EVIDENCE = frozenset({ExitReason.INTERRUPTED, ExitReason.BUDGET, ExitReason.BLOCKED})
"""Exit reasons that are no evidence about starting agents: they depend on the user."""
MOST_FORCES = 3
"""How often a policy closes the circuit by force in one batch; then it waits."""
PROBE_LOOK_S = 1.0
"""Seconds between checks while a probe is running."""


class Admission:
    """Acquires a permit of `op/agent_spawn` before each attempt and records its result. Used by one thread.

    `policy`: what to do while the circuit is open, unless `choose` prompts the user for it.
    `circuit_policy`: how the circuit is judged; default: as an operation.
    """

    def __init__(
        self,
        panel: Panel,
        view: BatchView,
        *,
        policy: str,
        circuit_policy: Policy | None = None,
        choose: Choose | None = None,
        by: str = BY,
        forces: int = 0,
        time: Time | None = None,
    ) -> None:
        self._panel, self._view = panel, guarded(view, BatchView())
        self._breaker: Breaker = panel.breaker(SPAWN, circuit_policy or preset_policy("operation"))
        self._policy, self._choose, self._by = policy, choose, by
        self._time = time or Time()
        self._closed_until_s = 0.0
        self._why = ""
        self._shown_s: int | None = None
        self._told_of: float | None = None
        """The outage that was reported last."""
        self._waits = False
        """Whether the batch waits for its end."""
        self.forces = forces
        self.aborted: str | None = None
        """Why the batch is to be aborted; `None`: it is not."""

    def acquire(self, name: str, *, running: bool) -> Permit | str | None:
        """A permit to start this task; a text: why to skip it; `None`: none now.

        `running`: whether others are running.
        """
        if self._time.clock() < self._closed_until_s:
            return None
        self._breaker.refresh()
        try:
            acquired = self._breaker.enter()
        except Rejected as refused:
            return self._handle_refusal(name, refused, running=running)
        self._closed_until_s = 0.0
        if acquired.probe:
            opened_s = self._panel.store.now_s() - self._breaker.snapshot().outage.opened_at_s
            begins = messages.recovery_begins(SPAWN, opened_s, 0.0)
            self._view.said(f"{begins}\n\n{messages.PROBING}")
        return acquired

    def give_back(self, permit: Permit) -> None:
        """No agent was started."""
        self._breaker.record(Signal(), permit)

    def record(self, permit: Permit, outcome: AttemptOutcome, *, worked: bool) -> None:
        """Record how the attempt went, and report it if it was a probe.

        `worked`: whether an agent was started; a loop that was open from the start is no evidence.
        """
        result, error = outcome.result, outcome.problem
        ok: bool | None = False
        if result is not None:
            refused = not worked and result.exit_reason is ExitReason.CIRCUIT_BREAKER
            ok = None if refused or result.exit_reason in _NO_EVIDENCE else result.success
            error = f"{result.exit_reason}: {result.reason}"
        verdict = self._breaker.record(Signal(ok=ok, error=None if ok else redact(error)), permit)
        if permit.probe and ok is not None:
            self._view.said(messages.recovery_ends(verdict.phase, ok=ok))
            self._closed_until_s = 0.0

    def count_down(self) -> None:
        """Show the remaining wait, once a second."""
        left_s = self._closed_until_s - self._time.clock()
        if left_s > 0 and int(left_s) != self._shown_s:
            self._shown_s = int(left_s)
            self._view.waiting(self._why, left_s)

    def _handle_refusal(
        self, name: str, refused: Rejected, *, running: bool
    ) -> Permit | str | None:
        wait_s = refused.retry_after_s
        half_open = self._breaker.snapshot().phase is Phase.HALF_OPEN
        if running and wait_s is not None and half_open:
            self._wait(f"for the probe of {SPAWN}", min(wait_s, PROBE_LOOK_S))
            return None
        choice = self._chosen(wait_s)
        if choice == "skip":
            return str(refused)
        if choice == "wait" and wait_s is not None:
            self._wait(f"for {SPAWN} ({refused.reason})", wait_s)
            return None
        if choice in {"wait", "abort"}:  # without a wait it does not come back by itself
            self.aborted = str(refused)
            return None
        try:
            why = f"batch: before {name} starts"
            self._panel.order(SPAWN, by=self._by, why=why, reset=True)
        except (OverrideRefused, StoreError) as objection:
            self.aborted = str(objection)
            self._view.said(self.aborted)
            return None
        self._view.said(f"{SPAWN} was closed by force")
        return self.acquire(name, running=running)

    def _chosen(self, wait_s: float | None) -> str:
        """The user's choice, else the policy's. Each outage is reported once."""
        outage = self._breaker.snapshot().outage.opened_at_s
        is_known, self._told_of = self._told_of == outage, outage
        if is_known and self._waits:
            return "wait"
        block, chosen = self._tripped(), None
        if self._choose is not None:
            chosen = self._choose(block, trip_options(wait_s))
        elif not is_known:
            self._view.said(block)
        if chosen is None:
            chosen = self._policy
            if chosen == "force":
                self.forces += 1
                chosen = "force" if self.forces <= MOST_FORCES else "wait"
        self._waits = chosen == "wait"
        return chosen

    def _tripped(self) -> str:
        circuit = self._breaker.snapshot()
        with suppress(StoreError):  # then the local state must do
            view = self._panel.view(SPAWN)
            circuit = circuit if view is None else view.circuit
        return messages.circuit_tripped(circuit, self._panel.store.now_s())

    def _wait(self, why: str, seconds: float) -> None:
        self._why, self._closed_until_s = why, self._time.clock() + seconds
        self._shown_s = None
        self.count_down()
