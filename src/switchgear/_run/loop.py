"""The loop of `switchgear run`: check, wait, run the agent, measure, record, and continue or stop.

Every run ends with a reason, its evidence, what was done, and how to continue. `run_loop` is the Python
API of the same loop.
"""

import os
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from switchgear._agents.base import Agent
from switchgear._agents.process import SupervisorPool, missing_program
from switchgear._agents.registry import agent_named, agent_of_command, agent_or_command
from switchgear._core.errors import OverrideRefused, Rejected, StoreError, SwitchgearError
from switchgear._measure.tree import open_tree, unmeasurable
from switchgear._panel.panel import Panel
from switchgear._run.circuits import (
    Circuits,
    Measured,
    RunPermits,
    loop_breaker,
    loop_name,
    pause_for,
    policy_of,
    task_name,
)
from switchgear._run.commits import CommitContext, commit_paths, message_of
from switchgear._run.cost import coverage
from switchgear._run.exit_reasons import Ending, ExitReason
from switchgear._run.formats import iso
from switchgear._run.inbox import Extension, OperatorInbox
from switchgear._run.interrupt import SLICE_S, Interrupt, wait
from switchgear._run.iteration import (
    AgentUnusable,
    Iteration,
    baseline,
    evidence_of_end,
    iterate,
    iteration_facts,
    mark_folder,
    notes_on,
    state_after,
    with_next_prompt,
)
from switchgear._run.judge import tests_passing
from switchgear._run.options import AUTO, RunOptions, checked
from switchgear._run.prompt import prompt_of, read_plan
from switchgear._run.record import (
    SCHEMA,
    Disk,
    RunFolder,
    full_sentence,
    is_disk_full,
    last_claim,
    new_run,
    process_began,
    runs_root,
    write_elsewhere,
)
from switchgear._run.result import (
    RunResult,
    failed_notices,
    keep,
    notify_run_end,
    receipt_of,
    reported,
    targets_of,
    write_receipt,
)
from switchgear._run.run_lock import RunLock, folder_lock, task_lock
from switchgear._run.state import IterationContext, RunDependencies, RunState
from switchgear._run.stuck import StuckResponse, handed_over, write_evidence
from switchgear._run.validation import detect
from switchgear._run.view import RunView, guarded
from switchgear._stuck import messages, timeouts
from switchgear._system.files import write_regular
from switchgear._system.login import login_name
from switchgear._text.formats import dollars, duration, plural

BY = "switchgear run"
HOUR_S = 3600.0
TIME, ITERATIONS, MONEY = "time", "iterations", "money"
"""The limits of a run that an operator may raise."""
NO_TESTS = (
    "no test command was found (pytest, npm test, go test, cargo test), so nothing validates the "
    "work; name one with --validate CMD"
)


