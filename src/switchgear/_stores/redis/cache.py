"""The local copies of circuits on the server, and the stamps of writes.

A copy saves a read before each write: the server rejects an outdated one. Copies also restore a
server that lost its data.
"""

import itertools
import logging
import math
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from time import monotonic
from typing import Any

from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Message, Record
from switchgear._core.wire import WireError
from switchgear._stores.redis.envelope import Sealed, loaded, opened, refitted, stamp_of
from switchgear._stores.redis.script import CONFIRMED, PLUS, SUMMARY, Names
from switchgear._system.threads import ForkSafeLock

KEEP = 10_000
"""Maximum number of copies; the least recently written is dropped first."""
REPORT = "r"
"""Behind which the identity of a report has its times. In the inbox a message is what older versions
can read, and they take an identity as it is."""
_SUMMARY_END = f'{SUMMARY}",'.encode()
GONE = b"gone"
"""A stamp that no stored value has: the circuit was removed on purpose."""


class KnownCircuits:
    """The last known states. Thread-safe and fork-safe."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._circuits: dict[str, Sealed] = {}
        self._hot: set[str] = set()
        self._last_begins = b""
        """How the value of the last copy begins: the push of what a reply contained is not read again."""
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
        return self.token().partition("-")[0]

    def identity(self, message: Message) -> str:
        """A name for one message, by which the server recognises it when it is sent again."""
        name = self.token().replace("-", PLUS)
        source = message.source if isinstance(message, Record) else None
        if source is None:
            return name
        return name + REPORT + "|".join(f"{at_s!r}*{count}" for at_s, count in source.times)

    def confirm(self, *identities: str) -> None:
        """Note that the replies to messages have arrived: their receipts can be removed."""
        self._confirmed.extend(identities)

    def confirmed(self, most: int = CONFIRMED) -> list[str]:
        """The messages whose receipts can be removed; each is returned once."""
        found: list[str] = []
        while self._confirmed and len(found) < most:
            try:
                found.append(self._confirmed.popleft())
            except IndexError:  # another thread was first
                break
        return found

    def stamp(self, version: int) -> str:
        """A name for one write."""
        return f"{version}-{self.token()}"

    def _is_ours(self, begins: bytes) -> bool:
        """Whether this process wrote the value with this stamp."""
        return f"-{self._writer}-".encode() in begins

    def get(self, key: str, policy: Policy) -> Sealed | None:
        """The last known state of a circuit, adapted to this policy."""
        copy = self._circuits.get(key)
        if copy is None or copy.policy is policy:
            return copy
        fitted = refitted(copy.circuit, copy.policy, policy)
        return Sealed(copy.begins, fitted, policy, copy.fits and copy.policy == policy)

    def keep(self, sealed: Sealed) -> bool:
        """Save a copy unless a newer one is known; return whether it was new."""
        key = sealed.circuit.key
        with self._lock:
            copy = self._circuits.get(key)
            if copy is not None and (
                copy.circuit.version > sealed.circuit.version
                or copy.begins in (sealed.begins, sealed.begins.replace(_SUMMARY_END, b'",'))
            ):
                return False
            if len(self._circuits) >= KEEP and copy is None:
                del self._circuits[next(iter(self._circuits))]
            self._circuits.pop(key, None)
            self._circuits[key] = sealed
            self._last_begins = sealed.begins
        return True

    def read(self, raw: bytes) -> Sealed | None:
        """A value that the server pushed; `None` if it is our own or not new.

        Only circuits that this process uses are remembered. Raises `WireError`.
        """
        if stamp_of(raw) == self._last_begins:
            return None
        begins, data = opened(raw)
        copy = self._circuits.get(str(data["circuit"].get("key")))
        sealed = loaded(begins, data, None if copy is None else copy.policy)
        if self._is_ours(begins) or (copy is not None and not self.keep(sealed)):
            return None
        return sealed

    def forget(self, key: str) -> None:
        """Note that a circuit was removed on purpose: only its numbers are remembered."""
        with self._lock:
            copy = self._circuits.get(key)
            if copy is not None:
                circuit = copy.circuit._replace(seen_s=-math.inf)
                self._circuits[key] = copy._replace(begins=GONE, circuit=circuit)

    def circuit(self, key: str) -> Circuit | None:
        """The last known state of a circuit, unless it was removed on purpose."""
        copy = self._circuits.get(key)
        return None if copy is None or copy.begins == GONE else copy.circuit

    def keys(self) -> list[str]:
        with self._lock:
            return list(self._circuits)

    def is_hot(self, key: str) -> bool:
        """Whether many processes write this circuit, so that compare-and-set would most likely fail."""
        return key in self._hot

    def heat(self, key: str, *, hot: bool) -> None:
        """Note whether others were waiting when a message joined the queue."""
        with self._lock:
            if not hot:
                self._hot.discard(key)
            elif len(self._hot) < KEEP:
                self._hot.add(key)


LISTEN_S = 1.0
"""Seconds that one read waits at most: between reads each process of a fleet wakes up, also in an outage."""
STOP_S = 1.0
"""Seconds that stopping waits for the thread; a quarter if it is not connected."""
BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds to wait before each further attempt to connect."""
READ_AGAIN = 500
"""Number of circuits that one command reads again."""

