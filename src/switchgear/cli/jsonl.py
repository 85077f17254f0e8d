"""Circuits, their events and the ledger as lines of JSON: what `export` writes and `import` takes.

The first line says what this is. Then each circuit, with the policy that judged it last, and
behind it its events; then each account of the ledger and behind it its lines. Everything is checked
before anything is written anywhere.
"""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from switchgear.cli.accounts import Account, account_lines, check_whole, read_account
from switchgear.cli.text import clean
from switchgear.core import record
from switchgear.core.policy_wire import dump_policy, load_policy
from switchgear.core.types import Event
from switchgear.core.wire import WireError, dump_circuit, dump_event, load_circuit, load_event
from switchgear.panel import Panel
from switchgear.stores.base import Found
from switchgear.stores.ledger import ledger_of

FORMAT = "switchgear.export"
VERSION = 1
EVERYTHING = 10_000_000
LONGEST_LINE = 10_000_000
MOST_TOLD = 20
"""Bad lines that are told one by one."""
_AHEAD_S = 86_400.0
_LARGEST = 2**63 - 1
_BAD = (ValueError, RecursionError, KeyError, TypeError, IndexError, AttributeError)
"""What a value raises that is not what it should be."""


class Taken(NamedTuple):
    """A circuit and its events, ready to be put into a store."""

    found: Found
    events: list[Event]


class Read(NamedTuple):
    """What the lines hold."""

    circuits: list[Taken]
    accounts: list[Account]


class BadLines(ValueError):
    """Lines that are not what they should be: their numbers, and why."""


def export_lines(panel: Panel, glob: str) -> Iterator[str]:
    """The circuits and accounts that match, each with the events or lines that are still kept."""
    yield _line({"format": FORMAT, "version": VERSION})
    found = list(panel.store.find(glob))
    events: dict[str, list[Event]] = {}
    for entry in panel.events(glob=glob, limit=EVERYTHING):
        events.setdefault(entry.event.circuit, []).append(entry.event)
    for each in found:
        circuit = each.circuit
        state = dump_circuit(each.policy, circuit)
        yield _line({"type": "circuit", "policy": dump_policy(each.policy), "circuit": state})
        # What happened after the circuit was read is not part of its state.
        past = [event for event in events.get(circuit.key, []) if event.seq <= circuit.event_seq]
        for event in sorted(past, key=lambda event: event.seq):
            yield _line({"type": "event", "event": dump_event(event)})
    yield from map(_line, account_lines(ledger_of(panel.store.inner), glob))


def read_lines(lines: Iterable[bytes], now_s: float) -> Read:
    """What the lines hold. Raises `BadLines` with everything that is wrong."""
    reading = _Reading(now_s)
    wrong: list[str] = []
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            reading.hear(number, line)
        except _BAD as error:
            wrong.append(f"line {number}: {_said(error)}")
    for number_of_it, account in [] if wrong else reading.accounts.values():
        try:
            check_whole(account)
        except _BAD as error:
            wrong.append(f"line {number_of_it} and those behind it: {_said(error)}")
    if not number:
        wrong.append("it is empty: not even its first line is there")
    if wrong:
        more = len(wrong) - MOST_TOLD
        told = wrong[:MOST_TOLD] + ([f"and {more:,} more bad lines"] if more > 0 else [])
        raise BadLines("\n".join(told))
    accounts = [account for _, account in reading.accounts.values()]
    return Read(list(reading.taken.values()), accounts)


class _Reading:
    """Hears one line after the other."""

    def __init__(self, now_s: float) -> None:
        self.taken: dict[str, Taken] = {}
        self.accounts: dict[tuple[str, str], tuple[int, Account]] = {}
        """By shelf and key, each with the number of its line."""
        self._last: Account | None = None
        self._now_s = now_s

    def hear(self, number: int, line: bytes) -> None:
        """Check a line and keep what it says."""
        data = _parsed(line)
        if number == 1:
            _check_head(data)
            return
        kind = data.get("type")
        if kind == "circuit":
            self._circuit(data)
        elif kind == "event":
            self._event(load_event(data.get("event")))
        elif kind == "account":
            self._account(number, read_account(data))
        elif kind == "line" and "line" in data:
            self._line(data["line"])
        else:
            raise WireError(
                f"its type is {kind!r}: it must be 'circuit', 'event', 'account' or 'line'"
            )

    def _circuit(self, data: dict[str, Any]) -> None:
        policy = load_policy(data.get("policy"))
        circuit = load_circuit(policy, data.get("circuit"))
        record.text("key", circuit.key).encode()
        if circuit.key in self.taken:
            raise WireError(f"the circuit {circuit.key!r} was there before")
        if circuit.seen_s > self._now_s + _AHEAD_S:
            raise WireError(
                f"the circuit {circuit.key!r} comes from the future: it was seen at second "
                f"{circuit.seen_s:.0f}, and now is {self._now_s:.0f}"
            )
        self.taken[circuit.key] = Taken(Found(circuit, policy), [])

    def _event(self, event: Event) -> None:
        taken = self.taken.get(event.circuit)
        if taken is None:
            raise WireError(f"an event of {event.circuit!r}, whose circuit is not before it")
        last = taken.events[-1].seq if taken.events else 0
        if not last < event.seq <= taken.found.circuit.event_seq:
            most = taken.found.circuit.event_seq
            raise WireError(
                f"event number {event.seq} of {event.circuit!r}: it must be above {last} and at "
                f"most {most}"
            )
        taken.events.append(event)

    def _account(self, number: int, account: Account) -> None:
        name = (account.shelf, account.key)
        if name in self.accounts:
            raise WireError(f"the {account.shelf} {account.key!r} was there before")
        self.accounts[name] = (number, account)
        self._last = account

    def _line(self, line: Any) -> None:
        if self._last is None:
            raise WireError("a line of an account that is not before it")
        self._last.lines.append(line)


def _parsed(line: bytes) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise WireError(f"it is longer than {LONGEST_LINE:,} bytes")
    if not line.strip():
        raise WireError("it is empty")
    try:
        data = json.loads(
            line.decode(), parse_constant=_no_constant, parse_int=_whole, parse_float=_float
        )
    except UnicodeDecodeError as error:
        raise WireError(f"not UTF-8 text: byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise WireError(f"not JSON: {error.msg}, column {error.colno}") from None
    if not isinstance(data, dict):
        raise WireError("not a JSON object")
    return data


def _check_head(data: dict[str, Any]) -> None:
    if data.get("format") != FORMAT:
        raise WireError(f"not an export of Switchgear: it must begin with the format {FORMAT!r}")
    if data.get("version") != VERSION:
        raise WireError(f"its version is {data.get('version')!r}, and this one reads {VERSION}")


def _no_constant(text: str) -> None:
    raise WireError(f"{text} is no number of JSON")


def _whole(text: str) -> int:
    value = int(text) if len(text) < 30 else _LARGEST + 1
    if abs(value) > _LARGEST:
        raise WireError(f"the number {clean(text, 40)} is too large")
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise WireError(f"the number {clean(text, 40)} is too large")
    return value


def _said(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return clean(str(error) or type(error).__name__, 300)


def _line(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