class Runner:
    """Runs an agent in a loop until it is done or must stop. Used once, by one thread.

    `record` is the folder of the run, `folder` is where the agent works. `state` is the saved progress
    of a run that is resumed.
    """

    def __init__(
        self,
        options: RunOptions,
        agent: Agent,
        record: RunFolder,
        *,
        folder: Path,
        panel: Panel,
        state: RunState | None = None,
        dependencies: RunDependencies | None = None,
    ) -> None:
        dependencies = dependencies or RunDependencies()
        self._notes: list[str] = []
        self._locks = dependencies.locks or take_locks(record, task_name(folder, options))
        if options.validate == AUTO:
            options = options._replace(validate=detect(folder))
            self._notes += [NO_TESTS] if options.validate is None else []
        self.state = RunState() if state is None else state.resumed()
        self._own_budget_micros = options.budget_micros
        if dependencies.held_micros is not None:
            limit_micros = self.state.spent_micros + dependencies.held_micros
            options = options._replace(budget_micros=limit_micros)
        self.has_worked = False
        """Whether an agent was started; before that, nothing was spent."""
        self._resumed = state is not None
        self._dependencies = dependencies
        self._answer = dependencies.answer
        name = dependencies.circuit or loop_name(folder, options)
        self.circuits = Circuits(
            panel, name, options, policy=dependencies.policy, sinks=dependencies.sinks
        )
        self.context = IterationContext(
            options,
            agent,
            folder,
            record,
            open_tree(folder, record.notes),
            guarded(dependencies.view, RunView()),
            dependencies.interrupt or Interrupt(),
            dependencies.time,
            SupervisorPool(),
            OperatorInbox(
                panel.store,
                record,
                options.agent_label,
                options.timeout_s,
                is_watched=options.stuck,
                keeps_messages=dependencies.keeps_messages,
                clock=dependencies.time.clock,
                task=options.task,
                project=str(folder),
            ),
        )
        self._stuck = (
            StuckResponse(self.context, panel, self.circuit, dependencies)
            if options.stuck
            else None
        )
        if self.state.helped:
            self._hand_over("")
        if self.state.started_s is None:
            self.state = self.state._replace(started_s=dependencies.time.wall())
        self._claim = last_claim(record)
        """Kept in run.json, so that other hosts never reuse a claim number of this run."""
        self._began_s = dependencies.time.clock()
        self._used_before_s = self.state.seconds
        self._disk = Disk(record.path, folder)
        self._mark: str | None = None
        """The state of the folder before the next iteration; `None`: not measured."""
        self._evidence: tuple[str, ...] = ()
        self._unmeasured = 0
        """Consecutive iterations whose changes could not be measured."""

    @property
    def circuit(self) -> str:
        return self.circuits.loop.name

    def run(self) -> RunResult:
        try:
            return self._run_locked()
        finally:
            for lock in self._locks:
                lock.release()

    def _run_locked(self) -> RunResult:
        with self.context.supervisors as supervisors:
            supervisors.prepare()
            try:
                self._begin()
                ending = self._loop()
            except OverrideRefused:
                raise
            except BaseException as error:
                if is_disk_full(error):
                    return self._finish(Ending(ExitReason.DISK_FULL, full_sentence(error)))
                if isinstance(error, OSError):
                    sentence = f"an operation of the run failed: {error}"
                    return self._finish(Ending(ExitReason.AGENT_ERROR, sentence))
                # A defect in Switchgear: the work so far is still saved.
                self._finish(Ending(ExitReason.AGENT_ERROR, "Switchgear itself failed"))
                raise
        return self._finish(ending)

    def _begin(self) -> None:
        if self.context.options.shadow:
            try:
                self.circuits.loop.shadow(by=BY, why="--shadow")
            except OverrideRefused:
                self.context.record.discard()
                raise
        if not self._resumed:
            try:
                self.circuits.forget_earlier_runs(by=BY)
            except OverrideRefused:
                pass
            except StoreError as trouble:
                self._notes.append(f"counts of earlier runs may still apply: {trouble}")
        self.circuits.save_owner(self._dependencies.owner)
        self.circuits.refresh()
        self._mark = mark_folder(self.context)
        if self.state.start_mark is None:
            self.state = self.state._replace(start_mark=self._mark)
        self._disk.reserve()
        self._write()
        self.context.view.started(self._run_dict())
        for note in self._notes:
            self.context.view.noted(note)

    def _loop(self) -> Ending:
        ending = None if self._stuck is None else self._stuck.objection()
        if ending is None and self._mark is None:
            ending = self._check_measurable()
        if ending is not None:
            return ending
        if not self.state.iterations:
            before = baseline(self.context, self._left_s())
            if isinstance(before, Ending):
                return before
            self.state = self.state._replace(tests_passing=before, best_tests=before)
            # Files that the validation writes are not progress.
            self._mark = mark_folder(self.context)
        while True:
            ending = self._read_messages() or self._objection()
            if ending is not None:
                return ending
            permits = self._acquire()
            if isinstance(permits, Ending):
                return permits
            if permits is None:
                continue
            ending = self._begin_iteration(permits) or self._iterate(permits)
            if ending is not None:
                return ending

    def _read_messages(self) -> Ending | None:
        """Apply the messages of operators, and wait while the run is paused. Returns the end if they request it."""
        while True:
            received = self.context.inbox.take()
            if received.stop is not None:
                return Ending(ExitReason.INTERRUPTED, received.stop.rpartition("\n")[2])
            advice = "\n\n".join(filter(None, (self.state.advice, *received.texts))) or None
            self.state = self.state._replace(advice=advice)
            if any(received.extension):
                self._extend(received.extension)
            if received.hand_over:
                self._hand_over(received.hand_over)
            if not received.paused:
                return None
            ending = self._wait_paused()
            if ending is not None:
                return ending

    def _extend(self, more: Extension) -> None:
        """Raise the limits of the run. They are part of its options, so a resumed run keeps them."""
        self.state = self.state._replace(extra_s=self.state.extra_s + more.seconds)
        options = self.context.options
        options = options._replace(max_iterations=options.max_iterations + more.iterations)
        if more.micros and MONEY in self._extendable():
            options = options._replace(budget_micros=(options.budget_micros or 0) + more.micros)
            self._own_budget_micros = options.budget_micros
        self.context = self.context._replace(options=options)
        self._write()

    def _extendable(self) -> tuple[str, ...]:
        """The limits that an operator may raise. A budget from a batch or a budget node is raised there."""
        options, dependencies = self.context.options, self._dependencies
        is_own = dependencies.held_micros is None and not dependencies.in_batch
        time = (TIME,) if options.timeout_s is not None else ()
        money = (MONEY,) if options.budget_micros is not None and is_own else ()
        return (*time, ITERATIONS, *money)

    def _hand_over(self, why: str) -> None:
        """Replace the agent by the configured escalation agent, if any; `why` is empty when a run resumes with it."""
        plan = self._dependencies.interventions
        if plan.escalate is None:
            return
        try:
            agent = agent_or_command(plan.escalate)
        except ValueError as problem:
            self.context.view.noted(f"the task was not handed over: {problem}")
            return
        self.context = handed_over(self.context, agent)
        if why:
            prefix = messages.TEXT_PREFIX
            message = f"{prefix}the previous agent was stopped, and you take over: {why}"
            advice = "\n\n".join(filter(None, (self.state.advice, message)))
            write_evidence(self.context.record.path, "\n".join((message, *self._evidence)))
            self.state = self.state._replace(helped=True, notes=(), nudge=None, advice=advice)
            self.context.view.noted(f"handed over to {plan.escalate}: {why}")
            self._write()

    def _wait_paused(self) -> Ending | None:
        context = self.context
        context.view.noted(
            f"paused; to continue: switchgear intervene {context.record.id} --do continue"
        )
        while (waiting := context.inbox.peek()).paused and not waiting.ends_iteration:
            if context.interrupt.asked:
                return Ending(ExitReason.INTERRUPTED, f"stopped by {context.interrupt.by}")
            context.time.sleep(SLICE_S)
        return None

    # Before an iteration

    def _objection(self) -> Ending | None:
        """Why the next iteration must not begin, regardless of the circuits."""
        context, state, evidence = self.context, self.state, self._evidence
        left_s = self._left_s()
        if context.interrupt.asked:
            return Ending(ExitReason.INTERRUPTED, f"stopped by {context.interrupt.by}")
        if left_s is not None and left_s <= 0:
            limit = duration(self._limit_s() or 0)
            return Ending(ExitReason.TIMEOUT, f"the time limit of {limit} was reached", evidence)
        if (problem := self._disk.objection()) is not None:
            return Ending(ExitReason.DISK_FULL, full_sentence(problem), evidence)
        if state.used >= context.options.max_iterations:
            sentence = f"{plural(state.used, 'iteration')} and the task is not done"
            return Ending(ExitReason.MAX_ITERATIONS, sentence, evidence)
        why = self._over_budget()
        return None if why is None else Ending(ExitReason.BUDGET, why, evidence)

    def _over_budget(self) -> str | None:
        options, unknown = self.context.options, self.state.unknown_prices
        if options.budget_micros is None:
            return None
        if unknown and not options.allow_unknown_price:
            return (
                f"the cost of {plural(unknown, 'iteration')} is unknown, so the budget of "
                f"{dollars(options.budget_micros)} cannot be enforced; --allow-unknown-price "
                "continues anyway"
            )
        return self.state.budget(options.budget_micros).objection

    def _acquire(self) -> RunPermits | Ending | None:
        """The permits, or the end of the run; `None`: a wait has ended, so check everything again."""
        try:
            return self.circuits.acquire()
        except Rejected as refused:
            if refused.circuit == self.circuit or refused.retry_after_s is None:
                evidence = self.circuits.evidence()
                return Ending(ExitReason.CIRCUIT_BREAKER, str(refused), evidence)
            why = f"for {refused.circuit} ({refused.reason})"
            return self._wait(why, refused.retry_after_s, ExitReason.AGENT_ERROR)

    def _wait(self, why: str, seconds: float, too_long: ExitReason) -> Ending | None:
        """Wait with a countdown. Returns the end if interrupted, or for `too_long` if too little time is left."""
        context, left_s = self.context, self._left_s()
        if left_s is not None and seconds > left_s:
            needed, left = duration(seconds), duration(max(left_s, 0.0))
            sentence = f"waiting {needed} {why} would take longer than the remaining {left}"
            return Ending(too_long, sentence)
        if wait(why, seconds, on=context.time, view=context.view, interrupt=context.interrupt):
            return None
        sentence = f"stopped by {context.interrupt.by} while waiting {why}"
        return Ending(ExitReason.INTERRUPTED, sentence)

    def _begin_iteration(self, permits: RunPermits) -> Ending | None:
        """Wait for --rate-limit, and record when the iteration begins."""
        limit, wall = self.context.options.rate_limit, self.context.time.wall
        before, waited_from_s = self.state.begun_s, wall()
        if limit is not None and len(before) >= limit:
            wait_s = before[-limit] + HOUR_S - waited_from_s
            why = f"for --rate-limit {limit}/h"
            ending = self._wait(why, wait_s, ExitReason.RATE_LIMIT) if wait_s > 0 else None
            if ending is not None:
                self.circuits.give_back(permits)
                return ending
        begun_s = wall()
        if begun_s - waited_from_s >= 1.0:
            self._mark = mark_folder(self.context)  # files may have changed during the wait
        recent = (at_s for at_s in (*before, begun_s) if begun_s - at_s < HOUR_S)
        self.state = self.state._replace(begun_s=tuple(recent))
        return None

    # One iteration

    def _iterate(self, permits: RunPermits) -> Ending | None:
        before, context = self.state, self.context
        number = before.iterations + 1
        prompt = self._prompt()
        context.record.make()  # an agent may have removed it: `git clean -fdx` does
        write_regular(context.record.prompt_file(number), prompt.encode(errors="replace"))
        context.view.iteration_started(number, self._run_dict())
        stuck = None if self._stuck is None else self._stuck.watch(context, self._mark)
        left_s = self._left_s()
        self.has_worked = True
        try:
            done = iterate(
                context, before, prompt=prompt, before=self._mark, left_s=left_s, stuck=stuck
            )
        except AgentUnusable as problem:
            self.circuits.give_back(permits)
            return Ending(ExitReason.AGENT_ERROR, str(problem))
        self._unmeasured = self._unmeasured if done.change is None else 0
        may_continue = self._record(permits, done)
        would_stop = may_continue and self.circuits.would_stop()
        if self._stuck is not None:
            tests, best = tests_passing(done.validated), before.best_tests
            better = tests is not None and best is not None and tests > best
            if done.judged.outcome != "stuck" and (done.change or better):
                self._stuck.progressed()
        self.state = state_after(self.state, done, would_stop=would_stop)
        notes = notes_on(before, done)
        if would_stop:
            notes.append(f"would have stopped here: {self.circuits.reason()}")
        commit = self._commit(done, notes)
        if done.validated is None and commit is None:
            self._mark = done.mark
        else:
            self._mark = mark_folder(context)  # changes by validation and hooks are not progress
        self._save_iteration(done, before, notes, prompt_chars=len(prompt), commit=commit)
        ending = self._ending(done, may_continue=may_continue)
        if ending is None and done.change is None:
            ending = self._check_measurable()
        if ending is None and self._stuck is not None and stuck is not None:
            self.state, self.context, ending = self._stuck.respond(self.context, self.state, stuck)
            self._write()
        return ending

    def _check_measurable(self) -> Ending | None:
        """The end, if changes cannot be measured now, or could not be in two consecutive iterations."""
        if self.context.interrupt.asked:
            return None  # the interrupt ends the run, and also ended the measurement
        problem = unmeasurable(self.context.tree)
        if problem is None and self._unmeasured < 1:
            self._unmeasured += 1
            self._mark = mark_folder(self.context)
            return None
        why = "its state before the run is unknown" if problem is None else str(problem)
        if is_disk_full(problem):
            return Ending(ExitReason.DISK_FULL, full_sentence(why))
        sentence = f"changes in {self.context.folder} cannot be measured: {why}"
        return Ending(ExitReason.UNMEASURABLE, sentence, self._evidence)

    def _prompt(self) -> str:
        options, answer = self.context.options, self._answer
        plan, time = read_plan(self.context.folder, options.plan), self._time_warning()
        prompt = prompt_of(options, self.state, plan=plan, answer=answer, time=time)
        self._answer, self.state = None, self.state._replace(advice=None)
        return prompt

    def _time_warning(self) -> str | None:
        """The warning that 70 or 90 percent of the time is used; each is given once."""
        limit_s = self._limit_s()
        if limit_s is None:
            return None
        warned = timeouts.still_given(self._used_s(), limit_s, self.state.warned)
        mark = timeouts.due(self._used_s(), limit_s, warned)
        if mark is not None:
            warned = timeouts.with_given(warned, mark.percent)
        self.state = self.state._replace(warned=warned)
        return mark and messages.time_warning(mark.percent, mark.left_s, limit_s)

    def _record(self, permits: RunPermits, done: Iteration) -> bool:
        """Record the iteration on both circuits. Returns whether the loop may continue."""
        repeated = done.watch.repeated
        measured = Measured(
            seconds=done.seconds,
            cost_micros=done.cost.micros,
            files_changed=None if done.change is None else len(done.change),
            tests_passing=tests_passing(done.validated),
            output_chars=done.run.output_chars,
            repeats=1 if repeated is None else repeated.times,
        )
        self.circuits.record_provider(permits, done.judged, done.seconds)
        return self.circuits.record_loop(permits, done.judged, measured)

    def _commit(self, done: Iteration, notes: list[str]) -> str | None:
        if not (self.context.options.commit and done.judged.ok is True and self.state.uncommitted):
            return None
        if done.validated is not None and done.validated.ok is not True:
            return None
        context, record = self.context, self.context.record
        message = message_of(context.options.task, record.id, done.number)
        limits = CommitContext(record.notes, self._left_s(), context.interrupt, context.supervisors)
        result = commit_paths(context.folder, self.state.uncommitted, message, limits)
        notes += filter(None, (result.note, result.problem))
        if result.problem is None:
            self.state = self.state._replace(uncommitted=())
        return result.commit

    def _save_iteration(
        self, done: Iteration, before: RunState, notes: list[str], **more: object
    ) -> None:
        judged, context = done.judged, self.context
        error = None if judged.error is None else self.circuits.loop.kept(judged.error)
        facts = {
            **iteration_facts(done, context, before),
            **self.circuits.facts(),
            **more,
            "error": error,
            "nudge": before.nudge,
            "would_stop": self.state.would_stop > before.would_stop,
            "notes": notes,
        }
        nudge = self.circuits.nudge()
        self.state = with_next_prompt(self.state, done, error=error, nudge=nudge, notes=notes)
        self.state = self.state._replace(seconds=self._used_s())
        self._evidence = tuple(text for text in (error, judged.remark) if text)
        context.record.add(facts)
        self._write()
        context.view.iteration_ended(facts, self._run_dict())

    def _ending(self, done: Iteration, *, may_continue: bool) -> Ending | None:
        judged = done.judged
        if judged.end is not None:
            return Ending(judged.end, judged.reason, evidence_of_end(done))
        if not may_continue:
            hot = self.circuits.evidence()
            others = (text for text in self._evidence if not any(text[:80] in each for each in hot))
            return Ending(ExitReason.CIRCUIT_BREAKER, self.circuits.reason(), (*hot, *others))
        if judged.provider is None:
            return None
        pause = pause_for(judged.provider, self.state, self.circuits.provider)
        if pause.ends is not None:
            return Ending(pause.ends, pause.why, (judged.provider.text,))
        waited_s = self.state.provider_waited_s + pause.seconds
        self.state = self.state._replace(provider_waited_s=waited_s)
        return self._wait(pause.why, pause.seconds, pause.too_long)

    # The end

    def _finish(self, ending: Ending) -> RunResult:
        context, loop = self.context, self.circuits.loop
        self._disk.release()
        context.inbox.close(None if self.state.unknown_prices else self.state.spent_micros)
        self.state = self.state._replace(seconds=self._used_s())
        stats = self.state.stats(loop.stats())
        checkpoint = keep(context, self.state, ending, self._notes)
        try:
            if context.options.shadow:
                loop.release(by=BY, why="the run is over")
            if ending.reason is ExitReason.COMPLETED:
                loop.reset(by=BY, why="the task is done")
        except OverrideRefused:
            pass
        except StoreError as trouble:  # the outcome of the run does not depend on the store
            self._notes.append(f"circuit {loop.name!r} was not reset: {trouble}")
        result = RunResult(
            run=context.record.id,
            exit_reason=ending.reason,
            reason=ending.sentence,
            evidence=ending.evidence,
            stats=stats,
            state=self.state,
            options=self._options,
            circuit=self.circuit,
            held=self.circuits.held(),
            checkpoint=checkpoint,
            notes=tuple(self._notes),
        )
        result = self._write_end(result)
        if self._dependencies.report is not None:
            result = self._write_end(reported(result, context.record, self._dependencies.report))
        try:
            path = write_receipt(context.record, self._run_dict(result))
            result = self._write_end(result._replace(receipt_file=str(path)))
        except OSError as error:
            note = f"the receipt could not be written: {error}"
            result = result._replace(notes=(*result.notes, note))
        context.view.ended(result)
        return result

    def _write_end(self, result: RunResult) -> RunResult:
        """Write the end of the run; if its folder is full, write it elsewhere and add a note."""
        try:
            self._write(result)
        except OSError as error:
            run = {"schema": SCHEMA, **self._run_dict(result)}
            place = write_elsewhere(self.context.record.id, run)
            where = "nowhere else either" if place is None else f"to {place} instead"
            what = "the end of the run could not be written to its folder"
            if not any(each.startswith(what) for each in result.notes):
                return result._replace(notes=(*result.notes, f"{what} ({error}), {where}"))
        return result

    # Helpers

    @property
    def _options(self) -> RunOptions:
        """The options as given, without the reservation of this process."""
        return self.context.options._replace(budget_micros=self._own_budget_micros)

    def _used_s(self) -> float:
        used_s = self.context.time.clock() - self._began_s - self.context.inbox.paused_s
        return self._used_before_s + used_s

    def _limit_s(self) -> float | None:
        limit_s = self.context.options.timeout_s
        return None if limit_s is None else limit_s + self.state.extra_s

    def _left_s(self) -> float | None:
        limit_s = self._limit_s()
        return None if limit_s is None else limit_s - self._used_s()

    def _run_dict(self, result: RunResult | None = None) -> dict[str, Any]:
        context = self.context
        return {
            "id": context.record.id,
            "task": context.options.task,
            "agent": context.options.agent_label,
            "folder": str(context.folder),
            "circuit": self.circuit,
            "started_at": iso(self.state.started_s or 0.0),
            "ended_at": None if result is None else iso(context.time.wall()),
            "pid": os.getpid(),
            "pid_began": process_began(os.getpid()),
            "resumed": self._resumed,
            "options": self._options.dump(),
            "may_spend_micros": context.options.budget_micros,
            "state": self.state.dump(),
            **self.circuits.facts(),
            "time_left_s": self._left_s(),
            "may_extend": list(self._extendable()),
            "notes": list(self._notes),
            "end": None if result is None else result.dump(),
            **({"claim": self._claim} if self._claim else {}),
        }

    def _write(self, result: RunResult | None = None) -> None:
        self.context.record.write(self._run_dict(result))


