"""What `export` writes and `import` takes of the ledger: budgets with their lines, locks, routes.

Where a reader of events stands is not taken along: a place in one store's stream is none in another.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from switchgear._budgets.audit import audit
from switchgear._budgets.budgets import SHELF as BUDGETS
from switchgear._budgets.tree import (
    EXPIRY,
    BudgetNode,
    Line,
    checked_micros,
    checked_path,
    load_book,
    root_of,
)
from switchgear._core import values as record
from switchgear._core.wire import WireError
from switchgear._fleet.fleet import SHELF as ROUTES
from switchgear._locks.locks import SHELF as LOCKS
from switchgear._locks.state import load_tenure
from switchgear._stores.base import Amended, Ledger, checked_name
from switchgear._text.glob import matcher

SHELVES = (BUDGETS, LOCKS, ROUTES)


class Account(NamedTuple):
    """A value of the ledger and the lines that tell how it came to be so."""

    shelf: str
    key: str
    value: Any
    lines: list[Any]


def account_lines(ledger: Ledger, glob: str) -> Iterator[dict[str, Any]]:
    """The accounts whose names match: `budget/<root>`, `lock/<resource>`, `agent/<name>`."""
    matches = matcher(glob)
    for shelf in SHELVES:
        for key in ledger.keys(shelf):
            if matches(key if shelf == ROUTES else f"{shelf}/{key}"):
                value = ledger.value(shelf, key)
                # Lines that come while they are read are not part of the value.
                count = value["lines"] if shelf == BUDGETS else None
                yield {"type": "account", "shelf": shelf, "key": key, "value": value}
                for line in islice(ledger.lines(shelf, key), count):
                    yield {"type": "line", "line": line}


def read_account(data: dict[str, Any]) -> Account:
    """An account, its lines still to come. Raises ValueError for one that cannot be used."""
    shelf, key, value = (data.get(name) for name in ("shelf", "key", "value"))
    if shelf not in SHELVES:
        raise WireError(f"its shelf is {shelf!r}: it must be one of {', '.join(SHELVES)}")
    checked_name(record.text("key", key))
    if value is None:
        raise WireError("it has no value")
    _CHECKS[str(shelf)](str(key), value)
    return Account(str(shelf), str(key), value, [])


def check_whole(account: Account) -> None:
    """Raise ValueError unless its lines are those that its value came from."""
    if account.shelf == BUDGETS:
        problems = audit(load_book(account.value), map(_checked_line, account.lines))
        if problems:
            raise WireError(f"budget {account.key!r} does not add up: {problems[0]}")
    elif account.shelf == LOCKS and account.lines:
        raise WireError(f"lock {account.key!r} has lines, and locks have none")
    for line in account.lines if account.shelf == ROUTES else ():
        _check_texts(line["agent"], line["model"], line["why"])
        record.number("at_s", line["at_s"])


def take(ledger: Ledger, account: Account) -> bool:
    """Put an account into a ledger, unless as new a one or another is here: then false."""
    here = list(ledger.lines(account.shelf, account.key))

    def work(value: Any, now_s: float) -> Amended:
        del now_s
        if value is not None and not _is_newer(account, value, here):
            return Amended(False)
        return Amended(True, account.value, tuple(account.lines[len(here) :]))

    return bool(ledger.amend(account.shelf, account.key, work))


def _is_newer(account: Account, value: Any, here: list[Any]) -> bool:
    """Whether it goes on where the one that is here ends."""
    if account.shelf == LOCKS:
        return load_tenure(account.value).token > load_tenure(value).token
    if account.shelf == BUDGETS and load_book(value).lines != len(here):
        return False  # somebody spends from it at this very moment
    return len(account.lines) > len(here) and account.lines[: len(here)] == here


def _check_budget(key: str, value: Any) -> None:
    if root_of(checked_path(key)) != key:
        raise WireError(f"the key of a budget is {key!r}: it must be a root, without a slash")
    book = load_book(value)
    for gone, charged, _ in book.settled:
        _check_texts(gone)
        checked_micros("charged_micros", charged)
    _check_maybe(record.number, "expires_s", book.expires_s)
    for path, node in book.nodes.items():
        if root_of(path) != key:
            raise WireError(f"the node {path!r} is of another tree than {key!r}")
        _check_node(node)


def _check_node(node: BudgetNode) -> None:
    _check_maybe(checked_micros, "limit_micros", node.limit_micros)
    checked_micros("spent_micros", node.spent_micros)
    checked_micros("held_micros", node.held_micros)
    _check_maybe(record.number, "lease_until_s", node.lease_until_s)
    record.one_of("on_expiry", node.on_expiry, EXPIRY)
    record.whole("told", node.told, least=0)
    record.number("opened_s", node.opened_s)
    _check_texts(node.circuit, node.owner)
    if node.circuit:
        checked_name(node.circuit)


def _checked_line(fields: Any) -> Line:
    line = Line(*record.row("line", fields))
    record.whole("number", line.number)
    record.number("at_s", line.at_s)
    _check_texts(line.kind, line.node, line.who)
    _check_maybe(checked_micros, "amount_micros", line.amount_micros)
    return line


def _check_maybe(check: Callable[[str, Any], object], field: str, value: Any) -> None:
    if value is not None:
        check(field, value)


def _check_lock(key: str, value: Any) -> None:
    del key
    tenure = load_tenure(value)
    holders = () if tenure.holder is None else (tenure.holder,)
    for name, owner, since_s, until_s in (*holders, *tenure.waiting):
        _check_texts(name, owner)
        record.number("since_s", since_s)
        record.number("until_s", until_s)


def _check_route(key: str, value: Any) -> None:
    record.row("key", key.split("/"), 2)
    for name in ("agent", "model"):
        record.text(name, value[name])
    record.number("since_s", value["since_s"])
    _check_texts(value["why"])


def _check_texts(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise WireError(f"{value!r} must be a text")


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    BUDGETS: _check_budget,
    LOCKS: _check_lock,
    ROUTES: _check_route,
}
