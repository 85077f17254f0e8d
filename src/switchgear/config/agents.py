"""The sections `interventions` and `timeouts`: what is done about stuck agents, and how long they get."""

from collections.abc import Callable
from typing import Any, TypeVar

from switchgear import ladder, timeouts
from switchgear.config.parts import construct, fields_of
from switchgear.config.problems import Node, Report
from switchgear.ladder import Interventions
from switchgear.timeouts import Timeouts

T = TypeVar("T")


def interventions(
    *,
    when_alone: Any = ladder.RUNGS,
    hint: str = ladder.HINT,
    extend_s: float = 300.0,
    escalate: str | None = None,
    helper: str = ladder.HELPER,
    ask_s: float = 60.0,
    in_runs: bool = False,
    progress: bool = True,
) -> Interventions:
    """What is done about a stuck agent, when somebody is there and when nobody is."""
    if not isinstance(when_alone, list | tuple):
        rule = f"it must be a list of {', '.join(ladder.RUNGS)}"
        raise ValueError(f"Interventions.when_alone is {when_alone!r}: {rule}")
    rungs = tuple(when_alone)
    plan = Interventions(rungs, hint, extend_s, escalate, helper, ask_s, in_runs, progress)
    return ladder.checked(plan)


def time_rules(
    *,
    policy: str = "adaptive",
    fixed_s: float = 300.0,
    base_s: float = 120.0,
    per_file_s: float = 30.0,
    per_line_s: float = 0.1,
    per_dependency_s: float = 60.0,
    complex_factor: float = 2.0,
    deviations: float = 4.0,
    min_runs: int = 5,
    session_s: float | None = None,
) -> Timeouts:
    """How long tasks may take: fixed, by size, or learned from similar ones."""
    rules = Timeouts(
        *(policy, fixed_s, base_s, per_file_s, per_line_s, per_dependency_s, complex_factor),
        *(deviations, min_runs, session_s),
    )
    return timeouts.checked(rules)


def build_interventions(node: Node, report: Report) -> Interventions:
    """The section; the default for what is wrong, which is reported."""
    nodes = report.mapping(node, fields_of(interventions))
    return _built(interventions, nodes, node, report) or Interventions()


def build_timeouts(node: Node, report: Report) -> Timeouts:
    """The section; the default for what is wrong, which is reported."""
    nodes = report.mapping(node, fields_of(time_rules))
    return _built(time_rules, nodes, node, report) or Timeouts()


def _built(make: Callable[..., T], nodes: dict[str, Node], node: Node, report: Report) -> T | None:
    given = {name: child.plain() for name, child in nodes.items()}
    return construct(make, given, nodes, node, report)