def take_locks(record: RunFolder, circuit: str) -> tuple[RunLock, ...]:
    """The locks of a run: of its task and of its folder. Raises `RunConflict`."""
    what = f"run {record.id}"
    task = task_lock(record.path.parent, circuit, what)
    try:
        return task, folder_lock(record.path, what)
    except BaseException:
        task.release()
        raise


class LoopRefused(SwitchgearError):
    """A loop did not start, and nothing was run.

    Its circuit is open, its agent is not installed, or its budget cannot be enforced.
    """


def run_loop(
    options: RunOptions,
    *,
    folder: str | Path | None = None,
    panel: Panel | None = None,
    view: RunView | None = None,
    interrupt: Interrupt | None = None,
    notify: Iterable[str] = (),
) -> RunResult:
    """Run an agent in a loop until it is done or must stop, as `switchgear run` does.

    - `options`: `RunOptions(task=…, agent="claude", …)`; each field is an option of the command.
      Limits that differ from their defaults count as set.
    - `folder`: where the agent works; default: the working directory.
    - `panel`: the circuits; default: those of the project, `Panel()`.
    - `view`: receives progress while the run is active; default: nothing is shown.
    - `interrupt`: `interrupt.ask()` from any thread ends the run gracefully.
    - `notify`: targets to notify when the run has ended, in the format of `--notify`.

    Blocks until the run has ended. Returns the result: `exit_reason`, `exit_signal`, `reason`,
    `stats`, `receipt()` and more. Raises ValueError for invalid options,
    `LoopRefused` if the loop did not start, `RunConflict` if another process runs the task.

    >>> result = run_loop(RunOptions("say hello", agent="demo:claims-done"))  # doctest: +SKIP
    >>> result.exit_reason, result.exit_signal  # doctest: +SKIP
    ('circuit_breaker', 'circuit_open')
    """
    options = checked(options)
    if not options.given:
        options = options._replace(given=options.differing)
    work_folder = Path.cwd() if folder is None else Path(folder).absolute()
    agent, targets = agent_of(options), targets_of(notify)
    if problem := missing_program(agent, work_folder):
        raise LoopRefused(problem)
    runs = runs_root(work_folder)
    if options.budget_micros is not None and not options.allow_unknown_price:
        priced = coverage(options, agent, work_folder, runs)
        if not priced.known:
            raise LoopRefused(f"the budget cannot be enforced: {priced.why}")
    with (
        nullcontext(panel) if panel is not None else Panel() as circuits,
        task_lock(runs, task_name(work_folder, options)) as lock,
    ):
        _admit(circuits, loop_name(work_folder, options), options)
        record = new_run(runs)
        lock.describe(f"run {record.id}")
        dependencies = RunDependencies(
            view=view or RunView(),
            interrupt=interrupt or Interrupt(),
            locks=(lock, folder_lock(record.path, f"run {record.id}")),
            owner=login_name(),
        )
        runner = Runner(
            options, agent, record, folder=work_folder, panel=circuits, dependencies=dependencies
        )
        result = runner.run()
    outcomes = notify_run_end(targets, receipt_of(record.read()), login_name())
    return result._replace(notes=(*result.notes, *failed_notices(outcomes)))


def _admit(panel: Panel, name: str, options: RunOptions) -> None:
    if options.shadow:
        return
    decision = loop_breaker(panel, name, policy_of(options)).check()
    if not decision.allow_continue:
        hint = f"panel.order({name!r}, by=…, why=…, reset=True) closes it"
        raise LoopRefused(f"{name} is open: {decision.reason}; {hint}")


def agent_of(options: RunOptions) -> Agent:
    """The agent that the options name. Raises ValueError for an unknown one."""
    if options.agent_cmd is not None:
        return agent_of_command(options.agent_cmd)
    return agent_named(options.agent or "")
