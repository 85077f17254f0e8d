"""The verbs `export`, `import` and `vacuum`.

An export contains circuits, events, budgets, locks and routes. It omits the positions of readers in the
event stream, which have no meaning in another store.
"""

import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import IO, Any, NamedTuple, TypeVar

import click

from switchgear._budgets.budgets import SHELF as BUDGETS
from switchgear._budgets.tree import (
    EXPIRY,
    BudgetNode,
    Line,
    audit,
    checked_micros,
    checked_path,
    load_book,
    root_of,
)
from switchgear._cli.context import ALL_EVENTS, open_session, say_result
from switchgear._cli.options import (
    circuit_argument,
    fail,
    json_option,
    number,
    store_options,
    token_option,
)
from switchgear._cli.views.text import clean, plural, say
from switchgear._core import values
from switchgear._core.types import Event
from switchgear._core.wire import WireError, dump_circuit, dump_event, load_circuit, load_event
from switchgear._detectors.policy_wire import dump_policy, load_policy
from switchgear._fleet.fleet import SHELF as ROUTES
from switchgear._locks.locks import SHELF as LOCKS
from switchgear._locks.state import load_tenure
from switchgear._panel.panel import Panel
from switchgear._stores.base import Amended, Ledger, StoredCircuit, checked_name, ledger_of
from switchgear._text.glob import matcher

SHELVES = (BUDGETS, LOCKS, ROUTES)


class Account(NamedTuple):
    """A budget, a lock or a route: its value in the ledger, and the lines of its history."""

    shelf: str
    key: str
    value: Any
    lines: list[Any]


def account_lines(ledger: Ledger, glob: str) -> Iterator[dict[str, Any]]:
    """The exported lines of the accounts that match: `budget/<root>`, `lock/<resource>`, `agent/<name>`."""
    matches = matcher(glob)
    for shelf in SHELVES:
        for key in ledger.keys(shelf):
            if matches(key if shelf == ROUTES else f"{shelf}/{key}"):
                value = ledger.value(shelf, key)
                # Lines that are added meanwhile are not part of the value.
                count = value["lines"] if shelf == BUDGETS else None
                yield {"type": "account", "shelf": shelf, "key": key, "value": value}
                for line in islice(ledger.lines(shelf, key), count):
                    yield {"type": "line", "line": line}


def read_account(data: dict[str, Any]) -> Account:
    """An account, still without its lines. Raises ValueError."""
    shelf, key, value = (data.get(name) for name in ("shelf", "key", "value"))
    if shelf not in SHELVES:
        raise WireError(f"its shelf is {shelf!r}: it must be one of {', '.join(SHELVES)}")
    checked_name(values.check_text("key", key))
    if value is None:
        raise WireError("it has no value")
    _CHECKS[str(shelf)](str(key), value)
    return Account(str(shelf), str(key), value, [])


def check_lines(account: Account) -> None:
    """Raise ValueError unless the lines of the account add up to its value."""
    if account.shelf == BUDGETS:
        problems = audit(load_book(account.value), map(_checked_line, account.lines))
        if problems:
            raise WireError(f"budget {account.key!r} does not add up: {problems[0]}")
    elif account.shelf == LOCKS and account.lines:
        raise WireError(f"lock {account.key!r} has lines, and locks have none")
    for line in account.lines if account.shelf == ROUTES else ():
        _check_texts(line["agent"], line["model"], line["why"])
        values.check_number("at_s", line["at_s"])


def import_account(ledger: Ledger, account: Account) -> bool:
    """Import an account. Returns false if the ledger has a different one, or one as new or newer."""
    stored_lines = list(ledger.lines(account.shelf, account.key))

    def work(value: Any, now_s: float) -> Amended:
        del now_s
        if value is not None and not _continues(account, value, stored_lines):
            return Amended(False)
        return Amended(True, account.value, tuple(account.lines[len(stored_lines) :]))

    return bool(ledger.amend(account.shelf, account.key, work))


def _continues(account: Account, value: Any, stored_lines: list[Any]) -> bool:
    """Whether the account is a later state of the stored one."""
    if account.shelf == LOCKS:
        return load_tenure(account.value).token > load_tenure(value).token
    count = len(stored_lines)
    if account.shelf == BUDGETS and load_book(value).lines != count:
        return False  # another process is spending from it
    return len(account.lines) > count and account.lines[:count] == stored_lines


