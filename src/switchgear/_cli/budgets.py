"""`switchgear budgets list|show|audit|set|apply|close`: the budget trees that agents share."""

import click

from switchgear._budgets.budgets import NodeStatus
from switchgear._budgets.tree import Line, root_of
from switchgear._cli.context import open_session, say_result
from switchgear._cli.options import (
    Branch,
    by_option,
    fail,
    operator_name,
    operator_options,
    reader_options,
    token_option,
)
from switchgear._cli.views.terminal import Screen, column_widths, table_line
from switchgear._cli.views.text import clean, clock_time, plural, say
from switchgear._console.sources import budget_values
from switchgear._run.options import micros
from switchgear._text.formats import dollars

EXIT_PROBLEM = 1
_COLUMNS = ("BUDGET", "LIMIT", "SPENT", "RESERVED", "FREE", "USED")
_SHORTEST_NAME = 12
_MOST_VALUES = 8
"""How many values of a tag are shown, the most expensive first."""


@click.group(cls=Branch)
def budgets() -> None:
    """Show and change the budgets that agents share: spent, reserved, and the account."""


@budgets.command("list", short_help="List the budgets.")
@reader_options
def list_budgets(*, as_json: bool) -> None:
    """Show the root of every budget tree, and how much is left."""
    with open_session(reading=True) as session:
        kept = session.panel.budgets
        roots = {
            root: next((node for node in kept.tree(root) if node.path == root), None)
            for root in kept.roots()
        }
    nodes = [node for node in roots.values() if node is not None]
    closed = [f"{root} is closed" for root, node in roots.items() if node is None]
    lines = [*_table(nodes, full_paths=True), *closed]
    none = ["No budgets yet. Open one: switchgear budgets set TEAM DOLLARS"]
    say_result(
        [*map(budget_values, nodes)], lines if roots else none, as_json=as_json, longest=1000
    )


@budgets.command(short_help="Show one tree, node by node.")
@click.argument("node")
@click.option(
    "--lines",
    "count",
    type=click.IntRange(0),
    default=10,
    help="Show the last N lines of the account.",
)
@reader_options
def show(node: str, *, count: int, as_json: bool) -> None:
    """Show NODE, the open nodes below it, and the last lines of its account.

    A closed node still has its account.
    """
    with open_session(reading=True) as session:
        kept = session.panel.budgets
        tree = [each for each in kept.tree(root_of(node)) if _is_at_or_below(each.path, node)]
        lines = [line for line in kept.lines(root_of(node)) if _is_at_or_below(line.node, node)]
        if not tree and not lines:
            fail(f"there is no budget {node!r}; 'switchgear budgets list' shows the trees")
        newest = lines[max(len(lines) - count, 0) :]
        now_s = session.now_s()
        tags = kept.spent_by_tag(root_of(node))
    found = {"nodes": [*map(budget_values, tree)], "lines": [line._asdict() for line in newest]}
    texts = _table(tree, full_paths=False) if tree else [f"{node} is closed"]
    for tag, sums in tags.items():
        highest = sorted(sums.items(), key=lambda item: -item[1])
        shown = ", ".join(f"{value} {dollars(micros)}" for value, micros in highest[:_MOST_VALUES])
        rest = f", and {len(highest) - _MOST_VALUES} more" if len(highest) > _MOST_VALUES else ""
        texts.append(f"spent by {tag}, whole tree: {shown}{rest}")
    texts += [_account_line(line, now_s) for line in newest]
    say_result({**found, "tags": tags}, texts, as_json=as_json, longest=1000)


def _account_line(line: Line, now_s: float) -> str:
    amount = "" if line.amount_micros is None else f" {dollars(line.amount_micros)}"
    who = f" by {line.who}" if line.who else ""
    at = clock_time(line.at_s, now_s)
    return f"{line.number:>6} {at} {line.kind}{amount} {line.node}{who}"


@budgets.command(short_help="Check that the accounts add up.")
@click.argument("root", required=False)
@reader_options
def audit(root: str | None, *, as_json: bool) -> int:
    """Recalculate the tree of ROOT, or every tree, from the account. Exit code 1: they differ."""
    with open_session(reading=True) as session:
        kept = session.panel.budgets
        roots = kept.roots()
        if root is not None and root not in roots:
            fail(f"there is no tree of budgets {root!r}; 'switchgear budgets list' shows them")
        found = [kept.audit(each) for each in roots if root in {None, each}]
    lines = []
    for each in found:
        charged = dollars(each.charged_micros)
        verdict = plural(len(each.problems), "problem") if each.problems else "adds up"
        lines.append(f"{each.root}: {charged} charged in {plural(each.lines, 'line')}; {verdict}")
        lines += [f"  {problem}" for problem in each.problems]
    values = [{**each._asdict(), "problems": list(each.problems)} for each in found]
    say_result(values, lines or ["No budgets yet."], as_json=as_json)
    return EXIT_PROBLEM if any(each.problems for each in found) else 0


