"""Local copies of the circuits on the server, the stamps of writes, and the pushes of changes.

A copy saves a read before each write, because the server rejects a write that is based on an outdated
copy. Copies also restore a server that has lost its data.
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
from switchgear._stores.redis.envelope import Sealed, load_sealed, parse_value, refitted, stamp_of
from switchgear._stores.redis.script import CONFIRMED, IDENTITY_MARK, SUMMARY, Names
from switchgear._system.threads import ForkSafeLock

MAX_COPIES = 10_000
"""Maximum number of copies; the least recently written is dropped first."""
REPORT = "r"
"""Separates an identity from the times of the report that it contains. The times are part of the identity
because older versions, which read the same inbox, pass identities on unchanged."""
_SUMMARY_END = f'{SUMMARY}",'.encode()
REMOVED = b"gone"
"""Replaces the stamp of a circuit that was removed on purpose; no stored value has it."""


class KnownCircuits:
    """The last known states of circuits on the server. Thread-safe and fork-safe."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._circuits: dict[str, Sealed] = {}
        self._hot: set[str] = set()
        self._last_begins = b""
        """The beginning of the last copied value, so that a push with the same value is not parsed again."""
        self._confirmed: deque[str] = deque(maxlen=1024)
        self._sign()

    def _sign(self) -> None:
        self._pid = os.getpid()
        self._writer = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    def token(self) -> str:
        """A unique name for one message of this process."""
        if self._pid != os.getpid():  # a forked child needs names of its own
            self._sign()
        return f"{self._writer}-{next(self._numbers)}"

    def process(self) -> str:
        return self.token().partition("-")[0]

    def identity(self, message: Message) -> str:
        """The identity of one message, by which the server recognises it if it is sent again."""
        name = self.token().replace("-", IDENTITY_MARK)
        source = message.source if isinstance(message, Record) else None
        if source is None:
            return name
        return name + REPORT + "|".join(f"{at_s!r}*{count}" for at_s, count in source.times)

    def confirm(self, *identities: str) -> None:
        """Note that the replies to these messages have arrived, so that their receipts can be removed."""
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
        """A unique stamp for one write of this version."""
        return f"{version}-{self.token()}"

    def _is_ours(self, begins: bytes) -> bool:
        """Whether this process wrote the value with this stamp."""
        return f"-{self._writer}-".encode() in begins

    def get(self, key: str, policy: Policy) -> Sealed | None:
        """The last known state of a circuit, converted to this policy; `None`: unknown."""
        copy = self._circuits.get(key)
        if copy is None or copy.policy is policy:
            return copy
        fitted = refitted(copy.circuit, copy.policy, policy)
        return Sealed(copy.begins, fitted, policy, copy.fits and copy.policy == policy)

    def keep(self, sealed: Sealed) -> bool:
        """Keep a copy unless the same or a newer one is known; return whether it was kept."""
        key = sealed.circuit.key
        with self._lock:
            copy = self._circuits.get(key)
            if copy is not None and (
                copy.circuit.version > sealed.circuit.version
                or copy.begins in (sealed.begins, sealed.begins.replace(_SUMMARY_END, b'",'))
            ):
                return False
            if len(self._circuits) >= MAX_COPIES and copy is None:
                del self._circuits[next(iter(self._circuits))]
            self._circuits.pop(key, None)
            self._circuits[key] = sealed
            self._last_begins = sealed.begins
        return True

    def read(self, raw: bytes) -> Sealed | None:
        """A value that the server pushed; `None` if this process wrote it, or if it is not new.

        Only circuits that this process uses are kept. Raises `WireError`.
        """
        if stamp_of(raw) == self._last_begins:
            return None
        begins, data = parse_value(raw)
        copy = self._circuits.get(str(data["circuit"].get("key")))
        sealed = load_sealed(begins, data, None if copy is None else copy.policy)
        if self._is_ours(begins) or (copy is not None and not self.keep(sealed)):
            return None
        return sealed

    def forget(self, key: str) -> None:
        """Note that a circuit was removed on purpose: only its numbers are kept."""
        with self._lock:
            copy = self._circuits.get(key)
            if copy is not None:
                circuit = copy.circuit._replace(seen_s=-math.inf)
                self._circuits[key] = copy._replace(begins=REMOVED, circuit=circuit)

    def circuit(self, key: str) -> Circuit | None:
        """The last known state of a circuit, unless it was removed on purpose."""
        copy = self._circuits.get(key)
        return None if copy is None or copy.begins == REMOVED else copy.circuit

    def keys(self) -> list[str]:
        with self._lock:
            return list(self._circuits)

    def is_hot(self, key: str) -> bool:
        """Whether many processes write this circuit, so that compare-and-set would most likely fail."""
        return key in self._hot

    def set_hot(self, key: str, *, hot: bool) -> None:
        """Note whether other messages were waiting when a message joined the queue."""
        with self._lock:
            if not hot:
                self._hot.discard(key)
            elif len(self._hot) < MAX_COPIES:
                self._hot.add(key)