def _check_budget(key: str, value: Any) -> None:
    if root_of(checked_path(key)) != key:
        raise WireError(f"the key of a budget is {key!r}: it must be a root, without a slash")
    book = load_book(value)
    for name, charged, _ in book.settled:
        _check_texts(name)
        checked_micros("charged_micros", charged)
    _check_optional(values.check_number, "expires_s", book.expires_s)
    for path, node in book.nodes.items():
        if root_of(path) != key:
            raise WireError(f"the node {path!r} is of another tree than {key!r}")
        _check_node(node)


def _check_node(node: BudgetNode) -> None:
    _check_optional(checked_micros, "limit_micros", node.limit_micros)
    checked_micros("spent_micros", node.spent_micros)
    checked_micros("held_micros", node.held_micros)
    _check_optional(values.check_number, "lease_until_s", node.lease_until_s)
    values.check_one_of("on_expiry", node.on_expiry, EXPIRY)
    values.check_int("told", node.told, least=0)
    values.check_number("opened_s", node.opened_s)
    _check_texts(node.circuit, node.owner)
    if node.circuit:
        checked_name(node.circuit)


def _checked_line(fields: Any) -> Line:
    line = Line(*values.check_list("line", fields))
    values.check_int("number", line.number)
    values.check_number("at_s", line.at_s)
    _check_texts(line.kind, line.node, line.who)
    _check_optional(checked_micros, "amount_micros", line.amount_micros)
    return line


def _check_optional(check: Callable[[str, Any], object], field: str, value: Any) -> None:
    if value is not None:
        check(field, value)


def _check_lock(key: str, value: Any) -> None:
    del key
    tenure = load_tenure(value)
    holders = () if tenure.holder is None else (tenure.holder,)
    for name, owner, since_s, until_s in (*holders, *tenure.waiting):
        _check_texts(name, owner)
        values.check_number("since_s", since_s)
        values.check_number("until_s", until_s)


def _check_route(key: str, value: Any) -> None:
    values.check_list("key", key.split("/"), 2)
    for name in ("agent", "model"):
        values.check_text(name, value[name])
    values.check_number("since_s", value["since_s"])
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


FORMAT = "switchgear.export"
VERSION = 1
LONGEST_LINE = 10_000_000
MAX_REPORTED = 20
"""Invalid lines that are reported one by one; the others are counted."""
_MAX_AHEAD_S = 86_400.0
_LARGEST_INT = 2**63 - 1
_INVALID = (ValueError, RecursionError, KeyError, TypeError, IndexError, AttributeError)
"""What the parsers raise for invalid values."""


class ImportedCircuit(NamedTuple):
    stored: StoredCircuit
    events: list[Event]


class ImportedData(NamedTuple):
    circuits: list[ImportedCircuit]
    accounts: list[Account]


class BadLines(ValueError):
    """Invalid lines: the numbers of the first ones, and why they are invalid."""


def export_lines(panel: Panel, glob: str) -> Iterator[str]:
    """The circuits and accounts that match, each with the events or lines that the store still has."""
    yield _json_line({"format": FORMAT, "version": VERSION})
    found = list(panel.store.find(glob))
    events: dict[str, list[Event]] = {}
    for entry in panel.events(glob=glob, limit=ALL_EVENTS):
        events.setdefault(entry.event.circuit, []).append(entry.event)
    for each in found:
        circuit = each.circuit
        state = dump_circuit(each.policy, circuit)
        yield _json_line({"type": "circuit", "policy": dump_policy(each.policy), "circuit": state})
        # Events after the circuit was read are not part of its state.
        past = [event for event in events.get(circuit.key, []) if event.seq <= circuit.event_seq]
        for event in sorted(past, key=lambda event: event.seq):
            yield _json_line({"type": "event", "event": dump_event(event)})
    yield from map(_json_line, account_lines(ledger_of(panel.store.inner), glob))


def read_lines(lines: Iterable[bytes], now_s: float) -> ImportedData:
    """The circuits and accounts in the lines of an export. Raises `BadLines` with all problems."""
    reader = _ExportReader(now_s)
    problems: list[str] = []
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            reader.read(number, line)
        except _INVALID as error:
            problems.append(f"line {number}: {_message_of(error)}")
    for first_line, account in [] if problems else reader.accounts.values():
        try:
            check_lines(account)
        except _INVALID as error:
            problems.append(f"line {first_line} and those after it: {_message_of(error)}")
    if not number:
        problems.append("it is empty")
    if problems:
        more = len(problems) - MAX_REPORTED
        rest = [f"and {more:,} more bad lines"] if more > 0 else []
        raise BadLines("\n".join(problems[:MAX_REPORTED] + rest))
    accounts = [account for _, account in reader.accounts.values()]
    return ImportedData(list(reader.circuits.values()), accounts)


