"""Reading what is stored: circuits by name or glob, events by cursor. Never changes anything."""

import logging
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from switchgear._core.errors import StoreCorrupt, StoreTooNew
from switchgear._core.wire import WireError
from switchgear._stores.base import Entry
from switchgear._stores.redis.envelope import Sealed, TooNewError, unseal, unseal_event
from switchgear._stores.redis.protocol import Protocol
from switchgear._stores.redis.script import Call, Names
from switchgear._text.glob import is_plain, matcher, prefix


class VerifiedReader:
    """The reading commands of a client. Any thread may use it."""

    def __init__(self, run: Callable[[Generator[Call, Any, Any]], Any], protocol: Protocol) -> None:
        self._run = run
        self._protocol = protocol

    def get(self, key: str) -> bytes | None:
        value: bytes | None = self._run(self._protocol.on_keys("GET", key))
        return value

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of several keys, in the same order."""
        values: list[bytes | None] = self._run(self._protocol.on_keys("MGET", *keys))
        return values

    def lrange(self, key: str, first: int, last: int) -> list[bytes]:
        """The items of a list from one position to another, both included."""
        items: list[bytes] = self._run(self._protocol.on_key("LRANGE", key, first, last))
        return items

    def xrange(self, key: str, first: str, last: str, *, count: int) -> list[tuple[bytes, Any]]:
        """The entries of a stream from one cursor to another, oldest first."""
        return self._entries("XRANGE", key, first, last, count)

    def xrevrange(self, key: str, last: str, first: str, *, count: int) -> list[tuple[bytes, Any]]:
        """The same, newest first."""
        return self._entries("XREVRANGE", key, last, first, count)

    def scan_iter(self, *, match: str, count: int) -> Iterator[bytes]:
        """The names of the keys that match, some perhaps twice."""
        cursor: bytes = b"0"
        while True:
            cursor, names = self._run(self._protocol.scan(cursor, match, count))
            yield from names
            if cursor == b"0":
                return

    def _entries(
        self, command: str, key: str, start: str, end: str, count: int
    ) -> list[tuple[bytes, Any]]:
        call = self._protocol.on_key(command, key, start, end, "COUNT", count)
        return [
            (cursor, dict(zip(fields[::2], fields[1::2], strict=True)))
            for cursor, fields in self._run(call)
        ]


PAGE = 500
log = logging.getLogger("switchgear")


class UnreadableState(Exception):
    """A stored circuit that cannot be read, and why."""


def checked_namespace(namespace: str | None) -> str:
    """The namespace, if keys may begin with it. Raises ValueError."""
    if namespace is None:
        return "switchgear"
    if not re.fullmatch(r"[A-Za-z0-9_.:/-]+", namespace):
        raise ValueError(
            f"RedisStore.namespace is {namespace!r}: it must be of letters, digits and _ . : / -"
        )
    return namespace


def circuit(label: str, key: str, raw: bytes) -> Sealed:
    """One circuit with its own policy. Raises `UnreadableState` or `StoreTooNew`."""
    try:
        return unseal(raw)
    except TooNewError as error:
        what_to_do = "upgrade switchgear here"
        raise StoreTooNew(label, f"circuit {key!r}: {error}", what_to_do) from error
    except WireError as error:
        raise UnreadableState(str(error)) from error


def corrupt(label: str, why: str) -> StoreCorrupt:
    """The error for circuits that cannot be read."""
    what = "the next update sets the stored state aside and starts the circuit from scratch"
    return StoreCorrupt(label, why, what)


def values(client: VerifiedReader, names: Names, glob: str) -> Iterator[tuple[str, bytes]]:
    """The circuits whose names match, sorted by name, as stored; a page at a time."""
    if is_plain(glob):
        keys = [glob]
    else:
        matches, start = matcher(glob), len(names.circuits)
        pattern = escaped(names.circuits + prefix(glob)) + "*"
        found = {
            name.decode(errors="replace")[start:]
            for name in client.scan_iter(match=pattern, count=1000)
        }
        keys = sorted(filter(matches, found))
    for first in range(0, len(keys), PAGE):
        page = keys[first : first + PAGE]
        for key, raw in zip(page, client.mget(list(map(names.circuit, page))), strict=True):
            if raw is not None:
                yield key, raw


OLDEST = "0-0"
"""The place before the first event: `0` in every store."""


def newest(client: VerifiedReader, stream: str, glob: str, limit: int) -> list[Entry]:
    """The last events of circuits whose names match, oldest first."""
    found: list[Entry] = []
    before = "+"
    while len(found) < limit:
        page = client.xrevrange(stream, before, "-", count=PAGE)
        found += _entries(page, glob)
        if len(page) < PAGE:
            break
        before = _neighbour(page[-1][0].decode(), -1)
    return found[:limit][::-1]


def behind(client: VerifiedReader, stream: str, after: str, glob: str, limit: int) -> list[Entry]:
    """The events behind a cursor, oldest first. Raises ValueError for what is no cursor."""
    after = OLDEST if after == "0" else after
    if not re.fullmatch(r"\d{1,19}-\d{1,19}", after):
        raise ValueError(f"after is {after!r}: it must be a cursor of this stream")
    found: list[Entry] = []
    while len(found) < limit:
        page = client.xrange(stream, _neighbour(after, 1), "+", count=PAGE)
        found += _entries(page, glob)
        if len(page) < PAGE:
            break
        after = page[-1][0].decode()
    return found[:limit]


def _entries(page: Any, glob: str) -> list[Entry]:
    matches = matcher(glob)
    entries = []
    for cursor, fields in page:
        try:
            event = unseal_event(fields.get(b"e", b""))
        except WireError as error:
            log.warning("event %s could not be read: %s", cursor.decode(), error)
            continue
        if matches(event.circuit):
            entries.append(Entry(cursor.decode(), event))
    return entries


def _neighbour(cursor: str, by: int) -> str:
    """The place right behind or before a cursor; `(` for that is of servers from 6.2 on."""
    milliseconds, number = map(int, cursor.split("-"))
    if number + by < 0:
        return f"{milliseconds - 1}-{2**64 - 1}"
    return f"{milliseconds}-{number + by}"


def escaped(text: str) -> str:
    """A text with the special characters of patterns escaped."""
    return re.sub(r"([\\*?\[\]^])", r"\\\1", text)
