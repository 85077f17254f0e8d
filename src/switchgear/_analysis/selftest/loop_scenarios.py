"""Attacks down the path of `switchgear run`: its circuits, its judge, its budget, on virtual time."""

from collections.abc import Callable, Iterator

from switchgear._agents.events import AgentError, ToolStep
from switchgear._agents.process import AgentRun, ProcessEnd
from switchgear._analysis.selftest.sandbox import (
    FAILURES,
    LOOPS,
    PATIENCE,
    Bench,
    GuardRow,
    blind,
    failed,
    hot,
    skipped,
    watchers,
)
from switchgear._budgets.allowance import RunBudget
from switchgear._config import preset_policy
from switchgear._core.errors import Rejected
from switchgear._core.policy import Policy
from switchgear._run.circuits import Circuits, Measured, policy_of
from switchgear._run.judge import Judgement, Measurements, StreamObserver, judge
from switchgear._run.options import DEFAULT_IDLE_S, RunOptions
from switchgear._run.stuck import StuckWatch
from switchgear._stuck.score import session_policy

PATH = "loop runner"
NAME = "loop/selftest"
PROVIDER = "provider/demo"
ITERATION_S = 60.0
_CENT = 10_000
_OPTIONS = RunOptions("selftest", agent="demo")

Iterate = Callable[[int], tuple[Judgement, Measured]]
"""What an iteration comes to, given its number from 1."""


def loop(bench: Bench) -> Iterator[GuardRow]:
    """Inside one iteration: the same call with the same outcome, as `run --stuck` watches it."""
    policy_for, wanted = bench.config.policy_for, bench.config.interventions.progress
    score = policy_for("session/run") or preset_policy("stuck")
    progress = policy_for("progress/run") or preset_policy("progress")
    yield _repeat_until_stopped(bench, "session/*", score, session_policy(score, None))
    if wanted:
        yield _repeat_until_stopped(
            bench, "session/* progress", progress, session_policy(score, progress)
        )


def _repeat_until_stopped(bench: Bench, guard: str, part: Policy, policy: Policy) -> GuardRow:
    """Steps of one agent until it is stopped; `part` is the detector that must fire."""
    if not watchers(part, LOOPS):
        return skipped(guard, "loop", PATH, blind(guard, part))
    panel, clock = bench.panel()
    with panel:
        session = panel.breaker("session/selftest", policy)
        watch, began_s = StuckWatch(session, lambda: 0), clock()
        step = ToolStep("Bash", "make all", ok=True, error=None, output="nothing to be done")
        for number in range(1, PATIENCE + 1):
            clock.advance(1.0)
            if watch.see(step) is not None and watch.score is not None:
                by = " + ".join(each.kind for each in watch.score.shares if each.trips)
                reason = "; ".join(watch.score.evidence)
                return GuardRow(guard, "loop", PATH, by, number, clock() - began_s, reason=reason)
        readings = session.readings().values()
        why = "; ".join(reading.reason for reading in readings)
    return failed(guard, "loop", PATH, f"{PATIENCE:,} such steps are admitted: {why}")


def same_error(bench: Bench) -> Iterator[GuardRow]:
    """Every other iteration fails, always in the same way; so it is no row of failures."""

    def iterate(number: int) -> tuple[Judgement, Measured]:
        measured = Measured(ITERATION_S, files_changed=1, output_chars=1000)
        if number % 2:
            return Judgement("failed", ok=False, error="no such table: users"), measured
        return Judgement("worked", ok=True), measured

    yield _iterate_until_refused(bench, "same error", FAILURES, iterate)


def standing_still(bench: Bench) -> Iterator[GuardRow]:
    """Every iteration claims success and changes nothing."""

    def iterate(number: int) -> tuple[Judgement, Measured]:
        del number
        return Judgement("no change", ok=True), Measured(
            ITERATION_S, files_changed=0, output_chars=1000
        )

    yield _iterate_until_refused(bench, "standing still", ("no_progress",), iterate)