class _ExportReader:
    def __init__(self, now_s: float) -> None:
        self.circuits: dict[str, ImportedCircuit] = {}
        self.accounts: dict[tuple[str, str], tuple[int, Account]] = {}
        """By shelf and key, each with the number of its first line."""
        self._last: Account | None = None
        self._now_s = now_s

    def read(self, number: int, line: bytes) -> None:
        data = _parse_line(line)
        if number == 1:
            _check_header(data)
            return
        kind = data.get("type")
        if kind == "circuit":
            self._add_circuit(data)
        elif kind == "event":
            self._add_event(load_event(data.get("event")))
        elif kind == "account":
            self._add_account(number, read_account(data))
        elif kind == "line" and "line" in data:
            if self._last is None:
                raise WireError("a line that comes before its account")
            self._last.lines.append(data["line"])
        else:
            raise WireError(
                f"its type is {kind!r}: it must be 'circuit', 'event', 'account' or 'line'"
            )

    def _add_circuit(self, data: dict[str, Any]) -> None:
        policy = load_policy(data.get("policy"))
        circuit = load_circuit(policy, data.get("circuit"))
        values.check_text("key", circuit.key).encode()
        if circuit.key in self.circuits:
            raise WireError(f"the circuit {circuit.key!r} occurs twice")
        if circuit.seen_s > self._now_s + _MAX_AHEAD_S:
            raise WireError(
                f"the circuit {circuit.key!r} has a time in the future: it was seen at second "
                f"{circuit.seen_s:.0f}, and now is {self._now_s:.0f}"
            )
        self.circuits[circuit.key] = ImportedCircuit(StoredCircuit(circuit, policy), [])

    def _add_event(self, event: Event) -> None:
        imported = self.circuits.get(event.circuit)
        if imported is None:
            raise WireError(f"an event of {event.circuit!r}, which comes before its circuit")
        last = imported.events[-1].seq if imported.events else 0
        newest = imported.stored.circuit.event_seq
        if not last < event.seq <= newest:
            raise WireError(
                f"event number {event.seq} of {event.circuit!r}: it must be above {last} and at "
                f"most {newest}"
            )
        imported.events.append(event)

    def _add_account(self, number: int, account: Account) -> None:
        name = (account.shelf, account.key)
        if name in self.accounts:
            raise WireError(f"the {account.shelf} {account.key!r} occurs twice")
        self.accounts[name] = (number, account)
        self._last = account


