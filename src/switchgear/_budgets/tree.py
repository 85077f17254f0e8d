"""Budgets as a tree: the stored value and the requests, which `fold.py` applies.

A node is an amount that was reserved from the node above it, down to the reservation for one call.
Reserving opens a node; settling charges and closes it, and returns what was not spent. So one rule
protects every parent:

    free = limit - spent - held,   held = what open nodes below it may still spend

Amounts are in whole millionths of a dollar. Charges apply to the whole path and are never refused,
because the money is already spent. A reservation of more than is free is refused.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from switchgear._core import values
from switchgear._text.formats import dollars

WARN_AT = 0.75
"""The share of a limit at which a node warns, once each time the share is crossed."""
MOST_NODES = 10_000
"""Maximum number of open nodes of one tree."""
REMEMBERED = 256
"""Number of settled reservations that a book remembers; older ones are in the account (`find_settlement`)."""
DEEPEST = 8
LEVELS = ("team", "wave", "story", "capsule", "invocation")
"""The names of the levels of a tree, from the root; deeper ones have the last name."""
MARK = "~"
"""The first character of the last part of a reservation's name."""
EXPIRY = ("spent", "returned")
"""The treatment of a reservation whose lease expired: spent in full, or returned."""
SCHEMA = 1
_MOST_MICROS = 2**53


class BudgetNode(NamedTuple):
    """One node that is open."""

    limit_micros: int | None
    """The limit; `None`: reservations come from the node above."""
    spent_micros: int = 0
    held_micros: int = 0
    """The amount that open nodes below it may still spend."""
    circuit: str = ""
    """The circuit in which its costs are recorded."""
    owner: str = ""
    lease_until_s: float | None = None
    """When a reservation counts as abandoned."""
    on_expiry: str = EXPIRY[0]
    told: int = 0
    """The last reported warning: 0 none, 1 warned, 2 exhausted. The name is a key of the JSON output."""
    opened_s: float = 0.0

    @property
    def free_micros(self) -> int | None:
        """The amount that can still be reserved; `None`: the node above decides. Below 0 after an overrun."""
        if self.limit_micros is None:
            return None
        return self.limit_micros - self.spent_micros - self.held_micros

    @property
    def claim_micros(self) -> int:
        """The amount that the node above holds for this node."""
        if self.limit_micros is None:
            return self.held_micros
        return max(0, self.limit_micros - self.spent_micros)


class BudgetBook(NamedTuple):
    """The open nodes of one tree by their paths, and how many lines were written about it."""

    nodes: dict[str, BudgetNode]
    lines: int = 0
    charged_micros: int = 0
    """The total of all charges: the sum of the charge lines."""
    settled: tuple[tuple[str, int, bool], ...] = ()
    """The last settled reservations and charges: the amount, and whether it is final."""
    expires_s: float | None = None
    """When the next lease ends."""
    seen_s: float = 0.0
    """The latest time seen: the time of a book never runs backwards."""


EMPTY = BudgetBook({})


class Line(NamedTuple):
    """One line of the account; the lines of a book are its complete history."""

    number: int
    at_s: float
    kind: str
    """opened, limited, reserved, renewed, charged, overrun, expired, closed, warned or exhausted."""
    node: str
    amount_micros: int | None
    """The limit, the charge, or the returned amount."""
    who: str = ""


class BudgetAnswer(NamedTuple):
    refused: str = ""
    """Why nothing was done; empty: it was done."""
    node: str = ""
    """The node that refused the request, or to which it was applied."""
    free_micros: int | None = None
    charged_micros: int = 0


class SpentAt(NamedTuple):
    """A cost to record in a circuit: what was spent at or below its node."""

    circuit: str
    limit_micros: int | None
    """The limit of the node; `None`: the circuit has no limit of its own."""
    cost_micros: int
    """0: only the limit has changed."""


class Open(NamedTuple):
    """Open a node with a budget from the node above; a root has its own."""

    node: str
    limit_micros: int | None
    circuit: str = ""
    who: str = ""


class Limit(NamedTuple):
    """Change the limit of a node."""

    node: str
    limit_micros: int
    who: str = ""


class Reserve(NamedTuple):
    """Reserve an amount for one invocation."""

    node: str
    """The path of the reservation: the path of the node above it, and a part that begins with `~`."""
    amount_micros: int
    owner: str = ""
    lease_s: float | None = None
    on_expiry: str = EXPIRY[0]
    circuit: str = ""


class Renew(NamedTuple):
    """Renew the lease of a reservation."""

    node: str
    lease_s: float


class Settle(NamedTuple):
    """Settle a reservation; without a cost, all of it counts as spent."""

    node: str
    cost_micros: int | None
    settlement: tuple[int, bool] | None = None
    """The result of `find_settlement` for a reservation that the book no longer remembers."""


class Charge(NamedTuple):
    """Charge money that was spent without a reservation."""

    node: str
    cost_micros: int
    who: str = ""
    mark: str = ""
    """The id of the charge, so that repeating the request charges once."""


class Close(NamedTuple):
    """Close a node and those below it; what was not spent returns to the node above."""

    node: str
    who: str = ""


class PassTime(NamedTuple):
    """End expired leases, and nothing else."""


BudgetRequest = Open | Limit | Reserve | Renew | Settle | Charge | Close | PassTime


def parent_of(path: str) -> str:
    """The path of the node above; empty: it is a root."""
    return path.rpartition("/")[0]


def root_of(path: str) -> str:
    return path.partition("/")[0]


