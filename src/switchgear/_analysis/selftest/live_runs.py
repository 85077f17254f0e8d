"""`switchgear run` itself: the demo agent as a real process, in a throw-away repository."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._agents.demo import TASK, Demo, make_repository
from switchgear._analysis.selftest.rows import GuardRow, failed
from switchgear._analysis.selftest.sandbox import Bench, hot
from switchgear._panel.panel import Panel
from switchgear._run.dependencies import RunDependencies
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.loop import Runner
from switchgear._run.options import RunOptions
from switchgear._run.record import new_run

PATH = "loop runner live"
SPEED = 20.0
_MOST = 12
"""Iterations, at most."""


class Live(NamedTuple):
    """A scenario of the demo agent, and how the run must end."""

    attack: str
    scenario: str
    end: ExitReason
    options: dict[str, Any]


LIVES = (
    Live("same error", "same-error", ExitReason.CIRCUIT_BREAKER, {}),
    Live("standing still", "no-progress", ExitReason.CIRCUIT_BREAKER, {}),
    Live("output decline", "declining", ExitReason.CIRCUIT_BREAKER, {}),
    Live("hang", "hangs", ExitReason.CIRCUIT_BREAKER, {"idle_timeout_s": 1.5}),
    Live("overspend", "expensive", ExitReason.BUDGET, {"budget_micros": 3_000_000}),
)


def attacked(bench: Bench) -> Iterator[GuardRow]:
    """Each scenario to its end."""
    for live in LIVES:
        with tempfile.TemporaryDirectory(prefix="switchgear-selftest-") as place:
            yield _run(bench, live, Path(place))


def _run(bench: Bench, live: Live, place: Path) -> GuardRow:
    folder = place / "work"
    make_repository(folder)
    options = RunOptions(
        TASK, agent=f"demo:{live.scenario}", max_iterations=_MOST, timeout_s=120.0, **live.options
    )
    dependencies = RunDependencies(policy=bench.config.policy_for("loop/selftest"))
    with Panel("memory:", policies=bench.config.policy_for) as panel:
        agent, record = Demo(live.scenario, SPEED), new_run(place / "runs")
        runner = Runner(
            options, agent, record, folder=folder, panel=panel, dependencies=dependencies
        )
        result = runner.run()
        tripped = hot(runner.circuits.loop.readings())
    guard = "run --budget" if live.end is ExitReason.BUDGET else "loop/*"
    if result.exit_reason is not live.end:
        why = f"the run ended as {result.exit_reason}, not {live.end}: {result.reason}"
        return failed(guard, live.attack, PATH, why)
    by = "budget" if live.end is ExitReason.BUDGET else tripped
    state = result.state
    return GuardRow(
        guard, live.attack, PATH, by, state.iterations, state.seconds, reason=result.reason
    )
