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
    """The folder of runs."""
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
    """What the attempt may spend beyond what its run has spent; `None`: no limit."""
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
    """`None`: the run could not be started, or failed with an error."""
    problem: str = ""
    """Why there is no result."""
    gave_up: str | None = None
    """The escalation steps tried, if none is left."""
    unpriced: bool = False
    """Whether a part of the cost of this attempt is unknown."""
    began: bool = True
    """Whether an agent may have been started; else nothing was spent."""
    error: Exception | None = None
    """The exception that ended the attempt, if any."""

    @property
    def reason(self) -> str:
        return self.problem if self.result is None else self.result.reason


def failed_outcome(error: Exception, *, began: bool = True) -> AttemptOutcome:
    return AttemptOutcome(
        None, f"it could not be run: {type(error).__name__}: {error}", began=began, error=error
    )


def options_of(shared: AttemptDependencies, task: Task) -> RunOptions:
    """The options of a task's run. Raises ValueError for invalid ones."""
    flags = dict(task.flags)
    if task.is_demo and str(flags.get("agent")).partition(":")[2] in VALIDATED:
        flags = {"validate": VALIDATION, **flags}
    return run_options(task.words, flags, presets=shared.presets, defaults={"stuck": True})


def timeout_for(shared: AttemptDependencies, task: Task) -> tuple[float | None, str]:
    """The time limit of a task in seconds, `None` for none, and its origin."""
    if task.timeout is None or isinstance(task.timeout, float):
        return task.timeout, "set in the file"
    options = options_of(shared, task)
    return timeout_by_policy(options, task.timeout, task.estimate, shared.timeouts, shared.runs)


def run_attempt(shared: AttemptDependencies, attempt: Attempt) -> AttemptOutcome:
    runner: Runner | None = None
    try:
        runner = _runner(shared, attempt)
        before = runner.state.unknown_prices
        result = runner.run()
    except RunConflict as conflict:
        return AttemptOutcome(None, str(conflict), began=False)
    except Exception as error:  # noqa: BLE001  other tasks must continue
        return failed_outcome(error, began=runner is not None and runner.has_worked)
    stuck = result.options.stuck and result.exit_reason is ExitReason.CIRCUIT_BREAKER
    return AttemptOutcome(
        result,
        gave_up=given_up(shared.panel.store, result.circuit, shared.interventions)
        if stuck
        else None,
        unpriced=result.state.unknown_prices > before,
    )


