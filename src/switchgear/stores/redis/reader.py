"""Reading commands whose replies are known to be theirs.

A reply that came twice shifts all replies behind it on that connection. So each command that reads
runs inside a script that repeats its nonce, and one that gets another reply is sent again.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from switchgear.stores.redis.protocol import Protocol
from switchgear.stores.redis.script import Call


class VerifiedReader:
    """The reading commands of a client. Any thread may use it."""

    def __init__(self, run: Callable[[Generator[Call, Any, Any]], Any], protocol: Protocol) -> None:
        self._run = run
        self._protocol = protocol

    def get(self, key: str) -> bytes | None:
        """The value of a key."""
        value: bytes | None = self._run(self._protocol.on_keys("GET", key))
        return value

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        """The values of several keys, in their order."""
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
