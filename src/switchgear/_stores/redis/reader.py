"""Reads what is stored: circuits by name or glob, events by cursor. Never changes anything."""

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
    """The reading commands, each with a check that the reply belongs to the call. Thread-safe."""

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
        """The items of a list from the index `first` to the index `last`, inclusive."""
        items: list[bytes] = self._run(self._protocol.on_key("LRANGE", key, first, last))
        return items

    def xrange(self, key: str, first: str, last: str, *, count: int) -> list[tuple[bytes, Any]]:
        """At most `count` entries of a stream from one cursor to another, oldest first."""
        return self._entries("XRANGE", key, first, last, count)

    def xrevrange(self, key: str, last: str, first: str, *, count: int) -> list[tuple[bytes, Any]]:
        """At most `count` entries of a stream from one cursor to another, newest first."""
        return self._entries("XREVRANGE", key, last, first, count)

    def scan_iter(self, *, match: str, count: int) -> Iterator[bytes]:
        """The names of the keys that match; a name may occur twice."""
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
"""Number of circuits or events that are read at a time."""
log = logging.getLogger("switchgear")


class UnreadableState(Exception):
    """A stored circuit cannot be read; the argument explains why."""


def checked_namespace(namespace: str | None) -> str:
    """The namespace (default `switchgear`). Raises ValueError unless keys can begin with it."""
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
    """The names and values of the circuits whose names match, sorted by name; read a page at a time."""
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
"""The cursor before the first event, which is `0` in the interface of stores."""


def newest_events(client: VerifiedReader, stream: str, glob: str, limit: int) -> list[Entry]:
    """The newest `limit` events of circuits whose names match, oldest first."""
    found: list[Entry] = []
    before = "+"
    while len(found) < limit:
        page = client.xrevrange(stream, before, "-", count=PAGE)
        found += _entries(page, glob)
        if len(page) < PAGE:
            break
        before = _shifted_cursor(page[-1][0].decode(), -1)
    return found[:limit][::-1]


def events_after(
    client: VerifiedReader, stream: str, after: str, glob: str, limit: int
) -> list[Entry]:
    """The first `limit` events after a cursor, oldest first. Raises ValueError for an invalid cursor."""
    after = OLDEST if after == "0" else after
    if not re.fullmatch(r"\d{1,19}-\d{1,19}", after):
        raise ValueError(f"after is {after!r}: it must be a cursor of this stream")
    found: list[Entry] = []
    while len(found) < limit:
        page = client.xrange(stream, _shifted_cursor(after, 1), "+", count=PAGE)
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


def _shifted_cursor(cursor: str, by: int) -> str:
    """The next (`by=1`) or previous (`by=-1`) cursor, because `(` in a range needs Redis 6.2."""
    milliseconds, number = map(int, cursor.split("-"))
    if number + by < 0:
        return f"{milliseconds - 1}-{2**64 - 1}"
    return f"{milliseconds}-{number + by}"


def escaped(text: str) -> str:
    """A text with the special characters of patterns escaped."""
    return re.sub(r"([\\*?\[\]^])", r"\\\1", text)
