"""One worker process: accepts connections from a shared socket until it must drain."""

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from switchgear._panel.panel import Panel
from switchgear._proxy.access_log import AccessLog
from switchgear._proxy.guard import Guard, GuardSettings
from switchgear._proxy.http1 import Limits, Server
from switchgear._proxy.relay import Relay, RelaySettings

TICK_S = 0.5
_SAVE_EVERY = 10
"""Number of ticks between two writes of metrics and of the costs of sessions."""


class WorkerSettings(NamedTuple):
    """The settings of a worker."""

    relay: RelaySettings
    guard: GuardSettings
    limits: Limits = Limits()
    drain_s: float = 600.0
    """Seconds that responses in progress may take after the signal to end."""
    tls: ssl.SSLContext | None = None


class Worker:
    """A proxy over one listening socket. `run` returns when it has drained."""

    def __init__(
        self, panel: Panel, settings: WorkerSettings, log: AccessLog | None = None
    ) -> None:
        self._panel = panel
        self._settings = settings
        self._log = log
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """Accept no more connections, and end after the requests in progress. Idempotent; any thread may call it."""
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(stop.set)

    async def serve(
        self,
        listening: socket.socket,
        ready: Callable[[], object] = lambda: None,
        parent: int | None = None,
    ) -> None:
        """Serve until `stop`, a signal, or the end of the process at the other end of the pipe `parent`."""
        settings = self._settings
        self._loop = loop = asyncio.get_running_loop()
        self._stop = stop = asyncio.Event()
        guard = Guard(self._panel, settings.guard)
        guard.start()
        relay = Relay(guard, settings.relay, self._log)
        server = Server(relay.handle, settings.limits)
        accepting = await loop.create_server(
            server.connection, sock=listening, ssl=settings.tls, backlog=1024
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, stop.set)
            except (ValueError, RuntimeError):
                break  # not in the main thread: `stop` ends it
        if parent is not None:
            loop.add_reader(parent, stop.set)
        ticking = loop.create_task(self._tick(guard))
        ready()
        try:
            await stop.wait()
        finally:
            accepting.close()
            server.drain()
            await _drain(server, settings.drain_s)
            server.close()
            ticking.cancel()
            await relay.close()
            await loop.run_in_executor(None, guard.close)
            if parent is not None:
                loop.remove_reader(parent)

    async def _tick(self, guard: Guard) -> None:
        count = 0
        while True:
            await asyncio.sleep(TICK_S)
            count += 1
            await guard.run_in_thread(guard.tick)
            if count % _SAVE_EVERY == 0:
                await guard.run_in_thread(guard.save_counts)


async def _drain(server: Server, timeout_s: float) -> None:
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while server.busy and asyncio.get_running_loop().time() < deadline_s:  # noqa: ASYNC110  seconds
        await asyncio.sleep(0.05)


def run_worker(
    worker: Worker,
    listening: socket.socket,
    ready: Callable[[], object] = lambda: None,
    parent: int | None = None,
) -> None:
    """Run a worker in this thread, with uvloop if it is installed."""
    try:
        import uvloop  # noqa: PLC0415  optional: slower without it

        factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(worker.serve(listening, ready, parent))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket that several processes can share. Raises OSError."""
    family, kind, proto, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, proto)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
        listening.setblocking(False)
        os.set_inheritable(listening.fileno(), True)
    except BaseException:
        listening.close()
        raise
    return listening
