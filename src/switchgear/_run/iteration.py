"""One iteration: the agent runs in its own process; the result is measured and judged.

All facts about it are collected in one dictionary, its line of iterations.jsonl.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from switchgear._agents.events import StreamEvent, total_usage
from switchgear._agents.prices import UsageCost, cost_of
from switchgear._agents.process import AgentProcess, AgentRun, ProcessEnd
from switchgear._hooks.interrupt import signal_children
from switchgear._hooks.session import TIME_VARIABLE, WATCHED_VARIABLE
from switchgear._measure.git import GitTree
from switchgear._measure.git_command import GitError
from switchgear._measure.tree import Tree, TreeChange, mark
from switchgear._providers.prices import price_list
from switchgear._run.exit_reasons import Ending, ExitReason
from switchgear._run.formats import iso
from switchgear._run.inbox import Extension, OperatorInbox
from switchgear._run.judge import (
    Judgement,
    Measurements,
    StreamObserver,
    judge,
    provider_trouble,
    tests_passing,
)
from switchgear._run.options import limits_of
from switchgear._run.prompt import read_plan
from switchgear._run.record import AgentLog, is_disk_full
from switchgear._run.state import KEPT_PATHS, IterationContext, RunState
from switchgear._run.stuck import OPERATOR, StuckWatch
from switchgear._run.validation import ValidationResult, validate
from switchgear._text.fingerprint import fingerprint

LISTED_FILES = 200
DISK = "disk"
"""Why an agent was stopped: the disk is full."""
FREE = UsageCost(0, "")


class AgentUnusable(Exception):
    """The agent cannot run this prompt."""


class Iteration(NamedTuple):
    number: int
    run: AgentRun
    watch: StreamObserver
    change: TreeChange | None
    """`None`: it could not be measured."""
    mark: str | None
    """The state of the folder after the agent's work, before the validation."""
    validated: ValidationResult | None
    cost: UsageCost
    judged: Judgement
    stopped: str | None
    began_s: float
    """Seconds since the epoch."""
    seconds: float

    @property
    def may_have_cost(self) -> bool:
        """False if the agent never ran, or never reached its provider."""
        if self.run.end is ProcessEnd.NOT_FOUND:
            return False
        used = any(each.input_tokens or each.output_tokens for each in self.run.usage)
        return self.judged.provider is None or used or bool(self.cost.micros)


def iterate(
    context: IterationContext,
    state: RunState,
    *,
    prompt: str,
    before: str | None,
    left_s: float | None,
    stuck: StuckWatch | None = None,
) -> Iteration:
    """Run the agent once, measure the result and evaluate it. `before` is the state of the folder now."""
    number, began_s, start_s = state.iterations + 1, context.time.wall(), context.time.clock()
    watch = StreamObserver(
        promise=context.options.completion_promise,
        same_error=None if context.options.shadow else limits_of(context.options).same_error,
        left_micros=state.budget(context.options.budget_micros).left_micros,
        rates=context.options.rates,
        clock=context.time.clock,
    )
    paused_s = context.inbox.paused_s
    process = _process(context, number, prompt, left_s)
    if stuck is not None and stuck.reviewer is not None:
        ends_s = None if left_s is None else start_s + left_s
        stuck.reviewer.waiting = partial(_suspended, context, process, ends_s)
    run, stopped = _run_agent(context, watch, stuck, process, number)
    start_s += context.inbox.paused_s - paused_s
    if left_s is not None:
        left_s += context.inbox.peek().extension.seconds
    after, change = _measure(context, before)
    validated = None
    if _needs_validation(context, run, watch, stopped):
        used_s = context.time.clock() - start_s
        validated = _validate(context, None if left_s is None else max(0.1, left_s - used_s))
        if stuck is not None:
            stuck.validated(validated.tests, ok=validated.ok)
    seconds = context.time.clock() - start_s
    plan = read_plan(context.folder, context.options.plan)
    seen = Measurements(
        run,
        watch,
        "interrupt" if context.interrupt.asked else stopped,
        None if change is None else len(change),
        lambda: _changed_overall(context.tree, state, after, change),
        validated,
        state.best_tests,
        context.options.completion_promise,
        None if context.options.plan is None else plan is not None and plan.is_done,
        context.options.idle_timeout_s,
        left_s is not None and seconds >= left_s,
    )
    cost = cost_of(run.usage, None if context.helps else context.options.rates)
    return Iteration(
        number, run, watch, change, after, validated, cost, judge(seen), stopped, began_s, seconds
    )


