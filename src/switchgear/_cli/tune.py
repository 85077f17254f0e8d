"""`switchgear tune`: proposes thresholds for an accepted rate of false stops."""

from pathlib import Path
from typing import Any

import click
import yaml

from switchgear._agents.recordings.recording import RecordingTally
from switchgear._analysis.backtest.engine import Recordings, read_outcomes
from switchgear._analysis.backtest.findings import Rate, counts_as_values, rate_as_values
from switchgear._analysis.backtest.labels import read_labels
from switchgear._analysis.backtest.tune import Proposal, TooLittle, Tuned, as_config
from switchgear._analysis.backtest.tune import tune as tune_policy
from switchgear._breaker.presets import MEASURED
from switchgear._cli.backtest import (
    DEFAULT,
    check_folder,
    check_paths,
    format_option,
    jobs_option,
    load_policy,
    outcome_options,
)
from switchgear._cli.context import say_json
from switchgear._cli.options import fail, reader_options
from switchgear._cli.views.terminal import Screen, progress
from switchgear._cli.views.text import clean, plural, say

RATE_NOT_KEPT, TOO_LITTLE = 1, 3
NAME = "tuned"


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--false-stops",
    "rate",
    required=True,
    metavar="RATE",
    help="Accepted rate of solved runs that are stopped: 1% or 0.01.",
)
@click.option(
    "--policy",
    metavar="NAME|FILE",
    default=DEFAULT,
    help="Policy to start from: a preset (careful, default, eager), a name or a file.",
)
@click.option(
    "--write", metavar="FILE", help="Write the policy to a new configuration file (.yaml)."
)
@outcome_options
@format_option
@jobs_option
@reader_options
def tune(  # noqa: PLR0917  click passes them by name
    paths: tuple[str, ...],
    rate: str,
    policy: str,
    outcomes: str | None,
    force: str | None,
    jobs: int | None,
    write: str | None,
    confidence: float,
    *,
    recorded_only: bool,
    as_json: bool,
) -> int:
    """Propose thresholds for a rate of false stops, by cross-validation on recorded runs.

    PATH is as in `switchgear backtest`; runs with an unknown outcome are ignored. Outcomes come
    from `switchgear label`, --outcomes or the recording; else they are inferred. All thresholds
    are scaled by one factor, chosen by 5-fold cross-validation by task. N solved runs without a
    false stop cannot prove a rate below 3/N: for a lower rate, the command reports too little
    data.

    Exit code 0: the proposal keeps the rate on held-out tasks; 1: it does not; 2: bad input; 3:
    too little data, or no factor keeps the rate.
    """
    accepted = _parse_rate(rate)
    check_paths(paths)
    check_folder("--write", write)
    if write is not None and not write.endswith((".yaml", ".yml")):
        fail(f"--write {write!r}: the name must end in .yaml")
    if write is not None and Path(write).exists():
        fail(f"--write {write!r}: the file exists already; name a new one, and copy what you want")
    given = {} if outcomes is None else read_outcomes(outcomes)
    start = load_policy(policy)
    with progress("replaying recordings", hidden=as_json, passes=2) as report:
        least = None if recorded_only else confidence
        recordings = Recordings(paths, given, force, jobs, report, read_labels(), least)
        found = tune_policy(recordings, start.policy, accepted, RecordingTally())
    if isinstance(found.result, TooLittle):
        code = TOO_LITTLE
    else:
        code = 0 if (found.result.held.false_stops.value or 0.0) <= accepted else RATE_NOT_KEPT
    if as_json:
        say_json(_values(found, accepted, code))
    else:
        _draw(found, accepted, start.name, code)
    if write is not None and code == 0 and not isinstance(found.result, TooLittle):
        with Path(write).open("x", encoding="utf-8") as file:
            file.write(_yaml(found.result))
        say(f"written: {clean(write, 1000)}", err=as_json)
    return code


def _parse_rate(text: str) -> float:
    number, is_percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = float(number) / (100 if is_percent else 1)
    except ValueError:
        value = -1.0
    if not 0.0 < value < 1.0:
        fail(f"--false-stops is {text!r}: it must be above 0 and below 100 %, such as 1% or 0.01")
    return value


def _yaml(proposal: Proposal) -> str:
    values = {"policies": {NAME: as_config(proposal.policy)}}
    text: str = yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=100)
    return text


def _values(found: Tuned, rate: float, code: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "exit_code": code,
        "asked": rate,
        "solved": found.solved,
        "unsolved": found.unsolved,
        "unknown": found.unknown,
        "tasks": found.tasks,
        "inferred": found.inferred,
    }
    result = found.result
    if isinstance(result, TooLittle):
        return {**facts, "proposal": None, "why": result.why}
    return {
        **facts,
        "why": "",
        "proposal": {
            "factor": result.factor,
            "policy": as_config(result.policy),
            "held_out": {
                "false_stop_rate": rate_as_values(result.held.false_stops),
                "catch_rate": rate_as_values(result.held.caught),
                "saved_steps": result.held.saved_steps,
                "unsolved_steps": result.held.unsolved_steps,
            },
            "all_runs": counts_as_values(result.replayed),
        },
    }


def _draw(found: Tuned, rate: float, start: str, code: int) -> None:
    screen = Screen()
    runs = f"{plural(found.solved, 'solved run')}, {found.unsolved:,} unsolved"
    screen.line(
        f"{runs}, of {plural(found.tasks, 'task')}; {found.unknown:,} of unknown outcome", 2
    )
    if found.inferred:
        inferred = f"{plural(found.inferred, 'outcome')} inferred"
        screen.line(f"{inferred}; correct outcomes with: switchgear label PATH", 2)
    if start in MEASURED:
        screen.line(
            f"starting from the preset {start}; on other recorded runs: {MEASURED[start]}", 2
        )
    if isinstance(found.result, TooLittle):
        needs_data = found.result.more_may_do
        screen.line(f"{'too little data' if needs_data else 'no proposal'}: {found.result.why}", 2)
        if needs_data:
            ways = "add outcomes with `switchgear label PATH` or --outcomes FILE, or more runs"
            screen.line(ways, 2)
        return
    result = found.result
    held = result.held
    screen.line(f"accepted: at most {rate:.2%} false stops")
    screen.line()
    saved = held.saved_steps / held.unsolved_steps if held.unsolved_steps else 0.0
    for line in (
        "held-out result (5-fold cross-validation by task):",
        f"  false stops  {_rate(held.false_stops)}",
        f"  caught       {_rate(held.caught)}",
        f"  steps saved  {saved:.1%} of those of unsolved runs",
        "the proposal itself, on all runs:",
        f"  false stops  {_rate(result.replayed.false_stop_rate)}",
        f"  caught       {_rate(result.replayed.catch_rate)}",
        "",
    ):
        screen.line(line, 15)
    screen.line(f"proposed: the thresholds of {clean(start, 100)} times {result.factor:g}", 2)
    if code == RATE_NOT_KEPT:
        screen.line("it does not keep the rate on held-out tasks: do not use it", 2)
    screen.line()
    for line in _yaml(result).splitlines():
        screen.line(line, 8)
    if code != RATE_NOT_KEPT:
        use = f'{{match: "progress/*", policy: {NAME}}}'
        screen.line(f"in guarded sessions: copy it into switchgear.yaml, with circuits: [{use}]", 2)


def _rate(rate: Rate) -> str:
    share = f"{rate.value:.1%}" if rate.value is not None else "-"
    return f"{rate.seen:,} of {rate.total:,}, {share} (95 %: {rate.low:.1%} to {rate.high:.1%})"
