"""Attacks through the code of `switchgear run`: its circuits, its judge, its budget, on virtual time."""

from collections.abc import Callable, Iterator

from switchgear._agents.events import AgentError, ToolStep
from switchgear._agents.process import AgentRun, ProcessEnd
from switchgear._analysis.selftest.sandbox import (
    FAILURES,
    LOOPS,
    MAX_ATTEMPTS,
    Bench,
    GuardCase,
    GuardRow,
    reasons_of,
    until_refused,
)
from switchgear._budgets.allowance import RunBudget
from switchgear._config import preset_policy
from switchgear._core.policy import Policy
from switchgear._run.circuits import Circuits, Measured, policy_of
from switchgear._run.judge import Judgement, Measurements, StreamObserver, judge
from switchgear._run.options import DEFAULT_IDLE_S, RunOptions
from switchgear._run.stuck import StuckWatch
from switchgear._stuck.score import session_policy

PATH = "loop runner"
NAME = "loop/selftest"
ITERATION_S = 60.0
_CENT = 10_000
_OPTIONS = RunOptions("selftest", agent="demo")

Iterate = Callable[[int], tuple[Judgement, Measured]]
"""Returns the result of an iteration, given its number from 1."""


def loop(bench: Bench) -> Iterator[GuardRow]:
    """The same call with the same outcome within one iteration, as `run --stuck` watches it."""
    policy_for = bench.config.policy_for
    score = policy_for("session/run") or preset_policy("stuck")
    progress = policy_for("progress/run") or preset_policy("progress")
    yield _repeat_until_stopped(bench, "session/*", score, session_policy(score, None))
    if bench.config.interventions.progress:
        policy = session_policy(score, progress)
        yield _repeat_until_stopped(bench, "session/* progress", progress, policy)


def _repeat_until_stopped(bench: Bench, guard: str, part: Policy, policy: Policy) -> GuardRow:
    """Repeat a step until the agent is stopped; `part` is the policy with the detectors that must fire."""
    case = GuardCase(guard, "loop", PATH)
    if unwatched := case.unwatched(part, LOOPS):
        return unwatched
    panel, clock = bench.panel()
    with panel:
        session = panel.breaker("session/selftest", policy)
        watch, began_s = StuckWatch(session, lambda: 0), clock()
        step = ToolStep("Bash", "make all", ok=True, error=None, output="nothing to be done")
        for number in range(1, MAX_ATTEMPTS + 1):
            clock.advance(1.0)
            if watch.see(step) is not None and watch.score is not None:
                by = " + ".join(each.kind for each in watch.score.shares if each.trips)
                return case.fired(by, number, clock() - began_s, "; ".join(watch.score.evidence))
        why = reasons_of(session)
    return case.failed(f"{MAX_ATTEMPTS:,} such steps are admitted: {why}")


def same_error(bench: Bench) -> Iterator[GuardRow]:
    """Every other iteration fails with the same error, so that failures are never consecutive."""

    def iterate(number: int) -> tuple[Judgement, Measured]:
        measured = Measured(ITERATION_S, files_changed=1, output_chars=1000)
        if number % 2:
            return Judgement("failed", ok=False, error="no such table: users"), measured
        return Judgement("worked", ok=True), measured

    yield _iterate_until_refused(bench, "same error", FAILURES, iterate)


def standing_still(bench: Bench) -> Iterator[GuardRow]:
    """Every iteration claims success and changes nothing."""
    measured = Measured(ITERATION_S, files_changed=0, output_chars=1000)
    ended = Judgement("no change", ok=True), measured
    yield _iterate_until_refused(bench, "standing still", ("no_progress",), lambda _: ended)


def output_decline(bench: Bench) -> Iterator[GuardRow]:
    """Iterations that change a file, with shorter and shorter output."""

    def iterate(number: int) -> tuple[Judgement, Measured]:
        chars = 4000 if number <= 20 else 40
        measured = Measured(ITERATION_S, files_changed=1, output_chars=chars)
        return Judgement("worked", ok=True), measured

    yield _iterate_until_refused(bench, "output decline", ("output_decline",), iterate)


def hang(bench: Bench) -> Iterator[GuardRow]:
    """The agent prints nothing until its idle timeout, repeatedly."""
    silent = AgentRun(ProcessEnd.IDLE, None, DEFAULT_IDLE_S, (), 0, 0, "", 0, 0, (), None)
    seen = Measurements(silent, StreamObserver(), changed=0, idle_s=DEFAULT_IDLE_S)
    ended = judge(seen), Measured(DEFAULT_IDLE_S, files_changed=0)
    yield _iterate_until_refused(bench, "hang", (*FAILURES, "no_progress"), lambda _: ended)


def dead_provider(bench: Bench) -> Iterator[GuardRow]:
    """Every iteration ends because the provider is down."""
    case = GuardCase("provider/demo", "dead provider", PATH)
    panel, clock = bench.panel()
    trouble = AgentError("overloaded", "529 overloaded", 529, final=True)
    judged = Judgement("provider", provider=trouble)
    with panel:
        circuits = Circuits(panel, NAME, _OPTIONS)

        def iterate(_: int) -> None:
            permits = circuits.acquire()
            clock.advance(5.0)
            circuits.record_loop(permits, judged, Measured(5.0))
            circuits.record_provider(permits, judged, 5.0)

        yield (
            case.unwatched(circuits.provider.policy, FAILURES)
            or until_refused(case, iterate, circuits.provider.readings, clock)
            or case.failed(f"{MAX_ATTEMPTS:,} iterations without a provider, and it continues")
        )


def overspend(bench: Bench) -> Iterator[GuardRow]:
    """The budget of a run: the next iteration must fit into what is left."""
    del bench
    case = GuardCase("run --budget", "overspend", PATH)
    budget = RunBudget(limit_micros=100 * _CENT)
    for number in range(1, MAX_ATTEMPTS):
        budget = budget.after(7 * _CENT)
        if budget.objection is not None:
            yield case.fired("budget", number, 0.0, budget.objection)
            return
    yield case.failed("a budget of $1.00 does not limit spending")


def _iterate_until_refused(
    bench: Bench, attack: str, sees: tuple[str, ...], iterate: Iterate
) -> GuardRow:
    """Iterate until the loop's circuit refuses the next iteration."""
    case = GuardCase("loop/*", attack, PATH)
    policy = bench.config.policy_for(NAME) or policy_of(_OPTIONS)
    if unwatched := case.unwatched(policy, sees):
        return unwatched
    panel, clock = bench.panel()
    with panel:
        circuits = Circuits(panel, NAME, _OPTIONS, policy=policy)

        def attempt(number: int) -> None:
            permits = circuits.acquire()
            judged, measured = iterate(number)
            clock.advance(measured.seconds)
            circuits.record_loop(permits, judged, measured)

        row = until_refused(case, attempt, circuits.loop.readings, clock)
        evidence = "; ".join(circuits.evidence()) or "no detector is warm"
    return row or case.failed(f"{MAX_ATTEMPTS:,} such iterations are admitted: {evidence}")
