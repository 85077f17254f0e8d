"""A relay that parses Redis replies, and drops, delays or repeats whole replies."""

import contextlib
import random
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator

from servers.proxy import Proxy

FAULTS = ("drop", "cut", "delay", "duplicate")
STALE = ("late copy", "error", "unknown script")
"""Faults after which a call gets the reply to another one, and the connection is out of step."""
ERRORS = {
    "error": b"-ERR unknown subcommand of another call\r\n",
    "unknown script": b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
}


class FaultyProxy(Proxy):
    """Requests always arrive; what happens to their replies is drawn by chance.

    - `drop`: the reply never arrives, the connection stays open.
    - `cut`: the connection is closed instead of the reply.
    - `delay`: the reply arrives after up to `delay_s` seconds.
    - `duplicate`: the reply arrives twice.
    - `late copy`: the same, and the second only once the client has sent the next request.
    - `error`, `unknown script`: an error arrives first, as a copy of the reply to an earlier call.
    """

    def __init__(
        self, port: int, *, share: float = 0.0, seed: int = 1, delay_s: float = 0.3
    ) -> None:
        self.share = share
        """How many of the replies meet a fault."""
        self.faults: tuple[str, ...] = FAULTS
        self.next_fault: list[str] = []
        """The faults of the next replies, before chance decides; `pass` is none."""
        self.counts: Counter[str] = Counter()
        self._delay_s = delay_s
        self._luck = random.Random(seed)
        self._drawing = threading.Lock()
        super().__init__(port)

    def _draw(self) -> str:
        with self._drawing:
            if self.next_fault:
                fault = self.next_fault.pop(0)
            elif self._luck.random() < self.share:
                fault = self._luck.choice(self.faults)
            else:
                fault = "pass"
            self.counts[fault] += 1
            return fault

    def _relay(self, link: socket.socket, other: socket.socket) -> None:
        left, owed, era = b"", b"", self._era
        while not self._stop.is_set() and era == self._era:
            for end in select.select([link, other], [], [], 0.05)[0]:
                data = end.recv(1 << 16)
                if not data:
                    return
                if end is link:
                    other.sendall(data)
                    link.sendall(owed)
                    owed = b""
                    continue
                left += data
                for reply, rest in _replies(left):
                    left = rest
                    fault = self._draw()
                    owed += reply if fault == "late copy" else b""
                    if not self._pass_on(link, reply, fault):
                        return

    def _pass_on(self, link: socket.socket, reply: bytes, fault: str) -> bool:
        """Whether the connection continues."""
        if fault == "cut":
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            return False
        if fault == "delay":
            time.sleep(self._luck.uniform(0.0, self._delay_s))
        if fault != "drop":
            link.sendall(ERRORS.get(fault, b""))
            link.sendall(reply * 2 if fault == "duplicate" else reply)
        return True


def _replies(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each complete reply at the beginning, and the remaining bytes."""
    while (end := _end(data, 0)) is not None:
        yield data[:end], data[end:]
        data = data[end:]


def _end(data: bytes, start: int) -> int | None:
    line = data.find(b"\r\n", start)
    if line < 0:
        return None
    kind, number = data[start : start + 1], data[start + 1 : line]
    end: int | None = line + 2
    if kind == b"$" and int(number) >= 0:
        end = line + 2 + int(number) + 2
        return end if end <= len(data) else None
    if kind == b"*":
        for _ in range(max(0, int(number))):
            end = None if end is None else _end(data, end)
    return end