def baseline(context: IterationContext, left_s: float | None) -> int | Ending | None:
    """The number of passing tests before the first iteration; the end, if the validation cannot be run."""
    if context.options.validate is None:
        return None
    done = _validate(context, left_s)
    if done.cannot_run:
        hint = "install it, or name another command with --validate"
        sentence = f"the validation `{done.command}` cannot be run: {done.tail}; {hint}"
        return Ending(ExitReason.AGENT_ERROR, sentence)
    return tests_passing(done)


def _run_agent(
    context: IterationContext,
    watch: StreamObserver,
    stuck: StuckWatch | None,
    process: AgentProcess,
    number: int,
) -> tuple[AgentRun, str | None]:
    """Run the agent's process to its end. Returns its result, and why it was stopped, if it was."""
    stopped: list[str] = []

    def stop(why: str | None) -> None:
        if why is not None and not stopped:
            stopped.append(why)
            process.stop()

    def on_event(event: StreamEvent) -> None:
        log.event(event)
        stop(DISK if is_disk_full(log.problem) else None)
        stop(watch.see(event))
        context.view.event(event)
        if stuck is not None:
            stop(stuck.see(event))

    process.on_event = on_event
    process.on_tick = operator_watch(context.inbox, process, watch, stop)
    if stuck is not None:
        process.on_silence = lambda idle_s: stop(stuck.silent(idle_s))
    with AgentLog(context.record.log_file(number)) as log:
        with context.interrupt.watching(process):
            run = process.run()
        if run.end is not ProcessEnd.EXITED or run.exit_code:
            log.write(f"[end] {run.end.value}, exit code {run.exit_code}; the last lines:")
            log.write(run.problem or run.tail)
    if is_disk_full(log.problem) and not stopped:
        stopped.append(DISK)
    return run, stopped[0] if stopped else None


@contextmanager
def _suspended(
    context: IterationContext, process: AgentProcess, ends_s: float | None
) -> Iterator[Callable[[], bool]]:
    """Suspend the agent while nothing watches it. Yields a function that returns whether the run must end."""
    supervisor = None if process.is_paused else process.supervisor
    if supervisor is not None:
        signal_children(supervisor, suspend=True)
    try:
        yield (
            lambda: (
                context.interrupt.asked > 0
                or (ends_s is not None and context.time.clock() >= ends_s)
            )
        )
    finally:
        if supervisor is not None:
            signal_children(supervisor, suspend=False)


def operator_watch(
    inbox: OperatorInbox,
    process: AgentProcess,
    watch: StreamObserver,
    stop: Callable[[str | None], None],
) -> Callable[[], None]:
    """Returns a function that applies new messages of operators to the running agent: limits, pause, stop."""
    granted = Extension()

    def tick() -> None:
        nonlocal granted
        waiting = inbox.peek()
        before, granted = granted, waiting.extension
        if process.deadline_s is not None:
            process.deadline_s += granted.seconds - before.seconds
        watch.grant(granted.micros - before.micros)
        suspend = waiting.paused and not waiting.ends_iteration
        if suspend != process.is_paused and process.supervisor is not None:
            # The supervisor continues: it ends the agent should this process end in the meantime.
            signal_children(process.supervisor, suspend=suspend)
            process.is_paused = suspend
        stop(OPERATOR if waiting.ends_iteration else None)

    return tick


def _process(
    context: IterationContext, number: int, prompt: str, left_s: float | None
) -> AgentProcess:
    variables = {"SWITCHGEAR_ITERATION": str(number), "SWITCHGEAR_RUN": context.record.id}
    if context.options.stuck:
        variables[WATCHED_VARIABLE] = "1"
    if left_s is not None and context.options.timeout_s is not None:
        limit_s = max(context.options.timeout_s, left_s)
        variables[TIME_VARIABLE] = f"{context.time.wall() + left_s - limit_s} {limit_s}"
    if context.evidence is not None:
        variables["SWITCHGEAR_EVIDENCE"] = str(context.evidence)
    try:
        return AgentProcess(
            context.agent,
            prompt,
            context.folder,
            model=None if context.helps else context.options.model,
            env={**os.environ, **variables},
            deadline_s=left_s,
            idle_s=context.options.idle_timeout_s,
            supervisors=context.supervisors,
        )
    except ValueError as error:
        raise AgentUnusable(str(error)) from error


