"""Bytes as they come, cut into lines of bounded length."""

from collections.abc import Iterator

LONGEST_LINE = 4 * 1024 * 1024


class Lines:
    """Keeps the unfinished line. What exceeds `longest` bytes of a line is dropped and counted."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self.longest = longest
        self.dropped_bytes = 0
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        r"""The lines that this chunk completes, without their ends.

        >>> list(Lines().feed(b"one\ntwo\nthr"))
        [b'one', b'two']
        """
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            self._keep(part)
            yield self._take()
        self._keep(rest)

    def close(self) -> Iterator[bytes]:
        """The last line, if it has no end."""
        if self._size:
            yield self._take()

    def _keep(self, part: bytes) -> None:
        room = self.longest - self._size
        self.dropped_bytes += max(0, len(part) - room)
        if part and room > 0:
            self._parts.append(part[:room])
            self._size += min(len(part), room)

    def _take(self) -> bytes:
        line = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return line
