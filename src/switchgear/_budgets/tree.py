"""Budgets as a tree: the stored value and the requests, which `fold.py` applies.

A node is an amount that was reserved from the node above it, down to the reservation for one call.
To reserve is to open a node; to settle is to charge and close it, and what was not spent returns.
So one rule protects every parent:

    free = limit - spent - held,   held = what open nodes below it may still spend

Money is in whole millionths of a dollar. Charges go up the whole path and are never refused, because
the money is spent already. A reservation of more than is free is refused.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from switchgear._core import values
from switchgear._text.formats import dollars

WARN_AT = 0.75
"""The share of a limit at which a node warns, once for each time it is crossed."""
MOST_NODES = 10_000
"""Maximum number of open nodes of one tree."""
REMEMBERED = 256
"""Number of settled reservations that a book remembers; older ones are in the account (`recalled`)."""
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
    """Its limit; `None`: reservations come from the node above."""
    spent_micros: int = 0
    held_micros: int = 0
    """What open nodes below it may still spend."""
    circuit: str = ""
    """The circuit in which its costs are recorded."""
    owner: str = ""
    lease_until_s: float | None = None
    """When a reservation counts as abandoned."""
    on_expiry: str = EXPIRY[0]
    told: int = 0
    """The warnings that were reported: 1 warned, 2 exhausted."""
    opened_s: float = 0.0

    @property
    def free_micros(self) -> int | None:
        """The amount that can still be reserved; `None`: the node above decides. Below 0 after an overrun."""
        if self.limit_micros is None:
            return None
        return self.limit_micros - self.spent_micros - self.held_micros

    @property
    def claim_micros(self) -> int:
        """What the node above holds for it."""
        if self.limit_micros is None:
            return self.held_micros
        return max(0, self.limit_micros - self.spent_micros)


class BudgetBook(NamedTuple):
    """The open nodes of one tree by their paths, and how many lines were written about it."""

    nodes: dict[str, BudgetNode]
    lines: int = 0
    charged_micros: int = 0
    """Everything that was ever charged: the sum of the charge lines."""
    settled: tuple[tuple[str, int, bool], ...] = ()
    """The last settled reservations and charges: the amount, and whether it is final."""
    expires_s: float | None = None
    """When the next lease runs out."""
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
    """Of the limit, of the charge, or what returned."""
    who: str = ""


class BudgetAnswer(NamedTuple):
    refused: str = ""
    """Why nothing was done; empty: it was done."""
    node: str = ""
    """The node that refused, or that it was done to."""
    free_micros: int | None = None
    charged_micros: int = 0


class SpentAt(NamedTuple):
    """A cost to record in a circuit: what was spent at or below its node."""

    circuit: str
    limit_micros: int | None
    """What its node may spend in all; `None`: no limit of the circuit's own."""
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
    """The reservation's own path: that of the node above it, and a part that begins with `~`."""
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
    gone: tuple[int, bool] | None = None
    """The account's record of a reservation that the book no longer remembers: the charged amount,
    and whether it is final."""


class Charge(NamedTuple):
    """Charge money that was spent without a reservation."""

    node: str
    cost_micros: int
    who: str = ""
    mark: str = ""
    """Identifies the charge, so that repeating the request charges once."""


class Close(NamedTuple):
    """Close a node and those below it; what was not spent returns to the node above."""

    node: str
    who: str = ""


class PassTime(NamedTuple):
    """Apply expired leases only."""


Asked = Open | Limit | Reserve | Renew | Settle | Charge | Close | PassTime


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
    """The path of a node, if it is valid. Raises ValueError."""
    values.check_text("node", path)
    parts = path.split("/")
    if len(path) > 400 or len(parts) > DEEPEST or not all(part.strip() for part in parts):
        rule = f"it must have 1 to {DEEPEST} parts between slashes, and 400 characters at most"
        raise ValueError(f"node is {path[:60]!r}: {rule}")
    if any(part.startswith(MARK) for part in parts) or not path.isprintable():
        raise ValueError(f"node is {path!r}: no part may begin with {MARK}, all must be printable")
    return str(path)


def checked_micros(field: str, value: Any) -> int:
    """An amount of money. Raises ValueError for one that is negative or no whole number."""
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

    None: the sum of the charges is what was charged, and every open node has spent, holds and may
    spend what the lines say.
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
    problems += _nodes(book, limits, spent)
    return tuple(problems)


def recalled(path: str, lines: Iterable[Line]) -> tuple[int, bool] | None:
    """The account's record of a reservation that is gone: the charged amount, and whether it is final.

    One whose lease ran out may be settled again, for its real cost. `None`: there was none.
    """
    known = gone = expired = late = False
    charged = 0
    for line in lines:
        if line.node != path:
            continue
        known = known or line.kind == "reserved"
        expired = expired or line.kind == "expired"
        if line.kind == "charged":
            charged += line.amount_micros or 0
        elif line.kind == "closed":
            gone = True
        elif line.kind == "overrun" and gone:
            late = True
            charged += line.amount_micros or 0
    return (charged, late or not expired) if known and gone else None


def _nodes(book: BudgetBook, limits: dict[str, int | None], spent: dict[str, int]) -> list[str]:
    """The open nodes that differ from what the lines add up to."""
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
