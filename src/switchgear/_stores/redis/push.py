"""Hearing at once what others did: one thread that listens to the channel of moves.

While it is connected to the server, snapshots need no polling. When the connection breaks it comes back by
itself, and because messages may have been missed, it reads again what it knows.
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import closing
from time import monotonic
from typing import Any

from switchgear._core.types import Circuit
from switchgear._core.wire import WireError
from switchgear._stores.redis.cache import KnownCircuits
from switchgear._stores.redis.script import Names

LISTEN_S = 0.25
"""How long one read waits: also how long it takes to stop."""
BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""How long to wait before each next attempt to connect."""
READ_AGAIN = 500
"""How many circuits are read again by one command."""

Listener = Callable[[Circuit], object]
log = logging.getLogger("switchgear")


class Push:
    """A daemon thread with a connection of its own. Started by the first listener."""

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

    @property
    def has_listeners(self) -> bool:
        """Whether anybody wants to hear."""
        return bool(self._listeners)

    @property
    def is_healthy(self) -> bool:
        """Whether pushes arrive just now."""
        thread = self._thread
        return thread is not None and thread is self._hearing and thread.is_alive()

    def add(self, listener: Listener) -> None:
        """Call this with every circuit that another process moved, or that the server has lost."""
        if self._pid != os.getpid():  # the thread stayed with the parent, and so did who listened
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
        """End the thread and wait for it, a little."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            # One that is connected ends soon; one that waits for a silent server ends by itself.
            thread.join(4 * LISTEN_S if thread is self._hearing else LISTEN_S)

    def _run(self) -> None:
        stop, failures = self._stop, 0
        while not stop.is_set():
            try:
                with closing(self._connect()) as client, closing(client.pubsub()) as channel:
                    channel.subscribe(self._names.channel, self._names.warm)
                    self._hear(channel, until_subscribed=True)
                    self._hearing = threading.current_thread()
                    self._read_again(client)
                    failures = 0
                    while not stop.is_set():
                        self._hear(channel)
            except Exception as error:  # noqa: BLE001  whatever breaks it, it must come back
                if not failures:
                    log.warning("pushes from the store stopped, trying again: %s", error)
            finally:
                if self._hearing is threading.current_thread():
                    self._hearing = None
            stop.wait(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1

    def _hear(self, channel: Any, *, until_subscribed: bool = False) -> None:
        """Hear one message, or that the server is alive; raise if it is not."""
        deadline_s = monotonic() + self._timeout_s
        asked = False
        while not self._stop.is_set():
            message = channel.get_message(timeout=LISTEN_S)
            if message is not None:
                if message["type"] == "message":
                    if message["channel"] == self._names.warm.encode():
                        self._failed(message["data"])
                    else:
                        self._moved(message["data"])
                if not until_subscribed or message["type"] == "subscribe":
                    return
            elif monotonic() >= deadline_s:
                if asked or until_subscribed:
                    raise TimeoutError(f"silent for {2 * self._timeout_s:g} s")
                channel.ping()
                asked, deadline_s = True, monotonic() + self._timeout_s

    def _failed(self, raw: bytes) -> None:
        """A process reported a failure: those that share the circuit report their successes."""
        process, _, key = raw.decode(errors="replace").partition("\n")
        if process == self._known.process():
            return
        for listener in list(self._on_warm):
            try:
                listener(key)
            except Exception:
                log.exception("a listener failed on circuit %r", key)

    def _moved(self, raw: bytes) -> None:
        try:
            sealed = self._known.read(raw)
        except WireError as error:
            log.warning("a circuit that somebody moved could not be read: %s", error)
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
        """Look at what is known, because moves may have been missed, or the server has restarted."""
        keys = self._known.keys()
        for start in range(0, len(keys), READ_AGAIN):
            page = keys[start : start + READ_AGAIN]
            for key, raw in zip(
                page, client.mget(list(map(self._names.circuit, page))), strict=True
            ):
                copy = self._known.circuit(key)
                if raw is not None:
                    self._moved(raw)
                elif copy is not None:
                    self._call(copy)
