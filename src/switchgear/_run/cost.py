"""Whether the cost of a run can be known before it begins, and what past runs of the same agent cost."""

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from switchgear._agents.base import Agent
from switchgear._agents.command import CommandAgent
from switchgear._agents.prices import model_rates
from switchgear._agents.registry import AGENTS, ROWS
from switchgear._providers.prices import price_list
from switchgear._run.options import RunOptions
from switchgear._run.record import list_runs
from switchgear._run.state import RunState
from switchgear._text.formats import dollars

REPORTS_COST = frozenset(row.name for row in ROWS if row.reports_cost)
"""Agents whose streams have the cost in dollars; the other known agents report tokens."""
_USAGE = re.compile(rb"""cost_usd|(?:in|out)put_tokens|["']usage["']""")
_MAX_SCRIPT_BYTES = 1_000_000
_MAX_RUNS_READ = 200
_MAX_RUNS_USED = 20
"""Maximum number of past runs in an estimate."""


class PriceCoverage(NamedTuple):
    """How the cost of an agent's work becomes known."""

    known: bool
    why: str
    """A sentence without a full stop."""
    options: tuple[str, ...] = ()
    """What the user can do if it does not."""


class CostEstimate(NamedTuple):
    """What past runs of the same agent cost, each as a median."""

    runs: int
    same_task: bool
    micros: int | None
    """`None`: their cost is unknown."""
    micros_per_iteration: int | None
    iterations: int
    seconds: float


def coverage(options: RunOptions, agent: Agent, folder: Path, runs: Path) -> PriceCoverage:
    """Whether the cost of this run will be known. `runs` is the folder of past runs."""
    name = agent.name
    if isinstance(agent, CommandAgent):
        name = agent.program if any("json" in part for part in agent.argv) else ""
    if name in REPORTS_COST:
        return PriceCoverage(known=True, why=f"{name} reports its cost")
    if options.rates is not None:
        prices = f"{dollars(options.rates.input)} in, {dollars(options.rates.output)} out"
        return PriceCoverage(
            known=True, why=f"tokens have the given prices: {prices} per million tokens"
        )
    if name in AGENTS:
        return _by_tokens(name, options.model)
    newest = [state for _, state in _past(options, runs)[-1:]]
    if any(state.spent_micros and not state.unknown_prices for state in newest):
        return PriceCoverage(known=True, why="an earlier run of this command reported its cost")
    if isinstance(agent, CommandAgent) and _mentions_usage(agent, folder):
        by = f"tokens without a cost are priced by the {price_list()}"
        return PriceCoverage(known=True, why=f"the command's script prints usage lines; {by}")
    return PriceCoverage(
        known=False,
        why=f"the command {options.agent_label!r} is not known to report tokens or cost",
        options=(_REPORT, *_ANYWAY),
    )


_REPORT = (
    'let it print {"type": "usage", "cost_usd": …}, or its tokens, with --price-in and --price-out '
    "(dollars per million tokens)"
)
_ANYWAY = (
    "--allow-unknown-price: count only reported costs against the budget, and continue when a cost is unknown",
    "leave out --budget, and limit the run by --max-iterations and --timeout",
)


def _by_tokens(name: str, model: str | None) -> PriceCoverage:
    if model is None:
        why = f"{name} reports tokens and its model, priced by the {price_list()}"
        return PriceCoverage(known=True, why=why)
    found = model_rates(model)
    if found is None:
        return PriceCoverage(
            known=False,
            why=f"the {price_list()} has no price for the model {model!r}",
            options=(
                "--price-in USD --price-out USD: your prices for a million tokens",
                "another --model, or a newer list: python3 -m pip install -U 'switchgear[prices]'",
                *_ANYWAY,
            ),
        )
    prices = f"{dollars(found[0])} in, {dollars(found[1])} out per million tokens"
    return PriceCoverage(
        known=True, why=f"{name} reports tokens; {model}: {prices} ({price_list()})"
    )


def estimate(options: RunOptions, runs: Path) -> CostEstimate | None:
    """What past runs of this agent cost, of the same task if there are any; `None`: there are none."""
    past = _past(options, runs)
    alike = [state for task, state in past if task.split() == options.task.split()]
    states = (alike or [state for _, state in past])[-_MAX_RUNS_USED:]
    if not states:
        return None
    priced = [state for state in states if not state.unknown_prices]
    each_micros = _median(state.spent_micros / state.iterations for state in priced)
    micros = _median(state.spent_micros for state in priced)
    return CostEstimate(
        runs=len(states),
        same_task=bool(alike),
        micros=None if micros is None else round(micros),
        micros_per_iteration=None if each_micros is None else round(each_micros),
        iterations=int(_median(state.iterations for state in states) or 0),
        seconds=_median(state.seconds for state in states) or 0.0,
    )


def _median(values: Iterable[float]) -> float | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


def _past(options: RunOptions, runs: Path) -> list[tuple[str, RunState]]:
    """Task and state of past runs of the same agent or command with at least one iteration, oldest first."""
    found = []
    agent = (options.agent, options.agent_cmd)
    for run in (each.run for each in list_runs(runs, _MAX_RUNS_READ) if each.run is not None):
        with suppress(ValueError, TypeError, AttributeError):  # written by another version
            used, state = run["options"], RunState.load(run["state"])
            if state.iterations and (used.get("agent"), used.get("agent_cmd")) == agent:
                found.append((str(run["task"]), state))
    return found


def _mentions_usage(agent: CommandAgent, folder: Path) -> bool:
    """Whether a script that the command names prints the usage lines of `docs/agents.md`."""
    for word in agent.argv[:8]:
        path = folder / word
        try:
            if not path.is_file():
                continue
            with path.open("rb") as file:
                head = file.read(_MAX_SCRIPT_BYTES)
        except (OSError, ValueError):
            continue
        if b"\0" not in head[:8_192] and _USAGE.search(head):
            return True
    return False