def _parse_line(line: bytes) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise WireError(f"it is longer than {LONGEST_LINE:,} bytes")
    if not line.strip():
        raise WireError("it is empty")
    try:
        data = json.loads(
            line.decode(),
            parse_constant=_refuse_constant,
            parse_int=_parse_int,
            parse_float=_parse_float,
        )
    except UnicodeDecodeError as error:
        raise WireError(f"not UTF-8 text: byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise WireError(f"not JSON: {error.msg}, column {error.colno}") from None
    if not isinstance(data, dict):
        raise WireError("not a JSON object")
    return data


def _check_header(data: dict[str, Any]) -> None:
    if data.get("format") != FORMAT:
        raise WireError(f"not an export of Switchgear: it must begin with the format {FORMAT!r}")
    if data.get("version") != VERSION:
        raise WireError(
            f"its version is {data.get('version')!r}, and this Switchgear reads {VERSION}"
        )


def _refuse_constant(text: str) -> None:
    raise WireError(f"{text} is not a JSON number")


def _parse_int(text: str) -> int:
    value = int(text) if len(text) < 30 else _LARGEST_INT + 1
    if abs(value) > _LARGEST_INT:
        raise WireError(f"the number {clean(text, 40)} is too large")
    return value


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise WireError(f"the number {clean(text, 40)} is too large")
    return value


def _message_of(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return clean(str(error) or type(error).__name__, 300)


def _json_line(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


# Paths are strings, as in the stores.
# ruff: noqa: PTH100, PTH105, PTH108, PTH110, PTH113, PTH120, PTH123

LARGEST_BYTES = 2 * 1024**3
_DAY_S = 86_400.0
T = TypeVar("T")


@click.command("export")
@circuit_argument("glob", default="*")
@click.option("-o", "--output", metavar="FILE", help="Write to this file, readable only by you.")
@store_options
def export_verb(glob: str, *, output: str | None) -> None:
    """Write the circuits that match GLOB, with policy, state and events, as lines of JSON.

    Budgets (named budget/TEAM), locks (lock/RESOURCE) and routes (agent/NAME) that match are included.
    """
    with open_session(reading=True) as session:
        lines = export_lines(session.panel, glob)
        if output is None or output == "-":
            for line in lines:
                say(line)
        else:
            count = _write(output, lines)
            say(clean(f"{plural(count, 'line')} written to {output}"), err=True)
        session.raise_if_lost()


def _write(path: str, lines: Iterable[str]) -> int:
    """Write the lines atomically: on an error, a previous file stays unchanged. Returns their number."""
    if _is_special(path):
        with open(path, "w", encoding="ascii") as file:
            return _write_lines(file, lines)
    path = os.path.realpath(path)  # replaces the target of a link, not the link
    # With mode 0600, because it contains errors of providers.
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".switchgear-export-")
    try:
        with open(handle, "w", encoding="ascii") as file:
            count = _write_lines(file, lines)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return count


def _is_special(path: str) -> bool:
    """Whether the path is a pipe, a terminal or the like, which must not be replaced by a file."""
    if os.path.abspath(path).startswith(("/dev/fd/", "/dev/std", "/proc/")):
        return True  # names of open files, whose targets belong to other programs
    return os.path.exists(path) and not os.path.isfile(path)


def _write_lines(file: IO[str], lines: Iterable[str]) -> int:
    count = 0
    for line in lines:
        file.write(line + "\n")
        count += 1
    return count


@click.command("import")
@click.argument("file", metavar="FILE|-")
@token_option
@store_options
def import_verb(file: str) -> None:
    """Import FILE, which 'export' wrote, or standard input for '-'.

    Checks every line first; if one is invalid, nothing is written. Circuits and accounts
    (budget, lock, route) that are as new or newer in the store are kept.
    """
    lines = _read(file)
    # In a new store, budgets opened by the configuration would prevent the import of the same ones.
    with open_session(applying=False) as session:
        session.demand_operator("import", "an import")
        try:
            data = read_lines(lines, session.now_s())
        except BadLines as error:
            fail(f"nothing was imported from {file}:\n{error}")
        store, ledger = session.panel.store, ledger_of(session.panel.store.inner)
        counts = _import_all(
            data.circuits, lambda each: store.put(each.stored, each.events), "circuit"
        )
        say(f"{counts} (as new or newer)")
        if data.accounts:
            counts = _import_all(
                data.accounts, lambda each: import_account(ledger, each), "account"
            )
            say(f"{counts} (those in the store are as new or newer, or differ)")


def _import_all(items: list[T], import_one: Callable[[T], bool], what: str) -> str:
    """Import the items. Returns, in words, how many were imported; also reports it before an error."""
    written = 0
    for item in items:
        try:
            written += import_one(item)
        except Exception:
            say(f"{written} of {plural(len(items), what)} imported before this error:", err=True)
            raise
    return f"{plural(written, what)} imported, {len(items) - written} kept unchanged"


def _read(path: str) -> list[bytes]:
    if path == "-":
        data = sys.stdin.buffer.read(LARGEST_BYTES + 1)
    else:
        with open(path, "rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        fail(f"{path} is larger than {LARGEST_BYTES // 1024**3} GiB")
    return data.removesuffix(b"\n").split(b"\n") if data else []


@click.command()
@click.option("--keep-events", type=click.IntRange(1), help="Number of newest events to keep.")
@click.option(
    "--idle-days",
    type=number("days", above_zero=True),
    help="Remove circuits that have been idle for this many days.",
)
@json_option
@token_option
@store_options
def vacuum(*, keep_events: int | None, idle_days: float | None, as_json: bool) -> None:
    """Remove the oldest events, and closed circuits that have been idle for a long time.

    The configuration sets how much is kept. Keeping less than the defaults, 10,000 events and
    30 days, needs the operator token where one is configured.
    """
    with open_session(reading=True) as session:
        retention = session.config.retention
        removed = session.panel.store.vacuum(
            keep_events=keep_events or retention.events,
            idle_s=retention.idle_s if idle_days is None else idle_days * _DAY_S,
            now_s=session.now_s(),
        )
    line = f"removed {plural(removed.circuits, 'circuit')} and {plural(removed.events, 'event')}"
    say_result(removed._asdict(), [line], as_json=as_json)