Listener = Callable[[Circuit], object]
log = logging.getLogger("switchgear")


class Push:
    """A daemon thread with its own connection. Started by the first listener."""

    def __init__(
        self, connect: Callable[[], Any], names: Names, known: KnownCircuits, timeout_s: float
    ) -> None:
        self._connect = connect
        self._names = names
        self._known = known
        self._timeout_s = timeout_s
        self._listeners: list[Listener] = []
        self._on_warm: list[Callable[[str], object]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._hearing: threading.Thread | None = None
        """The thread that listens to the server just now."""
        self._channel: Any = None
        """Where it listens."""

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    @property
    def is_healthy(self) -> bool:
        thread = self._thread
        return thread is not None and thread is self._hearing and thread.is_alive()

    def add(self, listener: Listener) -> None:
        """Call this with every circuit that another process moved, or that the server has lost."""
        if self._pid != os.getpid():  # the thread and the listeners stayed with the parent
            self._pid, self._thread, self._listeners = os.getpid(), None, []
            self._on_warm = []
        self._listeners.append(listener)
        if self._thread is None or not self._thread.is_alive():
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._run, name="switchgear-push", daemon=True)
            self._thread.start()

    def add_warm(self, listener: Callable[[str], object]) -> None:
        """Call this with the name of every circuit on which another process reports a failure."""
        self._on_warm.append(listener)

    def stop(self) -> None:
        """End the thread and wait briefly for it."""
        self._stop.set()
        is_hearing = self.is_healthy
        thread, self._thread = self._thread, None
        if thread is None or thread is threading.current_thread():
            return
        if is_hearing:
            with suppress(Exception):  # the answer ends its read
                self._channel.ping()
        # A connected thread ends soon; a thread that waits for a silent server ends later.
        thread.join(STOP_S if is_hearing else STOP_S / 4)

    def _run(self) -> None:
        stop, failures = self._stop, 0
        while not stop.is_set():
            try:
                with closing(self._connect()) as client, closing(client.pubsub()) as channel:
                    channel.subscribe(self._names.channel, self._names.warm)
                    self._receive(channel, until_subscribed=True)
                    self._channel = channel
                    self._hearing = threading.current_thread()
                    self._read_again(client)
                    failures = 0
                    while not stop.is_set():
                        self._receive(channel)
            except Exception as error:  # noqa: BLE001  whatever breaks it, it must come back
                if not failures:
                    log.warning("pushes from the store stopped, trying again: %s", error)
            finally:
                if self._hearing is threading.current_thread():
                    self._hearing = None
            stop.wait(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1

    def _receive(self, channel: Any, *, until_subscribed: bool = False) -> None:
        """Receive one message or a ping; raise if the server is gone."""
        deadline_s = monotonic() + self._timeout_s
        is_subscribing = False
        while not self._stop.is_set():
            message = channel.get_message(timeout=min(LISTEN_S, self._timeout_s))
            if message is not None:
                if message["type"] == "message":
                    if message["channel"] == self._names.warm.encode():
                        self._on_failure(message["data"])
                    else:
                        self._on_move(message["data"])
                if not until_subscribed or message["type"] == "subscribe":
                    return
            elif monotonic() >= deadline_s:
                if is_subscribing or until_subscribed:
                    raise TimeoutError(f"silent for {2 * self._timeout_s:g} s")
                channel.ping()
                is_subscribing, deadline_s = True, monotonic() + self._timeout_s

    def _on_failure(self, raw: bytes) -> None:
        """A process reported a failure: those that share the circuit report their successes."""
        process, _, key = raw.decode(errors="replace").partition("\n")
        if process == self._known.process():
            return
        for listener in list(self._on_warm):
            try:
                listener(key)
            except Exception:
                log.exception("a listener failed on circuit %r", key)

    def _on_move(self, raw: bytes) -> None:
        try:
            sealed = self._known.read(raw)
        except WireError as error:
            log.warning("a circuit that changed could not be read: %s", error)
            return
        if sealed is not None:
            self._call(sealed.circuit)

    def _call(self, circuit: Circuit) -> None:
        for listener in list(self._listeners):
            try:
                listener(circuit)
            except Exception:
                log.exception("a listener failed on circuit %r", circuit.key)

    def _read_again(self, client: Any) -> None:
        """Read all known circuits again, because pushes may be lost or the server has restarted."""
        keys = self._known.keys()
        for start in range(0, len(keys), READ_AGAIN):
            page = keys[start : start + READ_AGAIN]
            for key, raw in zip(
                page, client.mget(list(map(self._names.circuit, page))), strict=True
            ):
                copy = self._known.circuit(key)
                if raw is not None:
                    self._on_move(raw)
                elif copy is not None:
                    self._call(copy)