def _runner(shared: AttemptDependencies, attempt: Attempt) -> Runner:
    task, progress = attempt.task, attempt.progress
    record = RunFolder(shared.runs / (progress.run or ""))
    folder = Path(progress.folder or "")
    options = options_of(shared, task)._replace(timeout_s=progress.timeout_s)
    loop = circuit_of(record) or attempt.circuit or loop_name(folder, options)
    # Lock the run before reading it: another process may be continuing it.
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
        panel=shared.panel,
        state=state,
        dependencies=RunDependencies(
            view=attempt.view,
            interrupt=attempt.interrupt,
            time=attempt.time,
            circuit=loop,
            policy=None if options.preset is not None or options.given else shared.policy_for(loop),
            sinks=shared.sinks,
            report=shared.report,
            interventions=shared.interventions,
            second_opinion=shared.second_opinion,
            stuck_policy=shared.policy_for("session/run"),
            progress_policy=shared.policy_for("progress/run"),
            choose=attempt.choose,
            locks=locks,
            owner=attempt.owner or shared.owner_of(options.agent_label),
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
    # If the limit was raised, warnings whose percentage is not reached any more are given again.
    passed = tuple(mark for mark in state.warned if state.seconds * 100 >= limit_s * mark)
    return state._replace(warned=passed)


_STATUS_AFTER = {
    ExitReason.TIMEOUT: Status.RUNNING,
    ExitReason.COMPLETED: Status.DONE,
    ExitReason.INTERRUPTED: Status.INTERRUPTED,
    ExitReason.DISK_FULL: Status.INTERRUPTED,
}


def final_progress(progress: Progress, outcome: AttemptOutcome) -> Progress:
    """The progress after an attempt; `running` if the time limit was reached and a decision is needed."""
    progress = progress._replace(
        status=Status.FAILED, reason=redact(outcome.reason), exit_reason=None
    )
    if (result := outcome.result) is not None:
        checkpoint = result.checkpoint
        progress = progress.with_state(result.state)._replace(
            status=_STATUS_AFTER.get(result.exit_reason, Status.FAILED),
            exit_reason=str(result.exit_reason),
            checkpoint=(
                checkpoint.how if checkpoint and checkpoint.changed else progress.checkpoint
            ),
        )
    if progress.status is Status.FAILED and outcome.gave_up is not None:
        why = f"the agent was stuck and the task is given up: {outcome.gave_up}"
        return progress._replace(status=Status.SKIPPED, reason=why)
    return progress


def timeout_choice(task: Task, progress: Progress) -> str | None:
    """The policy's choice for a task that timed out; `None`: its attempts are used up."""
    repeats = task.on_timeout in {"resume", "retry"}
    return None if repeats and progress.attempts >= task.attempts else task.on_timeout


def after_timeout(progress: Progress, choice: str | None, more_s: float, by: str) -> Progress:
    reason = f"time limit reached; {by} chose to {choice}"
    if choice == "resume":
        limit_s = max(progress.timeout_s or 0.0, progress.seconds) + more_s
        return progress._replace(status=Status.WAITING, reason=reason, timeout_s=limit_s)
    if choice in {"accept", "skip"}:
        status = Status.PARTIAL if choice == "accept" else Status.SKIPPED
        return progress._replace(status=status, reason=reason)
    if choice == "retry":
        return progress.from_scratch()._replace(status=Status.WAITING, reason=reason)
    tried = plural(progress.attempts, "attempt")
    return progress._replace(status=Status.FAILED, reason=f"time limit reached after {tried}")


SPAWN = "op/agent_spawn"
BY = "switchgear batch"
_NO_EVIDENCE = frozenset({ExitReason.INTERRUPTED, ExitReason.BUDGET, ExitReason.BLOCKED})
"""Exit reasons that are not evidence about starting agents, because they depend on the user."""
MAX_FORCES = 3
"""How often a policy closes the circuit by force in one batch; after that it waits."""
PROBE_CHECK_S = 1.0
"""Seconds between checks while a probe is running."""


class Admission:
    """Acquires a permit of `op/agent_spawn` before each attempt and records its result. Used by one thread.

    `policy`: what to do while the circuit is open, unless `choose` prompts the user for it.
    `circuit_policy`: the policy of the circuit; default: the preset `operation`.
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
        self._wait_reason = ""
        self._shown_s: int | None = None
        self._reported_outage_s: float | None = None
        """When the outage that was last reported began."""
        self._waits = False
        """Whether the batch waits for the end of that outage."""
        self.forces = forces
        self.aborted: str | None = None
        """Why the batch is to be aborted; `None`: it is not."""

    def acquire(self, name: str, *, running: bool) -> Permit | str | None:
        """A permit to start this task; a text: why to skip it; `None`: try again later.

        `running`: whether other tasks are running.
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
            self._view.message(f"{begins}\n\n{messages.PROBING}")
        return acquired

    def give_back(self, permit: Permit) -> None:
        """Return a permit that was not used: no agent was started."""
        self._breaker.record(Signal(), permit)

    def record(self, permit: Permit, outcome: AttemptOutcome, *, worked: bool) -> None:
        """Record the result of an attempt, and report it if it was a probe.

        `worked`: whether an agent was started; a loop whose circuit was already open is no evidence.
        """
        result, error = outcome.result, outcome.problem
        ok: bool | None = False
        if result is not None:
            refused = not worked and result.exit_reason is ExitReason.CIRCUIT_BREAKER
            ok = None if refused or result.exit_reason in _NO_EVIDENCE else result.success
            error = f"{result.exit_reason}: {result.reason}"
        verdict = self._breaker.record(Signal(ok=ok, error=None if ok else redact(error)), permit)
        if permit.probe and ok is not None:
            self._view.message(messages.recovery_ends(verdict.phase, ok=ok))
            self._closed_until_s = 0.0

    def count_down(self) -> None:
        """Show the remaining wait, once a second."""
        left_s = self._closed_until_s - self._time.clock()
        if left_s > 0 and int(left_s) != self._shown_s:
            self._shown_s = int(left_s)
            self._view.waiting(self._wait_reason, left_s)

    def _handle_refusal(
        self, name: str, refused: Rejected, *, running: bool
    ) -> Permit | str | None:
        wait_s = refused.retry_after_s
        half_open = self._breaker.snapshot().phase is Phase.HALF_OPEN
        if running and wait_s is not None and half_open:
            self._wait(f"for the probe of {SPAWN}", min(wait_s, PROBE_CHECK_S))
            return None
        choice = self._choose_action(wait_s)
        if choice == "skip":
            return str(refused)
        if choice == "wait" and wait_s is not None:
            self._wait(f"for {SPAWN} ({refused.reason})", wait_s)
            return None
        if choice in {"wait", "abort"}:  # without a retry time it does not close by itself
            self.aborted = str(refused)
            return None
        try:
            why = f"batch: before {name} starts"
            self._panel.order(SPAWN, by=self._by, why=why, reset=True)
        except (OverrideRefused, StoreError) as objection:
            self.aborted = str(objection)
            self._view.message(self.aborted)
            return None
        self._view.message(f"{SPAWN} was closed by force")
        return self.acquire(name, running=running)

    def _choose_action(self, wait_s: float | None) -> str:
        """The user's choice, else the policy's. Each outage is reported once."""
        outage = self._breaker.snapshot().outage.opened_at_s
        is_known, self._reported_outage_s = self._reported_outage_s == outage, outage
        if is_known and self._waits:
            return "wait"
        block, chosen = self._trip_text(), None
        if self._choose is not None:
            chosen = self._choose(block, trip_options(wait_s))
        elif not is_known:
            self._view.message(block)
        if chosen is None:
            chosen = self._policy
            if chosen == "force":
                self.forces += 1
                chosen = "force" if self.forces <= MAX_FORCES else "wait"
        self._waits = chosen == "wait"
        return chosen

    def _trip_text(self) -> str:
        circuit = self._breaker.snapshot()
        with suppress(StoreError):  # then use the local state
            view = self._panel.view(SPAWN)
            circuit = circuit if view is None else view.circuit
        return messages.circuit_tripped(circuit, self._panel.store.now_s())

    def _wait(self, why: str, seconds: float) -> None:
        self._wait_reason, self._closed_until_s = why, self._time.clock() + seconds
        self._shown_s = None
        self.count_down()