LISTEN_S = 1.0
"""Maximum seconds that one read waits; then the thread checks whether it must stop."""
STOP_S = 1.0
"""Maximum seconds that stopping waits for the thread; a quarter of it if the thread is not connected."""
BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds to wait before each further attempt to connect."""
READ_AGAIN = 500
"""Maximum number of circuits that one command reads again after a reconnect."""

Listener = Callable[[Circuit], object]
log = logging.getLogger("switchgear")


class Push:
    """A daemon thread that receives pushes on its own connection. Started by the first listener."""

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
        self._connected_thread: threading.Thread | None = None
        """The thread that is subscribed to the server now; `None`: pushes do not arrive."""
        self._channel: Any = None
        """The subscription of this thread."""

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    @property
    def is_healthy(self) -> bool:
        thread = self._thread
        return thread is not None and thread is self._connected_thread and thread.is_alive()

    def add(self, listener: Listener) -> None:
        """Call `listener` with every circuit that another process changed, or that the server has lost."""
        if self._pid != os.getpid():  # the thread and the listeners belong to the parent process
            self._pid, self._thread, self._listeners = os.getpid(), None, []
            self._on_warm = []
        self._listeners.append(listener)
        if self._thread is None or not self._thread.is_alive():
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._run, name="switchgear-push", daemon=True)
            self._thread.start()

    def add_warm(self, listener: Callable[[str], object]) -> None:
        """Call `listener` with the name of every circuit on which another process reports a failure."""
        self._on_warm.append(listener)

    def stop(self) -> None:
        """End the thread and wait briefly for it."""
        self._stop.set()
        was_connected = self.is_healthy
        thread, self._thread = self._thread, None
        if thread is None or thread is threading.current_thread():
            return
        if was_connected:
            with suppress(Exception):  # the reply ends the read of the thread
                self._channel.ping()
        # A connected thread ends soon; a thread that waits for a silent server ends later.
        thread.join(STOP_S if was_connected else STOP_S / 4)

    def _run(self) -> None:
        stop, failures = self._stop, 0
        while not stop.is_set():
            try:
                with closing(self._connect()) as client, closing(client.pubsub()) as channel:
                    channel.subscribe(self._names.channel, self._names.warm)
                    self._receive(channel, until_subscribed=True)
                    self._channel = channel
                    self._connected_thread = threading.current_thread()
                    self._read_again(client)
                    failures = 0
                    while not stop.is_set():
                        self._receive(channel)
            except Exception as error:  # noqa: BLE001  the thread reconnects after any error
                if not failures:
                    log.warning("pushes from the store stopped, trying again: %s", error)
            finally:
                if self._connected_thread is threading.current_thread():
                    self._connected_thread = None
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
        """Call the listeners if another process has reported a failure."""
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
