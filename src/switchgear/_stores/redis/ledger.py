"""The ledger of a Redis store: read a value, amend it, and commit if the value is still the same.

The script compares and sets; it contains nothing about budgets or locks. A value begins with a number that
increases with each commit. A writer that passes the number it has read may replace the value; another
writer gets the current value, so that another attempt costs one more round trip.

An amendment has an identity and leaves a receipt, like a message to a circuit: after a lost reply it is
sent again, and applied only once.
"""

import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from switchgear._core.errors import StoreUnavailable
from switchgear._stores.base import Work, as_text, from_text
from switchgear._stores.redis.clients import Clients, is_known
from switchgear._stores.redis.reader import VerifiedReader, escaped
from switchgear._stores.redis.script import IDENTITY_MARK, RECEIPT_MS, Names
from switchgear._system.clock import Clock

PATIENCE_S = 10.0
"""Maximum seconds to retry while other processes commit first."""
PAGE = 1000
"""Number of lines that are read at a time."""
TRIES_AFTER_CUT = 3
"""Maximum number of attempts for an amendment without a reply."""

AMEND = f"""
local have, now = redis.call('GET', KEYS[1]), redis.call('TIME')
local stamp, nonce, until_us = ARGV[1], ARGV[3], tonumber(ARGV[4])
if stamp == '?' then return {{0, have, nonce}} end
if redis.call('GET', KEYS[3]) then return {{1, have, nonce}} end
if until_us and now[1] * 1000000 + now[2] > until_us then return {{2, have, nonce}} end
local same = not have and stamp == ''
if have and stamp ~= '' then same = have:sub(1, #stamp) == stamp end
if not same then return {{0, have, nonce}} end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('SET', KEYS[3], '1', 'PX', {RECEIPT_MS})
if ARGV[5] ~= '' then redis.call('DEL', ARGV[5]) end
for i = 6, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[i]) end
return {{1, have, nonce}}
"""


