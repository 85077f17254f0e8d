"""What this process remembers of the circuits in the server, and how it signs what it writes.

The copy saves a read before each write: the server says when it is old. It is also what a server
that lost its data is given back.
"""

import itertools
import math
import os
import secrets
from collections import deque

from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Message, Record
from switchgear._stores.redis.envelope import Sealed, loaded, opened, refitted
from switchgear._stores.redis.script import CONFIRMED, PLUS
from switchgear._system.fork_lock import ForkSafeLock

KEEP = 10_000
"""How many circuits are remembered; the least recently written is forgotten first."""
REPORT = "r"
"""Behind which the identity of a report has its times. In the inbox a message is what older versions
can read, and they take an identity as it is."""
GONE = b"gone"
"""How the value begins that a circuit which was removed on purpose does not have."""


class KnownCircuits:
    """The last known states. Thread-safe and fork-safe."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._circuits: dict[str, Sealed] = {}
        self._hot: set[str] = set()
        self._confirmed: deque[str] = deque(maxlen=1024)
        self._sign()

    def _sign(self) -> None:
        self._pid = os.getpid()
        self._writer = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    def token(self) -> str:
        """A name for one message, of this process and of no other."""
        if self._pid != os.getpid():  # a child of the process that made this
            self._sign()
        return f"{self._writer}-{next(self._numbers)}"

    def process(self) -> str:
        """The name of this process."""
        return self.token().partition("-")[0]

    def identity(self, message: Message) -> str:
        """A name for one message, by which the server knows it when it is sent again."""
        name = self.token().replace("-", PLUS)
        source = message.source if isinstance(message, Record) else None
        if source is None:
            return name
        return name + REPORT + "|".join(f"{at_s!r}*{count}" for at_s, count in source.times)

    def confirm(self, identity: str) -> None:
        """Note that the reply to a message has arrived: its receipt may go."""
        self._confirmed.append(identity)

    def confirmed(self, most: int = CONFIRMED) -> list[str]:
        """Whose receipts may go, each named once."""
        found: list[str] = []
        while self._confirmed and len(found) < most:
            try:
                found.append(self._confirmed.popleft())
            except IndexError:  # another thread was quicker
                break
        return found

    def stamp(self, version: int) -> str:
        """A name for one write."""
        return f"{version}-{self.token()}"

    def _is_ours(self, begins: bytes) -> bool:
        """Whether this process wrote the value that begins so."""
        return f"-{self._writer}-".encode() in begins

    def get(self, key: str, policy: Policy) -> Sealed | None:
        """The last known state of a circuit, as this policy sees it."""
        copy = self._circuits.get(key)
        if copy is None or copy.policy is policy:
            return copy
        fitted = refitted(copy.circuit, copy.policy, policy)
        return Sealed(copy.begins, fitted, policy, copy.fits and copy.policy == policy)

    def keep(self, sealed: Sealed) -> bool:
        """Remember a state unless a newer one is known; whether it was new."""
        key = sealed.circuit.key
        with self._lock.taken():
            copy = self._circuits.get(key)
            if copy is not None and (
                copy.circuit.version > sealed.circuit.version or copy.begins == sealed.begins
            ):
                return False
            if len(self._circuits) >= KEEP and copy is None:
                del self._circuits[next(iter(self._circuits))]
            self._circuits.pop(key, None)
            self._circuits[key] = sealed
        return True

    def read(self, raw: bytes) -> Sealed | None:
        """A value that the server pushed; `None` if it is our own or not new.

        Only circuits that this process uses are remembered. Raises `WireError`.
        """
        begins, data = opened(raw)
        copy = self._circuits.get(str(data["circuit"].get("key")))
        sealed = loaded(begins, data, None if copy is None else copy.policy)
        if self._is_ours(begins) or (copy is not None and not self.keep(sealed)):
            return None
        return sealed

    def forget(self, key: str) -> None:
        """Note that a circuit was removed on purpose: only its numbers are remembered."""
        with self._lock.taken():
            copy = self._circuits.get(key)
            if copy is not None:
                circuit = copy.circuit._replace(seen_s=-math.inf)
                self._circuits[key] = copy._replace(begins=GONE, circuit=circuit)

    def circuit(self, key: str) -> Circuit | None:
        """The last known state of a circuit, unless it was removed on purpose."""
        copy = self._circuits.get(key)
        return None if copy is None or copy.begins == GONE else copy.circuit

    def keys(self) -> list[str]:
        """The circuits that are remembered."""
        with self._lock.taken():
            return list(self._circuits)

    def is_hot(self, key: str) -> bool:
        """Whether many write this circuit, so that a try would most likely be lost."""
        return key in self._hot

    def heat(self, key: str, *, hot: bool) -> None:
        """Note whether others were waiting when a message joined the queue."""
        with self._lock.taken():
            if not hot:
                self._hot.discard(key)
            elif len(self._hot) < KEEP:
                self._hot.add(key)
