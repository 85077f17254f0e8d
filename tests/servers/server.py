"""A real server on a private loopback port, in a separate folder, ended by its own process id."""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.binary import server_binary
from timeouts import LIMIT_S, eventually

__all__ = ["Server", "eventually", "free_port", "running"]


def free_port() -> int:
    """A port that is free, and whose neighbour ten thousand above is free too, for a Cluster."""
    for _ in range(200):
        port = random.randint(20_000, 32_000)
        if _is_free(port) and _is_free(port + 10_000):
            return port
    raise AssertionError("no free port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Server:
    """One server process. It saves its data in its folder."""

    def __init__(self, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="switchgear-redis-"))
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        defaults = ["--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        command = [server_binary(), "--port", str(self.port), *defaults, *self._options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(self._is_up, f"the server on port {self.port} is up")

    def say(self, *words: str) -> str:
        """Send one command without a client library; returns the raw answer."""
        text = f"*{len(words)}\r\n" + "".join(f"${len(w.encode())}\r\n{w}\r\n" for w in words)
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S) as link:
            link.sendall(text.encode())
            return link.recv(1 << 16).decode(errors="replace")

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the process as a crash does: nothing is saved."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(LIMIT_S)
            self._process = None

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _is_up(self) -> bool:
        process = self._process
        if process is None or process.poll() is not None:
            raise AssertionError(f"the server ended: {(self.folder / 'log').read_text()[-2000:]}")
        try:
            return self.say("PING").startswith(("+PONG", "-NOAUTH"))
        except OSError:
            return False


@contextmanager
def running(*options: str) -> Iterator[Server]:
    """A server for the length of the block."""
    server = Server(*options)
    try:
        server.start()
        yield server
    finally:
        server.stop()
