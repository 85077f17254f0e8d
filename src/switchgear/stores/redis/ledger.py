"""Values and lines of a ledger on a server: read, amend, and commit if nobody was quicker.

The script compares and sets, and knows neither money nor locks. A value begins with a number that
grows with each commit; who names the number they have read may replace the value, and who may not
is told what is there now, so that another try costs one more round trip.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from switchgear.clock import Clock
from switchgear.errors import StoreUnavailable
from switchgear.stores.ledger import Work, as_text, from_text
from switchgear.stores.redis.reading import escaped
from switchgear.stores.redis.script import Names

PATIENCE_S = 10.0
"""How long to try while others are quicker each time."""
PAGE = 1000

AMEND = """
local have = redis.call('GET', KEYS[1])
local stamp = ARGV[1]
local same = not have and stamp == ''
if have and stamp ~= '' then same = have:sub(1, #stamp) == stamp end
if not same then return {0, have} end
redis.call('SET', KEYS[1], ARGV[2])
for i = 3, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[i]) end
return {1}
"""


class RedisLedger:
    """Over the connections of a store. Thread-safe and fork-safe."""

    def __init__(
        self,
        label: str,
        names: Names,
        clock: Clock,
        reader: Callable[[], Any],
        translated: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.label = label
        self.now_s = clock
        self._names = names
        self._reader = reader
        self._translated = translated

    def amend(self, shelf: str, key: str, work: Work) -> Any:
        """Load, amend, save with the lines; again, if somebody else was quicker."""
        value_key, lines_key = self._value_key(shelf, key), self._lines_key(shelf, key)
        with self._translated():
            client = self._reader()
            have = client.get(value_key)
            deadline_s = time.monotonic() + PATIENCE_S
            tries = 0
            while True:
                number, value = self._read(shelf, key, have)
                done = work(value, self.now_s())
                if done.value is None:
                    return done.answer
                stamp = b"" if have is None else b"%d\n" % number
                new = b"%d\n%b" % (number + 1, as_text(done.value).encode())
                lines = [as_text(line).encode() for line in done.lines]
                reply = client.eval(AMEND, 2, value_key, lines_key, stamp, new, *lines)
                if int(reply[0]):
                    return done.answer
                have = reply[1]
                tries += 1
                self._wait(deadline_s, tries)

    def value(self, shelf: str, key: str) -> Any:
        """The value that is there; `None`: none."""
        with self._translated():
            return self._read(shelf, key, self._reader().get(self._value_key(shelf, key)))[1]

    def keys(self, shelf: str) -> list[str]:
        """The keys of a shelf that have values, sorted."""
        start = self._value_key(shelf, "")
        with self._translated():
            found = set(self._reader().scan_iter(match=escaped(start) + "*", count=1000))
        return sorted(name.decode(errors="replace")[len(start) :] for name in found)

    def lines(self, shelf: str, key: str) -> Iterator[Any]:
        """All lines of a value, oldest first; a page at a time."""
        first = 0
        while True:
            with self._translated():
                page = self._reader().lrange(self._lines_key(shelf, key), first, first + PAGE - 1)
            for number, line in enumerate(page, first + 1):
                yield from_text(self.label, f"line {number} of {shelf} {key!r}", line)
            if len(page) < PAGE:
                return
            first += PAGE

    def _read(self, shelf: str, key: str, raw: bytes | None) -> tuple[int, Any]:
        if raw is None:
            return 0, None
        number, _, text = raw.partition(b"\n")
        where = f"{shelf} {key!r}"
        return int(from_text(self.label, where, number)), from_text(self.label, where, text)

    def _wait(self, deadline_s: float, tries: int) -> None:
        """Let others go first for a moment, so that not all come back at once."""
        if time.monotonic() > deadline_s:
            why = f"others were quicker for {PATIENCE_S:g} s"
            raise StoreUnavailable(self.label, why, "try again, or split the budget into several")
        time.sleep(random.uniform(0.0, 0.0005 * min(tries, 20)))  # noqa: S311  no secret

    def _value_key(self, shelf: str, key: str) -> str:
        return f"{self._names.root}{shelf}:{key}"

    def _lines_key(self, shelf: str, key: str) -> str:
        return f"{self._names.root}lines:{shelf}:{key}"
