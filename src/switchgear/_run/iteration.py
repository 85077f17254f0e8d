"""One iteration: the agent works in a process of its own, and what it did is measured and judged.

Everything that is known of it ends up in one dictionary, its line of iterations.jsonl.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._agents.base import Agent
from switchgear._agents.events import StreamEvent, total_usage
from switchgear._agents.prices import UsageCost, cost_of
from switchgear._agents.process import AgentProcess, AgentRun, ProcessEnd, SupervisorPool
from switchgear._hooks.session import TIME, WATCHED
from switchgear._measure.git_command import GitError
from switchgear._measure.tree import Change, Tree
from switchgear._run.agent_log import AgentLog
from switchgear._run.disk import is_disk_full
from switchgear._run.exit_reasons import Ending, ExitReason
from switchgear._run.interrupt import Interrupt
from switchgear._run.judge import Judgement, Seen, judge, provider_trouble, tests_passing
from switchgear._run.limits import limits_of
from switchgear._run.observation import Watch
from switchgear._run.options import RunOptions
from switchgear._run.plan import read_plan
from switchgear._run.record import RunFolder
from switchgear._run.state import RunState
from switchgear._run.stuck import StuckWatch
from switchgear._run.validation import Validated, validate
from switchgear._run.view import View
from switchgear._run.wait import Time

LISTED_FILES = 200
DISK = "disk"
"""Why an agent was stopped: the disk is full."""
FREE = UsageCost(0, "")


class AgentUnusable(Exception):
    """The agent cannot be given this prompt; the sentence says why."""


class Workshop(NamedTuple):
    """What every iteration of a run works with."""

    options: RunOptions
    agent: Agent
    folder: Path
    record: RunFolder
    tree: Tree
    view: View
    interrupt: Interrupt
    time: Time
    supervisors: SupervisorPool
    evidence: Path | None = None
    """What is known of an agent that was stuck."""
    helps: bool = False
    """Whether the agent is another one than the options name, and takes over."""


class Iteration(NamedTuple):
    """What one iteration was."""

    number: int
    run: AgentRun
    watch: Watch
    change: Change | None
    """`None`: it could not be measured."""
    mark: str | None
    """The state of the folder after the agent's work, before the validation."""
    validated: Validated | None
    cost: UsageCost
    judged: Judgement
    stopped: str | None
    began_s: float
    """Seconds since the epoch."""
    seconds: float

    @property
    def may_have_cost(self) -> bool:
        """What never ran, or never reached its provider, cost nothing, and nothing unknown."""
        if self.run.end is ProcessEnd.NOT_FOUND:
            return False
        used = any(each.input_tokens or each.output_tokens for each in self.run.usage)
        return self.judged.provider is None or used or bool(self.cost.micros)


def iterate(
    shop: Workshop,
    state: RunState,
    *,
    prompt: str,
    before: str | None,
    left_s: float | None,
    stuck: StuckWatch | None = None,
) -> Iteration:
    """Let the agent work once, measure and judge. `before` is the state of the folder now."""
    number, began_s, start_s = state.iterations + 1, shop.time.wall(), shop.time.clock()
    watch = _watch(shop.options, state, shop.time.clock)
    run, stopped = _work(shop, watch, stuck, _process(shop, number, prompt, left_s), number)
    after, change = _measure(shop, before)
    validated = None
    if _worth_validating(shop, run, watch, stopped):
        used_s = shop.time.clock() - start_s
        validated = _validate(shop, None if left_s is None else max(0.1, left_s - used_s))
        if stuck is not None:
            stuck.validated(validated.tests, ok=validated.ok)
    seconds = shop.time.clock() - start_s
    seen = Seen(
        run,
        watch,
        "interrupt" if shop.interrupt.asked else stopped,
        None if change is None else len(change),
        lambda: _changed_overall(shop.tree, state, after, change),
        validated,
        state.best_tests,
        shop.options.completion_promise,
        _plan_done(shop),
        shop.options.idle_timeout_s,
        left_s is not None and seconds >= left_s,
    )
    cost = cost_of(run.usage, None if shop.helps else shop.options.rates)
    return Iteration(
        number, run, watch, change, after, validated, cost, judge(seen), stopped, began_s, seconds
    )


def baseline(shop: Workshop, left_s: float | None) -> int | Ending | None:
    """How many tests pass before anything was done; an end, if the validation cannot be run."""
    if shop.options.validate is None:
        return None
    done = _validate(shop, left_s)
    if done.cannot_run:
        way_out = "install it, or name another command with --validate"
        sentence = f"the validation `{done.command}` cannot be run: {done.tail}; {way_out}"
        return Ending(ExitReason.AGENT_ERROR, sentence)
    return tests_passing(done)


def unmeasurable(tree: Tree) -> Exception | None:
    """Why the folder cannot be measured now; `None`: it can."""
    too_slow = getattr(tree, "too_slow", None)
    if isinstance(too_slow, GitError):
        return too_slow  # to try that again would only take as long again
    try:
        tree.mark()
    except (GitError, OSError) as error:
        return error
    return None


def mark(tree: Tree) -> str | None:
    """The state of the folder now; `None`: it cannot be measured."""
    try:
        return tree.mark()
    except (GitError, OSError):
        return None


