"""The process of the console, beside the hook endpoint and on the same port.

`switchgear serve` listens and answers connections that begin with a hook call; it passes all others to
this process, which runs the application. Hooks are therefore as fast as without a console, and are not
affected if the console is busy or ends. The next request starts the process again.
"""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

EXTRA = "the console needs the extra 'console': pip install 'switchgear[console]'"
RESTART_S = 5.0
"""Minimum seconds between two starts."""
SEND_S = 2.0
"""Seconds after which a connection is refused if the process does not accept it."""
PATIENCE_S = 10.0
"""Seconds for a whole request, from its first byte to its last, as for a hook call."""


class ConsoleSettings(NamedTuple):
    """The settings of the process, as JSON values. Tokens are given as digests."""

    root: str
    store: str | None
    """The URL of the store; `None`: the default file."""
    read: str | None
    client: str | None
    operator: str | None
    is_loopback: bool = True
    names: tuple[str, ...] = ()


class ConsoleProcess:
    """Starts the process when it is needed, and passes connections to it. Thread-safe."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = float("-inf")

    def start(self) -> None:
        """Start the process. Raises OSError."""
        with self._lock:
            self._start()

    def hand_over(self, connection: socket.socket, *, wait: bool = True) -> bool:
        """Pass a connection to the process; False if the process cannot accept it now.

        With `wait`, tries for up to two seconds, while the process starts or is busy.
        """
        deadline_s = time.monotonic() + (SEND_S if wait else 0.0)
        while True:
            try:
                if self._send(connection):
                    return True
            except BlockingIOError:
                pass  # its queue of connections is full
            except OSError:
                with self._lock:
                    self._drop()
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(0.01)

    def _send(self, connection: socket.socket) -> bool:
        with self._lock:
            if self._channel is None:
                self._start()
            if self._channel is None:
                return False
            socket.send_fds(self._channel, [b"c"], [connection.fileno()])
            return True

    def stop(self) -> None:
        """End the process; its clients see the end of their connections."""
        with self._lock:
            process, self._process = self._process, None
            self._drop()
        if process is not None:
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        now_s = time.monotonic()
        if now_s - self._started_s < RESTART_S:
            return
        self._started_s = now_s
        self._drop()
        if self._process is not None:
            self._process.poll()  # reap the ended process
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            command = [sys.executable, "-m", "switchgear._console.process", str(theirs.fileno())]
            self._process = subprocess.Popen(  # noqa: S603  our own module
                command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()], cwd=self._settings.root
            )
        pipe = self._process.stdin
        if pipe is not None:
            with pipe:
                pipe.write(json.dumps(self._settings._asdict()).encode())
        self._channel = ours

    def _drop(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


# Inside the process


def application(settings: ConsoleSettings) -> Any:
    """The application over the installation that the settings name. Raises `ConfigError`."""
    from switchgear._config.trust import effective_config  # noqa: PLC0415  `serve` must start quickly
    from switchgear._console.access import Places, Tokens  # noqa: PLC0415
    from switchgear._console.app import make_app  # noqa: PLC0415
    from switchgear._console.sources import Sources  # noqa: PLC0415
    from switchgear._panel.panel import Panel  # noqa: PLC0415

    config = effective_config(settings.root, for_command=True).config
    panel = Panel(
        settings.store or config.store,
        policies=config.policy_for,
        operator_token_sha256=config.operator_token_sha256,
    )
    tokens = Tokens(settings.read, settings.client, settings.operator)
    places = Places(settings.is_loopback, frozenset(name.lower() for name in settings.names))
    return make_app(Sources(panel, config, Path(settings.root)), tokens, places)


async def serve(app: Any, channel: socket.socket) -> None:
    import uvicorn  # noqa: PLC0415  only in the process of the console

    config = uvicorn.Config(
        app,
        log_level="critical",  # the application logs the errors of its handlers
        access_log=False,
        server_header=False,
        proxy_headers=False,  # any local client could claim another address with them
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
        ws="none",
    )
    config.load()
    config.http_protocol_class = with_deadline(config.http_protocol_class)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[]))
    channel.setblocking(False)
    loop = asyncio.get_running_loop()
    while not (server.started or task.done()):  # noqa: ASYNC110  uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        while (
            not task.done()
            and (descriptors := await _receive_descriptors(loop, channel)) is not None
        ):
            for descriptor in descriptors:
                await _accept_connections(loop, server, config, descriptor)
    finally:
        app.end_streams()
        server.should_exit = True
        await task


def with_deadline(protocol: Any) -> Any:
    """The HTTP protocol of uvicorn, with a deadline for the arrival of each request."""

    class Bounded(protocol):  # type: ignore[misc]
        timer: asyncio.TimerHandle | None = None

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            cycle = self.cycle
            if cycle is None or cycle.response_complete or cycle.more_body:
                if self.timer is None:
                    self.timer = self.loop.call_later(PATIENCE_S, self.give_up)
            else:
                self.stop_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self.stop_timer()
            super().connection_lost(exc)

        def stop_timer(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def give_up(self) -> None:
            """Close the connection; a client that has no response yet gets one."""
            cycle = self.cycle
            if cycle is None or cycle.response_complete or not cycle.response_started:
                text = f"the request was not complete after {PATIENCE_S:g} s"
                body = json.dumps({"error": text}).encode()
                head = (
                    "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                self.transport.write(head.encode() + body)
            self.transport.close()

    return Bounded


async def _accept_connections(loop: Any, server: Any, config: Any, descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    connection.setblocking(False)
    with suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    state: dict[str, Any] = {}

    def protocol() -> Any:
        return config.http_protocol_class(
            config=config, server_state=server.server_state, app_state=state
        )

    try:
        transport, _ = await loop.connect_accepted_socket(protocol, connection)
    except OSError:
        connection.close()
    else:
        state["abort"] = transport.abort


async def _receive_descriptors(
    loop: asyncio.AbstractEventLoop, channel: socket.socket
) -> list[int] | None:
    """The descriptors of new connections; `None`: the other side has ended."""
    while True:
        try:
            found, descriptors, _, _ = socket.recv_fds(channel, 64, 64)
        except BlockingIOError:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(channel, ready.set_result, None)
            try:
                await ready
            finally:
                loop.remove_reader(channel)
            continue
        except OSError:
            return None
        return list(descriptors) if found else None


def main(arguments: list[str]) -> int:
    """Run the process: settings on standard input, connections over the descriptor in the argument."""
    logging.basicConfig(level=logging.WARNING, format="switchgear: console: %(message)s")
    channel = socket.socket(fileno=int(arguments[0]))
    settings = ConsoleSettings(**json.loads(sys.stdin.read()))
    try:
        app = application(settings)
    except Exception as error:  # noqa: BLE001  the reason is what the operator needs
        print(f"switchgear: the console cannot start: {error}", file=sys.stderr)  # noqa: T201
        return 1
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(app, channel))
    return 0


def is_installed() -> bool:
    from importlib.util import find_spec  # noqa: PLC0415

    return all(find_spec(name) is not None for name in ("starlette", "uvicorn"))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # threads that wait for the store must not delay the exit