def mark_folder(context: IterationContext) -> str | None:
    """The state of the folder now; `None`: it cannot be measured. A signal limits its time."""
    if not isinstance(context.tree, GitTree):
        return mark(context.tree)
    with context.interrupt.watching(context.tree):
        return mark(context.tree)


def _measure(context: IterationContext, before: str | None) -> tuple[str | None, TreeChange | None]:
    after = mark_folder(context)
    if before is None or after is None:
        return after, None
    try:
        return after, context.tree.change(before, after)
    except (GitError, KeyError):
        return after, None


def _needs_validation(
    context: IterationContext, run: AgentRun, watch: StreamObserver, stopped: str | None
) -> bool:
    """Whether the result of a validation could change the judgement."""
    return not (
        context.options.validate is None
        or context.interrupt.asked
        or stopped in {"budget", "provider", DISK, OPERATOR}
        or run.end in {ProcessEnd.NOT_FOUND, ProcessEnd.DEADLINE}
        or provider_trouble(run, watch) is not None
        or (watch.question is not None and watch.question.by_tool)
    )


def _validate(context: IterationContext, left_s: float | None) -> ValidationResult:
    command = context.options.validate or ""
    context.view.validating(command)
    return validate(
        command,
        context.folder,
        deadline_s=left_s,
        interrupt=context.interrupt,
        supervisors=context.supervisors,
    )


def _changed_overall(
    tree: Tree, state: RunState, after: str | None, change: TreeChange | None
) -> bool:
    """Whether anything differs from the start of the run, as far as that is still known."""
    try:
        if state.start_mark is not None and after is not None:
            return bool(tree.change(state.start_mark, after))
    except (GitError, KeyError):
        pass  # another process marked the start: rely on the changes of the iterations
    return bool(change) or bool(state.changed)


def iteration_facts(
    iteration: Iteration, context: IterationContext, state: RunState
) -> dict[str, Any]:
    """The line of iterations.jsonl, without the state of the circuits."""
    run, watch, judged = iteration.run, iteration.watch, iteration.judged
    paths = None if iteration.change is None else iteration.change.paths
    result, usage = watch.result, total_usage(run.usage)
    cost = iteration.cost if iteration.may_have_cost else FREE
    return {
        "number": iteration.number,
        "started_at": iso(iteration.began_s),
        "ended_at": iso(context.time.wall()),
        "seconds": round(iteration.seconds, 3),
        "outcome": judged.outcome,
        "ok": judged.ok,
        "error": judged.error,
        "claims_done": judged.claims,
        "remark": judged.remark,
        "stopped": iteration.stopped,
        "repeated": None if watch.repeated is None else watch.repeated._asdict(),
        "agent": {
            "end": run.end.value,
            "exit_code": run.exit_code,
            "seconds": round(run.duration_s, 3),
            "output_bytes": run.output_bytes,
            "lines": run.lines,
            "unknown_lines": run.unknown_lines,
            "problem": run.problem,
            "claimed_success": None if result is None else result.claimed_success,
            "result": None if result is None else result.text[:600],
            "question": None if watch.question is None else watch.question.text,
        },
        "steps": watch.steps,
        "tools": dict(watch.tools.most_common(20)),
        "errors": [error._asdict() for error in watch.errors.values()],
        "files_changed": None if paths is None else len(paths),
        "files": None if paths is None else list(paths[:LISTED_FILES]),
        "validation": _validation_facts(iteration.validated),
        "tests_before": state.tests_passing,
        "tests_passing": tests_passing(iteration.validated),
        "output_chars": run.output_chars,
        "cost_micros": cost.micros,
        "cost_source": cost.source,
        "cost_unknown": cost.unknown,
        "tokens": {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cache_read": usage.cache_read_tokens,
            "cache_write": usage.cache_write_tokens,
        },
        "models": [each.model for each in run.usage],
        "prompt": f"prompts/{iteration.number:04}.txt",
        "log": f"logs/{iteration.number:04}.log",
    }