class RedisLedger:
    """A ledger on the connections of a store. Thread-safe and fork-safe."""

    def __init__(
        self,
        label: str,
        names: Names,
        clock: Clock,
        *,
        reader: Callable[[], VerifiedReader],
        client: Callable[[], Any],
        translated: Callable[[], AbstractContextManager[None]],
        clients: Clients,
        until_s: Callable[[], float | None],
    ) -> None:
        self.label = label
        self.now_s = clock
        self._names = names
        self._reader = reader
        self._client = client
        self._translate_errors = translated
        self._clients = clients
        self._until_s = until_s
        """The deadline of a request that is sent now, on the server's clock; `None`: the clock is unknown."""
        self._receipts: deque[str] = deque(maxlen=64)
        """Receipts that are no longer needed: each amendment removes one, and the rest expires."""

    def amend(self, shelf: str, key: str, work: Work) -> Any:
        """As in `Ledger.amend`; runs `work` again if another process committed first.

        A request without a reply is repeated twice. If no reply arrives at all, `StoreUnavailable` is
        raised, and it is unknown whether the amendment was made.
        """
        value_key, lines_key = self._value_key(shelf, key), self._lines_key(shelf, key)
        receipt_key = f"{self._names.receipts}{os.urandom(8).hex()}{IDENTITY_MARK}"
        keys = (value_key, lines_key, receipt_key)
        deadline_s = time.monotonic() + PATIENCE_S
        tries = 0
        with self._translate_errors():
            self._reader()  # ensures that the server's time is known
            _, have, _ = self._run_script(keys, (b"?", b""))
            while True:
                number, value = self._read(shelf, key, have)
                done = work(value, self.now_s())
                if done.value is None:
                    return done.answer
                stamp = b"" if have is None else b"%d\n" % number
                new = b"%d\n%b" % (number + 1, as_text(done.value).encode())
                lines = [as_text(line).encode() for line in done.lines]
                code, have, sent = self._run_script(keys, (stamp, new), lines)
                if code == 1:
                    # After a repetition, the first request may still arrive, and must find the receipt.
                    if sent == 1:
                        self._receipts.append(receipt_key)
                    return done.answer
                tries += 1
                self._wait(deadline_s, tries)

    def _run_script(
        self, keys: tuple[str, ...], args: tuple[bytes, bytes], lines: Sequence[bytes] = ()
    ) -> tuple[int, bytes | None, int]:
        """The code and the current value that the script returned, and how often it was sent."""
        sent = 0
        try:
            confirmed = self._receipts.popleft() if args[1] else ""
        except IndexError:
            confirmed = ""
        while True:
            sent += 1
            nonce = os.urandom(4).hex()
            client = self._client()
            until_s = self._until_s()
            until_us = b"" if until_s is None else int(until_s * 1e6)
            given = (*keys, *args, nonce, until_us, confirmed, *lines)
            try:
                reply = client.eval(AMEND, len(keys), *given)
            except self._clients.errors as error:
                self._clients.disconnect_idle(client)
                known = isinstance(error, self._clients.refusals) and is_known(error)
                if known or sent >= TRIES_AFTER_CUT:
                    raise
                continue
            if isinstance(reply, list) and reply[-1] == nonce.encode():
                if confirmed and int(reply[0]) != 1:  # nothing was written or removed
                    self._receipts.append(confirmed)
                return int(reply[0]), reply[1], sent
            self._clients.disconnect_idle(client)
            if sent >= TRIES_AFTER_CUT:
                raise ConnectionError("the replies of the server do not match the requests")

    def value(self, shelf: str, key: str) -> Any:
        with self._translate_errors():
            return self._read(shelf, key, self._reader().get(self._value_key(shelf, key)))[1]

    def keys(self, shelf: str) -> list[str]:
        start = self._value_key(shelf, "")
        with self._translate_errors():
            found = set(self._reader().scan_iter(match=escaped(start) + "*", count=1000))
        return sorted(name.decode(errors="replace")[len(start) :] for name in found)

    def lines(self, shelf: str, key: str) -> Iterator[Any]:
        """All lines of a value, oldest first; a page at a time."""
        first = 0
        while True:
            with self._translate_errors():
                page = self._reader().lrange(self._lines_key(shelf, key), first, first + PAGE - 1)
            for number, line in enumerate(page, first + 1):
                yield from_text(self.label, f"line {number} of {shelf} {key!r}", line)
            if len(page) < PAGE:
                return
            first += PAGE

    def remove(self, shelf: str, key: str) -> None:
        """Remove a value with its lines. Idempotent, so a lost reply does no harm."""
        with self._translate_errors():
            client = self._client()
            try:
                client.delete(self._value_key(shelf, key), self._lines_key(shelf, key))
            except self._clients.errors:
                self._clients.disconnect_idle(client)
                raise

    def _read(self, shelf: str, key: str, raw: bytes | None) -> tuple[int, Any]:
        if raw is None:
            return 0, None
        number, _, text = raw.partition(b"\n")
        where = f"{shelf} {key!r}"
        return int(from_text(self.label, where, number)), from_text(self.label, where, text)

    def _wait(self, deadline_s: float, tries: int) -> None:
        """Sleep for a random time, so that not all processes retry at once. Raises at the deadline."""
        if time.monotonic() > deadline_s:
            why = f"too many concurrent writers for {PATIENCE_S:g} s"
            raise StoreUnavailable(self.label, why, "try again, or split the budget into several")
        time.sleep(random.uniform(0.0, 0.0005 * min(tries, 20)))  # noqa: S311  no secret

    def _value_key(self, shelf: str, key: str) -> str:
        return f"{self._names.root}{shelf}:{key}"

    def _lines_key(self, shelf: str, key: str) -> str:
        return f"{self._names.root}lines:{shelf}:{key}"
