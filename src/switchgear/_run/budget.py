"""What a run may spend: its limit, its reservation in a budget tree, and whether its cost can be known.

A reservation is held while this process lives; a thread renews its lease. What a killed process spent
is unknown, so the end of its lease charges all of it (`docs/budgets.md`).
"""

import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from switchgear._agents.base import Agent
from switchgear._agents.command import CommandAgent
from switchgear._agents.prices import model_rates
from switchgear._agents.registry import AGENTS, ROWS
from switchgear._budgets.budgets import LEASE_S, Budgets
from switchgear._budgets.tree import BudgetNode, is_reservation, parent_of, root_of
from switchgear._core.errors import BudgetRefused, StoreError
from switchgear._providers.prices import price_list
from switchgear._run.options import RunOptions
from switchgear._run.record import list_runs
from switchgear._text.formats import dollars

RECENT = 3
"""How many iterations the estimate of the next one looks back."""


class RunBudget(NamedTuple):
    """What was spent, and on what the estimate rests. Immutable."""

    limit_micros: int | None = None
    """`None`: spend what it takes."""
    spent_micros: int = 0
    recent_micros: tuple[int, ...] = ()
    unknown: int = 0
    """Iterations whose price is not known."""

    def after(self, cost_micros: int | None) -> "RunBudget":
        """The budget after an iteration."""
        if cost_micros is None:
            return self._replace(unknown=self.unknown + 1)
        return self._replace(
            spent_micros=self.spent_micros + cost_micros,
            recent_micros=(*self.recent_micros, cost_micros)[-RECENT:],
        )

    @property
    def left_micros(self) -> int | None:
        """What is left; `None`: no limit."""
        return None if self.limit_micros is None else self.limit_micros - self.spent_micros

    @property
    def estimate_micros(self) -> int:
        """What the next iteration may cost: as much as the dearest of the last few."""
        return max(self.recent_micros, default=0)

    @property
    def objection(self) -> str | None:
        """Why the next iteration must not begin; `None`: it may."""
        left = self.left_micros
        if left is None:
            return None
        if left <= 0:
            return f"{dollars(self.spent_micros)} of {dollars(self.limit_micros or 0)} are spent"
        if self.estimate_micros > left:
            return (
                f"the next iteration may cost {dollars(self.estimate_micros)}, as a recent one did,"
                f" and {dollars(left)} of {dollars(self.limit_micros or 0)} are left"
            )
        return None


class FreeBudget(NamedTuple):
    """What can be set aside at a node, in whole micro-dollars."""

    free_micros: int | None
    """`None`: neither the node nor one above it has a limit."""
    held_micros: int = 0
    """What runs and others have set aside of the same money, and may give back."""
    payer: str = ""
    """Whose money it is: the node, or the next one above that has a limit."""


def free_budget(budgets: Budgets, node: str) -> FreeBudget:
    """What can be set aside at a node now. Raises `BudgetRefused` if it is not open, `StoreError`."""
    nodes = budgets.book(root_of(node)).nodes
    if node not in nodes:
        raise BudgetRefused(node, "there is no such budget", None)
    payer = _payer(nodes, node)
    free_micros = nodes[payer].free_micros if payer else None
    if free_micros is None:
        return FreeBudget(None)
    held = (at for at in nodes if is_reservation(at) and _payer(nodes, parent_of(at)) == payer)
    return FreeBudget(max(0, free_micros), sum(nodes[at].claim_micros for at in held), payer)


def payers_of(budgets: Budgets, nodes: Iterable[str]) -> dict[str, str]:
    """Whose money is set aside at each of the nodes that are open. Raises `StoreError`."""
    wanted = set(nodes)
    trees = {root: budgets.book(root).nodes for root in set(map(root_of, wanted))}
    found = ((node, trees[root_of(node)]) for node in wanted)
    return {node: _payer(tree, node) for node, tree in found if node in tree}


def _payer(nodes: Mapping[str, BudgetNode], node: str) -> str:
    """Whose money is set aside at a node: its own, or that of the next one above with a limit."""
    while node and nodes[node].limit_micros is None:
        node = parent_of(node)
    return node


def _all_that_is_free(room: FreeBudget) -> int | None:
    if room.free_micros == 0:
        others = f", {dollars(room.held_micros)} is reserved by others" if room.held_micros else ""
        raise BudgetRefused(room.payer, f"nothing is free{others}", 0)
    return room.free_micros


class RunReservation:
    """An amount that is held for one run. Made, and settled, by one thread.

    Raises `BudgetRefused`, `StoreError`: then nothing is held. `amount_micros` of `None` is all
    that is free, and refused if that is nothing; it stays `None` where no node has a limit.
    """

    def __init__(
        self, budgets: Budgets, node: str, amount_micros: int | None, *, owner: str
    ) -> None:
        if amount_micros is None:
            amount_micros = _all_that_is_free(free_budget(budgets, node))
        self.amount_micros = amount_micros
        self._held = budgets.reserve(node, amount_micros, owner=owner, allow_unknown=True)
        self._over = threading.Event()
        threading.Thread(target=self._renew, name="switchgear-lease", daemon=True).start()

    def settle(self, cost_micros: int | None, *, unpriced: bool = False) -> str | None:
        """Charge the cost and return the rest. `None`, or a part that is `unpriced`, charges all of it.

        Returns a message if the store could not be reached.
        """
        if unpriced and (cost_micros or 0) <= (self.amount_micros or 0):
            cost_micros = None
        self._over.set()
        try:
            self._held.settle(cost_micros)
        except (BudgetRefused, StoreError) as trouble:
            return f"{trouble}; the reservation counts as spent when its lease ends"
        return None

    def _renew(self) -> None:
        while not self._over.wait(LEASE_S / 3):
            try:
                self._held.renew()
            except BudgetRefused:
                return  # it slept for too long; settling charges what the end of the lease did not
            except StoreError:
                continue  # the lease outlasts two of these


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
            why=f"the {price_list()} does not know the model {model!r}",
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
    for each in list_runs(runs)[-_NEWEST:]:
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