def output_decline(bench: Bench) -> Iterator[GuardRow]:
    """Something changes each time, and the output becomes shorter."""

    def iterate(number: int) -> tuple[Judgement, Measured]:
        chars = 4000 if number <= 20 else 40
        return Judgement("worked", ok=True), Measured(
            ITERATION_S, files_changed=1, output_chars=chars
        )

    yield _iterate_until_refused(bench, "output decline", ("output_decline",), iterate)


def hang(bench: Bench) -> Iterator[GuardRow]:
    """The agent prints nothing until its idle timeout, repeatedly."""

    def iterate(number: int) -> tuple[Judgement, Measured]:
        del number
        silent = AgentRun(ProcessEnd.IDLE, None, DEFAULT_IDLE_S, (), 0, 0, "", 0, 0, (), None)
        seen = Measurements(silent, StreamObserver(), changed=0, idle_s=DEFAULT_IDLE_S)
        return judge(seen), Measured(DEFAULT_IDLE_S, files_changed=0)

    yield _iterate_until_refused(bench, "hang", (*FAILURES, "no_progress"), iterate)


def dead_provider(bench: Bench) -> Iterator[GuardRow]:
    """Every iteration ends because the provider is down."""
    panel, clock = bench.panel()
    trouble = AgentError("overloaded", "529 overloaded", 529, final=True)
    judged = Judgement("provider", provider=trouble)
    with panel:
        circuits = Circuits(panel, NAME, _OPTIONS)
        policy, began_s = circuits.provider.policy, clock()
        if not watchers(policy, FAILURES):
            yield skipped(PROVIDER, "dead provider", PATH, blind(PROVIDER, policy))
            return
        for number in range(PATIENCE):
            try:
                leave = circuits.acquire()
            except Rejected as refused:
                by = hot(circuits.provider.readings())
                yield GuardRow(
                    PROVIDER,
                    "dead provider",
                    PATH,
                    by,
                    number,
                    clock() - began_s,
                    reason=str(refused),
                )
                return
            clock.advance(5.0)
            circuits.record_loop(leave, judged, Measured(5.0))
            circuits.record_provider(leave, judged, 5.0)
    why = f"{PATIENCE:,} iterations without a provider, and it continues"
    yield failed(PROVIDER, "dead provider", PATH, why)


def overspend(bench: Bench) -> Iterator[GuardRow]:
    """The budget of a run: the next iteration must fit into what is left."""
    del bench
    budget = RunBudget(limit_micros=100 * _CENT)
    for number in range(1, PATIENCE):
        budget = budget.after(7 * _CENT)
        if budget.objection is not None:
            yield GuardRow(
                "run --budget", "overspend", PATH, "budget", number, 0.0, reason=budget.objection
            )
            return
    yield failed("run --budget", "overspend", PATH, "a budget of $1.00 does not limit spending")


def _iterate_until_refused(
    bench: Bench, attack: str, sees: tuple[str, ...], iterate: Iterate
) -> GuardRow:
    """Iterations until the loop's circuit refuses the next one."""
    policy = loop_policy_of(bench)
    if not watchers(policy, sees):
        return skipped("loop/*", attack, PATH, blind("loop/*", policy))
    panel, clock = bench.panel()
    with panel:
        circuits = Circuits(panel, NAME, _OPTIONS, policy=policy)
        began_s = clock()
        for number in range(1, PATIENCE + 1):
            try:
                leave = circuits.acquire()
            except Rejected as refused:
                by = hot(circuits.loop.readings())
                return GuardRow(
                    *("loop/*", attack, PATH, by, number - 1, clock() - began_s),
                    reason=str(refused),
                )
            judged, measured = iterate(number)
            clock.advance(measured.seconds)
            circuits.record_loop(leave, judged, measured)
        evidence = "; ".join(circuits.evidence()) or "no detector is warm"
    return failed("loop/*", attack, PATH, f"{PATIENCE:,} such iterations are admitted: {evidence}")


def loop_policy_of(bench: Bench) -> Policy:
    """The policy of loops: as configured, else with the default flags of a run."""
    return bench.config.policy_for(NAME) or policy_of(_OPTIONS)
