"""Whether a book of budgets is what its lines say, worked out anew from the lines alone."""

from collections.abc import Iterable

from switchgear._budgets.tree import BudgetBook, BudgetNode, Line, parent_of
from switchgear._text.money import dollars


def audit(book: BudgetBook, lines: Iterable[Line]) -> tuple[str, ...]:
    """What does not fit, in sentences.

    None: the sum of the charges is what was charged, and every open node has spent, holds and may
    spend what the lines say.
    """
    limits: dict[str, int | None] = {}
    spent: dict[str, int] = {}
    charged = count = 0
    problems: list[str] = []
    for line in lines:
        count += 1
        if line.number != count:
            problems.append(f"line {count} has the number {line.number}")
            return tuple(problems)
        if line.kind in {"opened", "reserved"}:
            limits[line.node], spent[line.node] = line.amount_micros, 0
        elif line.kind == "limited":
            limits[line.node] = line.amount_micros
        elif line.kind == "closed":
            limits.pop(line.node, None)
        elif line.kind == "charged":
            charged += line.amount_micros or 0
            _spend(spent, line.node, line.amount_micros or 0)
    if count != book.lines:
        problems.append(f"there are {count} lines, and the book says {book.lines}")
    if charged != book.charged_micros:
        told, kept = dollars(charged), dollars(book.charged_micros)
        problems.append(f"the lines charge {told}, and the book says {kept}")
    problems += _nodes(book, limits, spent)
    return tuple(problems)


def recalled(path: str, lines: Iterable[Line]) -> tuple[int, bool] | None:
    """What the account says of a reservation that is gone: what it was charged, and whether for good.

    One whose lease ran out may be settled once more, for what it really cost. `None`: there was none.
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


def _spend(spent: dict[str, int], path: str, cost: int) -> None:
    while path:
        spent[path] = spent.get(path, 0) + cost
        path = parent_of(path)


def _nodes(book: BudgetBook, limits: dict[str, int | None], spent: dict[str, int]) -> list[str]:
    """Where the open nodes differ from what the lines make them."""
    held = dict.fromkeys(limits, 0)
    for path in sorted(limits, key=lambda path: -path.count("/")):
        above = parent_of(path)
        if above in held:
            held[above] += BudgetNode(limits[path], spent[path], held[path]).claim_micros
    problems = [f"{path!r} is open in the lines only" for path in limits if path not in book.nodes]
    for path, node in book.nodes.items():
        if path not in limits:
            problems.append(f"{path!r} is open in the book only")
            continue
        for what, told, kept in (
            ("limit", limits[path], node.limit_micros),
            ("spent", spent[path], node.spent_micros),
            ("held", held[path], node.held_micros),
        ):
            if told != kept:
                problems.append(f"{path!r} has {what} {kept}, and the lines say {told}")
    return problems