def _watch(options: RunOptions, state: RunState, clock: Callable[[], float]) -> Watch:
    budget = state.budget(options.budget_micros)
    return Watch(
        promise=options.completion_promise,
        same_error=None if options.shadow else limits_of(options).same_error,
        left_micros=budget.left_micros,
        rates=options.rates,
        clock=clock,
    )


def _work(
    shop: Workshop, watch: Watch, stuck: StuckWatch | None, process: AgentProcess, number: int
) -> tuple[AgentRun, str | None]:
    """The agent's process, from its start to its end, and why we stopped it, if we did."""
    stopped: list[str] = []

    def stop(why: str | None) -> None:
        if why is not None and not stopped:
            stopped.append(why)
            process.stop()

    def happened(event: StreamEvent) -> None:
        log.event(event)
        stop(DISK if is_disk_full(log.problem) else None)
        stop(watch.see(event))
        shop.view.event(event)
        if stuck is not None:
            stop(stuck.see(event))

    process.on_event = happened
    if stuck is not None:
        process.on_silence = lambda idle_s: stop(stuck.silent(idle_s))
    with AgentLog(shop.record.log_file(number)) as log:
        with shop.interrupt.watching(process):
            run = process.run()
        if run.end is not ProcessEnd.EXITED or run.exit_code:
            log.write(f"[end] {run.end.value}, exit code {run.exit_code}; the last lines:")
            log.write(run.problem or run.tail)
    if is_disk_full(log.problem) and not stopped:
        stopped.append(DISK)
    return run, stopped[0] if stopped else None


def _process(shop: Workshop, number: int, prompt: str, left_s: float | None) -> AgentProcess:
    told = {"SWITCHGEAR_ITERATION": str(number), "SWITCHGEAR_RUN": shop.record.id}
    if shop.options.stuck:
        told[WATCHED] = "1"
    if left_s is not None and shop.options.timeout_s is not None:
        limit_s = max(shop.options.timeout_s, left_s)
        told[TIME] = f"{shop.time.wall() + left_s - limit_s} {limit_s}"
    if shop.evidence is not None:
        told["SWITCHGEAR_EVIDENCE"] = str(shop.evidence)
    try:
        return AgentProcess(
            shop.agent,
            prompt,
            shop.folder,
            model=None if shop.helps else shop.options.model,
            env={**os.environ, **told},
            deadline_s=left_s,
            idle_s=shop.options.idle_timeout_s,
            supervisors=shop.supervisors,
        )
    except ValueError as error:
        raise AgentUnusable(str(error)) from error


def _measure(shop: Workshop, before: str | None) -> tuple[str | None, Change | None]:
    after = mark(shop.tree)
    if before is None or after is None:
        return after, None
    try:
        return after, shop.tree.change(before, after)
    except (GitError, KeyError):
        return after, None


def _worth_validating(shop: Workshop, run: AgentRun, watch: Watch, stopped: str | None) -> bool:
    """Whether its result could matter: not after an end that is no evidence."""
    if (
        shop.options.validate is None
        or shop.interrupt.asked
        or stopped in {"budget", "provider", DISK}
    ):
        return False
    if (
        run.end in {ProcessEnd.NOT_FOUND, ProcessEnd.DEADLINE}
        or provider_trouble(run, watch) is not None
    ):
        return False
    return watch.question is None or not watch.question.by_tool


def _validate(shop: Workshop, left_s: float | None) -> Validated:
    command = shop.options.validate or ""
    shop.view.validating(command)
    return validate(
        command,
        shop.folder,
        deadline_s=left_s,
        interrupt=shop.interrupt,
        supervisors=shop.supervisors,
    )


def _changed_overall(tree: Tree, state: RunState, after: str | None, change: Change | None) -> bool:
    """Whether anything differs from the start of the run, as far as that is still known."""
    try:
        if state.start_mark is not None and after is not None:
            return bool(tree.change(state.start_mark, after))
    except (GitError, KeyError):
        pass  # the start was another process's: what the iterations changed must do
    return bool(change) or bool(state.changed)


def _plan_done(shop: Workshop) -> bool | None:
    if shop.options.plan is None:
        return None
    plan = read_plan(shop.folder / shop.options.plan)
    return plan is not None and plan.is_done


def facts_of(iteration: Iteration, shop: Workshop, state: RunState) -> dict[str, Any]:
    """The line of iterations.jsonl, but for what the circuits say of it."""
    run, watch, judged = iteration.run, iteration.watch, iteration.judged
    paths = None if iteration.change is None else iteration.change.paths
    result = watch.result
    return {
        "number": iteration.number,
        "started_at": iso(iteration.began_s),
        "ended_at": iso(shop.time.wall()),
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
        **_cost_facts(iteration.cost if iteration.may_have_cost else FREE, run),
        "prompt": f"prompts/{iteration.number:04}.txt",
        "log": f"logs/{iteration.number:04}.log",
    }


def _validation_facts(validated: Validated | None) -> dict[str, Any] | None:
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


def _cost_facts(cost: UsageCost, run: AgentRun) -> dict[str, Any]:
    usage = total_usage(run.usage)
    return {
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
    }


def iso(at_s: float) -> str:
    """UTC in ISO 8601 with milliseconds."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