def _validation_facts(validated: ValidationResult | None) -> dict[str, Any] | None:
    if validated is None:
        return None
    tests = validated.tests
    return {
        "command": validated.command,
        "ok": validated.ok,
        "exit_code": validated.exit_code,
        "seconds": round(validated.seconds, 3),
        "passed": None if tests is None else tests.passed,
        "failed": None if tests is None else tests.failed,
        "failing": [] if tests is None else list(tests.failing[:LISTED_FILES]),
        "tail": "" if validated.ok else validated.tail[-2000:],
    }


def state_after(state: RunState, done: Iteration, *, would_stop: bool) -> RunState:
    tests = tests_passing(done.validated)
    total = None if done.validated is None else done.validated.tests_total
    paths = () if done.change is None else done.change.paths
    lost = done.judged.provider is not None
    known = [number for number in (state.best_tests, tests) if number is not None]
    if done.may_have_cost:
        state = state.paid(done.cost.micros)
        if "price list" in done.cost.source:
            state = state._replace(priced_by=price_list())
    if done.judged.ok:
        state = state._replace(failures_in_row=0)
    elif done.judged.ok is False:
        error, again = done.judged.error, done.watch.repeated
        key = None if error is None else fingerprint(error)
        state = state.failed(key, 1 if again is None else again.times)
    return state._replace(
        iterations=state.iterations + 1,
        lost=state.lost + lost,
        tokens=state.tokens
        + sum(usage.input_tokens + usage.output_tokens for usage in done.run.usage),
        tests_passing=state.tests_passing if tests is None else tests,
        tests_total=state.tests_total if tests is None else total,
        best_tests=max(known, default=None),
        changed=tuple(sorted({*state.changed, *paths}))[:KEPT_PATHS],
        uncommitted=tuple(sorted({*state.uncommitted, *paths}))[:KEPT_PATHS],
        provider_failures=state.provider_failures + 1 if lost else 0,
        provider_waited_s=state.provider_waited_s if lost else 0.0,
        would_stop=state.would_stop + would_stop,
        last_error=done.judged.error or state.last_error,
    )


def with_next_prompt(
    state: RunState, done: Iteration, *, error: str | None, nudge: str | None, notes: list[str]
) -> RunState:
    """The state with the content of the next prompt; `error` is the shortened error."""
    texts = [done.judged.remark] if done.judged.remark else []
    if done.judged.outcome == "failed" and error:
        texts.append(f"The last iteration failed: {error}")
    again = done.watch.repeated
    if again is not None:
        texts.append(
            f"It was stopped because `{again.arguments}` failed {again.times} times in a row"
        )
    texts += [note for note in notes if note.startswith("the commit was refused")]
    failed = done.validated is not None and done.validated.ok is False
    tail = done.validated.tail[-4000:] if failed and done.validated else None
    return state._replace(notes=tuple(texts), nudge=nudge, failed_output=tail)


def notes_on(before: RunState, done: Iteration) -> list[str]:
    """Remarks about an iteration that are not failures; an unknown price is reported once per run."""
    notes = []
    if done.change is None:
        notes.append("the folder could not be measured in this iteration")
    if done.cost.unknown and done.may_have_cost and not before.unknown_prices:
        notes.append(f"unknown cost: {done.cost.unknown}")
    if done.judged.claims and done.judged.outcome != "completed":
        suffix = f"; next prompt: {done.judged.remark}" if done.judged.remark else ""
        notes.append(f'the agent reports "done" without proof{suffix}')
    return notes


def evidence_of_end(done: Iteration) -> tuple[str, ...]:
    """The evidence for an end that the iteration itself decided."""
    if done.judged.end is ExitReason.INTERRUPTED:
        return ()
    words = [done.judged.provider.text] if done.judged.provider else []
    if done.validated is not None and done.validated.ok:
        words.append(f"`{done.validated.command}` passes")
    if done.change:
        words.append(f"changed: {', '.join(done.change.paths[:10])}")
    return tuple(words)