@budgets.command(
    "set",
    short_help="Open a budget, or change its limit.",
    # A negative amount is reported as such, not as an unknown option.
    context_settings={"ignore_unknown_options": True},
)
@click.argument("node")
@click.argument("amount", metavar="DOLLARS")
@click.option(
    "--circuit",
    default="",
    show_default=False,
    help="Name of the circuit that records the costs of NODE.",
)
@operator_options
def set_budget(node: str, amount: str, circuit: str, by: str | None) -> None:
    """Set the limit of NODE to DOLLARS, taken from the node above it.

    Needs the operator token where one is configured.
    """
    limit, who = micros("DOLLARS", amount), operator_name(by)
    with open_session() as session:
        session.demand_operator(node, f"a limit for budget {node!r}")
        kept = session.panel.budgets
        if any(each.path == node for each in kept.tree(root_of(node))):
            kept.limit(node, limit, who=who)
        else:
            kept.open(node, limit, circuit=circuit, who=who)
    say(clean(f"{node} has a limit of {dollars(limit)}"))


@budgets.command("apply", short_help="Open and change budgets to match the configuration.")
@by_option
@reader_options
@token_option
def apply_budgets(by: str | None, *, as_json: bool) -> int:
    """Open and change budgets to match the section 'budgets' of the configuration. Idempotent.

    A limit set by 'budgets set' stays until its value in the configuration changes. Needs the
    operator token where one is configured. Exit code 1: a change was refused.
    """
    who = operator_name(by)
    with open_session(applying=False) as session:
        if not session.config.budgets:
            fail("the configuration has no section 'budgets'")
        changes = session.panel.budgets.apply(session.config.budgets, who=who)
    lines = [f"{each.node}: {each.what}{f': {each.why}' if each.why else ''}" for each in changes]
    say_result([each._asdict() for each in changes], lines, as_json=as_json, longest=1000)
    return EXIT_PROBLEM if any(each.is_refused for each in changes) else 0


@budgets.command("close", short_help="Close a budget and return what is left of it.")
@click.argument("node")
@operator_options
def close_budget(node: str, by: str | None) -> None:
    """Close NODE and the nodes below it; unspent money returns to the node above.

    Nothing can be reserved from it afterwards; its account stays. Refused while reservations
    below it are open. Needs the operator token where one is configured.
    """
    who = operator_name(by)
    with open_session() as session:
        session.demand_operator(node, f"closing budget {node!r}")
        kept = session.panel.budgets
        kept.close(node, who=who)
        lines = [line for line in kept.lines(root_of(node)) if line.node == node]
    above = node.rpartition("/")[0]
    returned = dollars([line for line in lines if line.kind == "closed"][-1].amount_micros or 0)
    to_above = f", returned to {above}" if above else ""
    say(clean(f"{node} is closed; {returned} unspent{to_above}"))


def _is_at_or_below(path: str, node: str) -> bool:
    return path == node or path.startswith(f"{node}/")


def _table(tree: list[NodeStatus], *, full_paths: bool) -> list[str]:
    """The nodes in columns, with full paths or indented below their parents.

    At a terminal, names that do not fit are shortened in the middle; in a pipe nothing is cut.
    """
    screen = Screen()
    rows = [_COLUMNS, *(_row(status, full_path=full_paths) for status in tree)]
    widths = column_widths(rows, screen.width, {0: _SHORTEST_NAME})
    return [table_line(row, widths, screen.signs, range(1, len(row))) for row in rows]


def _row(status: NodeStatus, *, full_path: bool) -> tuple[str, ...]:
    node, path = status.node, status.path
    name = path if full_path else "  " * path.count("/") + path.rpartition("/")[2]
    limit, free = node.limit_micros, node.free_micros
    used = f"{node.spent_micros / limit:.0%}" if limit else "-"
    return (
        clean(name, 500),
        "-" if limit is None else dollars(limit),
        dollars(node.spent_micros),
        dollars(node.held_micros),
        "-" if free is None else dollars(free),
        used,
    )
