"""The section `budgets`: trees of limits. `Budgets.apply` brings a store to it."""

from typing import Any

from switchgear.config.parts import construct
from switchgear.config.problems import Node, Report
from switchgear.core import record
from switchgear.core.book import Open, checked_micros, checked_path
from switchgear.stores.base import checked_name

_KEYS = ("limit_dollars", "circuit", "nodes")


def build_budgets(node: Node, report: Report) -> tuple[Open, ...]:
    """The nodes, each before those below it."""
    found: list[Open] = []
    for name, child in report.mapping(node).items():
        _add(name, child, report, found)
    return tuple(found)


def _add(path: str, node: Node, report: Report, found: list[Open]) -> None:
    nodes = report.mapping(node, _KEYS)
    given = {name: child.plain() for name, child in nodes.items() if name != "nodes"}
    made = construct(_opened, {"path": path, **given}, nodes, node, report)
    if made is not None:
        found.append(made)
    for name, child in report.mapping(nodes.get("nodes", Node(None))).items():
        _add(f"{path}/{name}", child, report, found)


def _opened(path: str, limit_dollars: Any = None, circuit: Any = None) -> Open:
    """Checks a node as the command does."""
    limit = None
    if limit_dollars is not None:
        dollars = record.number("budgets.limit_dollars", limit_dollars)
        exact = round(dollars * 1_000_000)
        if dollars < 0 or exact / 1_000_000 != dollars:
            rule = "it must not be below 0, and have at most 6 decimals"
            raise ValueError(f"budgets.limit_dollars is {limit_dollars!r}: {rule}")
        limit = checked_micros("budgets.limit_dollars", exact)
    if circuit is not None:
        checked_name(record.text("budgets.circuit", circuit))
    return Open(checked_path(path), limit, circuit or "")
