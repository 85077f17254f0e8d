"""Whether the cost of a run can be known before it begins, and what past runs of the same agent cost."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._agents.base import Agent
from switchgear._agents.command import CommandAgent
from switchgear._agents.prices import model_rates
from switchgear._agents.registry import AGENTS, ROWS
from switchgear._providers.prices import price_list
from switchgear._run.options import RunOptions
from switchgear._run.record import list_runs
from switchgear._text.formats import dollars

REPORTS_COST = frozenset(row.name for row in ROWS if row.reports_cost)
"""Agents whose streams have the cost in dollars; the other known agents report tokens."""
_USAGE = re.compile(rb"""cost_usd|(?:in|out)put_tokens|["']usage["']""")
_MOST_BYTES = 1_000_000
_NEWEST = 200
LOOKED_BACK = 20
"""How many past runs an estimate rests on, at most."""


class PriceCoverage(NamedTuple):
    """How the cost of an agent's work becomes known."""

    known: bool
    why: str
    """A sentence without a full stop."""
    options: tuple[str, ...] = ()
    """What can be done where it is not."""


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
    """Whether what this run spends can be known; `runs` is where past runs are kept."""
    name = agent.name
    if isinstance(agent, CommandAgent):
        name = agent.program if any("json" in part for part in agent.argv) else ""
    if name in REPORTS_COST:
        return PriceCoverage(known=True, why=f"{name} reports its cost")
    if options.rates is not None:
        prices = f"{dollars(options.rates.input)} in, {dollars(options.rates.output)} out"
        return PriceCoverage(
            known=True, why=f"tokens are priced as given: {prices} per million tokens"
        )
    if name in AGENTS:
        return _by_tokens(name, options.model)
    if _has_reported(options, runs):
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
    "--allow-unknown-price: enforce the budget on the cost that is reported, and continue where none is",
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
    past = [run for run in _of_agent(options, runs) if _state(run).get("iterations")]
    alike = [run for run in past if str(run.get("task")).split() == options.task.split()]
    chosen = (alike or past)[-LOOKED_BACK:]
    if not chosen:
        return None
    states = [_state(run) for run in chosen]
    priced = [state for state in states if not state.get("unknown_prices")]
    return CostEstimate(
        runs=len(chosen),
        same_task=bool(alike),
        micros=_median([state.get("spent_micros", 0) for state in priced]),
        micros_per_iteration=_median(
            [state.get("spent_micros", 0) / state["iterations"] for state in priced]
        ),
        iterations=sorted(state["iterations"] for state in states)[len(states) // 2],
        seconds=sorted(_seconds(state) for state in states)[len(states) // 2],
    )


def _median(values: list[float]) -> int | None:
    return round(sorted(values)[len(values) // 2]) if values else None


def _of_agent(options: RunOptions, runs: Path) -> list[dict[str, Any]]:
    """The runs of the same agent, or of the same command, oldest first."""
    found = []
    for each in list_runs(runs, _NEWEST):
        if each.run is None or not isinstance(each.run.get("options"), dict):
            continue
        used = each.run["options"]
        if (used.get("agent"), used.get("agent_cmd")) == (options.agent, options.agent_cmd):
            found.append(each.run)
    return found


def _has_reported(options: RunOptions, runs: Path) -> bool:
    """Whether the newest run of this command that did anything had a known cost."""
    for run in reversed(_of_agent(options, runs)):
        state = _state(run)
        if state.get("iterations"):
            return bool(state.get("spent_micros")) and not state.get("unknown_prices")
    return False


def _mentions_usage(agent: CommandAgent, folder: Path) -> bool:
    """Whether a script that the command names prints the usage lines of `docs/agents.md`."""
    for word in agent.argv[:8]:
        path = folder / word
        try:
            if not path.is_file():
                continue
            with path.open("rb") as file:
                head = file.read(_MOST_BYTES)
        except (OSError, ValueError):
            continue
        if b"\0" not in head[:8_192] and _USAGE.search(head):
            return True
    return False


def _state(run: dict[str, Any]) -> dict[str, Any]:
    state = run.get("state")
    if not isinstance(state, dict):
        return {}
    counts = ("iterations", "spent_micros", "unknown_prices")
    sound = all(isinstance(state.get(key, 0), int) for key in counts)
    return state if sound else {}


def _seconds(state: dict[str, Any]) -> float:
    seconds = state.get("seconds", 0.0)
    return float(seconds) if isinstance(seconds, int | float) else 0.0