def level_of(path: str) -> str:
    """The name of the level of a node: team, wave, story, capsule, invocation."""
    if is_reservation(path):
        return LEVELS[-1]
    return LEVELS[min(path.count("/"), len(LEVELS) - 1)]


def is_reservation(path: str) -> bool:
    return path.rpartition("/")[2].startswith(MARK)


def checked_path(path: Any) -> str:
    """The path of a node, unchanged. Raises ValueError if it is invalid."""
    values.check_text("node", path)
    parts = path.split("/")
    if len(path) > 400 or len(parts) > DEEPEST or not all(part.strip() for part in parts):
        rule = f"it must have 1 to {DEEPEST} parts between slashes, and 400 characters at most"
        raise ValueError(f"node is {path[:60]!r}: {rule}")
    if any(part.startswith(MARK) for part in parts) or not path.isprintable():
        raise ValueError(f"node is {path!r}: no part may begin with {MARK}, all must be printable")
    return str(path)


def checked_micros(field: str, value: Any) -> int:
    """An amount of money, unchanged. Raises ValueError unless it is a whole number of at least 0."""
    amount = values.check_int(field, value, least=0)
    if amount > _MOST_MICROS:
        raise ValueError(f"{field} is {value!r}: it must be at most 2**53 micro-dollars")
    return amount


def dump_book(book: BudgetBook) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "lines": book.lines,
        "charged_micros": book.charged_micros,
        "settled": [list(gone) for gone in book.settled],
        "expires_s": book.expires_s,
        "seen_s": book.seen_s,
        "nodes": {path: list(node) for path, node in book.nodes.items()},
    }


def load_book(data: Any) -> BudgetBook:
    """The inverse of `dump_book`; `None` is an empty book. Raises ValueError for anything else."""
    if data is None:
        return EMPTY
    try:
        if data["schema"] != SCHEMA:
            raise ValueError(
                f"its schema is {data['schema']!r}, and this Switchgear reads up to {SCHEMA}"
            )
        lines, charged, seen_s = data["lines"], data["charged_micros"], data["seen_s"]
        if type(lines) is not int or type(charged) is not int or min(lines, charged) < 0:
            raise ValueError(f"the budgets cannot be read: {lines!r}, {charged!r}")
        if not -math.inf < seen_s < math.inf:
            raise ValueError(f"the budgets cannot be read: {seen_s!r}")
        return BudgetBook(
            {path: BudgetNode(*fields) for path, fields in data["nodes"].items()},
            lines,
            charged,
            tuple((path, charged, final) for path, charged, final in data["settled"]),
            data["expires_s"],
            seen_s,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the budgets cannot be read: {error!r}") from None


def audit(book: BudgetBook, lines: Iterable[Line]) -> tuple[str, ...]:
    """The differences between a book and its lines, as sentences.

    Empty if the charges add up to the total of the book, and the limit, the spent and the held amount of
    every open node follow from the lines.
    """
    limits: dict[str, int | None] = {}
    spent: dict[str, int] = {}
    charged = count = 0
    for line in lines:
        count += 1
        if line.number != count:
            return (f"line {count} has the number {line.number}",)
        if line.kind in {"opened", "reserved"}:
            limits[line.node], spent[line.node] = line.amount_micros, 0
        elif line.kind == "limited":
            limits[line.node] = line.amount_micros
        elif line.kind == "closed":
            limits.pop(line.node, None)
        elif line.kind == "charged":
            charged += line.amount_micros or 0
            at = line.node
            while at:
                spent[at] = spent.get(at, 0) + (line.amount_micros or 0)
                at = parent_of(at)
    problems = []
    if count != book.lines:
        problems.append(f"there are {count} lines, but the balance has {book.lines}")
    if charged != book.charged_micros:
        total, balance = dollars(charged), dollars(book.charged_micros)
        problems.append(f"the lines charge {total}, but the balance has {balance}")
    problems += _node_problems(book, limits, spent)
    return tuple(problems)


def find_settlement(path: str, lines: Iterable[Line]) -> tuple[int, bool] | None:
    """The charged amount of a closed reservation, and whether it is final; `None`: there was none.

    A reservation whose lease expired is not final: it may still be settled with its actual cost.
    """
    known = closed = expired = late = False
    charged = 0
    for line in lines:
        if line.node != path:
            continue
        known = known or line.kind == "reserved"
        expired = expired or line.kind == "expired"
        if line.kind == "charged":
            charged += line.amount_micros or 0
        elif line.kind == "closed":
            closed = True
        elif line.kind == "overrun" and closed:
            late = True
            charged += line.amount_micros or 0
    return (charged, late or not expired) if known and closed else None


def _node_problems(
    book: BudgetBook, limits: dict[str, int | None], spent: dict[str, int]
) -> list[str]:
    """The differences between the open nodes and the sums of the lines."""
    held = dict.fromkeys(limits, 0)
    for path in sorted(limits, key=lambda path: -path.count("/")):
        above = parent_of(path)
        if above in held:
            held[above] += BudgetNode(limits[path], spent[path], held[path]).claim_micros
    problems = [f"{path!r} is open in the lines only" for path in limits if path not in book.nodes]
    for path, node in book.nodes.items():
        if path not in limits:
            problems.append(f"{path!r} is open in the balance only")
            continue
        for what, total, kept in (
            ("limit", limits[path], node.limit_micros),
            ("spent", spent[path], node.spent_micros),
            ("held", held[path], node.held_micros),
        ):
            if total != kept:
                problems.append(f"{path!r} has {what} {kept}, but the lines add up to {total}")
    return problems
