"""The loop of `switchgear run`: ask, wait, let the agent work, measure, tell, and go on or stop.

Whatever happens, the run ends with a reason, its evidence, what was done, and how to go on.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from switchgear._agents.base import Agent
from switchgear._agents.process import SupervisorPool
from switchgear._core.errors import OverrideRefused
from switchgear._measure.tree import open_tree
from switchgear._panel.panel import Panel
from switchgear._run.checkpoint import keep
from switchgear._run.circuits import Circuits, Measured, RunPermits, loop_name, task_name
from switchgear._run.commits import Committing, commit_paths, message_of
from switchgear._run.dependencies import Setting
from switchgear._run.disk import Disk, full_sentence, is_disk_full
from switchgear._run.exit_reasons import Ending, ExitReason
from switchgear._run.gate import Gate
from switchgear._run.interrupt import Interrupt
from switchgear._run.iteration import (
    AgentUnusable,
    Iteration,
    Workshop,
    baseline,
    facts_of,
    iso,
    iterate,
    mark,
    unmeasurable,
)
from switchgear._run.iteration_memory import counted, for_next, notes_on, proof
from switchgear._run.judge import tests_passing
from switchgear._run.options import AUTO, RunOptions
from switchgear._run.plan import read_plan
from switchgear._run.prompt import Standing, prompt_of
from switchgear._run.provider_wait import pause_for
from switchgear._run.rate_limit import HOUR_S
from switchgear._run.receipt import write_receipt
from switchgear._run.record import SCHEMA, RunFolder, process_began, written_elsewhere
from switchgear._run.result import RunResult, reported
from switchgear._run.run_lock import RunLock, folder_lock, task_lock
from switchgear._run.state import RunState
from switchgear._run.stuck import StuckWatch
from switchgear._run.stuck_response import Rescue
from switchgear._run.validation import detect
from switchgear._run.view import Shielded
from switchgear._stuck import messages, timeouts
from switchgear._system.files import write_regular

BY = "switchgear run"
NO_TESTS = (
    "no test command was found (pytest, npm test, go test, cargo test), so nothing validates the "
    "work; name one by --validate CMD"
)


class Runner:
    """Runs an agent in a loop until it is done or must stop. Used once, by one thread.

    `record` is the folder of the run, `folder` where the agent works; `state` is how far the run
    had come, when it is resumed.
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
        setting: Setting | None = None,
    ) -> None:
        setting = setting or Setting()
        self._notes: list[str] = []
        self._locks = setting.locks or take_locks(record, task_name(folder, options))
        if options.validate == AUTO:
            options = options._replace(validate=detect(folder))
            self._notes += [NO_TESTS] if options.validate is None else []
        self.state = RunState() if state is None else state.resumed()
        self._own_budget_micros = options.budget_micros
        if setting.held_micros is not None:
            most_micros = self.state.spent_micros + setting.held_micros
            options = options._replace(budget_micros=most_micros)
        self.has_worked = False
        """Whether an agent was started: until then nothing was spent."""
        self._resumed = state is not None
        self._setting = setting
        self._answer = setting.answer
        name = setting.circuit or loop_name(folder, options)
        self.circuits = Circuits(panel, name, options, policy=setting.policy, sinks=setting.sinks)
        self.shop = Workshop(
            options,
            agent,
            folder,
            record,
            open_tree(folder, record.notes),
            Shielded(setting.view),
            setting.interrupt or Interrupt(),
            setting.time,
            SupervisorPool(),
        )
        self._rescue = Rescue(self.shop, panel, self.circuit, setting) if options.stuck else None
        if self._rescue is not None and self.state.helped:
            self.shop = self._rescue.taken_over(self.shop)
        self._gate = Gate(self.shop, self.circuits, self._left_s)
        if self.state.started_s is None:
            self.state = self.state._replace(started_s=setting.time.wall())
        self._began_s = setting.time.clock()
        self._used_before_s = self.state.seconds
        self._disk = Disk(record.path, folder)
        self._mark: str | None = None
        self._evidence: tuple[str, ...] = ()
        self._unmeasured = 0
        """Iterations in a row whose changes are not known."""

    @property
    def circuit(self) -> str:
        """The name of the loop's circuit."""
        return self.circuits.loop.name

    def run(self) -> RunResult:
        """Run to the end, whatever that is."""
        try:
            return self._run_locked()
        finally:
            for lock in self._locks:
                lock.release()

    def _run_locked(self) -> RunResult:
        with self.shop.supervisors as supervisors:
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
                    sentence = f"the system refused something that the run needs: {error}"
                    return self._finish(Ending(ExitReason.AGENT_ERROR, sentence))
                # A defect of ours: what was done so far is kept all the same.
                self._finish(Ending(ExitReason.AGENT_ERROR, "Switchgear itself failed"))
                raise
        return self._finish(ending)

    def _begin(self) -> None:
        if self.shop.options.shadow:
            try:
                self.circuits.loop.shadow(by=BY, why="--shadow")
            except OverrideRefused:
                self.shop.record.discard()
                raise
        if not self._resumed:
            with suppress(OverrideRefused):
                self.circuits.forget_earlier_runs(by=BY)
        self._gate.remember(self.state.begun_s)
        self._mark = mark(self.shop.tree)
        if self.state.start_mark is None:
            self.state = self.state._replace(start_mark=self._mark)
        self._disk.reserve()
        self._write()
        self.shop.view.started(self._run())
        for note in self._notes:
            self.shop.view.noted(note)

    def _loop(self) -> Ending:
        given_up = None if self._rescue is None else self._rescue.objection()
        if given_up is None and self._mark is None:
            given_up = self._blind()
        if given_up is not None:
            return given_up
        if not self.state.iterations:
            before = baseline(self.shop, self._left_s())
            if isinstance(before, Ending):
                return before
            self.state = self.state._replace(tests_passing=before, best_tests=before)
            self._mark = mark(self.shop.tree)  # what the validation writes is no progress
        while True:
            ending = self._gate.objection(self.state, self._evidence) or self._told()
            if ending is not None:
                return ending
            leave = self._gate.ask()
            if isinstance(leave, Ending):
                return leave
            if leave is None:
                continue
            ending = self._pace(leave) or self._iterate(leave)
            if ending is not None:
                return ending

    def _told(self) -> Ending | None:
        if self._rescue is None:
            return None
        self.state, ending = self._rescue.told(self.state)
        return ending

    def _pace(self, leave: RunPermits) -> Ending | None:
        waited_from_s = self.shop.time.wall()
        begun_s = self._gate.pace()
        if isinstance(begun_s, Ending):
            self.circuits.give_back(leave)
            return begun_s
        if begun_s - waited_from_s >= 1.0:
            self._mark = mark(self.shop.tree)  # somebody may have worked here meanwhile
        recent = (at_s for at_s in (*self.state.begun_s, begun_s) if begun_s - at_s < HOUR_S)
        self.state = self.state._replace(begun_s=tuple(recent))
        return None

    # One iteration

    def _iterate(self, leave: RunPermits) -> Ending | None:
        before, shop = self.state, self.shop
        number = before.iterations + 1
        prompt = self._prompt(number)
        shop.record.make()  # an agent may have removed it: `git clean -fdx` does
        write_regular(shop.record.prompt_file(number), prompt.encode(errors="replace"))
        shop.view.iteration_started(number, self._run())
        stuck = None if self._rescue is None else self._rescue.watch(shop, self._mark)
        left_s = self._left_s()
        self.has_worked = True
        try:
            done = iterate(
                shop, before, prompt=prompt, before=self._mark, left_s=left_s, stuck=stuck
            )
        except AgentUnusable as problem:
            self.circuits.give_back(leave)
            return Ending(ExitReason.AGENT_ERROR, str(problem))
        self._unmeasured = self._unmeasured if done.change is None else 0
        goes_on = self._tell(leave, done)
        would_stop = goes_on and self.circuits.would_stop()
        if self._rescue is not None:
            self._rescue.heard(done, before)
        self.state = counted(self.state, done, would_stop=would_stop)
        notes = notes_on(before, done)
        if would_stop:
            notes.append(f"would have stopped here: {self.circuits.reason()}")
        commit = self._commit(done, notes)
        if done.validated is None and commit is None:
            self._mark = done.mark
        else:
            self._mark = mark(shop.tree)  # what validation and hooks changed is no progress
        self._keep_facts(done, before, notes, prompt_chars=len(prompt), commit=commit)
        ending = self._ending(done, goes_on=goes_on)
        if ending is None and done.change is None:
            ending = self._blind()
        return ending or self._step_in(stuck)

    def _blind(self) -> Ending | None:
        """The end, if what the agent changes cannot be measured, now or twice in a row."""
        problem = unmeasurable(self.shop.tree)
        if problem is None and self._unmeasured < 1:
            self._unmeasured += 1
            self._mark = mark(self.shop.tree)
            return None
        why = "what it was before is not known" if problem is None else str(problem)
        if is_disk_full(problem):
            return Ending(ExitReason.DISK_FULL, full_sentence(why))
        sentence = f"changes in {self.shop.folder} cannot be measured: {why}"
        return Ending(ExitReason.UNMEASURABLE, sentence, self._evidence)

    def _step_in(self, stuck: StuckWatch | None) -> Ending | None:
        if self._rescue is None or stuck is None:
            return None
        self.state, self.shop, ending = self._rescue.step_in(self.shop, self.state, stuck)
        self._write()
        return ending

    def _prompt(self, number: int) -> str:
        options, state = self.shop.options, self.state
        plan = None if options.plan is None else read_plan(self.shop.folder / options.plan)
        answer, self._answer = self._answer, None
        standing = Standing(
            *(number, state.notes, state.nudge, state.failed_output, answer, plan, state.advice),
            self._time_warning(),
        )
        self.state = self.state._replace(advice=None)
        return prompt_of(options, standing)

    def _time_warning(self) -> str | None:
        """That 70 or 90 percent of the time are used, once each."""
        limit_s = self._limit_s()
        if limit_s is None:
            return None
        warned = timeouts.still_given(self._used_s(), limit_s, self.state.warned)
        self.state = self.state._replace(warned=warned)
        mark = timeouts.due(self._used_s(), limit_s, warned)
        if mark is None:
            return None
        self.state = self.state._replace(warned=timeouts.with_given(warned, mark.percent))
        return messages.time_warning(mark.percent, mark.left_s, limit_s)

    def _tell(self, leave: RunPermits, done: Iteration) -> bool:
        repeated = done.watch.repeated
        measured = Measured(
            seconds=done.seconds,
            cost_micros=done.cost.micros,
            files_changed=None if done.change is None else len(done.change),
            tests_passing=tests_passing(done.validated),
            output_chars=done.run.output_chars,
            repeats=1 if repeated is None else repeated.times,
        )
        self.circuits.tell_provider(leave, done.judged, done.seconds)
        return self.circuits.tell_loop(leave, done.judged, measured)

    def _commit(self, done: Iteration, notes: list[str]) -> str | None:
        if not (self.shop.options.commit and done.judged.ok is True and self.state.uncommitted):
            return None
        if done.validated is not None and done.validated.ok is not True:
            return None
        message = message_of(self.shop.options.task, self.shop.record.id, done.number)
        shop = self.shop
        by = Committing(shop.record.notes, self._left_s(), shop.interrupt, shop.supervisors)
        made = commit_paths(shop.folder, self.state.uncommitted, message, by)
        if made.note is not None:
            notes.append(made.note)
        if made.problem is None:
            self.state = self.state._replace(uncommitted=())
        else:
            notes.append(made.problem)
        return made.commit

    def _keep_facts(
        self, done: Iteration, before: RunState, notes: list[str], **more: object
    ) -> None:
        judged, shop = done.judged, self.shop
        error = None if judged.error is None else self.circuits.loop.kept(judged.error)
        facts = {
            **facts_of(done, shop, before),
            **self.circuits.facts(),
            **more,
            "error": error,
            "nudge": before.nudge,
            "would_stop": self.state.would_stop > before.would_stop,
            "notes": notes,
        }
        nudge = self.circuits.nudge()
        self.state = for_next(self.state, done, error=error, nudge=nudge, notes=notes)
        self.state = self.state._replace(seconds=self._used_s())
        self._evidence = tuple(text for text in (error, judged.remark) if text)
        shop.record.add(facts)
        self._write()
        shop.view.iteration_ended(facts, self._run())

    def _ending(self, done: Iteration, *, goes_on: bool) -> Ending | None:
        judged = done.judged
        if judged.end is not None:
            return Ending(judged.end, judged.reason, proof(done))
        if not goes_on:
            hot = self.circuits.evidence()
            new = (text for text in self._evidence if not any(text[:80] in each for each in hot))
            return Ending(ExitReason.CIRCUIT_BREAKER, self.circuits.reason(), (*hot, *new))
        if judged.provider is None:
            return None
        pause = pause_for(judged.provider, self.state, self.circuits.provider)
        if pause.ends is not None:
            return Ending(pause.ends, pause.why, (judged.provider.text,))
        waited_s = self.state.provider_waited_s + pause.seconds
        self.state = self.state._replace(provider_waited_s=waited_s)
        return self._gate.wait(pause.why, pause.seconds, pause.too_long)

    # The end

    def _finish(self, ending: Ending) -> RunResult:
        shop, loop = self.shop, self.circuits.loop
        self._disk.release()
        if self._rescue is not None:
            self._rescue.leave()
        self.state = self.state._replace(seconds=self._used_s())
        stats = self.state.stats(loop.stats())
        kept = keep(shop, self.state, ending, self._notes)
        with suppress(OverrideRefused):
            if shop.options.shadow:
                loop.release(by=BY, why="the run is over")
            if ending.reason is ExitReason.COMPLETED:
                loop.reset(by=BY, why="the task is done")
        result = RunResult(
            run=shop.record.id,
            exit_reason=ending.reason,
            reason=ending.sentence,
            evidence=ending.evidence,
            stats=stats,
            state=self.state,
            options=self._options,
            circuit=self.circuit,
            held=self.circuits.held(),
            checkpoint=kept,
            notes=tuple(self._notes),
        )
        result = self._written(result)
        if self._setting.report is not None:
            result = self._written(reported(result, shop.record, self._setting.report))
        try:
            path = write_receipt(shop.record, self._run(result))
            result = self._written(result._replace(receipt_file=str(path)))
        except OSError as error:
            note = f"the receipt could not be written: {error}"
            result = result._replace(notes=(*result.notes, note))
        shop.view.ended(result)
        return result

    def _written(self, result: RunResult) -> RunResult:
        """Write how the run ended, elsewhere if its folder has no room; a note says where."""
        try:
            self._write(result)
        except OSError as error:
            run = {"schema": SCHEMA, **self._run(result)}
            place = written_elsewhere(self.shop.record.id, run)
            where = "nowhere else either" if place is None else f"to {place} instead"
            note = f"the end of the run could not be written to its folder ({error}), {where}"
            if not any(each.startswith("the end of the run could not") for each in result.notes):
                return result._replace(notes=(*result.notes, note))
        return result

    # Inside

    @property
    def _options(self) -> RunOptions:
        """As they were told: what is held for this process is not there for the next."""
        return self.shop.options._replace(budget_micros=self._own_budget_micros)

    def _used_s(self) -> float:
        return self._used_before_s + self.shop.time.clock() - self._began_s

    def _limit_s(self) -> float | None:
        limit_s = self.shop.options.timeout_s
        return None if limit_s is None else limit_s + self.state.extra_s

    def _left_s(self) -> float | None:
        limit_s = self._limit_s()
        return None if limit_s is None else limit_s - self._used_s()

    def _run(self, result: RunResult | None = None) -> dict[str, Any]:
        """What run.json holds."""
        shop = self.shop
        return {
            "id": shop.record.id,
            "task": shop.options.task,
            "agent": shop.options.agent_label,
            "folder": str(shop.folder),
            "circuit": self.circuit,
            "started_at": iso(self.state.started_s or 0.0),
            "ended_at": None if result is None else iso(shop.time.wall()),
            "pid": os.getpid(),
            "pid_began": process_began(os.getpid()),
            "resumed": self._resumed,
            "options": self._options.dump(),
            "may_spend_micros": shop.options.budget_micros,
            "state": self.state.dump(),
            **self.circuits.facts(),
            "time_left_s": self._left_s(),
            "notes": list(self._notes),
            "end": None if result is None else result.dump(),
        }

    def _write(self, result: RunResult | None = None) -> None:
        self.shop.record.write(self._run(result))


def take_locks(record: RunFolder, circuit: str) -> tuple[RunLock, ...]:
    """The locks of a run: of its task and of its folder. Raises `RunConflict`."""
    what = f"run {record.id}"
    task = task_lock(record.path.parent, circuit, what)
    try:
        return task, folder_lock(record.path, what)
    except BaseException:
        task.release()
        raise
